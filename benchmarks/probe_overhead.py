"""What the probe costs: paired runs of one suite with the probe on and off, interleaved, as a ratio with its interval.

    python benchmarks/probe_overhead.py --pairs 5 --suite gsm8k_grpo

Each pair is (on, off) or (off, on), alternating; the figure is the ratio of the runs' median step times, and its
interval is bootstrapped over pairs. With the probe off, steps and audit are still recorded, spans and memory are not.
The probe's own account (``probe_overhead``) is printed beside it. Quote the ratio, not the seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

import numpy as np


def step_seconds(suite: str, steps: int, probe: bool, folder: str) -> tuple[float, float | None]:
    """Median step seconds of one run, and the probe's own account of its share."""
    command = [
        sys.executable, "-m", "rlmbench", "run", suite, "--framework", "trl", "--scale", "tiny", "--quiet", "--json",
        "--set", f"measurement.steps={steps}", "--set", f"measurement.probe={json.dumps(probe)}",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    run = json.loads(done.stdout.splitlines()[-1])["runs"][0]
    return run["step_s"]["median"], run["probe_overhead"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="gsm8k_grpo")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    ratios, own = [], []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(options.pairs):
            seconds = {}
            for probe in (True, False) if pair % 2 == 0 else (False, True):
                seconds[probe], share = step_seconds(options.suite, options.steps, probe, folder)
                if probe and share is not None:
                    own.append(share)
            ratios.append(seconds[True] / seconds[False])
            print(f"pair {pair + 1}: on {seconds[True]:.3f} s, off {seconds[False]:.3f} s, ratio {ratios[-1]:.4f}", file=sys.stderr)
    resampled = np.random.default_rng(0).choice(ratios, (10_000, len(ratios))).mean(axis=1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    result = {
        "suite": options.suite,
        "pairs": options.pairs,
        "steps_per_run": options.steps,
        "ratio_on_off": statistics.fmean(ratios),
        "interval_95": [float(low), float(high)],
        "ratios": ratios,
        "own_account_median": statistics.median(own) if own else None,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
