"""The collector's file: one JSON object a line, as a gzip stream that can be read up to its last flush (docs/records.md).

A row repeats much of what the row before said: of eight GPUs, whose readings all change, 19 of 77 MB an hour are left.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlmbench.collectors.capability import Capability
from rlmbench.collectors.node import NodeSample
from rlmbench.collectors.tree import ProcessSample, TreeSample

SCHEMA = 1
ENDING, NOTE_ENDING = ".jsonl.gz", ".jsonl"
GZIP_BITS = 31
"""zlib's number for its largest window in gzip's format."""
FAST = 1
"""Compression level: the fastest."""
DEVICE_COLUMNS = (
    "device",
    "memory_used_bytes",
    "nvml_kernel_present",
    "power_w",
    "energy_j",
    "sm_clock_hz",
    "memory_clock_hz",
    "throttle_reasons",
    "temperature_c",
    "pcie_rx_bytes_per_s",
    "pcie_tx_bytes_per_s",
    "nvlink_rx_bytes",
    "nvlink_tx_bytes",
    "nvlink_rx_bytes_per_s",
    "nvlink_tx_bytes_per_s",
    "sm_active",
    "sm_occupancy",
    "tensor_active",
    "dram_active",
)
COLUMNS: Mapping[str, Sequence[str]] = {
    "node_samples": NodeSample._fields,
    "tree_samples": TreeSample._fields,
    "process_samples": ProcessSample._fields,
    "device_samples": DEVICE_COLUMNS,
    "device_processes": ("device", "pid", "memory_used_bytes"),
}
"""Table -> columns in the order in which its rows are written."""


def node_name(host: str | None = None) -> str:
    """The host's name as the name of a file."""
    name = host or os.uname().nodename
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in name) or "node"


def path_of(folder: Path, host: str | None = None) -> Path:
    return folder / f"{node_name(host)}{ENDING}"


def note_path_of(folder: Path, host: str | None = None) -> Path:
    """Where others say something of the node: behind a stream that was cut off nothing could be read."""
    return folder / f"{node_name(host)}{NOTE_ENDING}"


def capability_line(capability: Capability) -> dict[str, Any]:
    return {
        "ev": "capability",
        "device": capability.device,
        "name": capability.name,
        "available": capability.available,
        "reason": capability.reason,
    }


class Lines:
    """Writes the file at `path`, in which lines are found from the next `flush` on. Raises OSError when the disk is full."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._packer = zlib.compressobj(FAST, wbits=GZIP_BITS)

    def begin(self, interval_s: float, cores: int) -> None:
        self.write(
            ev="collector",
            schema=SCHEMA,
            host=os.uname().nodename,
            boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            pid=os.getpid(),
            mono_ns=time.monotonic_ns(),
            real_ns=time.time_ns(),
            interval_s=interval_s,
            cores=cores,
        )
        self.write(ev="columns", tables={table: list(columns) for table, columns in COLUMNS.items()})

    def capabilities(self, found: Iterable[Capability]) -> None:
        for one in found:
            self.write(**capability_line(one))
        self.flush()

    def rows(self, t_ns: int, tables: Mapping[str, Sequence[Sequence[Any]]]) -> None:
        self.write(ev="rows", t_ns=t_ns, tables=tables)

    def write(self, **event: Any) -> None:
        self._put(self._packer.compress(_encode(event).encode() + b"\n"))

    def flush(self) -> None:
        """From now on what was written survives a kill -9."""
        self._put(self._packer.flush(zlib.Z_SYNC_FLUSH))

    def close(self) -> None:
        self._put(self._packer.flush())
        os.close(self._descriptor)

    def _put(self, packed: bytes) -> None:
        while packed:  # a disk that is nearly full takes a part
            packed = packed[os.write(self._descriptor, packed) :]


_encode = json.JSONEncoder(separators=(",", ":")).encode
