"""GPM: NVIDIA's counters of what a GPU does inside, on Hopper and later."""

from __future__ import annotations

import math
from typing import Any

from rlmbench.collectors.devices import DeviceError, DeviceLost, NoPermission, NotSupported, Value
from rlmbench.collectors.nvml import Nvml

GPM_COLUMNS = {
    "sm_active": ("NVML_GPM_METRIC_SM_UTIL", 0.01),
    "sm_occupancy": ("NVML_GPM_METRIC_SM_OCCUPANCY", 0.01),
    "tensor_active": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 0.01),
    "dram_active": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 0.01),
    "pcie_rx_bytes_per_s": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", float(1 << 20)),
    "pcie_tx_bytes_per_s": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", float(1 << 20)),
    "nvlink_rx_bytes_per_s": ("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", float(1 << 20)),
    "nvlink_tx_bytes_per_s": ("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", float(1 << 20)),
}
"""Column -> GPM's metric, and what its value is multiplied with."""


class Gpm:
    """GPM's counters of one device: what happened between two samples, as shares of that time. `columns` are those that it has.

    Raises DeviceError when the device has none.
    """

    def __init__(self, nvml: Nvml, handle: Any, instance: int | None) -> None:
        self._nvml = nvml
        self._handle = handle
        self._instance = instance
        self._samples: list[Any] = []
        if not nvml("nvmlGpmQueryDeviceSupport", handle).isSupportedDevice:
            raise NotSupported("this GPU has no GPM: Hopper (H100) and later do")
        library = nvml.library
        self._ask_for([column for column, (metric, _) in GPM_COLUMNS.items() if hasattr(library, metric)])
        self._samples = [nvml("nvmlGpmSampleAlloc"), nvml("nvmlGpmSampleAlloc")]
        try:
            self._take()
            self._ask_for(self._supported())
        except DeviceError:
            self.close()
            raise

    def _ask_for(self, columns: list[str]) -> None:
        library = self._nvml.library
        self.columns = columns
        self._request = library.c_nvmlGpmMetricsGet_t()
        self._request.version = library.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(columns)
        for place, column in enumerate(columns):
            self._request.metrics[place].metricId = getattr(library, GPM_COLUMNS[column][0])

    def _supported(self) -> list[str]:
        """Without what this device never tells, such as NVLink's traffic where there is none. That two samples are too near to each other
        says nothing."""
        try:
            self._take()
            self._request.sample1, self._request.sample2 = self._samples
            answer = self._nvml("nvmlGpmMetricsGet", self._request)
        except (NotSupported, NoPermission, DeviceLost):
            raise
        except DeviceError:
            return self.columns
        never = self._nvml.library.NVML_ERROR_NOT_SUPPORTED
        return [column for place, column in enumerate(self.columns) if answer.metrics[place].nvmlReturn != never]

    def _take(self) -> None:
        """The older of the two samples becomes the newer one."""
        older, newer = self._samples
        if self._instance is None:
            self._nvml("nvmlGpmSampleGet", self._handle, older)
        else:
            self._nvml("nvmlGpmMigSampleGet", self._handle, self._instance, older)
        self._samples = [newer, older]

    def sample(self) -> dict[str, Value]:
        self._take()
        self._request.sample1, self._request.sample2 = self._samples
        answer = self._nvml("nvmlGpmMetricsGet", self._request)
        found: dict[str, Value] = {}
        for place, column in enumerate(self.columns):
            metric = answer.metrics[place]
            if metric.nvmlReturn == self._nvml.library.NVML_SUCCESS and math.isfinite(metric.value):
                found[column] = round(float(metric.value) * GPM_COLUMNS[column][1], 6)  # finer than NVML knows, and short
        return found

    def close(self) -> None:
        for sample in self._samples:
            try:
                self._nvml("nvmlGpmSampleFree", sample)
            except DeviceError:
                pass
        self._samples = []
