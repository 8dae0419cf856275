"""What only real runs show: exact replay, spans that nest and cover, every process ended, failures named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlmbench.conformance.finding import Finding, finding
from rlmbench.records.store import Run, load
from rlmbench.runner.shared_memory import FOLDER, leftovers, segments

LEARNING_RATE = 1e-2
"""So large that a rollout engine left on the weights of the step before is far off the trainer's log-probs."""
MARK = "RLMBENCH_CONFORMANCE_MARK"
COVERAGE_ENOUGH = 0.98
"""Of the median step: what hooks leave uncovered is missing from every step, while another process of the machine stretches one."""
RUN_TIMEOUT_S = 1800.0
ENDLESS = "measurement.steps=200"
"""Too many for a run to be over before it is killed or out of time, on the fastest machine too."""
WALL_TIMEOUT_S = 15.0
"""The run is to end as a time-out, wherever it is by then."""
GONE_WITHIN_S = 10.0


@dataclass(frozen=True)
class Ended:
    """One `rlmbench run` that is over: exit code, its run's summary as JSON (None when it printed none), and what it left."""

    code: int
    summary: dict[str, Any] | None
    folder: Path
    stderr: str
    processes_left: list[int]
    shared_left: list[str]

    @property
    def run(self) -> Run:
        assert self.summary is not None
        return load(self.folder / self.summary["path"])


def run_checks(
    name: str, suites: tuple[str, ...], settings: tuple[str, ...], folder: Path, tell: Callable[[str], None]
) -> Iterator[Finding]:
    """Run `suites` at tiny on a CPU with the adapter called `name`, then the first again to be killed and to run out of time.

    `settings` are further ``--set`` settings, `folder` takes the records, `tell` is told what happens now.
    """
    for suite in suites:
        tell(f"running {suite}")
        ended = _run(name, suite, (f"optimization.learning_rate={LEARNING_RATE:g}", *settings), folder)
        yield from _good_run(suite, ended)
    suite = suites[0]
    tell(f"running {suite}, to be killed in training")
    yield _failure(
        "kill -9 in training is told as such", {"killed", "crash"}, _run(name, suite, (*settings, ENDLESS), folder, until=_trains)
    )
    tell(f"running {suite}, to run out of time")
    short = (*settings, ENDLESS, f"measurement.wall_timeout_s={WALL_TIMEOUT_S:g}")
    yield _failure("running out of time is told as such", {"timeout"}, _run(name, suite, short, folder))


def _good_run(suite: str, ended: Ended) -> Iterator[Finding]:
    if ended.summary is None:
        yield Finding(f"{suite}: runs", False, _last_line(ended.stderr))
        return
    summary = ended.summary
    failure = summary["failure"]["message"] if summary["failure"] else "no reason given"
    yield finding(
        f"{suite}: runs", [] if ended.code == 0 and summary["status"] == "ok" else [failure], f"{summary['completed_steps']} steps"
    )
    audit = summary["audit"]
    yield finding(
        f"{suite}: replay is exact",
        (audit["mismatches"] or [] if not audit["ok"] else []) if audit else ["there was no audit"],
        f"{audit['samples']} samples, {audit['response_tokens']} response tokens, {audit['optimizer_steps']} optimizer steps as planned"
        if audit
        else "",
    )
    coverage, lowest = summary["coverage"]["median"], summary["coverage"]["min"]
    low = [] if coverage is not None and coverage >= COVERAGE_ENOUGH else [f"coverage {coverage}: below {COVERAGE_ENOUGH:.0%}"]
    yield finding(
        f"{suite}: spans cover the steps", low, f"{coverage:.1%} of the median step, {lowest:.1%} of the lowest" if coverage else ""
    )
    yield finding(f"{suite}: spans nest", [*summary["violations"], *_outside_parent(ended.run)], "in each other, and add up to the steps")
    yield weights_follow(suite, summary)
    hooks = summary["hooks"]
    yield finding(
        f"{suite}: hooks attach", [f"{hook['name']}: {hook['reason']}" for hook in hooks["missing"]], f"{len(hooks['attached'])} attached"
    )
    yield _nothing_left(f"{suite}: nothing is left", ended)


def weights_follow(suite: str, summary: dict[str, Any]) -> Finding:
    """Whether updates move the weights, and the rollout engine follows."""
    check = f"{suite}: weights change, and the rollout engine follows"
    learned = summary["learning"]
    wrong = [] if learned["weights_changed"] else ["no update was seen to change the weights"]
    apart = learned["logprob_difference"]
    if apart is None:
        return finding(check, wrong, "weights change; no log-probs of a rollout engine reach the loss, so that a sync cannot be checked")
    if apart["mean"] > apart["tolerance"]:
        wrong.append(
            f"its log-probs are {apart['mean']:.2g} off the trainer's, where rounding in {apart['dtype']} explains {apart['tolerance']:g}"
        )
    return finding(check, wrong, f"log-probs {apart['mean']:.2g} apart over {apart['tokens']} tokens in {apart['dtype']}")


