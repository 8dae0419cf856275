"""What rlmbench itself costs: pairs of runs that differ in nothing but probe and collector, interleaved."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import rlmbench
from rlmbench.environment.kept import keep, recall
from rlmbench.errors import UserError
from rlmbench.experiment.load import load_suite
from rlmbench.metrics.statistics import median_of
from rlmbench.records.overhead import HarnessOverhead
from rlmbench.records.store import load

KIND = "overhead"
BARE = ("measurement.probe=false", "measurement.collector_interval_s=null")
"""Steps and audit are recorded all the same: without them there is nothing to compare, and no proof of equal work."""


def kept_overhead(framework: str, device: str) -> HarnessOverhead | None:
    """The latest measurement on this machine; None without any, or when another version of rlmbench wrote it differently."""
    text = recall(KIND, _name(framework, device))
    if text is not None:
        with suppress(ValidationError):
            return HarnessOverhead.model_validate_json(text)
    return None


def measure_overhead(
    suite: str,
    framework: str,
    options: Sequence[str],
    overrides: Sequence[str],
    pairs: int,
    folder: Path,
    tell: Callable[[str], None],
) -> HarnessOverhead:
    """Make `pairs` pairs of runs, below `folder`, and keep the result for the reports of later runs on this machine.

    `options` are further words of ``rlmbench run`` (scale, device); `overrides` are ``--set`` settings of both runs of a pair. The order
    within a pair alternates, so that a slow drift of the machine weighs equally on both.

    Raises:
        UserError: there is no such suite, or it is a sweep; or a run failed, and then its own message is quoted.
    """
    found_suite = load_suite(suite)
    if any(found_suite.variants_at(scale) for scale in found_suite.scales):
        raise UserError(f"{suite} is a sweep, whose runs differ in themselves: give a suite without variants, and --set for one of them")
    ratios: list[float] = []
    run: dict[str, Any] = {}
    for pair in range(pairs):
        seconds: dict[bool, float] = {}
        for measured in (True, False) if pair % 2 == 0 else (False, True):
            run = _run(suite, framework, options, (*overrides, *(() if measured else BARE)), folder)
            seconds[measured] = run["step_s"]["median"]
        ratios.append(seconds[True] / seconds[False])
        tell(f"pair {pair + 1} of {pairs}: {seconds[True]:.3f} s a step measured, {seconds[False]:.3f} s without: ratio {ratios[-1]:.4f}")
    found = median_of(ratios)
    assert found is not None
    overhead = HarnessOverhead(
        framework=framework,
        suite=run["suite"],
        scale=run["scale"],
        device=_device(folder, run),
        ratios=ratios,
        ratio=found.value,
        low=found.low,
        high=found.high,
        steps=run["completed_steps"],
        overrides=list(overrides),
        measured_unix_s=time.time(),
        rlmbench=rlmbench.__version__,
    )
    keep(KIND, _name(framework, overhead.device), overhead.model_dump_json(indent=1) + "\n")
    return overhead


def _run(suite: str, framework: str, options: Sequence[str], overrides: Sequence[str], folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "rlmbench", "run", suite, "--framework", framework, "--quiet", "--json", *options]
    command += ["--results", str(folder / "results"), "--reports", str(folder / "reports")]
    command += [word for override in overrides for word in ("--set", override)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C comes through here: to a run, a second signal means no grace
    )
    try:
        stdout, stderr = process.communicate()
    finally:
        if process.poll() is None:  # Ctrl-C: it ends its own processes, and writes its record
            process.terminate()
            process.wait()
    try:
        run: dict[str, Any] = json.loads(stdout.strip().splitlines()[-1])["runs"][0]
    except (IndexError, KeyError, ValueError):
        raise UserError(f"rlmbench run {suite} --framework {framework}: {(stderr.strip().splitlines() or ['no output'])[-1]}") from None
    if run["status"] != "ok" or run["step_s"]["median"] is None:
        failure = run["failure"]["message"] if run["failure"] else "no step was measured"
        raise UserError(f"a run of {suite} with {framework} failed, so its overhead is not known: {failure}")
    return run


def _device(folder: Path, run: Mapping[str, Any]) -> str:
    environment = load(folder / "results" / run["suite"] / run["id"]).manifest.environment
    assert environment is not None
    return environment.device


def _name(framework: str, device: str) -> str:
    return f"{framework}-{device}"
