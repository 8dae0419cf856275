"""The columns of every table, and which values each accepts.

A column that may be null says so; its dtype is then one of pandas' nullable ones, so that an absent figure stays null
and never becomes 0 or a float.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

TABLES_SCHEMA_VERSION = 2
LOWEST, HIGHEST = -(2**63), 2**63 - 1  # of an int64


class Kind(NamedTuple):
    """A column's pandas dtype and the JSON types it is made from."""

    dtype: str
    types: tuple[type, ...]

    def accepts(self, value: Any) -> bool:
        """Whether `value` may stand in the column; a bool is no integer here."""
        return type(value) in self.types and (type(value) is not int or LOWEST <= value <= HIGHEST)


_NONE = type(None)
INT = Kind("int64", (int,))
INT_OR_NULL = Kind("Int64", (int, _NONE))
FLOAT_OR_NULL = Kind("float64", (int, float, _NONE))
TEXT = Kind("string", (str,))
TEXT_OR_NULL = Kind("string", (str, _NONE))
FLAG = Kind("boolean", (bool,))
FLAG_OR_NULL = Kind("boolean", (bool, _NONE))

EVENT_COLUMNS: Mapping[str, Mapping[str, Kind]] = {
    "processes": {
        "process": TEXT,
        "schema": INT_OR_NULL,
        "pid": INT_OR_NULL,
        "ppid": INT_OR_NULL,
        "rank": INT_OR_NULL,
        "local_rank": INT_OR_NULL,
        "world_size": INT_OR_NULL,
        "role": TEXT_OR_NULL,
        "host": TEXT_OR_NULL,
        "boot_id": TEXT_OR_NULL,
        "mono_ns": INT_OR_NULL,
        "real_ns": INT_OR_NULL,
        "argv": TEXT_OR_NULL,
        "end_ns": INT_OR_NULL,
        "probe_ns": INT_OR_NULL,
        "damaged_lines": INT,
    },
    "hooks": {"process": TEXT, "name": TEXT, "target": TEXT_OR_NULL, "attached": FLAG, "reason": TEXT_OR_NULL, "optional": FLAG_OR_NULL},
    "spans": {
        "process": TEXT,
        "id": INT,
        "parent": INT_OR_NULL,
        "stage": TEXT,
        "substage": TEXT_OR_NULL,
        "name": TEXT_OR_NULL,
        "step": INT,
        "thread": INT,
        "start_ns": INT,
        "end_ns": INT,
        "samples": INT_OR_NULL,
        "prompt_tokens": INT_OR_NULL,
        "response_tokens": INT_OR_NULL,
        "valid_tokens": INT_OR_NULL,
        "computed_tokens": INT_OR_NULL,
        "rss_bytes": INT_OR_NULL,
        "rss_peak_bytes": INT_OR_NULL,
        "torch_allocated_peak_bytes": INT_OR_NULL,
        "torch_reserved_peak_bytes": INT_OR_NULL,
        "awaits": TEXT_OR_NULL,
        "error": TEXT_OR_NULL,
    },
    "steps": {"process": TEXT, "step": INT, "start_ns": INT, "end_ns": INT, "probe_ns": INT_OR_NULL},
    "microbatches": {
        "process": TEXT,
        "step": INT,
        "update": INT_OR_NULL,
        "micro_batch": INT,
        "t_ns": INT_OR_NULL,
        "samples": INT,
        "valid_tokens": INT,
        "computed_tokens": INT_OR_NULL,
    },
    "samples": {
        "process": TEXT,
        "step": INT,
        "update": INT_OR_NULL,
        "micro_batch": INT,
        "row": INT_OR_NULL,
        "sample": INT_OR_NULL,
        "prompt_hash": TEXT_OR_NULL,
        "prompt_tokens": INT,
        "response_tokens": INT,
        "reward": FLOAT_OR_NULL,
    },
    "rewards": {
        "process": TEXT,
        "step": INT,
        "t_ns": INT_OR_NULL,
        "row": INT_OR_NULL,
        "sample": INT_OR_NULL,
        "reward": FLOAT_OR_NULL,
    },
    "logprobs": {
        "process": TEXT,
        "step": INT,
        "t_ns": INT_OR_NULL,
        "tokens": INT,
        "difference_sum": FLOAT_OR_NULL,
        "difference_max": FLOAT_OR_NULL,
    },
    "updates": {
        "process": TEXT,
        "step": INT,
        "update": INT_OR_NULL,
        "t_ns": INT_OR_NULL,
        "role": TEXT,
        "learning_rate": FLOAT_OR_NULL,
        "grad_norm": FLOAT_OR_NULL,
        "weights_changed": FLAG_OR_NULL,
    },
    "native": {"process": TEXT, "step": INT, "t_ns": INT_OR_NULL, "key": TEXT, "value": FLOAT_OR_NULL},
    "facts": {"process": TEXT, "name": TEXT, "value": TEXT},
}
"""The tables of the probes: their columns in order. `facts.value` and `processes.argv` are JSON texts, since facts have many types."""

