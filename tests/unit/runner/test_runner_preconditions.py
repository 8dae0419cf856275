"""When a run waits, refuses, or goes on with a warning. GPUs are invented and answer through the autospecced NVML."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

import rlmbench.cli.run as cli
from rlmbench.collectors.capability import Capability
from rlmbench.collectors.nvidia import NvidiaDriver
from rlmbench.errors import EXIT_BUSY
from rlmbench.records.manifest import DeviceState, Preconditions
from rlmbench.runner import preconditions
from rlmbench.runner.cells import Cell, Request
from rlmbench.runner.interrupts import Interrupts
from rlmbench.runner.preconditions import Look, Machine, NotQuiet, after_run, await_quiet, busy_share, warnings_of
from rlmbench.runner.progress import QuietProgress
from tests.unit.collectors.nvml_double import GIB, Gpu, h100, library, mig, v100

QUIET = Look(0.02)
BUSY = Look(0.9, host_problems=("90% of the cores are at work for others",))
HELD = Look(0.02, (DeviceState(uuid="GPU-1"),), device_problems=("GPU-1 is held by process 7",))


@dataclass
class Scripted:
    """A machine whose looks are given; the last one stays. A look takes a second of the test's clock."""

    looks: list[Look]
    clock: list[float]
    seen: int = 0
    states: list[list[DeviceState]] = field(default_factory=list)

    def look(self) -> Look:
        self.clock[0] += 1.0
        self.seen += 1
        return self.looks[min(self.seen, len(self.looks)) - 1]

    def devices(self) -> list[DeviceState]:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [500.0]
    monkeypatch.setattr(preconditions.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(preconditions.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    """The GPUs of this machine, to be filled in by a test; the host is quiet."""
    found: list[Gpu] = []
    monkeypatch.setattr(preconditions, "open_drivers", lambda visible=None: ([NvidiaDriver(library(*found), visible)], []))
    monkeypatch.setattr(preconditions, "busy_share", lambda seconds: 0.0)
    return found


def test_a_quiet_machine_is_not_waited_for(clock: list[float]) -> None:
    found = await_quiet(Scripted([QUIET], clock), "")  # type: ignore[arg-type]
    assert (found.waited_s, found.host_busy_share, found.problems) == (1.0, 0.02, [])
    assert warnings_of(found) == []


def test_it_waits_and_says_for_what_until_the_machine_is_quiet(clock: list[float]) -> None:
    said: list[str] = []
    machine = Scripted([HELD, HELD, HELD, QUIET], clock)
    found = await_quiet(machine, "", said.append)  # type: ignore[arg-type]
    assert (machine.seen, found.waited_s, found.problems) == (4, 4.0, [])
    assert said == ["waiting for a quiet machine: GPU-1 is held by process 7"] * 3


def test_a_gpu_that_stays_held_is_refused_after_a_minute(clock: list[float]) -> None:
    machine = Scripted([HELD], clock)
    with pytest.raises(
        NotQuiet, match=r"not quiet, also after 60 s: GPU-1 is held by process 7; end what runs there, .*--allow-busy"
    ) as caught:
        await_quiet(machine, "")  # type: ignore[arg-type]
    assert machine.seen == 60
    assert caught.value.exit_code == EXIT_BUSY == 6
    assert "\n" not in str(caught.value)


def test_a_busy_cpu_is_waited_for_shortly_and_becomes_a_warning(clock: list[float]) -> None:
    machine = Scripted([BUSY], clock)
    found = await_quiet(machine, "")  # type: ignore[arg-type]
    assert (machine.seen, found.waited_s) == (5, 5.0)
    assert warnings_of(found) == ["the machine was not quiet when it began: 90% of the cores are at work for others"]


def test_a_busy_cpu_is_refused_only_where_that_was_asked_for(clock: list[float]) -> None:
    machine = Scripted([BUSY], clock)
    with pytest.raises(NotQuiet, match="90% of the cores"):
        await_quiet(machine, "refuse")  # type: ignore[arg-type]
    assert machine.seen == 60


@pytest.mark.parametrize("look", [BUSY, HELD])
def test_allowing_a_busy_machine_costs_no_wait_and_is_recorded(clock: list[float], look: Look) -> None:
    machine = Scripted([look], clock)
    found = await_quiet(machine, "allow")  # type: ignore[arg-type]
    assert (machine.seen, found.problems) == (1, list(look.problems))
    assert len(warnings_of(found)) == 1


def test_ctrl_c_ends_the_wait_without_a_refusal(clock: list[float]) -> None:
    machine = Scripted([HELD], clock)
    found = await_quiet(machine, "", stop=lambda: machine.seen >= 3)  # type: ignore[arg-type]
    assert (machine.seen, found.problems) == (3, ["GPU-1 is held by process 7"])


def test_an_idle_gpu_is_at_its_baseline(gpus: list[Gpu]) -> None:
    gpu = h100()
    gpu.used, gpu.reasons = 500 << 20, pynvml.nvmlClocksEventReasonGpuIdle
    gpus.append(gpu)
    look = Machine(1).look()
    assert look.problems == ()
    assert look.devices == (DeviceState(uuid="GPU-h100", memory_used_bytes=500 << 20, processes=[], throttle_reasons="idle"),)


def test_a_foreign_process_memory_of_nobody_and_throttling_are_named(gpus: list[Gpu]) -> None:
    held, hidden, hot = h100(), v100(), h100()
    held.reasons = hidden.reasons = 0
    held.processes = [(os.getpid(), 30 * GIB), (99_999_999, None)]
    hidden.used = 2 * GIB
    hot.uuid, hot.used, hot.reasons = "GPU-hot", 0, pynvml.nvmlClocksEventReasonHwThermalSlowdown | pynvml.nvmlClocksEventReasonGpuIdle
    gpus += [held, hidden, hot]
    first, second, third = Machine(3).look().problems
    assert first.startswith(f"NVIDIA H100 80GB HBM3 GPU-h100 is held by process {os.getpid()} (")
    assert first.endswith("30.0 GiB), process 99999999")
    assert second == "2.0 GiB of Tesla V100-SXM2-32GB GPU-v100 are in use, and by no process that can be seen (in a container: another's)"
    assert third == "NVIDIA H100 80GB HBM3 GPU-hot is slowed down (hw_thermal)"


def test_only_the_gpus_of_the_run_count(gpus: list[Gpu]) -> None:
    free, held = h100(), h100()
    free.reasons = free.used = held.reasons = 0
    held.uuid, held.processes = "GPU-held", [(5, GIB)]
    gpus += [free, held]
    assert Machine(1).look().problems == ()
    assert len(Machine(2).look().problems) == 1
    assert len(Machine(1, "1").look().problems) == 1
    assert len(Machine(1, "GPU-held").look().problems) == 1
    assert Machine(0).look().devices == ()


def test_a_mig_slice_is_judged_by_itself(gpus: list[Gpu]) -> None:
    whole = mig()
    whole.reasons = 0
    first, second = whole.slices
    first.used, second.used, second.processes = 0, 20 * GIB, [(5, 20 * GIB)]
    gpus.append(whole)
    assert Machine(1, "MIG-1").look().problems == ()
    assert "MIG-2 is held by process 5" in Machine(1, "MIG-2").look().problems[0]


def test_a_gpu_that_does_not_answer_is_a_problem_and_no_crash(gpus: list[Gpu], monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = h100()
    driver = NvidiaDriver(library(gpu))
    gpu.refuses["nvmlDeviceGetMemoryInfo"] = pynvml.NVML_ERROR_GPU_IS_LOST
    monkeypatch.setattr(preconditions, "open_drivers", lambda visible=None: ([driver], []))
    assert Machine(1).look().problems == (
        "NVIDIA H100 80GB HBM3 GPU-h100 does not answer: NVML: GPU is lost; reset it (nvidia-smi --gpu-reset), or restart the machine",
    )


def test_gpus_that_cannot_be_looked_at_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preconditions, "open_drivers", lambda visible=None: ([], [Capability("nvml", False, "NVML: Driver Not Loaded")]))
    assert Machine(2).look(0.01).device_problems == ("0 of the run's 2 GPUs can be looked at: NVML: Driver Not Loaded",)
    lost = h100()
    lost.refuses["nvmlDeviceGetUUID"] = pynvml.NVML_ERROR_GPU_IS_LOST
    free = v100()
    free.reasons, free.used = 0, 0
    driver = NvidiaDriver(library(lost, free))
    monkeypatch.setattr(preconditions, "open_drivers", lambda visible=None: ([driver], driver.capabilities()))
    (problem,) = Machine(2).look(0.01).device_problems
    assert problem.startswith("1 of the run's 2 GPUs can be looked at: device 0 in NVML's order: NVML: GPU is lost")


def test_a_process_list_that_is_not_permitted_leaves_the_memory_to_judge_by(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = h100()
    gpu.refuses["nvmlDeviceGetComputeRunningProcesses"] = pynvml.NVML_ERROR_NO_PERMISSION
    gpu.reasons, gpu.used = 0, 100 << 20
    monkeypatch.setattr(preconditions, "open_drivers", lambda visible=None: ([NvidiaDriver(library(gpu))], []))
    look = Machine(1).look(0.01)
    assert (look.device_problems, look.devices[0].processes) == ((), None)
    gpu.used = 40 * GIB
    assert Machine(1).look(0.01).device_problems == (
        "40.0 GiB of NVIDIA H100 80GB HBM3 GPU-h100 are in use, and by no process that can be seen (in a container: another's)",
    )


def test_an_answer_that_nobody_foresaw_costs_neither_the_run_nor_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = h100()
    driver = NvidiaDriver(library(gpu))
    gpu.processes = [("many", None)]  # type: ignore[list-item]
    monkeypatch.setattr(preconditions, "open_drivers", lambda visible=None: ([driver], []))
    (problem,) = Machine(1).look(0.01).device_problems
    assert problem.startswith("NVIDIA H100 80GB HBM3 GPU-h100 does not answer: unexpected ValueError: invalid literal for int()")
    found = after_run(Machine(1), Preconditions(devices=states(0)))  # another device, so nothing was left on this one
    assert [state.uuid for state in found.devices_after] == ["GPU-h100"]


def states(used: int, *processes: int) -> list[DeviceState]:
    return [DeviceState(uuid="GPU-1", memory_used_bytes=used, processes=list(processes))]


def test_a_device_that_comes_back_to_its_baseline_is_recorded(clock: list[float]) -> None:
    machine = Scripted([], clock, states=[states(30 * GIB, 7), states(GIB, 7), states(100)])
    found = after_run(machine, Preconditions(devices=states(100)))  # type: ignore[arg-type]
    assert (found.left_behind, found.devices_after[0].memory_used_bytes) == ([], 100)
    assert clock[0] == 501.0  # two waits of half a second


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (states(100, 7, 9), "after the run GPU-1 was held by processes 7, 9"),
        (states(3 * GIB), "after the run 3.0 GiB more of GPU-1 were in use than before"),
    ],
)
def test_what_a_run_leaves_on_a_device_is_a_warning(clock: list[float], after: list[DeviceState], words: str) -> None:
    found = after_run(Scripted([], clock, states=[after]), Preconditions(devices=states(0)))  # type: ignore[arg-type]
    assert warnings_of(found) == [words]
    assert clock[0] >= 505.0  # a driver is given 5 s to clear up


def test_a_run_without_devices_leaves_nothing() -> None:
    before = Preconditions(host_busy_share=0.1)
    assert after_run(Machine(0), before) is before


def test_the_busy_share_counts_a_real_load() -> None:
    stop = threading.Event()
    spinning = threading.Thread(target=lambda: any(iter(stop.is_set, True)), daemon=True)
    before, began = time.process_time(), time.monotonic()
    spinning.start()
    share = busy_share(0.3)
    stop.set()
    spinning.join()
    used, passed_s = time.process_time() - before, time.monotonic() - began  # more than 0.3 s where others hold it up
    assert share is not None
    assert share >= 0.5 * used / (passed_s * (os.cpu_count() or 1))  # others may have been at work too
    assert share <= 1.0


@pytest.mark.parametrize("free_runs", [0, 2])
def test_a_refusal_ends_the_campaign_and_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch, free_runs: int) -> None:
    """The first cell's refusal is an error; a later one leaves the runs before it, to be reported and completed."""
    cells = [Cell("trl", repeat) for repeat in range(4)]
    plan = SimpleNamespace(parts={"trl": SimpleNamespace(spec=SimpleNamespace(name="trl"))}, profile=None)
    asked = SimpleNamespace(passes=[(plan, cell) for cell in cells])
    made: list[Cell] = []

    def execute(plan: Any, cell: Cell, *_: Any) -> Any:
        if len(made) == free_runs:
            raise NotQuiet("GPU-1 is held")
        made.append(cell)
        return SimpleNamespace(run=cell, summary=SimpleNamespace(framework="trl", repeat=cell.repeat))

    monkeypatch.setattr("rlmbench.runner.execute.execute", execute)
    monkeypatch.setattr("rlmbench.runner.execute.cell_hash", lambda *_: "hash")
    monkeypatch.setattr("rlmbench.runner.campaign.finished_run", lambda *_: None)
    monkeypatch.setattr("rlmbench.report.line.one_line", lambda summary: "ok")
    monkeypatch.setattr(cli, "_write_pages", lambda *_: None)
    arguments: Any = (asked, {("trl", "trl"): None}, None, Path("results"), Path("reports"), QuietProgress(), Interrupts())
    if free_runs == 0:
        with pytest.raises(NotQuiet, match="GPU-1 is held"):
            cli._run_cells(*arguments)
    else:
        assert [summary.repeat for summary in cli._run_cells(*arguments)] == [0, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("when_busy", "words"), [("", ""), ("allow", " --allow-busy"), ("refuse", " --require-quiet")])
def test_the_command_that_asks_again_says_what_was_asked_for(when_busy: Any, words: str) -> None:
    assert Request("gsm8k_grpo", ("trl",), when_busy=when_busy).command() == f"rlmbench run gsm8k_grpo --framework trl{words}"
