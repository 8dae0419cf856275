"""What can be measured here: every probe, collector and helper as available, or absent with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Protocol

from rlmbench.environment import ceilings, host
from rlmbench.environment.cache import State, cache_root

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_GIB = 1 << 30
_SAMPLED = {
    "host.tree": "CPU seconds, memory and number of the run's processes, and the node's load",
    "host.pss": "memory with shared pages counted once",
    "host.io": "bytes read from disks and written to them",
    "device_processes.ids": "process ids that devices list are those seen here",
    "mig": "a slice of a GPU",
    "memory": "memory in use",
    "nvml_kernel_present": "share of time with any kernel on the device",
    "power": "watts",
    "energy": "joules, by the device's own counter",
    "nvlink": "bytes over NVLink",
    "clocks": "clocks of SMs and memory",
    "throttle_reasons": "why clocks are lower than set",
    "temperature": "degrees Celsius",
    "pcie": "bytes over PCIe",
    "gpm.sm_active": "share of SMs at work",
    "gpm.sm_occupancy": "share of warps in use",
    "gpm.tensor_active": "share of time tensor cores work",
    "gpm.dram_active": "share of memory bandwidth in use",
    "gpm.nvlink_rx_bytes_per_s": "rate over NVLink, in",
    "gpm.nvlink_tx_bytes_per_s": "rate over NVLink, out",
    "device_processes": "which processes hold how much memory of it",
}
"""What collectors sample, in words."""


@dataclass(frozen=True)
class Fact:
    """One thing that is available, or absent for `reason`. `value` is None when absent, never 0; its unit is in `name`."""

    name: str
    available: bool
    value: str | int | float | None
    reason: str | None
    shown: str

    def as_dict(self) -> dict[str, object]:
        """For JSON: without the text meant for people."""
        return {name: value for name, value in asdict(self).items() if name != "shown"}


class Told(Protocol):
    """What a collector says that it can measure (rlmbench.collectors.capability); `device` is None for the host."""

    @property
    def name(self) -> str: ...

    @property
    def available(self) -> bool: ...

    @property
    def reason(self) -> str | None: ...

    @property
    def device(self) -> str | None: ...


def examine(states: Iterable[State], collected: Iterable[Told] = ()) -> list[Fact]:
    """Every fact about this machine, given the environments that adapters know and what collectors say."""
    return [*_machine(), *_gpus(), *_collectors(collected), *_torch_profiler(states), _ceilings(), *_process_tools(), _browser()]


def _present(name: str, value: str | int | float, shown: str | None = None) -> Fact:
    return Fact(name, True, value, None, shown if shown is not None else str(value))


def _absent(name: str, reason: str) -> Fact:
    return Fact(name, False, None, reason, reason)


def _machine() -> list[Fact]:
    facts = host.host_facts()
    limits = host.cgroup_limits()
    no_limit = limits.reason or "no limit is set"
    root = cache_root()
    nearest = next(folder for folder in (root, *root.parents) if folder.exists())
    free_bytes = shutil.disk_usage(nearest).free
    return [
        _present("cpu_model", facts["cpu_model"]) if facts["cpu_model"] else _absent("cpu_model", "the kernel does not say"),
        _present("cores", facts["cores"], f"{facts['cores']} of {facts['cores_total']}"),
        _present("memory_bytes", facts["memory_bytes"], f"{facts['memory_bytes'] / _GIB:.1f} GiB"),
        _absent("cgroup_memory_limit_bytes", no_limit)
        if limits.memory_bytes is None
        else _present("cgroup_memory_limit_bytes", limits.memory_bytes, f"{limits.memory_bytes / _GIB:.1f} GiB"),
        _absent("cgroup_cpu_limit_cores", no_limit) if limits.cpus is None else _present("cgroup_cpu_limit_cores", limits.cpus),
        _present("cache_free_bytes", free_bytes, f"{free_bytes / _GIB:.1f} GiB at {root}"),
    ]


def _gpus() -> list[Fact]:
    found = host.gpus()
    if not found.devices:
        return [_absent("gpus", found.reason or "unknown")]
    names = ", ".join(device.name for device in found.devices)
    fewer = host.why_fewer()
    return [_present("gpus", len(found.devices), f"{len(found.devices)}: {names}{f', {fewer}' if fewer else ''}")]


def _torch_profiler(states: Iterable[State]) -> list[Fact]:
    """Known only where torch is: from the check of each built environment."""
    built = [one for one in states if one.environment and one.environment.torch]
    if not built:
        return [_absent("torch_profiler", "no environment is built that could be asked: rlmbench env create FRAMEWORK")]
    found = []
    for one in built:
        assert one.environment is not None and one.environment.torch is not None
        activities = ", ".join(one.environment.torch["profiler_activities"])
        name = f"torch_profiler {one.spec.name}-{one.spec.device}"
        found.append(_present(name, activities) if activities else _absent(name, "this torch was built without the profiler"))
    return found


def _ceilings() -> Fact:
    measured = ceilings.kept(host.default_device())
    if not measured:
        return _absent("ceilings", "not measured on this machine, so MFU and MBU are against data sheets alone: rlmbench doctor --ceilings")
    return _present("ceilings", len(measured), ceilings.shown(measured))


def _collectors(collected: Iterable[Told]) -> list[Fact]:
    """What is sampled beside a run. A device's name stands behind what is told of it."""
    found = []
    without = ". Without it no memory, power, energy, clocks, traffic or GPM of a device is sampled"
    for told in collected:
        name = f"collector {told.name}" + (f" {told.device}" if told.device else "")
        what = _SAMPLED.get(told.name)
        found.append(
            _present(name, told.reason or "sampled", "; ".join(filter(None, (what, told.reason))))
            if told.available
            else _absent(name, (told.reason or "unknown") + (without if told.name == "nvml" else ""))
        )
    return found


def _process_tools() -> list[Fact]:
    subreaper = host.subreaper_reason()
    return [
        _absent("subreaper", subreaper) if subreaper else _present("subreaper", "prctl", "orphaned descendants are adopted and ended"),
    ]


def _browser() -> Fact:
    found = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if found:
        return _present("chromium", found)
    return _absent("chromium", "not on the PATH; only rlmbench's own browser tests need it")
