"""A profile pass by hand: two processes on one device, whose traces are SYNTHETIC, and one without.

Microseconds since the step's begin. Trainer: compute 0-200, NCCL 500-700, compute 600-650, copy 800-900. Engine, whose clock base is 1 s less and
whose step began 100 earlier: compute 250-350 of its own step, which is 150-250 of the trainer's.
"""

from __future__ import annotations

import gzip
import json

import pytest

from rlmbench.metrics import summarize
from rlmbench.metrics.profile import profile_figures

US = 1000
BASE_NS = 1_790_000_000_000_000_000


def event(cat, name, ts, dur, pid=1, tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def on_device(cat, name, ts, dur, correlation):
    return event(cat, name, ts, dur, pid=0, tid=7, device=0, stream=7, correlation=correlation)


def launches(starts):
    return [event("cuda_runtime", "cudaLaunchKernel", ts, 1.0, correlation=number) for number, ts in enumerate(starts, start=1)]


TRAINER = [
    event("user_annotation", "ProfilerStep#2", 1000.0, 1000.0, tid=2),
    event("user_annotation", "rlmbench:actor_update", 1000.0, 800.0),
    event("user_annotation", "rlmbench:actor_update.forward", 1000.0, 400.0),
    *launches([1001.0, 1410.0, 1420.0, 1790.0]),
    on_device("kernel", "gemm", 1000.0, 200.0, 1),
    on_device("kernel", "ncclDevKernel_AllReduce", 1500.0, 200.0, 2),
    on_device("kernel", "gemm", 1600.0, 50.0, 3),
    on_device("gpu_memcpy", "Memcpy DtoD", 1800.0, 100.0, 4),
]
ENGINE = [
    event("user_annotation", "ProfilerStep#2", 1_000_900.0, 1000.0),
    event("user_annotation", "rlmbench:generation.decode", 1_001_150.0, 100.0),
    *launches([1_001_150.0]),
    on_device("kernel", "attention", 1_001_150.0, 100.0, 1),
]
ON_CPU = [
    event("user_annotation", "rlmbench:advantage", 0.0, 100.0),
    event("cpu_op", "aten::mul", 10.0, 20.0),
    event("cpu_op", "aten::mul", 50.0, 30.0),
]


@pytest.fixture
def profiled(synthetic):
    traces = synthetic.folder / "traces"
    traces.mkdir(parents=True)
    synthetic.manifest |= {"pass": "profile", "profile": {"steps": [2], "extras": ["stack"]}}
    process = {**synthetic.only("process")[0], "role": "trainer", "rank": 0}

    def add(name, pid, events, base_ns, uuids):
        file = f"{name}.{BASE_NS}.pt.trace.json.gz"
        (traces / file).write_bytes(gzip.compress(json.dumps({"baseTimeNanoseconds": base_ns, "traceEvents": events}, indent=2).encode()))
        told = {
            "via": "probe", "steps": [2], "file": file, "bytes": 10, "uncompressed_bytes": 100, "start_ns": 1, "end_ns": 2,
            "stopping_s": 0.5, "device_uuids": uuids,
        }  # fmt: skip
        facts = [{"ev": "hook", "name": "torch_profiler", "target": "torch", "attached": True, "reason": ""}]
        facts += [{"ev": "fact", "name": "torch_trace", "value": told}] if events else []
        return [{**process, "pid": pid}, *facts]

    files = {
        "trainer-2": add("trainer-rank0-pid2", 2, TRAINER, BASE_NS, {"0": "GPU-a"}),
        "engine-3": add("engine-rank0-pid3", 3, ENGINE, BASE_NS - 1_000_000 * US, {"0": "GPU-a"}),
        "driver-4": add("driver-rank0-pid4", 4, ON_CPU, BASE_NS, {}),
        "trainer-5": add("trainer-rank1-pid5", 5, [], BASE_NS, {}),  # killed before it had written any
    }
    run = synthetic.write()
    for name, events in files.items():
        (run.path / "probe" / f"{name}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (traces / f"trainer-rank1-pid5.{BASE_NS}.pt.trace.json.gz").unlink()
    return run


def test_each_process_stage_and_device(profiled):
    found = profile_figures(profiled)
    assert (found.steps, found.extras, found.bytes) == ([2], ["stack"], 30)
    driver, engine, trainer = found.workers
    assert [worker.worker for worker in found.workers] == ["driver-rank0-pid4", "engine-rank0-pid3", "trainer-rank0-pid2"]
    (device,) = trainer.devices
    assert (device.device, device.index, device.problem) == ("GPU-a", "0", None)
    assert device.window_s == pytest.approx(1000e-6)
    assert device.no_kernel == pytest.approx(0.5)  # 200 + 200 + 100 of 1000
    assert device.exposed_communication == pytest.approx(0.15)  # 200 - 50 under compute
    assert (device.compute_s, device.communication_s, device.copy_s) == pytest.approx((250e-6, 200e-6, 100e-6))
    forward = next(stage for stage in device.stages if stage.stage == "actor_update.forward")
    assert (forward.seconds, forward.no_kernel, forward.count) == (pytest.approx(400e-6), pytest.approx(0.5), 1)
    rest = next(stage for stage in device.stages if stage.stage == "actor_update")
    assert (rest.seconds, rest.no_kernel) == (pytest.approx(400e-6), pytest.approx(0.5))  # 400-800: 500-700
    assert engine.devices[0].no_kernel == pytest.approx(0.9)
    assert driver.devices == [] and driver.cpu.reason.startswith("no device in this trace")
    (advantage,) = driver.cpu.stages
    assert (advantage.stage, advantage.seconds, advantage.operator_s) == ("advantage", pytest.approx(100e-6), pytest.approx(50e-6))
    assert [(one.process, one.reason) for one in found.missing] == [("trainer-5", "the process ended before its trace was written")]


def test_a_device_that_two_processes_used_is_busy_for_both(profiled):
    """-100 to 1000: the engine's kernel, 150-250, overlaps the trainer's, 0-200, by 50."""
    (device,) = profile_figures(profiled).devices
    assert (device.device, sorted(device.workers)) == ("GPU-a", ["engine-rank0-pid3", "trainer-rank0-pid2"])
    assert device.window_s == pytest.approx(1100e-6)
    assert device.no_kernel == pytest.approx(1 - 550 / 1100)
    assert device.exposed_communication == pytest.approx(150 / 1100)
    assert device.compute_s == pytest.approx(300e-6)


def test_the_summary_holds_it_and_says_which_pass_it_was(profiled):
    summary = summarize(profiled)
    assert (summary.run_pass, summary.profile) == ("profile", profile_figures(profiled))
    assert summary.idle.no_kernel == pytest.approx(0.5)
    assert summary.idle.exposed_communication == pytest.approx(150 / 1100)


def test_a_measuring_run_has_none(synthetic):
    run = synthetic.write()
    summary = summarize(run)
    assert (summary.run_pass, summary.profile, summary.idle.no_kernel) == ("measure", None, None)
    assert "--profile" in summary.absent["idle.no_kernel"]


def test_a_trace_that_was_removed_is_told(profiled):
    next((profiled.path / "traces").glob("trainer*")).unlink()
    found = profile_figures(profiled)
    trainer = next(worker for worker in found.workers if worker.worker.startswith("trainer"))
    assert "No such file" in trainer.problem
    assert [device.workers for device in found.devices] == [["engine-rank0-pid3"]]
    assert found.devices[0].problem == "the trace of trainer-rank0-pid2 could not be read"
    assert found.mean("no_kernel") is None  # the engine's kernels alone would leave GPU-a idle for 90%
