"""`rlmbench.traces` beside the tools whose figures it gives, within its memory, and on a trace of a real torch."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from benchmarks.generate_trace import COMPUTE, Generator, sweep
from rlmbench.adapter import find_adapter
from rlmbench.environment import ensure
from rlmbench.traces import hta_breakdown, read_trace, tensorboard_overall

PEERS = Path(__file__).parents[2] / "benchmarks" / "trace_peers.py"
GRID_NS = 125
"""Times on this grid are exact in the doubles that the other readers calculate with, so that their figures must be equal to the last bit."""


def read_by(reader: str, path: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(PEERS), reader, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module", params=[("torch 2.13", 2), ("older", 1)], ids=["torch 2.13, 2 devices", "older, 1 device"])
def generated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("generated") / "t.json"
    layout, devices = request.param
    Generator(seed=5, devices=devices, layout=layout, grid_ns=GRID_NS).write(path, 4, steps=4)
    return path


def test_the_same_figures_as_holistic_trace_analysis(generated: Path) -> None:
    theirs = read_by("HolisticTraceAnalysis", generated)["figures"]
    ours = hta_breakdown(generated)
    for name in ("idle_us", "compute_us", "non_compute_us", "kernel_us"):
        assert getattr(ours, name) == theirs[name]
        assert theirs[name] > 0
    assert ours.overlap is not None
    assert round(100 * ours.overlap, 2) == theirs["overlap_percent"]
    waits = {(stream, category): value for stream, category, value in theirs["streams"]}
    assert {stream for stream, _ in waits} == {stream.stream for stream in ours.streams} == {7, 24, 40}
    one_device = len(read_trace(generated).devices) == 1
    for stream in ours.streams:
        found = [getattr(stream, f"{category}_us") for category in ("host_wait", "kernel_wait", "other")]
        expected = [waits.get((stream.stream, category), 0) for category in ("host_wait", "kernel_wait", "other")]
        if one_device:
            assert found == expected
        else:  # HTA sorts events of two devices that start in the same us as it happens, and the sort of wait depends on it; their sum does not
            assert sum(found) == sum(expected)


def test_the_same_figures_as_torch_tb_profiler(generated: Path) -> None:
    theirs = read_by("torch-tb-profiler", generated)["figures"]
    ours = tensorboard_overall(generated)
    assert [step.name for step in ours] == [step["name"] for step in theirs]
    timelines = 1 + len(read_trace(generated).devices)  # the CPU's steps, and those drawn on each device
    assert sorted(step.name for step in ours) == sorted(["2", "3", "4", "5"] * timelines)
    for step, its in zip(ours, theirs, strict=True):
        for name in ("kernel", "memcpy", "memset", "communication", "runtime", "data_loader", "cpu_exec", "other", "total"):
            assert getattr(step, f"{name}_ns") / 1000 == its[name]
    for name in ("kernel", "memcpy", "memset", "communication", "data_loader", "cpu_exec", "other"):
        assert sum(its[name] for its in theirs) > 0


@pytest.mark.parametrize("kind", [".json", ".json.gz", "compact"])
def test_memory_stays_below_100_mb_whatever_the_layout(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t{'.json' if kind == 'compact' else kind}"
    truth = Generator(seed=6).write(path, 60)
    if kind == "compact":
        written = tmp_path / "compact.json"
        with path.open("rb") as lines, written.open("wb") as out:
            out.writelines(line.strip() for line in lines)
        path = written
    found = read_by("rlmbench", path)
    assert found["peak_rss_bytes"] < 100e6
    assert found["figures"]["layout"] == ("json" if kind == "compact" else "kineto")
    usage = found["figures"]["devices"][0]["usage"]
    assert {key: usage[key] for key in truth.devices[0]["usage"]} == truth.devices[0]["usage"]


PROFILED = """
import sys
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
plan = schedule(wait=1, warmup=1, active=2, repeat=1)
ready = lambda profiler: profiler.export_chrome_trace(sys.argv[1])
with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=ready, record_shapes=True, with_stack=len(sys.argv) > 2) as profiler:
    for _ in range(5):
        with record_function("rlmbench:generation"):
            out = model(torch.randn(8, 64))
        with record_function("rlmbench:actor_update"):
            out.sum().backward()
        profiler.step()
"""


def times_ns(event: dict[str, Any]) -> tuple[int, int]:
    start = int(event["ts"] * 1000)
    return start, start + int(event["dur"] * 1000)


@pytest.mark.parametrize("stack", [[], ["stack"]])
def test_a_trace_of_a_real_torch(tmp_path: Path, stack: list[str]) -> None:
    """On a CPU: today's torch lays its traces out as this reader expects, and a plain count of the operators' ns agrees with it."""
    (spec,) = (spec for spec in find_adapter("trl").environments() if (spec.name, spec.device) == ("trl", "cpu"))
    path, script = tmp_path / "real.json", tmp_path / "profiled.py"
    script.write_text(PROFILED)
    subprocess.run([str(ensure(spec).python), str(script), str(path), *stack], check=True, capture_output=True)
    trace = read_trace(path)
    assert trace.layout == "kineto"
    assert [step.number for step in trace.steps] == [2, 3]
    assert trace.cpu is not None
    events = [event for event in json.loads(path.read_text(), parse_float=Decimal)["traceEvents"] if event["ph"] == "X"]
    assert [(stage.stage, stage.count) for stage in trace.cpu.stages] == [("generation", 2), ("actor_update", 2)]
    for stage in trace.cpu.stages:
        windows = [times_ns(event) for event in events if event["name"] == f"rlmbench:{stage.stage}"]
        counted = sweep([(*times_ns(event), COMPUTE) for event in events if event["cat"] == "cpu_op"], {"stage": windows})["stage"]
        assert stage.usage.window_ns == counted.window_ns
        assert stage.usage.any_operator_ns == counted.figures()["busy_ns"] > 0
