"""The node as a whole: CPU time, memory and load of everything that runs on it."""

from __future__ import annotations

from typing import NamedTuple

from rlmbench.collectors.proc import Kept, busy_seconds, numbers


class NodeSample(NamedTuple):
    cpu_busy_s: float | None
    memory_used_bytes: int | None
    load_1min: float | None


class Node:
    """Reads /proc/stat, meminfo and loadavg. In a container they tell of the whole machine."""

    def __init__(self) -> None:
        self._stat = Kept("stat", 256)  # the first line is enough
        self._memory = Kept("meminfo", 256)
        self._load = Kept("loadavg", 64)
        self.last_pid = ""
        """The youngest process or thread of all; while it is the same, there is no new one."""

    def sample(self) -> NodeSample:
        stat, load = self._stat.read(), self._load.read()
        memory = numbers(self._memory.read(), b"MemTotal", b"MemAvailable")
        words = load.split() if load else []
        if words:
            self.last_pid = words[-1].decode()
        return NodeSample(
            busy_seconds(stat) if stat else None,
            (memory[0] - memory[1]) * 1024 if memory else None,
            float(words[0]) if words else None,
        )
