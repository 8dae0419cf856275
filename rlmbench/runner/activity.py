"""Is a run still doing something? CPU time and memory of its processes, growth of its files, and the stall they rule out."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlmbench.runner.guard import below, process_table

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SAMPLE_INTERVAL_S = 1.0
PSS_INTERVAL_S = 5.0
PSS_COST_SHARE = 0.02
SAMPLE_COST_SHARE = 0.01
WINDOWS_PER_TIMEOUT = 10
STARVED_LOOKS = 3
# Far from both sides: what waits polls with at most 3% of a core (docs/frameworks/verl.md), what works uses most of one.
POLLING_CPU_SHARE = 0.10


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


def proportional_bytes(pids: Iterable[int]) -> int | None:
    """Memory of these processes in which a page shared by n processes counts 1/n in each (PSS, proc_pid_smaps_rollup(5)).

    None where the kernel tells it of none of them. The kernel walks their page tables for it: about 25 ms a gigabyte.
    """
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                found += [int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:")]
        except OSError:  # it has ended, or hides itself
            continue
    return sum(found) if found else None


@dataclass(frozen=True)
class TreeUsage:
    """What the processes of a tree used.

    `cpu_by_process_s` are CPU seconds since the last sample, by process identity. `rss_bytes` is resident memory now, where a page
    shared by n processes counts n times; in `pss_bytes` it counts once. That one is looked at more rarely: None in between.
    `runnable` are the processes whose main thread had a core at the moment of the look, or stood in the queue for one.
    """

    cpu_by_process_s: Mapping[tuple[int, int], float]
    rss_bytes: int
    pss_bytes: int | None = None
    runnable: Collection[tuple[int, int]] = ()

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu_by_process_s.values())


class TreeMeter:
    """Samples the processes below some roots, at most once a second and for at most 1% of a core; PSS every 5 s, for at most 2%."""

    def __init__(self) -> None:
        self._cpu_ticks: dict[tuple[int, int], int] = {}
        self._next_at = 0.0
        self._pss_next_at = 0.0

    def sample(self, roots: Iterable[int], now: float) -> TreeUsage | None:
        """Usage below the pids `roots`, or None when it is too early to look again. `now` is time.monotonic()."""
        if now < self._next_at:
            return None
        began = time.thread_time()  # on a busy machine most of a look's wall time is others' work
        tree = below(roots, process_table())
        self._next_at = now + max(SAMPLE_INTERVAL_S, (time.thread_time() - began) / SAMPLE_COST_SHARE)
        ticks = {proc.identity: proc.cpu_ticks for proc in tree}
        used = {identity: (count - self._cpu_ticks.get(identity, 0)) / CLOCK_TICKS_PER_S for identity, count in ticks.items()}
        self._cpu_ticks = ticks
        return TreeUsage(
            used,
            sum(proc.rss_pages for proc in tree) * PAGE_BYTES,
            self._pss_bytes([proc.pid for proc in tree], now),
            {proc.identity for proc in tree if proc.state == "R"},
        )

    def _pss_bytes(self, pids: list[int], now: float) -> int | None:
        if now < self._pss_next_at:
            return None
        began = time.thread_time()
        found = proportional_bytes(pids)
        self._pss_next_at = now + max(PSS_INTERVAL_S, (time.thread_time() - began) / PSS_COST_SHARE)
        return found


class StallClock:
    """Tells when nothing has happened for `timeout_s`: no file grew and the CPU was idle.

    CPU time is judged over windows of a tenth of the time-out, so that a process which merely polls (torchrun's agent)
    does not pass for a working one. A window is idle when no process of the tree used `cpu_share` of one core: each by
    itself, since a Ray cluster of 16 processes that only wait uses 9% of a core together. Nor is it idle when a process wanted a core
    at every look of it, and at least at 3 in a row: others keep it from working (Ray's workers run at niceness 15, and get some 2% of a
    core that usual work wants, too), while one that polls is asleep at most looks. Times are time.monotonic().
    """

    def __init__(self, timeout_s: float, cpu_share: float, now: float) -> None:
        self._timeout_s = timeout_s
        self._cpu_share = cpu_share
        self._window_s = timeout_s / WINDOWS_PER_TIMEOUT
        self._bytes = -1
        self._cpu_by_process_s: dict[tuple[int, int], float] = defaultdict(float)
        self._runnable_in_a_row: dict[tuple[int, int], int] = {}
        self._looks = 0
        self._window_start = now
        self.active_at = now

    def update(
        self,
        now: float,
        written_bytes: int,
        cpu_by_process_s: Mapping[tuple[int, int], float],
        runnable: Collection[tuple[int, int]] = (),
    ) -> None:
        """Take in one sample: bytes in the watched files, CPU seconds of each process since the last one, and which want a core now."""
        for identity, cpu_s in cpu_by_process_s.items():
            self._cpu_by_process_s[identity] += cpu_s
        if written_bytes != self._bytes:
            self._bytes = written_bytes
            self.active_at = now
        self._looks += 1
        self._runnable_in_a_row = {identity: self._runnable_in_a_row.get(identity, 0) + 1 for identity in runnable}
        if now - self._window_start >= self._window_s:
            used_s = max(self._cpu_by_process_s.values(), default=0)
            starved = max(self._runnable_in_a_row.values(), default=0) >= max(STARVED_LOOKS, self._looks)
            if starved or used_s >= self._cpu_share * (now - self._window_start):
                self.active_at = now
            self._window_start = now
            self._cpu_by_process_s.clear()
            self._looks = 0

    def stalled(self, now: float) -> bool:
        return now - self.active_at >= self._timeout_s
