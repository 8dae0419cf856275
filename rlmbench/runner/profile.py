"""A profile pass: where the probe's torch.profiler finds what to trace, and where the traces go.

`<run>/traces` holds ``<worker>.<unix ns>.pt.trace.json.gz`` of every process that trains or serves, a folder as
torch-tb-profiler's TensorBoard plugin reads it. See docs/profiling.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rlmbench.records.store import TRACES
from rlmbench.runner.cells import Profile

STATE = "scratch/profile"


def prepare_profile(run_dir: Path) -> None:
    """The folder of the traces, and the file in which the driver keeps its step for all other processes."""
    (run_dir / TRACES).mkdir()
    state = run_dir / STATE
    state.mkdir(parents=True)
    (state / "step").write_text(f"{0:12d}")


def profile_variables(run_dir: Path, profile: Profile) -> Mapping[str, str]:
    """What the probe in each process is told (`rlmbench_probe.profiling`)."""
    told = {"traces": str(run_dir / TRACES), "state": str(run_dir / STATE), "steps": profile.steps, "with": profile.extras}
    return {"RLMBENCH_PROFILE": json.dumps(told)}
