"""What rlmbench costs each framework: `rlmbench overhead` for all three, at tiny scale, as ratios with intervals.

    python benchmarks/overhead.py [--pairs 6] [--steps 8]

Takes about 3 minutes for TRL and 20 each for verl and OpenRLHF on 2 cores. The results are printed, and kept for later reports of this machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    command = [sys.executable, "-m", "rlmbench", "overhead", "gsm8k_grpo", "--scale", "tiny", "--device", "cpu", "--json"]
    command += ["--pairs", str(options.pairs), "--set", f"measurement.steps={options.steps}"]
    return subprocess.call([*command, *(word for name in ("trl", "verl", "openrlhf") for word in ("--framework", name))])


if __name__ == "__main__":
    sys.exit(main())
