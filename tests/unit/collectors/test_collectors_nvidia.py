"""NVML through the autospecced library: no GPU was at hand."""

from __future__ import annotations

import math

import pynvml
import pytest

from rlmbench.collectors import nvidia
from rlmbench.collectors.capability import Capability
from rlmbench.collectors.devices import (
    DeviceError,
    DeviceLost,
    DriverMismatch,
    DriverMissing,
    Inventory,
    NoPermission,
    NotReady,
    inventory,
    open_drivers,
)
from rlmbench.collectors.nvidia import NvidiaDevice, NvidiaDriver
from rlmbench.collectors.nvml import FIXES
from tests.unit.collectors.nvml_double import GIB, Gpu, consumer, h100, library, mig, v100

DENIED = "NVML: Insufficient Permissions; root has it, and a container with --cap-add SYS_ADMIN"


def only(gpu: Gpu, visible: str | None = None) -> NvidiaDevice:
    [device] = NvidiaDriver(library(gpu), visible).devices()
    return device


def said(device: NvidiaDevice) -> dict[str, Capability]:
    return {one.name: one for one in device.capabilities()}


def test_an_h100_tells_everything_in_the_units_of_the_columns() -> None:
    device = only(h100())
    assert (device.uuid, device.name) == ("GPU-h100", "NVIDIA H100 80GB HBM3")
    assert dict(device.sample()) == {
        "memory_used_bytes": 3 * GIB,
        "nvml_kernel_present": 0.97,
        "power_w": 612.345,
        "energy_j": 12_345.678,
        "nvlink_rx_bytes": 2048 * 1024,
        "nvlink_tx_bytes": 1024 * 1024,
        "sm_clock_hz": 1_980_000_000,
        "memory_clock_hz": 2_619_000_000,
        "throttle_reasons": "sw_power_cap",
        "temperature_c": 55.0,
        "sm_active": pytest.approx(0.91),
        "sm_occupancy": pytest.approx(0.40),
        "tensor_active": pytest.approx(0.555),
        "dram_active": pytest.approx(0.62),
        "pcie_rx_bytes_per_s": 100.0 * 2**20,
        "pcie_tx_bytes_per_s": 50.0 * 2**20,
        "nvlink_rx_bytes_per_s": 300.0 * 2**20,
        "nvlink_tx_bytes_per_s": 200.0 * 2**20,
    }
    assert dict(device.slow_sample()) == {}
    capabilities = said(device)
    assert not capabilities["mig"].available
    assert [name for name, one in capabilities.items() if not one.available] == ["mig"]
    assert device.limits() == (80 * GIB, 700.0)


def test_a_v100_with_an_old_driver_has_no_gpm_and_says_so() -> None:
    device = only(v100())
    sample = device.sample()
    assert {"sm_active", "tensor_active"}.isdisjoint(sample)
    assert (sample["power_w"], sample["energy_j"], sample["throttle_reasons"]) == (612.345, 12_345.678, "sw_power_cap")
    capabilities = said(device)
    assert not capabilities["gpm.sm_active"].available
    assert "Function Not Found" in str(capabilities["gpm.sm_active"].reason)
    assert capabilities["power"] == Capability(
        "power", True, "a mean over about the last second (NVML tells no instant power here)", "GPU-v100"
    )
    assert capabilities["pcie"].reason == "over 20 ms, once a second"
    assert dict(device.slow_sample()) == {"pcie_rx_bytes_per_s": 3000 * 1024.0, "pcie_tx_bytes_per_s": 1000 * 1024.0}


def test_a_gpu_before_hopper_with_a_new_driver_is_told_from_one_that_has_gpm() -> None:
    gpu = v100()
    gpu.refuses = {}
    assert said(only(gpu))["gpm.dram_active"].reason == "this GPU has no GPM: Hopper (H100) and later do"


