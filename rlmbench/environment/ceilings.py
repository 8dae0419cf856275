"""Measured ceilings of this machine's devices: matrix products and copies, by torch in a framework's environment.

Kept in the cache by machine (`rlmbench.environment.kept`) and copied into the manifest of every later run, so that MFU and MBU against them
stand beside those against data sheets. On a CPU the machine is one device, and all of its cores multiply.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rlmbench.environment.cache import Environment, State
from rlmbench.environment.check import inspection_environment
from rlmbench.environment.host import host_facts
from rlmbench.environment.kept import keep, recall
from rlmbench.errors import EnvironmentFailure, UserError

KIND = "ceilings"
BUDGET_S = 15.0
"""For all measurements together; importing torch comes on top."""
TIMEOUT_S = 300.0
_SCRIPT = Path(__file__).with_name("ceiling_script.py")


def measure(environment: Environment, name: str, device: str) -> list[dict[str, Any]]:
    """Measure every device of kind `device` ("cpu" or "cuda") in `environment` (called `name`), keep it, and return one entry per device.

    Raises:
        EnvironmentFailure: the script cannot be run there, or ends without an answer.
    """
    # All cores are to multiply: the variable that keeps inspections small would keep torch to one.
    env = {key: value for key, value in inspection_environment().items() if key not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    before = host_facts()["load"][0]
    command = [str(environment.python), "-c", _SCRIPT.read_text(), device, str(BUDGET_S)]
    try:
        ended = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:  # whose own words quote the whole script
        raise EnvironmentFailure(f"{environment.python}: ceilings could not be measured within {TIMEOUT_S:g} s") from None
    except OSError as error:
        raise EnvironmentFailure(f"{environment.python}: ceilings could not be measured: {error.strerror}") from None
    found = parse(ended.stdout)
    if not found:
        last = (ended.stderr or ended.stdout).strip().splitlines()[-1:] or ["no output"]
        raise EnvironmentFailure(f"{environment.python}: ceilings could not be measured: {last[0]}")
    measured = [{**one, "environment": name, "load_1min": before, "measured_unix_s": time.time()} for one in found]
    keep(KIND, device, json.dumps(measured))
    return measured


def measure_with(states: Iterable[tuple[str, State]], framework: str | None, device: str) -> list[dict[str, Any]]:
    """`measure` in the first built environment for `device` among `states` (owner, state), those of `framework` where one is named.

    Raises:
        UserError: none is built.
    """
    for owner, state in states:
        if state.environment and state.spec.device == device and framework in (None, owner):
            return measure(state.environment, state.spec.name, device)
    raise UserError(f"--ceilings needs torch: build an environment first, rlmbench env create {framework or 'trl'} --device {device}")


def parse(output: str) -> list[dict[str, Any]]:
    """The list in the last line of the script's output; empty when it ended before printing one."""
    try:
        found = json.loads(output.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        return []
    return found if isinstance(found, list) and all(isinstance(one, dict) for one in found) else []


def kept(device: str) -> list[dict[str, Any]]:
    """What was last measured here for devices of kind `device`; empty when nothing was."""
    text = recall(KIND, device)
    return parse(text) if text else []


def shown(entries: Sequence[dict[str, Any]]) -> str:
    """One line for a person: rates of the first device, and how many there are."""
    first = entries[0]
    rates = ", ".join(f"{dtype} {_rate(rate)}" for dtype, rate in first["flops_per_s"].items())
    many = f" (first of {len(entries)})" if len(entries) > 1 else ""
    load, threads = first.get("load_1min"), first.get("threads")
    busy = f"; the machine was busy (load {load:.1f} on {threads} cores), measure again" if load and threads and load > threads else ""
    return f"{first['device']}{many}: {rates}, copy {first['bytes_per_s'] / 1e9:.3g} GB/s, torch {first['torch']}{busy}"


def _rate(flops_per_s: float) -> str:
    return f"{flops_per_s / 1e12:.3g} TFLOP/s" if flops_per_s >= 1e12 else f"{flops_per_s / 1e9:.3g} GFLOP/s"
