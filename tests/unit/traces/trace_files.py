"""Tiny traces, written by hand: times in us, so that a test can be calculated in the head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PID, MAIN, BACKWARD = 100, 100, 101
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def event(cat: str, name: str, start: float, end: float, pid: int = PID, tid: int = MAIN, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": round(end - start, 3), "args": args}


def on_device(
    cat: str, name: str, start: float, end: float, *, device: int = 0, stream: int = 7, correlation: int = -1, **args: Any
) -> dict[str, Any]:
    ids = {"correlation": correlation} if correlation >= 0 else {}
    return event(cat, name, start, end, device, stream, device=device, stream=stream, **ids, **args)


def kernel(start: float, end: float, name: str = "gemm", **ids: Any) -> dict[str, Any]:
    return on_device("kernel", name, start, end, **ids)


def copy(start: float, end: float, **ids: Any) -> dict[str, Any]:
    return on_device("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", start, end, **ids)


def call(
    at: float, correlation: int, name: str = "cudaLaunchKernel", tid: int = MAIN, cat: str = "cuda_runtime", length: float = 1
) -> dict[str, Any]:
    return event(cat, name, at, at + length, PID, tid, cbid=211, correlation=correlation)


def stage(name: str, start: float, end: float, tid: int = MAIN) -> dict[str, Any]:
    return event("user_annotation", f"rlmbench:{name}", start, end, PID, tid)


def step(number: int, start: float, end: float) -> dict[str, Any]:
    return event("user_annotation", f"ProfilerStep#{number}", start, end)


def operator(start: float, end: float, tid: int = MAIN, name: str = "aten::mm", **args: Any) -> dict[str, Any]:
    return event("cpu_op", name, start, end, PID, tid, **args)


def write(path: Path, events: list[dict[str, Any]], **metadata: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, **metadata, "traceEvents": events}))
    return path


def kineto(events: list[dict[str, Any]], *, layout: str = "torch 2.13") -> str:
    """The same events as kineto writes them, with three decimals and its line breaks."""
    texts = []
    for one in events:
        numbers = {key: f"{one[key]:.3f}" for key in ("ts", "dur") if key in one}
        args = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in one.get("args", {}).items())
        parts = [f'"{key}": {numbers.get(key, json.dumps(value))}' for key, value in one.items() if key != "args"]
        if layout == "torch 2.13":
            texts.append("\n  {\n    " + ",\n    ".join(parts) + f'\n    ,\n    "args": {{\n      {args}\n    }}\n  }}')
        else:
            lines = ",\n    ".join(", ".join(some) for some in (parts[:5], parts[5:]) if some)
            texts.append(f'\n  {{\n    {lines},\n    "args": {{\n      {args}\n    }}\n  }}')
    return '{\n  "schemaVersion": 1,\n  "traceEvents": [' + ",".join(texts) + '\n  ],\n  "traceName": "x.json"\n}\n'
