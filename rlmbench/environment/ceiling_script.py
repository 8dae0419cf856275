"""Runs in a framework's environment, not in rlmbench's: how fast do this machine's devices multiply and copy?

Torch and the standard library only. Prints one JSON list as its last line, an entry per device: device ("cpu", or the name as the driver
gives it), index, torch, threads, flops_per_s by dtype, bytes_per_s, sizes. Each rate is that of the fastest repeat of those that fit into
its share of the time, after a warm-up: a ceiling is a maximum, and whatever else runs only slows a repeat down. The median stands beside
it (`median_...`). A copy of n bytes counts 2n: read and written.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

MATRIX = {"cpu": 2048, "cuda": 8192}
COPY_BYTES = {"cpu": 512 << 20, "cuda": 2 << 30}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WARM_UP, LEAST, MOST = 2, 5, 50


def _wait(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _seconds(action: Callable[[], Any], device: Any, budget_s: float) -> tuple[float, float]:
    """Fastest and median call. The first calls warm up, and at least LEAST are timed whatever they take."""
    began = time.perf_counter()
    for _ in range(WARM_UP):
        action()
    _wait(device)
    taken: list[float] = []
    while len(taken) < LEAST or (len(taken) < MOST and time.perf_counter() - began < budget_s):
        start = time.perf_counter()
        action()
        _wait(device)
        taken.append(time.perf_counter() - start)
    return min(taken), statistics.median(taken)


def _matmul(device: Any, dtype: Any, budget_s: float) -> tuple[float, float, int]:
    """FLOP/s (fastest, median) of a square product, and its size: halved where it takes too long (bfloat16 without its instructions)."""
    size = MATRIX[device.type]
    while True:
        left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty(size, size, device=device, dtype=dtype)
        start = time.perf_counter()
        torch.mm(left, right, out=out)
        _wait(device)
        if size <= 512 or (time.perf_counter() - start) * (WARM_UP + LEAST) < budget_s:
            break
        size //= 2
    fastest, median = _seconds(lambda: torch.mm(left, right, out=out), device, budget_s)
    return 2 * size**3 / fastest, 2 * size**3 / median, size


def _copy(device: Any, budget_s: float) -> tuple[float, float]:
    """Bytes read and written per second: fastest, median."""
    source = torch.ones(COPY_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    fastest, median = _seconds(lambda: target.copy_(source), device, budget_s)
    return 2 * 4 * source.numel() / fastest, 2 * 4 * source.numel() / median


def _measure(device: Any, name: str, index: int, budget_s: float) -> dict[str, Any]:
    products = {dtype: _matmul(device, kind, budget_s / 3) for dtype, kind in DTYPES.items()}
    fastest, median = _copy(device, budget_s / 3)
    return {
        "device": name,
        "index": index,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "flops_per_s": {dtype: found[0] for dtype, found in products.items()},
        "median_flops_per_s": {dtype: found[1] for dtype, found in products.items()},
        "matrix": {dtype: found[2] for dtype, found in products.items()},
        "bytes_per_s": fastest,
        "median_bytes_per_s": median,
    }


def main() -> None:
    kind, budget_s = sys.argv[1], float(sys.argv[2])
    torch.backends.cuda.matmul.allow_tf32 = False
    if kind == "cuda":
        count = torch.cuda.device_count()
        found = [
            _measure(torch.device("cuda", index), torch.cuda.get_device_name(index), index, budget_s / max(count, 1))
            for index in range(count)
        ]
    else:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        found = [_measure(torch.device("cpu"), "cpu", 0, budget_s)]
    print(json.dumps(found))


main()
