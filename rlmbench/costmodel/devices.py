"""What devices can do at most, by their data sheets. A device or a number format that is not here is unknown, never 0 or infinite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlmbench.errors import UserError, did_you_mean

GB = 10**9
MIB = 2**20
TERA = 10**12


@dataclass(frozen=True)
class Device:
    """One type of device. `flops_per_s`: dense matrix products by dtype (float32 without TF32); `nvml_names` as the driver gives them.

    `memory_bytes`: all of a device's memory as its driver reports it (nvidia-smi's memory.total with ECC on, rocm-smi's VRAM total), which is neither
    the decimal nor the binary reading of the size it is sold by: an H100 of 80 GB has 81,559 MiB. Older drivers report up to 1% less, as they count
    what they keep for themselves.
    """

    name: str
    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    memory_bytes: int
    source: str
    nvml_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ceiling:
    """What one device of a run can do at most: `basis` says whether by its data sheet or measured (`rlmbench doctor --ceilings`)."""

    basis: str
    device: str
    flops_per_s: float | None
    bytes_per_s: float | None
    source: str


def _device(name: str, bf16: float | None, fp32: float | None, bandwidth_gb: float, memory_mib: int, source: str, *names: str) -> Device:
    rates = {"bfloat16": bf16, "float32": fp32}
    known = {dtype: rate * TERA for dtype, rate in rates.items() if rate is not None}
    return Device(name, known, bandwidth_gb * GB, memory_mib * MIB, source, names)


# Memory: as printed by nvidia-smi and rocm-smi on such devices, for one in modal-labs/modal-client#2797 (A10, A100, H100, L4, L40S) and NVIDIA/nccl#1264
# (H100); H200, H20, B200, H100 NVL and MI300X from logs that several projects published.
_ALL = (
    _device("V100-SXM2", None, 15.7, 900, 32_768, "NVIDIA V100 data sheet", "Tesla V100-SXM2-32GB", "Tesla V100-SXM2-16GB"),
    _device("A10", 125, 31.2, 600, 23_028, "NVIDIA A10 data sheet", "NVIDIA A10"),
    _device("A100-SXM-40GB", 312, 19.5, 1555, 40_960, "NVIDIA A100 data sheet", "NVIDIA A100-SXM4-40GB"),
    _device("A100-SXM-80GB", 312, 19.5, 2039, 81_920, "NVIDIA A100 data sheet", "NVIDIA A100-SXM4-80GB"),
    _device("A100-PCIe-80GB", 312, 19.5, 1935, 81_920, "NVIDIA A100 data sheet", "NVIDIA A100 80GB PCIe"),
    _device("L4", 121, 30.3, 300, 23_034, "NVIDIA L4 data sheet, half of the sparse rate", "NVIDIA L4"),
    _device("L40S", 362, 91.6, 864, 46_068, "NVIDIA L40S data sheet", "NVIDIA L40S"),
    _device("H100-SXM", 989.4, 66.9, 3350, 81_559, "NVIDIA H100 data sheet, half of the sparse rate", "NVIDIA H100 80GB HBM3"),
    _device("H100-PCIe", 756, 51.2, 2000, 81_559, "NVIDIA H100 white paper, dense", "NVIDIA H100 PCIe"),
    _device("H100-NVL", 835, 60, 3900, 95_830, "NVIDIA H100 data sheet, half of the sparse rate", "NVIDIA H100 NVL"),
    _device("H200-SXM", 989.4, 66.9, 4800, 143_771, "NVIDIA H200 data sheet, half of the sparse rate", "NVIDIA H200"),
    _device("H20", 148, 44, 4000, 97_871, "NVIDIA H20 data sheet", "NVIDIA H20"),
    _device("B200", 2250, None, 8000, 183_359, "NVIDIA DGX B200 data sheet, half of the sparse rate", "NVIDIA B200"),
    _device("MI300X", 1307.4, 163.4, 5300, 196_592, "AMD Instinct MI300X data sheet", "AMD Instinct MI300X"),
)

DEVICES: Mapping[str, Device] = {device.name: device for device in _ALL}
"""Every device by name."""


def by_nvml_name(name: str) -> Device | None:
    """The device that the driver calls `name`; None for one that is not in the table, such as a part of one (MIG)."""
    return next((device for device in DEVICES.values() if name in device.nvml_names), None)


def find_device(name: str) -> Device:
    """The device called `name` (``H100-SXM``).

    Raises:
        UserError: it is not in the table.
    """
    if name not in DEVICES:
        raise UserError(f"--device-type: unknown device {name!r}{did_you_mean(name, DEVICES)}; known: {', '.join(DEVICES)}")
    return DEVICES[name]


def datasheet(device: Device, dtype: str) -> Ceiling:
    """The data sheet's ceiling for products in `dtype`; a rate that is not known is None."""
    return Ceiling("datasheet", device.name, device.flops_per_s.get(dtype), device.bytes_per_s, device.source)