def test_a_consumer_card_has_no_energy_counter() -> None:
    device = only(consumer())
    sample = device.sample()
    assert "energy_j" not in sample
    assert "nvlink_rx_bytes" not in sample
    assert sample["power_w"] == 612.345
    assert said(device)["energy"] == Capability("energy", False, "NVML: Not Supported", "GPU-1080")
    assert list(device.processes()) == [(4242, None)]


def test_mig_slices_stand_for_the_gpu_and_have_neither_energy_nor_utilization() -> None:
    driver = NvidiaDriver(library(mig()))
    first, second = driver.devices()
    assert (first.uuid, second.uuid) == ("MIG-1", "MIG-2")
    sample = second.sample()
    assert sample["memory_used_bytes"] == 2 * GIB
    assert (sample["sm_clock_hz"], sample["temperature_c"]) == (1_980_000_000, 55.0)  # the GPU's
    assert sample["sm_active"] == pytest.approx(0.91)
    assert {"energy_j", "power_w", "nvml_kernel_present", "nvlink_rx_bytes"}.isdisjoint(sample)
    capabilities = said(second)
    assert capabilities["mig"].available
    assert {name for name, one in capabilities.items() if one.reason == nvidia.MIG_REASON} == {
        "nvml_kernel_present",
        "power",
        "energy",
        "nvlink",
    }
    assert second.limits() == (40 * GIB, None)


def test_devices_are_chosen_by_uuid_and_never_by_index() -> None:
    both = library(h100(), v100())
    chosen = lambda visible: [device.uuid for device in NvidiaDriver(both, visible).devices()]  # noqa: E731
    assert chosen("GPU-v100") == ["GPU-v100"]
    assert chosen("GPU-v1") == ["GPU-v100"]  # CUDA takes the beginning of a UUID too
    assert chosen("0") == chosen(None) == chosen("1,0") == ["GPU-h100", "GPU-v100"]
    assert chosen("") == chosen("-1") == chosen("GPU-none,GPU-v100") == []
    assert NvidiaDriver(both, "").capabilities()[0] == Capability(
        "nvml", False, "CUDA_VISIBLE_DEVICES leaves no device: it is empty, begins with one that is not there, or names one twice"
    )


def test_a_device_that_fell_off_the_bus_hides_no_other() -> None:
    lost = v100()
    lost.refuses["nvmlDeviceGetUUID"] = pynvml.NVML_ERROR_GPU_IS_LOST
    driver = NvidiaDriver(library(lost, h100()))
    assert [device.uuid for device in driver.devices()] == ["GPU-h100"]
    assert Capability("device", False, f"device 0 in NVML's order: NVML: GPU is lost; {FIXES[DeviceLost]}") in driver.capabilities()


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, DriverMissing, "NVML Shared Library Not Found; install NVIDIA's driver"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, DriverMissing, "Driver Not Loaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, DriverMismatch, "version mismatch.; restart the machine"),
        (pynvml.NVML_ERROR_NO_PERMISSION, NoPermission, "Insufficient Permissions"),
        (pynvml.NVML_ERROR_UNKNOWN, DeviceError, "Unknown Error"),
    ],
)
def test_error_codes_become_exceptions_with_a_fix(code: int, kind: type[DeviceError], words: str) -> None:
    with pytest.raises(DeviceError, match=words) as caught:
        NvidiaDriver(library(init_error=code))
    assert type(caught.value) is kind


