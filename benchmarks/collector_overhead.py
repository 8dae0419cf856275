"""What the collector costs: its own CPU time beside 30 real processes, at ten samples a second.

    python benchmarks/collector_overhead.py
    python benchmarks/collector_overhead.py --processes 100 --seconds 60 --memory-mib 200

The processes hold memory of their own, share their interpreter's, run four threads each and wake up often, as workers of a framework do.
CPU time is the collector's own, user and system, as the kernel counts it; on a busy machine it is higher, since caches are cold. "start" is
what it used until its first sample, "steady" what it used per second from then on; "share" is all of it over the whole time. The bar is a
share of 1% of one core at 30 processes; with `--check` the exit code says whether it was met. GPUs are sampled too where there are any.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rlmbench.records.samples import lines_of

BAR = 0.01
WORKER = """
import random, threading, time
memory = bytearray({mib} << 20)
for start in range(0, len(memory), 4096):
    memory[start] = 1
def work():
    while True:
        sum(range(200))
        time.sleep(random.uniform(0.01, 0.05))
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
work()
"""


def measure(processes: int, seconds: float, interval_s: float, mib: int) -> list[dict[str, Any]]:
    """Run the collector beside `processes` workers, and return the lines that it wrote."""
    command = [sys.executable, "-c", WORKER.format(mib=mib)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) for _ in range(processes)]
    try:
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-P", "-m", "rlmbench.collectors", folder, f"interval_s={interval_s}", "devices=all"]
            collector = subprocess.Popen([*command, f"root={os.getpid()}"], stdin=subprocess.PIPE)
            time.sleep(seconds)
            collector.communicate()
            [path] = Path(folder).glob("*.jsonl.gz")
            return [json.loads(line) for line in lines_of(path)]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--interval", type=float, default=0.1, help="seconds between samples")
    parser.add_argument("--memory-mib", type=int, default=50, help="memory of its own that each process holds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when the share is above the bar")
    asked = parser.parse_args()
    lines = measure(asked.processes, asked.seconds, asked.interval, asked.memory_mib)
    begin = next(line for line in lines if line["ev"] == "collector")
    costs = [line for line in lines if line["ev"] == "cost"]
    end = next(line for line in lines if line["ev"] == "end")
    samples = [line for line in lines if line["ev"] == "rows" and "tree_samples" in line["tables"]]
    seen = max(line["tables"]["tree_samples"][0][0] for line in samples)
    looks = sum(line["tables"]["tree_samples"][0][3] is not None for line in samples)
    duration_s = (end["t_ns"] - begin["mono_ns"]) / 1e9
    share = end["cpu_s"] / duration_s
    steady = (end["cpu_s"] - costs[0]["cpu_s"]) / ((end["t_ns"] - samples[0]["t_ns"]) / 1e9)
    busy = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"{seen} processes of {asked.memory_mib} MiB, every {asked.interval:g} s for {duration_s:.0f} s; {busy}")
    print(f"  start   {costs[0]['cpu_s'] * 1e3:6.1f} ms of CPU until the first sample was written")
    print(f"  steady  {steady * 1e3:6.2f} ms of CPU per second: {steady:.2%} of one core, {looks} looks at PSS included")
    print(f"  share   {share:6.2%} of one core over the whole time (bar: {BAR:.0%})")
    print(f"  ticks   {end['ticks']} of them, {end['late_ticks']} late")
    return int(asked.check and share > BAR)


if __name__ == "__main__":
    sys.exit(main())
