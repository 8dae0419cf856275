"""Is a run still doing something? CPU time and memory of its processes, growth of its files, and the stall they rule out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rlmbench.runner.guard import below, process_table

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SAMPLE_INTERVAL_S = 1.0
SAMPLE_COST_SHARE = 0.01
WINDOWS_PER_TIMEOUT = 10


def bytes_written(paths: Iterable[Path]) -> int:
    """Bytes in these files, and in the files directly inside these folders. What is missing counts nothing."""
    total = 0
    for path in paths:
        try:
            entries = list(os.scandir(path)) if path.is_dir() else [path]
            total += sum(entry.stat().st_size for entry in entries)
        except OSError:  # a file that went away meanwhile; the next look is soon
            continue
    return total


@dataclass(frozen=True)
class TreeUsage:
    """CPU seconds used since the last sample, and resident memory now (a page shared by n processes counts n times)."""

    cpu_s: float
    rss_bytes: int


class TreeMeter:
    """Samples the processes below some roots, at most once a second and for at most 1% of a core."""

    def __init__(self) -> None:
        self._cpu_ticks: dict[tuple[int, int], int] = {}
        self._next_at = 0.0

    def sample(self, roots: Iterable[int], now: float) -> TreeUsage | None:
        """Usage below the pids `roots`, or None when it is too early to look again. `now` is time.monotonic()."""
        if now < self._next_at:
            return None
        tree = below(roots, process_table())
        self._next_at = now + max(SAMPLE_INTERVAL_S, (time.monotonic() - now) / SAMPLE_COST_SHARE)
        ticks = {proc.identity: proc.cpu_ticks for proc in tree}
        used = sum(count - self._cpu_ticks.get(identity, 0) for identity, count in ticks.items())
        self._cpu_ticks = ticks
        return TreeUsage(used / CLOCK_TICKS_PER_S, sum(proc.rss_pages for proc in tree) * PAGE_BYTES)


class StallClock:
    """Tells when nothing has happened for `timeout_s`: no file grew and the CPU was idle.

    CPU time is judged over windows of a tenth of the time-out, so that a process which merely polls (torchrun's agent)
    does not pass for a working one. A window is idle below `cpu_share` of one core. Times are time.monotonic().
    """

    def __init__(self, timeout_s: float, cpu_share: float, now: float) -> None:
        self._timeout_s = timeout_s
        self._cpu_share = cpu_share
        self._window_s = timeout_s / WINDOWS_PER_TIMEOUT
        self._bytes = -1
        self._cpu_s = 0.0
        self._window_start = now
        self.active_at = now

    def update(self, now: float, written_bytes: int, cpu_s: float) -> None:
        """Take in one sample: bytes in the watched files, and CPU seconds used since the last sample."""
        self._cpu_s += cpu_s
        if written_bytes != self._bytes:
            self._bytes = written_bytes
            self.active_at = now
        if now - self._window_start >= self._window_s:
            if self._cpu_s >= self._cpu_share * (now - self._window_start):
                self.active_at = now
            self._window_start, self._cpu_s = now, 0.0

    def stalled(self, now: float) -> bool:
        return now - self.active_at >= self._timeout_s