def _outside_parent(run: Run) -> list[str]:
    """Spans that are not within the one that they say they are part of."""
    spans = run.tables.spans
    joined = spans.merge(spans, left_on=["process", "parent"], right_on=["process", "id"], how="inner", suffixes=("", "_parent"))
    outside = joined[(joined["start_ns"] < joined["start_ns_parent"]) | (joined["end_ns"] > joined["end_ns_parent"])]
    return [
        f"step {step}: {name} is not within {parent}"
        for step, name, parent in zip(outside["step"], outside["name"], outside["name_parent"], strict=True)
    ]


def _failure(check: str, classes: set[str], ended: Ended) -> Finding:
    if ended.summary is None:
        return Finding(check, False, _last_line(ended.stderr))
    wrong = []
    if ended.summary["failure_class"] not in classes:
        wrong.append(f"failure class {ended.summary['failure_class']} instead of {' or '.join(sorted(classes))}")
    if ended.code != 1:
        wrong.append(f"exit code {ended.code} instead of 1")
    left = _nothing_left(check, ended)
    if not left.ok:
        wrong.append(left.evidence)
    message = ended.summary["failure"]["message"] if ended.summary["failure"] else ""
    return finding(check, wrong, f"{ended.summary['failure_class']}: {message}; nothing left")


def _nothing_left(check: str, ended: Ended) -> Finding:
    wrong = [f"process {pid}" for pid in ended.processes_left] + [f"{FOLDER}/{name}" for name in ended.shared_left]
    return finding(check, wrong, "no process, nothing in shared memory")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1]


def _run(name: str, suite: str, settings: tuple[str, ...], folder: Path, until: Callable[[Path], int | None] | None = None) -> Ended:
    """One run by the command line. `until` looks at the results for a process to kill; None while there is none yet."""
    mark = uuid.uuid4().hex
    results = folder / f"{suite}-{mark[:8]}"
    results.mkdir(parents=True)
    command = [sys.executable, "-m", "rlmbench", "run", suite, "--framework", name, "--scale", "tiny", "--device", "cpu"]
    command += ["--results", str(results / "results"), "--reports", str(results / "reports"), "--json", "--quiet"]
    command += [word for setting in settings for word in ("--set", setting)]
    shared_before = segments()
    with (results / "stdout").open("w+") as stdout, (results / "stderr").open("w+") as stderr:
        process = subprocess.Popen(
            command, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL, cwd=results, env={**os.environ, MARK: mark}
        )
        try:
            code = _wait(process, results, until)
        finally:
            if process.poll() is None:  # Ctrl-C
                process.terminate()
                process.wait()
    left = _marked(mark)
    deadline = time.monotonic() + GONE_WITHIN_S
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        left = _marked(mark)
    return Ended(code, _summary(results / "stdout"), results, (results / "stderr").read_text(), left, leftovers(shared_before))


def _wait(process: subprocess.Popen[bytes], results: Path, until: Callable[[Path], int | None] | None) -> int:
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if until is not None and (pid := until(results)) is not None:
            with suppress(ProcessLookupError):  # it has ended by itself, and the failure class will not be that of a kill
                os.kill(pid, signal.SIGKILL)
            until = None
        time.sleep(0.1)
    if process.poll() is None:
        process.terminate()  # it says itself, in its record, that it was ended
    return process.wait()


def _trains(results: Path) -> int | None:
    """The process that drives the loop, once it has finished a step."""
    for path in results.glob("results/*/*/probe/*.jsonl"):
        for line in path.read_text(errors="replace").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("ev") == "step" and event.get("step", 0) >= 1:
                return _pid_of(path)
    return None


def _pid_of(path: Path) -> int:
    first = json.loads(path.read_text(errors="replace").splitlines()[0])
    return int(first["pid"])


def _summary(path: Path) -> dict[str, Any] | None:
    try:
        runs = json.loads(path.read_text().strip().splitlines()[-1])["runs"]
    except (IndexError, ValueError, KeyError):
        return None
    return dict(runs[0]) if runs else None


def _marked(mark: str) -> list[int]:
    """Living processes that carry the mark in their environment, whoever is their parent by now."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        process = Path("/proc", entry)
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes() and " Z " not in (process / "stat").read_text():
                found.append(int(entry))
        except OSError:  # it has ended, or belongs to somebody else
            continue
    return found
