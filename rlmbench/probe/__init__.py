"""The only rlmbench code that runs inside a framework's processes.

`inject/` is put on a framework's ``PYTHONPATH``; its ``sitecustomize`` starts the probe in every Python process of the
run. What lies below it uses the standard library only and imports nothing of rlmbench.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

INJECT = Path(__file__).parent / "inject"


def probe_environment(probe_dir: Path, module: str, *, enabled: bool, synchronize: bool, roots: Iterable[Path]) -> Mapping[str, str]:
    """Environment variables that inject the probe.

    `module` names the adapter's hook module, found below one of `roots`. With `enabled` False the adapter's own
    changes (workload replay, CPU shims) still apply but no span is recorded: that is the baseline of the probe's cost.
    """
    return {
        "PYTHONPATH": ":".join(str(path) for path in (INJECT, *roots)),
        "RLMBENCH_PROBE_DIR": str(probe_dir),
        "RLMBENCH_PROBE_MODULE": module,
        "RLMBENCH_PROBE_SPANS": "1" if enabled else "0",
        "RLMBENCH_PROBE_SYNC": "1" if synchronize else "0",
    }
