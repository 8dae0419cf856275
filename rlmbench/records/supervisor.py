"""Which process looks after a run, and whether it still lives.

A run that says "running" may have lost its supervisor to kill -9. A process id alone cannot tell, since ids are used
again: the boot id and the process's start time, in clock ticks after boot, make it unique.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

PROC = Path("/proc")
_STATE = 0
_START_TICKS = 19  # field 22 of /proc/<pid>/stat, counted from the state, which is field 3


class Supervisor(BaseModel):
    """A process of this or another machine, for ever. `start_ticks` counts clock ticks from boot to its start."""

    model_config = ConfigDict(frozen=True)

    pid: int
    boot_id: str
    start_ticks: int

    @classmethod
    def current(cls) -> Supervisor:
        """The calling process."""
        return cls(pid=os.getpid(), boot_id=boot_id(), start_ticks=int(_stat_fields(os.getpid())[_START_TICKS]))

    def is_alive(self) -> bool:
        """Whether this very process still runs, here and in this boot. A zombie does not."""
        if self.boot_id != boot_id():
            return False
        try:
            fields = _stat_fields(self.pid)
        except OSError:
            return False
        return fields[_STATE] not in ("Z", "X") and int(fields[_START_TICKS]) == self.start_ticks


def boot_id() -> str:
    """The kernel's random id of this boot."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def _stat_fields(pid: int) -> list[str]:
    """/proc/<pid>/stat from the state on; the command's name before it may hold spaces and parentheses."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
