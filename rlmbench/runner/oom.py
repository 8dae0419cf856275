"""How often the kernel's out-of-memory killer has struck here: the only way to tell its SIGKILL from anybody else's."""

from __future__ import annotations

from pathlib import Path


def oom_kill_count(
    own_cgroup: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")
) -> int | None:
    """Processes killed for memory so far in this process's control group, else on the whole machine; None when neither is told.

    Reads ``memory.events`` (cgroup v2) or ``memory.oom_control`` (v1), and ``oom_kill`` of /proc/vmstat where the
    kernel accounts no group. Compare two readings: the counters do not start at 0.
    """
    for path in [*_counter_files(own_cgroup, root), proc / "vmstat"]:
        count = _read_counter(path)
        if count is not None:
            return count
    return None


def _counter_files(own_cgroup: Path, root: Path) -> list[Path]:
    """Where the counter may be, likeliest first. Inside a container the group's path may be the host's, so its root is tried too."""
    try:
        lines = own_cgroup.read_text().splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        hierarchy, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            files += [root / "memory" / group.lstrip("/") / "memory.oom_control", root / "memory" / "memory.oom_control"]
        elif hierarchy == "0":
            files += [root / group.lstrip("/") / "memory.events", root / "memory.events"]
    return files


def _read_counter(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "oom_kill":
            return int(value)
    return None
