"""Time and memory of the what-if simulator: every mode at 10,000 devices for 1,000 steps, two samples to each device and step.

    python benchmarks/whatif_scaling.py [--devices 10000] [--steps 1000] [--check]

The bar is 60 s for any mode; with `--check` the exit code says whether it was met.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from dataclasses import replace

import numpy as np

from rlmbench.whatif import MODES, Assumptions
from rlmbench.whatif.inputs import fixed_inputs
from rlmbench.whatif.modes import Layout, draw, predict

BAR_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    devices, half = options.devices, options.devices // 2
    assessment = {"reference_logprob": 40.0, "old_logprob": 40.0}
    inputs = fixed_inputs(300, assessment, {"actor_update": 280}, devices=devices, sync_s=5, samples=2 * devices)
    inputs = replace(inputs, lengths=(np.random.default_rng(0).lognormal(7, 1, 2 * devices).astype(np.int64) + 1,))
    began = time.perf_counter(), time.process_time()
    drawn = draw(inputs, Assumptions(), options.steps)
    drawing = time.perf_counter() - began[0]
    worst = 0.0
    for name, mode in MODES.items():
        start = time.perf_counter(), time.process_time()
        layout = Layout(devices, half, devices - half, 4) if mode.is_split else Layout(devices, devices, devices)
        step_s = predict(drawn, name, layout).step_s
        wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
        worst = max(worst, wall + drawing)
        print(f"{name:<22} {wall:7.2f} s wall {cpu:7.2f} s CPU   step {step_s:,.0f} s")
    total, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{devices:,} devices, {options.steps:,} steps, all modes: {total:.1f} s wall, {cpu:.1f} s CPU, drawing {drawing:.1f} s, {peak:.2f} GB at most"
    )
    return 1 if options.check and worst > BAR_S else 0


if __name__ == "__main__":
    sys.exit(main())