def test_a_call_that_fails_once_is_left_out_once_and_a_lost_device_is_an_error() -> None:
    gpu = h100()
    device = only(gpu)
    gpu.refuses = {"nvmlDeviceGetTemperature": pynvml.NVML_ERROR_TIMEOUT, "nvmlGpmSampleGet": pynvml.NVML_ERROR_NO_DATA}
    sample = device.sample()
    assert {"temperature_c", "sm_active"}.isdisjoint(sample)
    assert sample["power_w"] == 612.345
    gpu.refuses = {}
    assert device.sample()["temperature_c"] == 55.0
    gpu.refuses = {"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_GPU_IS_LOST}
    with pytest.raises(DeviceLost):
        device.sample()


def test_what_gpm_cannot_tell_of_an_interval_is_absent_and_not_zero() -> None:
    gpu = h100()
    device = only(gpu)
    assert gpu.gpm is not None
    gpu.gpm[pynvml.NVML_GPM_METRIC_SM_UTIL] = math.nan
    del gpu.gpm[pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL]
    sample = device.sample()
    assert {"sm_active", "dram_active"}.isdisjoint(sample)
    assert sample["tensor_active"] == pytest.approx(0.555)


def test_gpm_compares_each_sample_with_the_one_before() -> None:
    double = library(h100())
    [device] = NvidiaDriver(double).devices()
    device.sample()
    device.sample()
    first, second, third, fourth = (call.args[1] for call in double.nvmlGpmSampleGet.call_args_list)  # two to see what there is
    assert third is first and fourth is second  # two samples take turns
    assert second is not first


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NO_DATA, pynvml.NVML_ERROR_UNKNOWN])
def test_samples_that_are_too_near_to_each_other_at_the_start_cost_nothing(code: int) -> None:
    gpu = h100()
    double = library(gpu)
    answer = double.nvmlGpmMetricsGet.side_effect
    double.nvmlGpmMetricsGet.side_effect = pynvml.NVMLError(code)
    [device] = NvidiaDriver(double).devices()
    assert said(device)["gpm.sm_active"].available
    double.nvmlGpmMetricsGet.side_effect = answer
    assert device.sample()["sm_active"] == pytest.approx(0.91)


def test_what_a_gpus_gpm_never_tells_is_a_stated_gap_and_asked_otherwise_where_that_can_be() -> None:
    """A PCIe card without NVLink, in a driver without GPM's PCIe rates."""
    gpu = h100()
    assert gpu.gpm is not None
    for name in ("NVLINK_TOTAL_RX", "NVLINK_TOTAL_TX", "PCIE_RX", "PCIE_TX"):
        del gpu.gpm[getattr(pynvml, f"NVML_GPM_METRIC_{name}_PER_SEC")]
    device = only(gpu)
    capabilities = said(device)
    assert capabilities["gpm.nvlink_rx_bytes_per_s"] == Capability("gpm.nvlink_rx_bytes_per_s", False, nvidia.NO_METRIC, "GPU-h100")
    assert capabilities["gpm.sm_active"].available and capabilities["pcie"].reason == "over 20 ms, once a second"
    assert device.sample()["sm_active"] == pytest.approx(0.91)
    assert device.slow_sample() == {"pcie_rx_bytes_per_s": 3000 * 1024.0, "pcie_tx_bytes_per_s": 1000 * 1024.0}


def test_all_throttle_reasons_have_names() -> None:
    gpu = h100()
    gpu.reasons = pynvml.nvmlClocksEventReasonHwThermalSlowdown | pynvml.nvmlClocksEventReasonHwSlowdown
    assert only(gpu).sample()["throttle_reasons"] == "hw_slowdown,hw_thermal"
    gpu.reasons = 0
    assert only(gpu).sample()["throttle_reasons"] == ""
    assert pynvml.nvmlClocksEventReasonAll == sum(getattr(pynvml, f"nvmlClocksEventReason{suffix}") for suffix in nvidia._REASONS)


def test_an_old_binding_without_a_function_is_told_how_to_renew() -> None:
    double = library(h100())
    del double.nvmlGpmQueryDeviceSupport
    [device] = NvidiaDriver(double).devices()
    assert "pip install --upgrade nvidia-ml-py" in str(said(device)["gpm.sm_active"].reason)


def test_without_a_driver_there_is_a_reason_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "LIBRARY", "libnvidia-ml-that-is-not-there.so.1")
    drivers, [found] = open_drivers()
    assert drivers == []
    assert (found.name, found.available) == ("nvml", False)
    assert found.reason == (
        "NVML: libnvidia-ml-that-is-not-there.so.1 is not there; install NVIDIA's driver, or give it to this container "
        "(--gpus all, NVIDIA_DRIVER_CAPABILITIES with utility)"
    )


