"""A stand-in for rlmbench: supervises one command and prints what became of it. Run as a program of its own, to be killed.

python supervised.py LOG_DIR GRACE_S WALL_TIMEOUT_S COMMAND...
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from rlmbench.adapter import Process
from rlmbench.runner.interrupts import Interrupts
from rlmbench.runner.supervise import Limits, supervise


def main() -> int:
    log_dir, grace_s, wall_timeout_s, *command = sys.argv[1:]
    limits = Limits(wall_timeout_s=float(wall_timeout_s), stall_timeout_s=1000, grace_s=float(grace_s))
    with Interrupts() as interrupts:
        print("ready", flush=True)
        process = Process("main", tuple(command))
        outcome = supervise([process], cwd=Path(log_dir), log_dir=Path(log_dir), limits=limits, interrupts=interrupts)
    print(json.dumps(asdict(outcome)), flush=True)
    return 128 + outcome.interrupt if outcome.interrupt else 0


if __name__ == "__main__":
    sys.exit(main())
