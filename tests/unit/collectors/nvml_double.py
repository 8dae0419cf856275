"""pynvml with functions that check their arguments as the real ones do (autospec) and answer for invented GPUs.

No GPU was at hand when this was written: what the GPUs answer follows nvml.h and NVIDIA's API reference, not a recording.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import create_autospec

import pynvml

GIB = 1 << 30


@dataclass
class Gpu:
    """An invented GPU. `refuses` are functions, or field ids, that answer with an error code; `gpm` are metric id -> value, None without GPM."""

    uuid: str
    name: str
    memory: int = 80 * GIB
    used: int = 3 * GIB
    utilization: int = 97
    milliwatts: int = 612_345
    millijoules: int = 12_345_678
    sm_mhz: int = 1980
    memory_mhz: int = 2619
    reasons: int = pynvml.nvmlClocksEventReasonSwPowerCap
    celsius: int = 55
    processes: list[tuple[int, int | None]] = field(default_factory=list)
    nvlink_kib: tuple[int, int] = (2048, 1024)
    refuses: dict[Any, int] = field(default_factory=dict)
    gpm: dict[int, float] | None = None
    slices: list[Gpu] = field(default_factory=list)
    instance: int = 0
    parent: Gpu | None = None


def v100() -> Gpu:
    """Volta: energy, NVLink counters, no GPM; a driver older than 535 (throttle reasons under their old name, no instant power)."""
    missing = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    return Gpu(
        "GPU-v100",
        "Tesla V100-SXM2-32GB",
        memory=32 * GIB,
        refuses={
            "nvmlGpmQueryDeviceSupport": missing,
            "nvmlDeviceGetCurrentClocksEventReasons": missing,
            pynvml.NVML_FI_DEV_POWER_INSTANT: pynvml.NVML_ERROR_NOT_SUPPORTED,
        },
    )


def h100() -> Gpu:
    gpm = {
        pynvml.NVML_GPM_METRIC_SM_UTIL: 91.0,
        pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: 40.0,
        pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 55.5,
        pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 62.0,
        pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: 100.0,
        pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: 50.0,
        pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: 300.0,
        pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: 200.0,
    }
    return Gpu("GPU-h100", "NVIDIA H100 80GB HBM3", gpm=gpm)


def consumer() -> Gpu:
    """A card without energy counter, NVLink and GPM, whose processes hide their memory."""
    no = pynvml.NVML_ERROR_NOT_SUPPORTED
    refuses: dict[Any, int] = {
        "nvmlDeviceGetTotalEnergyConsumption": no,
        "nvmlDeviceGetMigMode": no,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: no,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: no,
        pynvml.NVML_FI_DEV_POWER_INSTANT: no,
    }
    return Gpu("GPU-1080", "NVIDIA GeForce GTX 1080", memory=8 * GIB, processes=[(4242, None)], refuses=refuses)


def mig() -> Gpu:
    """An H100 divided in two; the whole GPU's counters are not told of a slice."""
    whole = h100()
    no = pynvml.NVML_ERROR_NOT_SUPPORTED
    refuses: dict[Any, int] = {
        "nvmlDeviceGetUtilizationRates": no,
        "nvmlDeviceGetPowerUsage": no,
        "nvmlDeviceGetTotalEnergyConsumption": no,
        "nvmlDeviceGetClockInfo": no,
        "nvmlDeviceGetTemperature": no,
    }
    for number in (1, 2):
        one = Gpu(f"MIG-{number}", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", memory=40 * GIB, used=number * GIB, refuses=refuses)
        one.instance, one.parent = number, whole
        whole.slices.append(one)
    return whole


def library(*gpus: Gpu, init_error: int | None = None) -> Any:
    """pynvml for a machine with these GPUs; they may be changed afterwards."""
    double = types.SimpleNamespace(**{name: value for name, value in vars(pynvml).items() if not isinstance(value, types.FunctionType)})
    for name in ("nvmlInit", "nvmlShutdown"):
        setattr(double, name, create_autospec(getattr(pynvml, name)))

    def answer(name: str, function: Callable[..., Any]) -> None:
        setattr(double, name, create_autospec(getattr(pynvml, name)))

        def wrapped(*arguments: Any, **named: Any) -> Any:
            first = arguments[0] if arguments else None
            if isinstance(first, Gpu) and name in first.refuses:
                raise pynvml.NVMLError(first.refuses[name])
            return function(*arguments, **named)

        getattr(double, name).side_effect = wrapped

    if init_error is not None:
        double.nvmlInit.side_effect = pynvml.NVMLError(init_error)
    answer("nvmlSystemGetDriverVersion", lambda: "570.86.15")
    answer("nvmlDeviceGetCount", lambda: len(gpus))
    answer("nvmlDeviceGetHandleByIndex", lambda index: gpus[index])
    answer("nvmlDeviceGetUUID", lambda gpu: gpu.uuid)
    answer("nvmlDeviceGetName", lambda gpu: gpu.name)
    answer("nvmlDeviceGetMemoryInfo", _memory)
    answer("nvmlDeviceGetUtilizationRates", lambda gpu: types.SimpleNamespace(gpu=gpu.utilization, memory=0))
    answer("nvmlDeviceGetPowerUsage", lambda gpu: gpu.milliwatts)
    answer("nvmlDeviceGetEnforcedPowerLimit", lambda gpu: 700_000)
    answer("nvmlDeviceGetTotalEnergyConsumption", lambda gpu: gpu.millijoules)
    answer("nvmlDeviceGetFieldValues", _fields)
    answer("nvmlDeviceGetClockInfo", lambda gpu, kind: {pynvml.NVML_CLOCK_SM: gpu.sm_mhz, pynvml.NVML_CLOCK_MEM: gpu.memory_mhz}[kind])
    answer("nvmlDeviceGetCurrentClocksEventReasons", lambda gpu: gpu.reasons)
    answer("nvmlDeviceGetCurrentClocksThrottleReasons", lambda gpu: gpu.reasons)
    answer("nvmlDeviceGetTemperature", lambda gpu, sensor: gpu.celsius)
    answer(
        "nvmlDeviceGetPcieThroughput",
        lambda gpu, counter: {pynvml.NVML_PCIE_UTIL_RX_BYTES: 3000, pynvml.NVML_PCIE_UTIL_TX_BYTES: 1000}[counter],
    )
    answer(
        "nvmlDeviceGetComputeRunningProcesses",
        lambda gpu: [types.SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in gpu.processes],
    )
    answer("nvmlDeviceGetMigMode", lambda gpu: [int(bool(gpu.slices))] * 2)
    answer("nvmlDeviceGetMaxMigDeviceCount", lambda gpu: 7)
    answer("nvmlDeviceGetMigDeviceHandleByIndex", _slice)
    answer("nvmlDeviceGetGpuInstanceId", lambda gpu: gpu.instance)
    answer("nvmlGpmQueryDeviceSupport", lambda gpu: types.SimpleNamespace(isSupportedDevice=int(gpu.gpm is not None)))
    _answer_gpm(double, answer)
    return double


def _memory(gpu: Gpu, version: int | None = None) -> Any:
    """In version 1 `used` holds what the driver keeps for itself too."""
    return types.SimpleNamespace(total=gpu.memory, used=gpu.used if version == pynvml.nvmlMemory_v2 else gpu.used + GIB)


def _slice(gpu: Gpu, index: int) -> Gpu:
    if index >= len(gpu.slices):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
    return gpu.slices[index]


def _fields(gpu: Gpu, ids: Iterable[tuple[int, int]]) -> Any:
    known = {
        pynvml.NVML_FI_DEV_POWER_INSTANT: gpu.milliwatts,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: gpu.nvlink_kib[0],
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: gpu.nvlink_kib[1],
    }
    values = []
    for name, _scope in ids:
        value = pynvml.c_nvmlFieldValue_t()
        value.fieldId, value.nvmlReturn = name, gpu.refuses.get(name, pynvml.NVML_SUCCESS)
        value.valueType, value.value.ullVal = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, known[name]
        values.append(value)
    return values


def _answer_gpm(double: Any, answer: Callable[[str, Callable[..., Any]], None]) -> None:
    """GPM samples are opaque to callers; which GPU's the last ones were is kept beside them."""
    seen: list[Gpu] = []

    def metrics(request: Any) -> Any:
        for place in range(request.numMetrics):
            metric = request.metrics[place]
            value = (seen[-1].gpm or {}).get(metric.metricId)
            metric.nvmlReturn = pynvml.NVML_SUCCESS if value is not None else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = value if value is not None else 0.0
        return request

    answer("nvmlGpmSampleAlloc", pynvml.c_nvmlGpmSample_t)
    answer("nvmlGpmSampleFree", lambda sample: None)
    answer("nvmlGpmSampleGet", lambda gpu, sample: seen.append(gpu))
    answer(
        "nvmlGpmMigSampleGet",
        lambda gpu, instance, sample: seen.append(next(one.parent or one for one in gpu.slices if one.instance == instance)),
    )
    answer("nvmlGpmMetricsGet", metrics)
