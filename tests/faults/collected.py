"""A stand-in for rlmbench: supervises one command beside a collector, and prints what became of both. A program of its own, to be killed.

python collected.py RUN_DIR COMMAND...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rlmbench.adapter import Process
from rlmbench.runner.collecting import Collecting
from rlmbench.runner.interrupts import Interrupts
from rlmbench.runner.supervise import Limits, supervise


def main() -> int:
    run_dir, *command = Path(sys.argv[1]), *sys.argv[2:]
    limits = Limits(wall_timeout_s=1000, stall_timeout_s=1000, grace_s=1)
    with Interrupts() as interrupts, Collecting(run_dir, 0.05) as collecting:
        outcome = supervise(
            [Process("main", tuple(command))],
            cwd=run_dir,
            log_dir=run_dir,
            limits=limits,
            on_start=collecting.watch,
            interrupts=interrupts,
        )
    print(json.dumps({"ok": outcome.ok, "problem": collecting.problem}), flush=True)
    return 128 + outcome.interrupt if outcome.interrupt else 0


if __name__ == "__main__":
    sys.exit(main())
