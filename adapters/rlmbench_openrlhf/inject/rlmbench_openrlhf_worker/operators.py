"""DeepSpeed's CPU operators, compiled before OpenRLHF starts and once for all runs of an environment.

DeepSpeed compiles at first use, inside each worker, under a lock file that a killed process leaves behind and every later one
waits for (torch/utils/file_baton.py). Here a lock that the kernel releases is held while compiling; afterwards a worker holds
the file for about a second, to see that there is nothing to do, so an old one belongs to nobody.
"""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

OPERATORS = ("ShareMemCommBuilder", "FusedAdamBuilder")
"""``deepspeed/ops/op_builder/cpu``: what a CPU run of OpenRLHF loads (communication on one node, and AdamW)."""
STALE_S = 60

LOAD = "import sys; from deepspeed.accelerator import get_accelerator; get_accelerator().create_op_builder(sys.argv[1]).load(verbose=False)"


def compile_once():
    """Compile what is not there yet; without TORCH_EXTENSIONS_DIR the user's own environment keeps them in torch's way."""
    place = os.environ.get("TORCH_EXTENSIONS_DIR")
    if place is None:
        return
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "rlmbench-compiled"
    with open(folder / "rlmbench.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.rglob("lock"):
            if not done.exists() or time.time() - left.stat().st_mtime > STALE_S:
                left.unlink(missing_ok=True)
        if done.exists():
            return
        print("compiling DeepSpeed's CPU operators, once for this environment (minutes)", flush=True)
        quiet = {name: value for name, value in os.environ.items() if not name.startswith("RLMBENCH_PROBE")}
        builds = [subprocess.Popen([sys.executable, "-c", LOAD, name], env=quiet) for name in OPERATORS]
        failed = [name for name, build in zip(OPERATORS, builds) if build.wait() != 0]
        if failed:
            sys.exit(f"RuntimeError: DeepSpeed's operator {failed[0]} could not be compiled; a C++ compiler is needed")
        done.touch()
