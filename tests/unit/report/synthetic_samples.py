"""SYNTHETIC samples of a collector for the run of synthetic_run.py, in the on-disk form of docs/records.md: nothing was measured.

One node of two cores, of which the run uses one and a half and others a tenth; with `devices`, rank n has device GPU-n, which takes
250 - 50 n W all the time, half of whose multiprocessors are active.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from synthetic_run import GIB, MS, REAL_NS, START_NS

NODE = "synthetic-host"
EVERY_MS = 100
LASTS_MS = 12_000
TREE = ("processes", "cpu_s", "rss_bytes", "pss_bytes", "read_bytes", "write_bytes", "voluntary_switches", "involuntary_switches")
PROCESS = ("pid", "start_ticks", "name", "cpu_s", "rss_bytes", "pss_bytes", "read_bytes", "write_bytes", "voluntary_switches", "involuntary_switches", "threads")  # fmt: skip
DEVICE = (
    "device", "memory_used_bytes", "nvml_kernel_present", "power_w", "energy_j", "sm_clock_hz", "memory_clock_hz", "throttle_reasons", "temperature_c",
    "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "nvlink_rx_bytes", "nvlink_tx_bytes", "sm_active", "sm_occupancy", "tensor_active", "dram_active",
)  # fmt: skip
COLUMNS = {
    "node_samples": ["cpu_busy_s", "memory_used_bytes", "load_1min"],
    "tree_samples": list(TREE),
    "process_samples": list(PROCESS),
    "device_samples": list(DEVICE),
    "device_processes": ["device", "pid", "memory_used_bytes"],
}


def write_samples(folder: Path, *, devices: int = 0, throttle_reasons: str = "") -> None:
    """Write `collector/<node>.jsonl` below the run's folder."""
    about = {
        "schema": 1,
        "host": NODE,
        "boot_id": "00000000-0000-4000-8000-000000000000",
        "pid": 3000,
        "mono_ns": START_NS,
        "real_ns": REAL_NS,
    }
    lines: list[dict[str, Any]] = [{"ev": "collector", **about, "interval_s": EVERY_MS / 1000, "cores": 2}]
    if not devices:
        lines.append({"ev": "capability", "device": None, "name": "nvml", "available": False, "reason": "no NVIDIA driver on this machine"})
    lines.append({"ev": "columns", "tables": COLUMNS})
    lines += [_tick(tick, devices, throttle_reasons) for tick in range(LASTS_MS // EVERY_MS + 1)]
    lines.append({"ev": "end", "t_ns": START_NS + LASTS_MS * MS, "cpu_s": 0.06, "ticks": LASTS_MS // EVERY_MS + 1, "late_ticks": 3})
    (folder / "collector").mkdir()
    (folder / "collector" / f"{NODE}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _tick(tick: int, devices: int, throttle_reasons: str) -> dict[str, Any]:
    seconds, whole = tick * EVERY_MS / 1000, tick % 10 == 0
    pss = round(3.1 * GIB) + tick * 2**16 if tick % 20 == 0 else None
    tables: dict[str, list[list[Any]]] = {
        "node_samples": [[1.6 * seconds, 5 * GIB, 2.5]],
        "tree_samples": [[5, 1.5 * seconds, 4 * GIB + tick * 2**16, pss, 4096 * tick, 8192 * tick, 30 * tick, 2 * tick]],
    }
    if whole:
        each = [0.75 * seconds, 2 * GIB, None, 2048 * tick, 4096 * tick, 15 * tick, tick, 12]
        tables["process_samples"] = [[4000 + rank, 77, "python", *each] for rank in range(2)]
        tables["device_processes"] = [[f"GPU-{number}", 4000 + number, 7 * GIB] for number in range(devices)]
    if devices:
        tables["device_samples"] = [_device(number, seconds, throttle_reasons) for number in range(devices)]
    return {"ev": "rows", "t_ns": START_NS + tick * EVERY_MS * MS, "tables": tables}


def _device(number: int, seconds: float, throttle_reasons: str) -> list[Any]:
    watts = 250.0 - 50 * number
    clocks = [1_755_000_000, 2_619_000_000, throttle_reasons, 55.0]
    return [f"GPU-{number}", 8 * GIB, 0.9, watts, watts * seconds, *clocks, 2e9, 1e9, None, None, 0.5, 0.25, 0.125, 0.375]
