"""HolisticTraceAnalysis' and torch-tb-profiler's definitions by hand; tests/frameworks/test_trace_readers.py asks these tools themselves. In us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlmbench.cli.main import main
from rlmbench.errors import UserError
from rlmbench.traces import HtaStream, TensorboardStep, hta_breakdown, tensorboard_overall
from tests.unit.traces.trace_files import NCCL, call, copy, event, kernel, on_device, operator, stage, step, write


def hta(tmp_path: Path, *events: dict[str, Any]) -> Any:
    return hta_breakdown(write(tmp_path / "t.json", list(events)))


def tensorboard(tmp_path: Path, *events: dict[str, Any]) -> tuple[TensorboardStep, ...]:
    return tensorboard_overall(write(tmp_path / "t.json", list(events)))


def test_hta_rounds_inwards_to_us(tmp_path: Path) -> None:
    found = hta(tmp_path, kernel(10.4, 20.9), copy(29.001, 40))
    # 11..20 computes, 30..40 copies
    assert (found.kernel_us, found.idle_us, found.compute_us, found.non_compute_us, found.overlap) == (29, 10, 9, 10, None)


def test_hta_counts_only_ncclkernel_as_communication_and_waits_as_events(tmp_path: Path) -> None:
    found = hta(
        tmp_path,
        kernel(0, 10),
        kernel(5, 25, NCCL, stream=40),
        kernel(30, 40, "nccl:_all_gather_base", stream=40),  # computes, to HTA
        on_device("cuda_sync", "Stream Sync", 40, 50),
    )
    assert (found.kernel_us, found.idle_us, found.compute_us, found.non_compute_us) == (50, 5, 20, 25)
    assert found.overlap == pytest.approx(5 / 20)


def test_hta_leaves_out_what_the_last_of_several_steps_launched(tmp_path: Path) -> None:
    steps = [step(1, 0, 50), step(2, 50, 100)]
    work = [
        call(10, 1),
        kernel(12, 20, correlation=1),
        call(40, 2),
        kernel(60, 70, correlation=2),
        call(55, 3),
        kernel(80, 90, correlation=3),
    ]
    assert hta(tmp_path, *steps, *work).kernel_us == 70 - 12
    assert hta(tmp_path, steps[0], *work).kernel_us == 90 - 12


def test_hta_sorts_the_gaps_of_a_stream_by_what_was_waited_for(tmp_path: Path) -> None:
    found = hta(
        tmp_path,
        call(0, 1), kernel(10, 20, correlation=1),
        call(25, 2), kernel(30, 40, correlation=2),   # launched after the one before had ended: host wait 10
        call(26, 3), kernel(45, 50, correlation=3),   # launched long before, gap 5: kernel wait
        call(27, 4), kernel(90, 95, correlation=4),   # gap 40: other
        call(28, 5), kernel(0, 1, correlation=5, stream=9),
    )  # fmt: skip
    assert found.streams == (HtaStream(7, 10, 5, 40), HtaStream(9, 0, 0, 0))


def test_hta_of_a_trace_without_a_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no device event"):
        hta(tmp_path, operator(0, 1))


def test_tensorboard_gives_each_moment_to_the_first_role(tmp_path: Path) -> None:
    found = tensorboard(
        tmp_path,
        step(3, 0, 100),
        operator(0, 50),
        kernel(10, 30), kernel(20, 25, device=1),     # devices are one
        copy(25, 40, stream=24),
        on_device("gpu_memset", "Memset (Device)", 38, 42),
        call(90, 1), stage("reward", 0, 100),          # neither cuda_runtime nor annotations are known to it
    )  # fmt: skip
    us = {
        "kernel": 20,
        "memcpy": 10,
        "memset": 2,
        "communication": 0,
        "runtime": 0,
        "data_loader": 0,
        "cpu_exec": 10 + 8,
        "other": 50,
        "total": 100,
    }
    assert found == (TensorboardStep("3", **{f"{role}_ns": value * 1000 for role, value in us.items()}),)


def test_tensorboard_takes_communication_from_the_operator_that_launched_it(tmp_path: Path) -> None:
    ids = {"External id": 7}
    (found,) = tensorboard(
        tmp_path,
        step(3, 0, 100),
        event("user_annotation", "nccl:all_reduce", 0, 5, **ids),
        kernel(10, 30, NCCL, **ids),
        kernel(40, 50, NCCL, **{"External id": 8}),  # no such operator launched it: a kernel
        operator(60, 62, name="gloo:broadcast", **{"External id": 9}),
    )
    assert (found.communication_ns, found.kernel_ns, found.cpu_exec_ns) == (5_000 + 20_000 + 2_000, 10_000, 0)


def test_tensorboard_knows_data_loading_by_the_operators_name(tmp_path: Path) -> None:
    (found,) = tensorboard(
        tmp_path,
        step(3, 0, 100),
        operator(0, 10, name="enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        operator(20, 23, name="enumerate(DataPipe)#IterableWrapper"),
        operator(30, 34, name="enumerate(DataLoader)#_SingleProcessDataLoaderIter.__init__"),  # an operator like others
    )
    assert (found.data_loader_ns, found.cpu_exec_ns) == (13_000, 4_000)


def test_tensorboard_without_steps_takes_the_operators_span(tmp_path: Path) -> None:
    (found,) = tensorboard(tmp_path, operator(10, 20), operator(30, 50), kernel(0, 15))
    assert (found.name, found.total_ns, found.cpu_exec_ns, found.other_ns) == ("0", 40_000, 25_000, 10_000)


def test_tensorboard_refuses_what_it_has_no_steps_or_no_definitions_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither ProfilerStep nor CPU operators"):
        tensorboard(tmp_path, kernel(0, 1))
    with pytest.raises(UserError, match=r"torch before 1\.13"):
        tensorboard(tmp_path, step(1, 0, 10), call(0, 1, cat="Runtime"))


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["trace", *arguments]) == 0
    return capsys.readouterr().out


def test_the_command_prints_devices_and_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [step(1, 0, 100), stage("generation", 0, 50), call(1, 1), kernel(10, 35, correlation=1), call(2, 2, "cudaGraphLaunch")]
    path = str(write(tmp_path / "t.json", events))
    text = command(capsys, path)
    assert "window 0.000 s (1 profiled steps)" in text
    assert "generation" in text
    assert "50.0%" in text  # no kernel in half of generation
    assert "1 of 1 graph launches have no kernel" in " ".join(text.split())
    document = json.loads(command(capsys, path, path, "--json").splitlines()[-1])
    assert document["definitions"] == "rlmbench"
    first, second = document["traces"]
    assert first == second
    assert (first["devices"][0]["usage"]["no_kernel"], first["devices"][0]["stages"][0]["during"]["busy_ns"]) == (0.75, 25_000)


def test_the_command_prints_what_a_stage_launched_in_the_unit_of_its_heading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [step(1, 0, 9000), stage("generation", 0, 9000), call(1, 1), kernel(10, 2510, correlation=1)]  # 2500 us
    lines = command(capsys, str(write(tmp_path / "t.json", events))).splitlines()
    place = next(number for number, line in enumerate(lines) if "launched by" in line)
    assert lines[place].split()[:4] == ["launched", "by", "busy", "ms"]
    assert lines[place + 2].split() == ["generation", "2.5", "2.5", "0.0", "0.0", "1"]


def test_the_command_follows_other_definitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path / "t.json", [step(1, 0, 100), call(1, 1), kernel(10, 35, correlation=1), kernel(50, 60)]))
    assert "idle 15, compute 35" in command(capsys, path, "--definitions", "hta")
    document = json.loads(command(capsys, path, "--definitions", "tensorboard", "--json"))
    assert document["traces"][0]["steps"][0]["kernel_ns"] == 35_000


def test_the_command_says_when_there_is_no_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = command(capsys, str(write(tmp_path / "t.json", [step(1, 0, 100), operator(0, 25)])))
    assert "no device in this trace" in text
    assert "75.0%" in text
