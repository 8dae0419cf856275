"""One tick after the other: what is looked at how often, and what that costs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

from rlmbench.collectors.capability import Capability
from rlmbench.collectors.devices import Device, DeviceError, DeviceLost, Driver, open_drivers
from rlmbench.collectors.lines import DEVICE_COLUMNS, Lines
from rlmbench.collectors.node import Node
from rlmbench.collectors.proc import proportional_bytes
from rlmbench.collectors.tree import Tree, disk_bytes

FIND_S = 0.5
"""New processes are looked for at most this often; the CPU time of one that lives shorter arrives in its parent's."""
DETAIL_S = 1.0
DEVICE_PROCESSES_S = 5.0


class Sampler:
    """Takes samples and writes them; `tick` is called at every interval."""

    def __init__(self, lines: Lines, interval_s: float, drivers: Iterable[Driver] = ()) -> None:
        self._lines = lines
        self._interval_s = interval_s
        self._node = Node()
        self._tree = Tree()
        self._devices: list[Device] = [device for driver in drivers for device in driver.devices()]
        self._last_pid = ""
        self._find_at = self._detail_at = 0.0
        self._processes_at: dict[str, float] = {}
        self._slow_at: dict[str, float] = {}
        self.ticks = 0
        self.late_ticks = 0

    def add_root(self, pid: int) -> None:
        self._tree.add_root(pid)
        self._last_pid, self._find_at = "", 0.0

    def tick(self) -> None:
        """Look once at everything that is due."""
        self.ticks += 1
        now = time.monotonic()
        self._look_at_host(now)
        for place, device in enumerate(list(self._devices)):
            try:
                self._look_at_device(device, now, place)
            except DeviceLost as error:
                self._leave_out(device, str(error))
            except OSError:  # the samples cannot be written
                raise
            except Exception as error:  # noqa: BLE001 -- a device that answers what nobody foresaw must not cost the other samples
                self._leave_out(device, f"unexpected {type(error).__name__}: {error}")

    def _leave_out(self, device: Device, reason: str) -> None:
        self._devices.remove(device)
        self._lines.capabilities([Capability("device", False, reason, device.uuid)])

    def _look_at_host(self, now: float) -> None:
        t_ns = time.monotonic_ns()
        node = self._node.sample()
        if self._node.last_pid != self._last_pid and now >= self._find_at:
            self._last_pid = self._node.last_pid
            self._find_at = now + FIND_S
            self._tree.find()
        detailed = now >= self._detail_at
        tree, processes = self._tree.sample(detailed)
        tables: dict[str, Any] = {"node_samples": [node], "tree_samples": [tree]}
        if detailed:
            self._detail_at = now + DETAIL_S
            tables["process_samples"] = processes
        self._lines.rows(t_ns, tables)
        if detailed:
            self.write_cost()

    def _look_at_device(self, device: Device, now: float, place: int) -> None:
        values = dict(device.sample())
        t_ns = time.monotonic_ns()
        first = now + place * self._interval_s  # devices take turns with what is slow
        if now >= self._slow_at.setdefault(device.uuid, first):
            self._slow_at[device.uuid] = now + DETAIL_S
            values.update(device.slow_sample())
        self._lines.rows(t_ns, {"device_samples": [[device.uuid, *(values.get(column) for column in DEVICE_COLUMNS[1:])]]})
        if now >= self._processes_at.setdefault(device.uuid, first):
            self._processes_at[device.uuid] = now + DEVICE_PROCESSES_S
            try:
                listed = [[device.uuid, one.pid, one.memory_used_bytes] for one in device.processes()]
            except DeviceLost:
                raise
            except DeviceError:
                return
            self._lines.rows(time.monotonic_ns(), {"device_processes": listed})

    def write_cost(self) -> None:
        """About every second, and all that was read until then is on the disk."""
        self._lines.write(ev="cost", **self._cost())
        self._lines.flush()

    def end(self) -> None:
        self._lines.write(ev="end", t_ns=time.monotonic_ns(), **self._cost())
        self._lines.close()

    def _cost(self) -> dict[str, Any]:
        return {"cpu_s": round(time.process_time(), 6), "ticks": self.ticks, "late_ticks": self.late_ticks}


def capabilities() -> list[Capability]:
    """All that a collector can measure on this machine and its devices, and what not and why."""
    drivers, found = open_drivers(os.environ.get("CUDA_VISIBLE_DEVICES"))
    for driver in drivers:
        driver.close()
    return [*host_capabilities(), *found]


def host_capabilities(unseen: str | None = None) -> list[Capability]:
    """What the kernel tells of processes here. `unseen` is why a part of the run's processes is not below rlmbench's own."""
    return [
        Capability("host.tree", unseen is None, unseen),
        Capability(
            "host.pss",
            *_told(
                proportional_bytes(os.getpid()),
                "/proc/<pid>/smaps_rollup cannot be read, so memory is RSS only: Linux 4.14 and later have it, some sandboxes do not",
            ),
        ),
        Capability(
            "host.io",
            *_told(
                disk_bytes(os.getpid()),
                "/proc/<pid>/io cannot be read, so disk I/O is unknown: a kernel with CONFIG_TASK_IO_ACCOUNTING has it, some sandboxes do not",
            ),
        ),
    ]


def _told(value: object, otherwise: str) -> tuple[bool, str | None]:
    return (value is not None, None if value is not None else otherwise)
