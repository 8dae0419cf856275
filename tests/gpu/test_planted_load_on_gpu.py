"""A load whose busy share is known, as NVML's counters and a trace show it: run it with ``scripts/test -m gpu`` on a machine with an NVIDIA GPU.

Matrix products that fill the whole GPU for about 70 ms, then a sleep of 30 ms, over and over. The load itself says by CUDA's own events
which share of the time it was busy.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from statistics import fmean

import pytest

from rlmbench.adapter import find_adapter
from rlmbench.collectors.devices import open_drivers
from rlmbench.environment import ensure, visible_devices
from rlmbench.traces import read_trace

SECONDS = 12.0
POINTS = 0.03
LOAD = """
import contextlib, sys, time, torch
from torch.profiler import ProfilerActivity, profile

left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
out, first, last = torch.empty_like(left), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

def products(count):
    first.record()
    for _ in range(count):
        torch.mm(left, right, out=out)
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1e3

products(20)
count = max(1, round(0.07 / (products(20) / 20)))
traced = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) if len(sys.argv) > 2 else contextlib.nullcontext()
with traced:
    print("begin", flush=True)
    began, busy = time.monotonic(), 0.0
    while time.monotonic() - began < float(sys.argv[1]):
        busy += products(count)
        time.sleep(0.03)
    lasted = time.monotonic() - began
if len(sys.argv) > 2:
    traced.export_chrome_trace(sys.argv[2])
print(busy / lasted)
"""


def _start(*arguments: str) -> subprocess.Popen[str]:
    if not visible_devices():
        pytest.skip("no GPU")
    spec = next(one for one in find_adapter("trl").environments() if (one.name, one.device) == ("trl", "cuda"))
    process = subprocess.Popen([str(ensure(spec).python), "-c", LOAD, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "begin\n"
    return process


def test_sm_active_and_energy_are_those_of_the_load() -> None:
    process = _start(str(SECONDS))
    drivers, _ = open_drivers()
    uuid = visible_devices()[0]["uuid"]
    device = next(one for driver in drivers for one in driver.devices() if one.uuid == uuid)
    samples = []
    until = time.monotonic() + SECONDS - 2
    device.sample()  # what GPM tells is since the sample before
    while time.monotonic() < until:
        time.sleep(0.1)
        samples.append((time.monotonic(), device.sample()))
    share = float(process.communicate(timeout=60)[0])
    for driver in drivers:
        driver.close()
    told = [float(sample["sm_active"]) for _, sample in samples if isinstance(sample.get("sm_active"), float)]
    if not told:
        pytest.skip("this GPU has no GPM")
    assert abs(fmean(told) - share) <= POINTS
    if "energy_j" in samples[0][1]:
        (began, first), (ended, last) = samples[0], samples[-1]
        watts = fmean(float(sample["power_w"] or 0) for _, sample in samples)
        joules = float(last["energy_j"] or 0) - float(first["energy_j"] or 0)
        assert joules == pytest.approx(watts * (ended - began), rel=0.1)


def test_no_kernel_is_the_rest_of_the_load(tmp_path: Path) -> None:
    trace = tmp_path / "load.pt.trace.json"
    process = _start(str(SECONDS), str(trace))
    share = float(process.communicate(timeout=120)[0])
    (device,) = read_trace(trace).devices
    assert device.reliable
    assert device.usage.no_kernel is not None
    assert abs(device.usage.no_kernel - (1 - share)) <= POINTS
