"""Facts about this machine: what a manifest records and what decides the scale of a suite.

What cannot be known is None, with the reason beside it where one exists; it is never 0.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlmbench.collectors import visible
from rlmbench.collectors.devices import Inventory, inventory

_PR_GET_CHILD_SUBREAPER = 37
# Version 1 of control groups writes "no limit" as a number near 2**63.
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True)
class CgroupLimits:
    """The tightest limits over this process's control groups; None is unlimited, or unknown for the `reason` given."""

    memory_bytes: int | None = None
    cpus: float | None = None
    reason: str | None = None


def host_facts() -> dict[str, Any]:
    """This machine as a manifest records it.

    hostname, cpu_model, cores (that this process may use), cores_total, memory_bytes, memory_limit_bytes and cpu_limit
    (control groups; None is no limit), kernel, python, boot_id, load (1, 5 and 15 minutes).
    """
    limits = cgroup_limits()
    return {
        "hostname": socket.gethostname(),
        "cpu_model": cpu_model(_read("/proc/cpuinfo") or "") or platform.processor() or None,
        "cores": len(os.sched_getaffinity(0)),
        "cores_total": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "memory_limit_bytes": limits.memory_bytes,
        "cpu_limit": limits.cpus,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "boot_id": (_read("/proc/sys/kernel/random/boot_id") or "").strip() or None,
        "load": list(os.getloadavg()),
    }


def devices() -> list[dict[str, Any]]:
    """The GPUs of this machine and, in place of one that is divided, its MIG slices: uuid, name, memory_bytes, driver. Empty without any,
    and `gpus().reason` says why."""
    return [device._asdict() for device in gpus().devices]


def visible_devices() -> list[dict[str, Any]]:
    """Those that CUDA_VISIBLE_DEVICES leaves, in its order; all of them where it names indexes that may mean others to CUDA."""
    return [device._asdict() for device in visible.from_environment(gpus().devices)]


def visible_count() -> int:
    """How many GPUs CUDA_VISIBLE_DEVICES leaves; where there are MIG slices alone 1 at most, since a process sees no more."""
    return visible.count(gpus().devices, os.environ.get("CUDA_VISIBLE_DEVICES"))


def why_fewer() -> str | None:
    """Why a process of CUDA sees fewer GPUs than there are; None where it sees all."""
    found, seen = gpus().devices, visible_count()
    if seen == len(found):
        return None
    if seen and visible.only_slices(found):
        return "of which CUDA gives a process only one MIG slice"
    return f"of which CUDA_VISIBLE_DEVICES leaves {seen or 'none'}"


def default_device() -> str:
    """ "cuda" where a GPU is there and not hidden by CUDA_VISIBLE_DEVICES, else "cpu"."""
    return "cuda" if visible_count() else "cpu"


@cache
def gpus() -> Inventory:
    """What the vendors' libraries say, asked once."""
    return inventory()


def cgroup_limits(root: Path = Path("/sys/fs/cgroup"), membership: str | None = None) -> CgroupLimits:
    """Memory and CPU limits of the control groups this process is in, their parents included (version 2, else 1)."""
    membership = _read("/proc/self/cgroup") if membership is None else membership
    if not membership or not root.is_dir():
        return CgroupLimits(reason="no control groups are mounted here")
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in membership.splitlines())}
    if (root / "cgroup.controllers").exists():
        groups = _with_parents(root, paths.get("", "/"))
        memory_limits = [parse_bytes(_read(group / "memory.max")) for group in groups]
        cpu_limits = [parse_cpu_max(_read(group / "cpu.max")) for group in groups]
    else:
        memory_limits = [parse_bytes(_read(group / "memory.limit_in_bytes")) for group in _version_1(root, paths, "memory")]
        cpu_limits = [
            parse_cpu_max(f"{_read(group / 'cpu.cfs_quota_us') or 'max'} {_read(group / 'cpu.cfs_period_us') or '100000'}")
            for group in _version_1(root, paths, "cpu")
        ]
    return CgroupLimits(
        min((limit for limit in memory_limits if limit is not None), default=None),
        min((limit for limit in cpu_limits if limit is not None), default=None),
    )


def parse_bytes(text: str | None) -> int | None:
    """A control group's memory limit in bytes; None where there is no file or no limit."""
    if not text or not text.strip().isdigit():
        return None
    return limit if (limit := int(text)) < _UNLIMITED_BYTES else None


def parse_cpu_max(text: str | None) -> float | None:
    """Cores from a quota and a period in microseconds (``50000 100000`` is 0.5); None where there is no limit."""
    quota, _, period = " ".join((text or "").split()).partition(" ")
    return int(quota) / int(period) if quota.isdigit() and int(period or 0) else None


def cpu_model(cpuinfo: str) -> str | None:
    """The processor's name in the text of /proc/cpuinfo; None where it gives none (some Arm machines)."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return None


def subreaper_reason() -> str | None:
    """None where the kernel lets a process adopt its orphaned descendants (prctl), else why it does not."""
    value = ctypes.c_int()
    try:
        failed = ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0)
    except (OSError, AttributeError) as error:
        return f"prctl cannot be called: {error}"
    return f"prctl: {os.strerror(ctypes.get_errno())}" if failed else None


def _with_parents(root: Path, path: str) -> list[Path]:
    """The group at `path` below `root` and all groups that hold it. In a container the own path may not exist there."""
    group = root / path.lstrip("/")
    return [folder for folder in (group, *group.parents) if folder == root or root in folder.parents]


def _version_1(root: Path, paths: dict[str, str], controller: str) -> list[Path]:
    """The groups of one version-1 controller; its own hierarchy lies below a folder of that name."""
    path = next((path for names, path in paths.items() if controller in names.split(",")), "/")
    return _with_parents(root / controller, path)


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None