def test_in_a_container_process_ids_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for link, ours in ((nvidia.FIRST_PID_NAMESPACE, True), ("pid:[4026532201]", False)):
        monkeypatch.setattr(nvidia.os, "readlink", lambda path, link=link: link)
        found = {one.name: one for one in NvidiaDriver(library(h100())).capabilities()}
        assert found["device_processes.ids"].available is ours


def test_errors_that_pass_are_told_from_what_is_never_supported() -> None:
    gpu = v100()
    gpu.refuses["nvmlDeviceGetTotalEnergyConsumption"] = pynvml.NVML_ERROR_TIMEOUT  # at the start only
    device = only(gpu)
    assert said(device)["energy"].available
    del gpu.refuses["nvmlDeviceGetTotalEnergyConsumption"]
    assert device.sample()["energy_j"] == 12_345.678


def test_a_process_list_that_is_not_permitted_is_a_stated_gap() -> None:
    """As in a container of which the driver hides the others."""
    gpu = h100()
    gpu.refuses = {"nvmlDeviceGetComputeRunningProcesses": pynvml.NVML_ERROR_NO_PERMISSION}
    device = only(gpu)
    assert said(device)["device_processes"] == Capability("device_processes", False, DENIED, "GPU-h100")
    with pytest.raises(NoPermission):
        device.processes()
    assert device.sample()["memory_used_bytes"] == 3 * GIB  # all else goes on


def test_a_process_list_that_grew_while_it_was_read_may_be_asked_again() -> None:
    gpu = h100()
    device = only(gpu)
    gpu.refuses = {"nvmlDeviceGetComputeRunningProcesses": pynvml.NVML_ERROR_INSUFFICIENT_SIZE}
    with pytest.raises(NotReady):
        device.processes()


@pytest.mark.parametrize("name", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet"])
def test_gpm_that_is_not_permitted_leaves_the_rest(name: str) -> None:
    gpu = h100()
    gpu.refuses = {name: pynvml.NVML_ERROR_NO_PERMISSION}
    double = library(gpu)
    [device] = NvidiaDriver(double).devices()
    assert said(device)["gpm.sm_active"].reason == DENIED
    assert said(device)["pcie"].reason == "over 20 ms, once a second"  # in place of GPM's
    assert "sm_active" not in device.sample() and device.sample()["power_w"] == 612.345
    assert double.nvmlGpmSampleFree.call_count == double.nvmlGpmSampleAlloc.call_count


def test_slices_of_other_containers_are_not_seen_and_neither_is_a_gpu_whose_mode_is_hidden() -> None:
    whole = mig()
    double = library(whole)

    def get_slice(gpu: Gpu, index: int) -> Gpu:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
        if index >= len(gpu.slices):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return gpu.slices[index]

    double.nvmlDeviceGetMigDeviceHandleByIndex.side_effect = get_slice
    assert [device.uuid for device in NvidiaDriver(double).devices()] == ["MIG-2"]
    whole.refuses["nvmlDeviceGetMigMode"] = pynvml.NVML_ERROR_NO_PERMISSION
    assert [device.uuid for device in NvidiaDriver(double).devices()] == ["GPU-h100"]


def test_an_inventory_asks_no_device_what_it_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    double = library(h100(), mig())
    monkeypatch.setattr(nvidia, "open_driver", lambda visible=None, probe=True: NvidiaDriver(double, visible, probe=probe))
    found = inventory()
    assert [(one.uuid, one.memory_bytes, one.driver) for one in found.devices] == [
        ("GPU-h100", 80 * GIB, "570.86.15"),
        ("MIG-1", 40 * GIB, "570.86.15"),
        ("MIG-2", 40 * GIB, "570.86.15"),
    ]
    assert not double.nvmlDeviceGetComputeRunningProcesses.called and not double.nvmlGpmSampleAlloc.called
    assert double.nvmlShutdown.call_count == 1


def test_an_inventory_is_never_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(**_: object) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(nvidia, "open_driver", odd)
    assert inventory() == Inventory(reason="unexpected RuntimeError: nobody foresaw this")
