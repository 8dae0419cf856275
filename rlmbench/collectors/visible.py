"""CUDA_VISIBLE_DEVICES: which devices it leaves, and in which order.

Source: CUDA Programming Guide, "CUDA Environment Variables". Unset, all devices are visible; empty, none is. Else a list of indexes or of
beginnings of UUIDs, of which only those before the first invalid one count; a beginning of several devices' UUIDs is invalid, and a device
that is named twice leaves none (torch.cuda reads it so too). Of MIG slices a process sees only the first (MIG User Guide, "CUDA Device Enumeration").
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, TypeVar

UUIDS = ("GPU-", "MIG-")
BUS_ORDER = "PCI_BUS_ID"
"""The value of CUDA_DEVICE_ORDER with which CUDA counts as NVML does; else it puts faster devices first."""


class Named(Protocol):
    """A device by UUID, and the name of what it is."""

    @property
    def uuid(self) -> str: ...

    @property
    def name(self) -> str: ...


AnyDevice = TypeVar("AnyDevice", bound=Named)


def words(devices: Sequence[Named], visible: str | None) -> list[str] | None:
    """What is valid of `visible`; None where it is not set."""
    if visible is None:
        return None
    valid: list[str] = []
    named: list[int | str] = []
    for word in map(str.strip, visible.split(",")):
        if word.isdecimal() and int(word) < len(devices):
            one: int | str = int(word)
        elif len(by_uuid := _by_uuid(devices, word)) == 1:
            one = by_uuid[0].uuid
        else:
            break
        if one in named:
            return []
        valid.append(word)
        named.append(one)
    return valid


def count(devices: Sequence[Named], visible: str | None) -> int:
    """How many devices a process of CUDA would see."""
    valid = words(devices, visible)
    seen = len(devices) if valid is None else len(valid)
    return min(seen, 1) if only_slices(devices) else seen


def only_slices(devices: Sequence[Named]) -> bool:
    return bool(devices) and all(device.uuid.startswith("MIG-") for device in devices)


def chosen(devices: Sequence[AnyDevice], visible: str | None, order: str | None = None) -> list[AnyDevice]:
    """The devices that `visible` leaves, in its order. Where an index may stand for another device in CUDA's own order, all of them.

    An index is known only where CUDA counts as NVML does: where all devices are alike, or `order` (CUDA_DEVICE_ORDER) says so, and none is a
    MIG slice, since CUDA counts GPUs.
    """
    valid = words(devices, visible)
    if valid is None:
        return list(devices)
    by_index = (len({device.name for device in devices}) == 1 or order == BUS_ORDER) and not any(
        device.uuid.startswith("MIG-") for device in devices
    )
    if not by_index and any(word.isdecimal() for word in valid):
        return list(devices)
    return [devices[int(word)] if word.isdecimal() else _by_uuid(devices, word)[0] for word in valid]


def from_environment(devices: Sequence[AnyDevice]) -> list[AnyDevice]:
    """The devices that this process's own environment leaves."""
    return chosen(devices, os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))


def _by_uuid(devices: Sequence[AnyDevice], word: str) -> list[AnyDevice]:
    return [device for device in devices if word.startswith(UUIDS) and device.uuid.startswith(word)]
