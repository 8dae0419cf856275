"""Reading /proc with as little work as possible: files that are read again and again stay open.

Everything here returns None for what cannot be read, and raises nothing.
"""

from __future__ import annotations

import os
from typing import NamedTuple

ROOT = "/proc"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CORE_TIMES = 8
"""Of a line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. Guests' time is in user's already."""
IDLE, IOWAIT, STEAL = 3, 4, 7


class Stat(NamedTuple):
    """/proc/<pid>/stat. `children_ticks` is the CPU time of descendants that have ended and were waited for; `rss_bytes` is resident memory."""

    parent: int
    name: str
    state: str
    ticks: int
    children_ticks: int
    threads: int
    start_ticks: int
    rss_bytes: int


def pids() -> set[int]:
    """Every process that can be seen."""
    return {int(name) for name in os.listdir(ROOT) if name.isdigit()}


def read(path: str) -> bytes | None:
    """A small file below /proc, in one read."""
    try:
        descriptor = os.open(f"{ROOT}/{path}", os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return None
    finally:
        os.close(descriptor)


class Kept:
    """A file below /proc that stays open. Where the process has as many open files as it may have, it is opened for every look."""

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self._size = size
        try:
            self._descriptor: int | None = os.open(f"{ROOT}/{path}", os.O_RDONLY)
        except OSError:
            self._descriptor = None

    def read(self) -> bytes | None:
        if self._descriptor is None:
            return read(self._path)
        try:
            return os.pread(self._descriptor, self._size, 0)
        except OSError:
            return None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def parse_stat(text: bytes) -> Stat:
    """The content of /proc/<pid>/stat; the name may itself hold spaces and parentheses."""
    end = text.rindex(b")")
    fields = text[end + 2 :].split(None, 23)  # fields[0] is field 3 of proc_pid_stat(5)
    return Stat(
        parent=int(fields[1]),
        name=text[text.index(b"(") + 1 : end].decode(errors="replace"),
        state=chr(fields[0][0]),
        ticks=int(fields[11]) + int(fields[12]),
        children_ticks=int(fields[13]) + int(fields[14]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


def numbers(text: bytes | None, *names: bytes) -> tuple[int, ...] | None:
    """The first numbers behind `names` in lines of the form ``name: number ...``; None when one is missing."""
    if text is None:
        return None
    found = []
    text = b"\n" + text
    for name in names:
        at = text.find(b"\n" + name + b":")
        if at < 0:
            return None
        found.append(int(text[at + len(name) + 2 :].split(None, 1)[0]))
    return tuple(found)


def busy_seconds(stat: bytes) -> float:
    """Seconds since boot in which cores were busy, all of them together, from the first line of /proc/stat.

    Waiting for a disk is idle, and so is what the hypervisor gave to others (steal).
    """
    times = [int(field) for field in stat.split(b"\n", 1)[0].split()[1 : 1 + CORE_TIMES]]
    return (sum(times) - times[IDLE] - times[IOWAIT] - (times[STEAL] if len(times) > STEAL else 0)) / TICKS_PER_S


def proportional_bytes(pid: int) -> int | None:
    """Memory of a process in which a page shared by n processes counts 1/n (PSS); the kernel walks its page tables for it."""
    found = numbers(read(f"{pid}/smaps_rollup"), b"Pss")
    return None if found is None else found[0] * 1024


def switches_by_thread(pid: int) -> dict[int, tuple[int, int]]:
    """Voluntary and involuntary context switches of each thread that lives; a process's own file tells only of its first."""
    try:
        threads = os.listdir(f"{ROOT}/{pid}/task")
    except OSError:
        return {}
    found = {}
    for thread in threads:
        counts = numbers(read(f"{pid}/task/{thread}/status"), b"voluntary_ctxt_switches", b"nonvoluntary_ctxt_switches")
        if counts:
            found[int(thread)] = (counts[0], counts[1])
    return found
