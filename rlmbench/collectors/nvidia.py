"""NVIDIA devices through NVML, and GPM on Hopper and later.

Sources: nvml.h and NVML's API reference of CUDA 12 and 13. Units there: milliwatts, millijoules, MHz, KiB (NVLink counters),
KB/s (PCIe), per cent, MiB/s (GPM). A call that a device does not support is asked once and then left out.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from rlmbench.collectors.capability import Capability
from rlmbench.collectors.devices import (
    DeviceError,
    DeviceLost,
    DeviceNotFound,
    DeviceProcess,
    DriverMissing,
    Limits,
    NoPermission,
    NotReady,
    NotSupported,
    Value,
)
from rlmbench.collectors.gpm import GPM_COLUMNS, Gpm
from rlmbench.collectors.nvml import FIXES, Nvml
from rlmbench.collectors.visible import chosen, words

LIBRARY = "libnvidia-ml.so.1"
ALL_LINKS = 0xFFFFFFFF
"""NVML's scope for the sum over all NVLinks."""
FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The machine's own process namespace (PROC_PID_INIT_INO in the kernel); in another one NVML's process ids may not be ours."""
HINDERING = ("sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake", "sync_boost")
"""Throttle reasons that make a device slower than its clocks were set."""
_REASONS = {
    "GpuIdle": "idle",
    "ApplicationsClocksSetting": "application_clocks",
    "SwPowerCap": "sw_power_cap",
    "HwSlowdown": "hw_slowdown",
    "SyncBoost": "sync_boost",
    "SwThermalSlowdown": "sw_thermal",
    "HwThermalSlowdown": "hw_thermal",
    "HwPowerBrakeSlowdown": "hw_power_brake",
    "DisplayClockSetting": "display_clocks",
}
NO_METRIC = "this GPU's GPM, or this nvidia-ml-py, does not have it"
MIG_REASON = "NVML tells it of a whole GPU only, not of a MIG slice"
Columns = dict[str, Value]
Getter = Callable[[], Columns]


def open_driver(visible: str | None = None, *, probe: bool = True) -> NvidiaDriver:
    """NVML, ready. Without `probe` devices are not asked what they can tell, which takes milliseconds each.

    Raises:
        DeviceError: there is no binding, no driver, or the two do not fit.
    """
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:  # found out without the binding, whose import takes longer than everything else here
        raise DriverMissing(f"NVML: {LIBRARY} is not there; {FIXES[DriverMissing]}") from None
    try:
        import pynvml
    except ImportError:
        raise DriverMissing("nvidia-ml-py is not installed: pip install nvidia-ml-py") from None
    if not hasattr(pynvml, "nvmlDeviceGetUUID"):
        raise DriverMissing("the module pynvml is not NVIDIA's: pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py")
    return NvidiaDriver(pynvml, visible, probe=probe)


class NvidiaDriver:
    """NVML's devices. `visible` is CUDA_VISIBLE_DEVICES: UUIDs in it choose, and where it leaves none there is none; indexes do not choose,
    since CUDA may count in another order."""

    def __init__(self, library: Any, visible: str | None = None, *, probe: bool = True) -> None:
        self._nvml = Nvml(library)
        self._nvml("nvmlInit")
        self._probe = probe
        self._refused: list[Capability] = []
        found = list(self._find())
        valid = words(found, visible)
        by_uuid = valid is not None and not any(word.isdecimal() for word in valid)
        self._devices = chosen(found, visible) if by_uuid else found
        self._hidden = bool(found) and not self._devices

    def _find(self) -> Iterator[NvidiaDevice]:
        for index in range(self._nvml("nvmlDeviceGetCount")):
            try:
                handle = self._nvml("nvmlDeviceGetHandleByIndex", index)
                slices = list(self._slices(handle))
                yield from slices or [NvidiaDevice(self._nvml, handle, probe=self._probe)]
            except DeviceError as error:  # one device that fell off the bus must not hide the others
                self._refused.append(Capability("device", False, f"device {index} in NVML's order: {error}"))

    def _slices(self, handle: Any) -> Iterator[NvidiaDevice]:
        """The MIG slices of a device that is divided."""
        try:
            divided = self._nvml("nvmlDeviceGetMigMode", handle)[0] == self._nvml.library.NVML_DEVICE_MIG_ENABLE
            count = self._nvml("nvmlDeviceGetMaxMigDeviceCount", handle) if divided else 0
        except (NotSupported, NoPermission):
            return
        for index in range(count):
            try:
                slice_handle = self._nvml("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
            except (DeviceNotFound, NotSupported, NoPermission):  # no slice of this number, or another container's
                continue
            yield NvidiaDevice(self._nvml, slice_handle, parent=handle, probe=self._probe)

    @property
    def version(self) -> str | None:
        try:
            return str(self._nvml("nvmlSystemGetDriverVersion"))
        except DeviceError:
            return None

    @property
    def reason(self) -> str | None:
        if self._devices:
            return None
        if self._hidden:
            return "CUDA_VISIBLE_DEVICES leaves no device: it is empty, begins with one that is not there, or names one twice"
        lost = "; ".join(one.reason for one in self._refused if one.reason)
        return lost or "the driver is loaded but shows no GPU; in a container, is one given to it (--gpus all)?"

    def capabilities(self) -> list[Capability]:
        return [
            Capability("nvml", bool(self._devices), self.reason or f"driver {self.version or 'unknown'}"),
            *self._refused,
            _process_ids(),
        ]

    def devices(self) -> list[NvidiaDevice]:
        return self._devices

    def close(self) -> None:
        for device in self._devices:
            device.close()
        try:
            self._nvml("nvmlShutdown")
        except DeviceError:
            pass


class NvidiaDevice:
    """One GPU, or one MIG slice of the GPU `parent`: of a slice the memory is its own, clocks and temperature are the GPU's."""

    def __init__(self, nvml: Nvml, handle: Any, parent: Any = None, *, probe: bool = True) -> None:
        self._nvml = nvml
        self._handle = handle
        self._physical = handle if parent is None else parent
        self._is_slice = parent is not None
        self.uuid = str(nvml("nvmlDeviceGetUUID", handle))
        self.name = str(nvml("nvmlDeviceGetName", handle))
        self._gpm: Gpm | None = None
        self._capabilities: list[Capability] = []
        self._quick: list[Getter] = []
        self._slow: list[Getter] = []
        if probe:
            self._probe()

    def _probe(self) -> None:
        """Ask once for everything; what answers is asked again at every tick."""
        pick = self._first_that_works
        memory: list[Getter] = [partial(self._memory, version=self._memory_v2()), self._memory]
        pick("memory", memory)
        whole_gpu: tuple[tuple[str, list[Getter]], ...] = (
            ("nvml_kernel_present", [self._utilization]),
            ("power", [self._power_now, self._power_mean]),
            ("energy", [self._energy]),
            ("nvlink", [self._links]),
        )
        for name, getters in whole_gpu:
            if self._is_slice:
                self._say(name, MIG_REASON)
            else:
                pick(name, getters)
        pick("clocks", [self._clocks])
        pick("throttle_reasons", [self._event_reasons, self._old_throttle_reasons])
        pick("temperature", [self._temperature])
        self._probe_gpm()
        if self._gpm is None or "pcie_rx_bytes_per_s" not in self._gpm.columns:
            self._say("pcie", MIG_REASON) if self._is_slice else pick("pcie", [self._pcie], self._slow)
        else:
            self._say("pcie")
        self._say_processes()

    def _memory_v2(self) -> int | None:
        return getattr(self._nvml.library, "nvmlMemory_v2", None)

    def _first_that_works(self, name: str, getters: Sequence[Getter], into: list[Getter] | None = None) -> None:
        reason = "unknown"
        for place, getter in enumerate(getters):
            try:
                getter()
            except NotReady:  # it may answer later
                pass
            except DeviceLost:
                raise
            except DeviceError as error:
                reason = str(error)
                continue
            (self._quick if into is None else into).append(getter)
            less = {("power", 1): "a mean over about the last second (NVML tells no instant power here)"}.get((name, place))
            less = "over 20 ms, once a second" if getter == self._pcie else less
            self._capabilities.append(Capability(name, True, less, self.uuid))
            return
        self._say(name, reason)

    def _say(self, name: str, reason: str | None = None) -> None:
        self._capabilities.append(Capability(name, reason is None, reason, self.uuid))

    def _probe_gpm(self) -> None:
        reason: str | None = None
        try:
            self._gpm = Gpm(self._nvml, self._physical, self._instance())
        except DeviceError as error:
            reason = str(error)
        for column in GPM_COLUMNS:
            if not column.startswith("pcie"):
                there = self._gpm is not None and column in self._gpm.columns
                self._say(f"gpm.{column}", None if there else reason or NO_METRIC)

    def _instance(self) -> int | None:
        """The GPU instance that a MIG slice lies in."""
        return int(self._nvml("nvmlDeviceGetGpuInstanceId", self._handle)) if self._is_slice else None

    def _say_processes(self) -> None:
        try:
            self.processes()
        except DeviceError as error:
            self._say("device_processes", str(error))
        else:
            self._say("device_processes")

    def capabilities(self) -> list[Capability]:
        mig = Capability("mig", self._is_slice, None if self._is_slice else "not a MIG slice", self.uuid)
        return [mig, *self._capabilities]

    def sample(self) -> Columns:
        found = self._ask(self._quick)
        if self._gpm:
            try:
                found.update(self._gpm.sample())
            except DeviceLost:
                raise
            except DeviceError:
                pass
        return found

    def slow_sample(self) -> Columns:
        return self._ask(self._slow)

    def _ask(self, getters: Sequence[Getter]) -> Columns:
        found: Columns = {}
        for getter in getters:
            try:
                found.update(getter())
            except DeviceLost:
                raise
            except DeviceError:  # not this time
                continue
        return found

    def processes(self) -> list[DeviceProcess]:
        listed = self._nvml("nvmlDeviceGetComputeRunningProcesses", self._handle)
        return [DeviceProcess(int(one.pid), None if one.usedGpuMemory is None else int(one.usedGpuMemory)) for one in listed]

    def limits(self) -> Limits:
        try:
            memory = int(self._nvml("nvmlDeviceGetMemoryInfo", self._handle).total)
        except DeviceError:
            memory = None
        try:
            power = None if self._is_slice else self._nvml("nvmlDeviceGetEnforcedPowerLimit", self._handle) / 1e3
        except DeviceError:
            power = None
        return Limits(memory, power)

    def close(self) -> None:
        if self._gpm:
            self._gpm.close()

    def _memory(self, version: int | None = None) -> Columns:
        """In version 2 `used` leaves out what the driver keeps for itself."""
        info = (
            self._nvml("nvmlDeviceGetMemoryInfo", self._handle, version=version)
            if version
            else self._nvml("nvmlDeviceGetMemoryInfo", self._handle)
        )
        return {"memory_used_bytes": int(info.used)}

    def _utilization(self) -> Columns:
        return {"nvml_kernel_present": self._nvml("nvmlDeviceGetUtilizationRates", self._handle).gpu / 100}

    def _power_now(self) -> Columns:
        [watts] = self._fields([(self._nvml.library.NVML_FI_DEV_POWER_INSTANT, 0)])
        return {"power_w": watts / 1e3}

    def _power_mean(self) -> Columns:
        return {"power_w": self._nvml("nvmlDeviceGetPowerUsage", self._handle) / 1e3}

    def _energy(self) -> Columns:
        return {"energy_j": self._nvml("nvmlDeviceGetTotalEnergyConsumption", self._handle) / 1e3}

    def _links(self) -> Columns:
        names = (self._nvml.library.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, self._nvml.library.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)
        received, sent = self._fields([(name, ALL_LINKS) for name in names])
        return {"nvlink_rx_bytes": received * 1024, "nvlink_tx_bytes": sent * 1024}

    def _fields(self, ids: list[tuple[int, int]]) -> list[int]:
        """NVML's field values as integers, one call for all of them."""
        values = self._nvml("nvmlDeviceGetFieldValues", self._handle, ids)
        found = []
        for value in values:
            if value.nvmlReturn != self._nvml.library.NVML_SUCCESS:
                raise NotSupported(f"NVML: field {value.fieldId} is not told (error {value.nvmlReturn})")
            found.append(
                int(value.value.ullVal if value.valueType != self._nvml.library.NVML_VALUE_TYPE_UNSIGNED_INT else value.value.uiVal)
            )
        return found

    def _clocks(self) -> Columns:
        library = self._nvml.library
        return {
            "sm_clock_hz": int(self._nvml("nvmlDeviceGetClockInfo", self._physical, library.NVML_CLOCK_SM)) * 1_000_000,
            "memory_clock_hz": int(self._nvml("nvmlDeviceGetClockInfo", self._physical, library.NVML_CLOCK_MEM)) * 1_000_000,
        }

    def _event_reasons(self) -> Columns:
        return {"throttle_reasons": self._reasons(self._nvml("nvmlDeviceGetCurrentClocksEventReasons", self._physical))}

    def _old_throttle_reasons(self) -> Columns:
        """What it was called before driver 535."""
        return {"throttle_reasons": self._reasons(self._nvml("nvmlDeviceGetCurrentClocksThrottleReasons", self._physical))}

    def _reasons(self, mask: int) -> str:
        library = self._nvml.library
        return ",".join(name for suffix, name in _REASONS.items() if mask & getattr(library, f"nvmlClocksEventReason{suffix}"))

    def _temperature(self) -> Columns:
        return {"temperature_c": float(self._nvml("nvmlDeviceGetTemperature", self._physical, self._nvml.library.NVML_TEMPERATURE_GPU))}

    def _pcie(self) -> Columns:
        """NVML watches the bus for 20 ms for each direction."""
        library = self._nvml.library
        received = self._nvml("nvmlDeviceGetPcieThroughput", self._handle, library.NVML_PCIE_UTIL_RX_BYTES)
        sent = self._nvml("nvmlDeviceGetPcieThroughput", self._handle, library.NVML_PCIE_UTIL_TX_BYTES)
        return {"pcie_rx_bytes_per_s": received * 1024.0, "pcie_tx_bytes_per_s": sent * 1024.0}


def _process_ids() -> Capability:
    """Whether the process ids that NVML lists can be told apart as ours."""
    try:
        ours = os.readlink("/proc/self/ns/pid") == FIRST_PID_NAMESPACE
    except OSError:
        ours = True
    reason = "in a container NVML may give the machine's process ids, which are not those seen here"
    return Capability("device_processes.ids", ours, None if ours else reason)