_COUNTED: Mapping[str, Kind] = {
    "read_bytes": INT_OR_NULL,
    "write_bytes": INT_OR_NULL,
    "voluntary_switches": INT_OR_NULL,
    "involuntary_switches": INT_OR_NULL,
}

SAMPLE_COLUMNS: Mapping[str, Mapping[str, Kind]] = {
    "collectors": {
        "node": TEXT,
        "host": TEXT_OR_NULL,
        "boot_id": TEXT_OR_NULL,
        "pid": INT_OR_NULL,
        "mono_ns": INT_OR_NULL,
        "real_ns": INT_OR_NULL,
        "interval_s": FLOAT_OR_NULL,
        "cores": INT_OR_NULL,
        "end_ns": INT_OR_NULL,
        "cpu_s": FLOAT_OR_NULL,
        "ticks": INT_OR_NULL,
        "late_ticks": INT_OR_NULL,
        "damaged_lines": INT,
    },
    "capabilities": {"node": TEXT, "device": TEXT_OR_NULL, "name": TEXT, "available": FLAG, "reason": TEXT_OR_NULL},
    "node_samples": {
        "node": TEXT,
        "t_ns": INT,
        "cpu_busy_s": FLOAT_OR_NULL,
        "memory_used_bytes": INT_OR_NULL,
        "load_1min": FLOAT_OR_NULL,
    },
    "tree_samples": {
        "node": TEXT,
        "t_ns": INT,
        "processes": INT,
        "cpu_s": FLOAT_OR_NULL,
        "rss_bytes": INT_OR_NULL,
        "pss_bytes": INT_OR_NULL,
        **_COUNTED,
    },
    "process_samples": {
        "node": TEXT,
        "t_ns": INT,
        "pid": INT,
        "start_ticks": INT,
        "name": TEXT_OR_NULL,
        "cpu_s": FLOAT_OR_NULL,
        "rss_bytes": INT_OR_NULL,
        "pss_bytes": INT_OR_NULL,
        **_COUNTED,
        "threads": INT_OR_NULL,
    },
    "device_samples": {
        "node": TEXT,
        "device": TEXT,
        "t_ns": INT,
        "memory_used_bytes": INT_OR_NULL,
        "nvml_kernel_present": FLOAT_OR_NULL,
        "power_w": FLOAT_OR_NULL,
        "energy_j": FLOAT_OR_NULL,
        "sm_clock_hz": INT_OR_NULL,
        "memory_clock_hz": INT_OR_NULL,
        "throttle_reasons": TEXT_OR_NULL,
        "temperature_c": FLOAT_OR_NULL,
        "pcie_rx_bytes_per_s": FLOAT_OR_NULL,
        "pcie_tx_bytes_per_s": FLOAT_OR_NULL,
        "nvlink_rx_bytes": INT_OR_NULL,
        "nvlink_tx_bytes": INT_OR_NULL,
        "nvlink_rx_bytes_per_s": FLOAT_OR_NULL,
        "nvlink_tx_bytes_per_s": FLOAT_OR_NULL,
        "sm_active": FLOAT_OR_NULL,
        "sm_occupancy": FLOAT_OR_NULL,
        "tensor_active": FLOAT_OR_NULL,
        "dram_active": FLOAT_OR_NULL,
    },
    "device_processes": {"node": TEXT, "device": TEXT, "t_ns": INT, "pid": INT, "memory_used_bytes": INT_OR_NULL},
}
"""The tables of the collectors (one process on each node): their columns in order, with units and meaning in docs/records.md."""

COLUMNS: Mapping[str, Mapping[str, Kind]] = {**EVENT_COLUMNS, **SAMPLE_COLUMNS}
"""Every table: its columns in order."""
