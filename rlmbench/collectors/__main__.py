"""Sample this node until standard input ends.

    python -m rlmbench.collectors FOLDER interval_s=0.1 root=PID devices=all

(all but FOLDER may be left out; ``unseen=TEXT`` is why a part of the run's processes is not below its roots). It writes
FOLDER/<host>.jsonl.gz (docs/records.md), at most a second late. Standard input: ``root PID`` lines name processes that are to be sampled with everything below
them; its end is the end of the collector. So it goes with the process that started it, however that ends: by itself, by a signal, or
by kill -9. Should it be stuck in a driver's call, it has also asked the kernel for SIGTERM then.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rlmbench.collectors.devices import open_drivers
from rlmbench.collectors.lines import Lines, path_of
from rlmbench.collectors.sampler import Sampler, host_capabilities

PR_SET_PDEATHSIG = 1
INTERVAL_S = 0.1
SETTINGS = ("interval_s", "root", "devices", "unseen")
LATE = 0.5
"""A tick is late from this share of an interval on."""


def main(arguments: list[str] | None = None) -> int:
    """Sample until standard input ends; the exit code is 0 then, 1 when the samples cannot be written, and 2 for wrong arguments."""
    folder, *settings = sys.argv[1:] if arguments is None else arguments
    asked = dict(setting.partition("=")[::2] for setting in settings)
    if unknown := asked.keys() - SETTINGS:
        print(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(SETTINGS)}", file=sys.stderr)
        return 2
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the program that started this
    _allow_open_files()
    try:
        sample(Path(folder), asked)
    except OSError as error:
        print(f"samples cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def sample(folder: Path, asked: Mapping[str, str]) -> None:
    """Say what can be measured here, and measure it until standard input ends. Raises OSError when that cannot be written."""
    interval_s = float(asked.get("interval_s", INTERVAL_S))
    lines = Lines(path_of(folder))
    lines.begin(interval_s, len(os.sched_getaffinity(0)))
    lines.capabilities(host_capabilities(asked.get("unseen")))
    drivers, found = open_drivers(os.environ.get("CUDA_VISIBLE_DEVICES")) if asked.get("devices") == "all" else ([], [])
    lines.capabilities(found)
    sampler = Sampler(lines, interval_s, drivers)
    if "root" in asked:
        sampler.add_root(int(asked["root"]))
    run(sampler, interval_s)
    sampler.end()
    for driver in drivers:
        driver.close()


def run(sampler: Sampler, interval_s: float, orders: int = 0) -> None:
    """Tick at every interval until the descriptor `orders` ends. Ticks that were missed are left out, and counted as late."""
    pending = b""
    due = time.monotonic()
    while True:
        wait_s = due - time.monotonic()
        if select.select([orders], [], [], max(0.0, wait_s))[0]:
            data = os.read(orders, 4096)
            if not data:
                return
            *whole, pending = (pending + data).split(b"\n")
            for line in whole:
                word, _, rest = line.partition(b" ")
                if word == b"root" and rest.isdigit():
                    sampler.add_root(int(rest))
            continue
        late_s = time.monotonic() - due
        missed = int(late_s / interval_s)
        sampler.late_ticks += missed + (late_s % interval_s > LATE * interval_s)
        sampler.tick()
        due += (1 + missed) * interval_s


def _die_with_parent() -> None:
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def _allow_open_files() -> None:
    """A file stays open for each process of the run."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    except (OSError, ValueError):
        pass


if __name__ == "__main__":
    sys.exit(main())
