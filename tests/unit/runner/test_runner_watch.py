from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlmbench.runner.watch import ProbeState, ProbeTail

S = 10**9


def append(path: Path, *events: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def loss(step: int, *rows: tuple[int | None, int, int, int], t_ns: int = 0) -> dict[str, Any]:
    listed = [[row, sample, "h", prompt, response] for row, sample, prompt, response in rows]
    return {"ev": "loss", "step": step, "update": 1, "t_ns": t_ns, "computed_tokens": 1, "rows": listed}


DRIVER = {"ev": "process", "role": "driver", "mono_ns": 5}
WORKER = {"ev": "process", "role": "worker", "mono_ns": 6}


def test_an_absent_folder_tells_nothing(tmp_path: Path) -> None:
    assert ProbeTail(tmp_path / "probe").poll() == ProbeState()


def test_a_run_is_followed(tmp_path: Path) -> None:
    driver, worker = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    tail = ProbeTail(tmp_path)
    append(driver, DRIVER, {"ev": "begin", "stage": "generation", "name": "generate", "step": 1, "t_ns": 10 * S})
    append(worker, WORKER, {"ev": "begin", "stage": "wait", "name": "barrier", "step": 1, "t_ns": 11 * S})
    state = tail.poll()
    assert (state.step, state.stage, state.steps_done, state.last_event_ns) == (1, "generation", 0, 11 * S)

    append(driver, {"ev": "span", "id": 2, "parent": 1, "stage": "generation", "end_ns": 12 * S})
    assert tail.poll().stage == "generation"  # a nested span ended, not the stage
    append(driver, {"ev": "span", "id": 1, "parent": None, "stage": "generation", "end_ns": 13 * S})
    assert tail.poll().stage is None

    append(driver, loss(1, (0, 0, 10, 30), (0, 1, 10, 50)), loss(1, (0, 0, 10, 30), (0, 1, 10, 50)))  # two epochs
    append(driver, {"ev": "step", "step": 1, "start_ns": 10 * S, "end_ns": 14 * S, "probe_ns": 0})
    append(worker, loss(1, (1, 0, 20, 80), (None, 0, 5, 5), (None, 1, 5, 5)))  # the other rank flushed late
    state = tail.poll()
    assert (state.steps_done, state.last_step_s) == (1, 4.0)
    assert state.tokens_per_s == pytest.approx((40 + 60 + 100 + 10 + 10) / 4)

    append(driver, {"ev": "begin", "stage": "actor_update", "name": "step", "step": 2, "t_ns": 15 * S}, loss(2, (2, 0, 1, 1)))
    state = tail.poll()
    assert (state.step, state.stage, state.steps_done) == (2, "actor_update", 1)
    assert state.tokens_per_s == pytest.approx(55)  # still of the step that ended


def test_workers_that_do_not_know_the_step_count_by_time(tmp_path: Path) -> None:
    """verl's training workers: two ranks, two epochs, samples that are not identified; the second rank flushes late."""
    driver, first, second = (tmp_path / f"{name}.jsonl" for name in "abc")
    tail = ProbeTail(tmp_path, epochs=2)
    append(driver, DRIVER)
    append(first, WORKER, *(loss(0, (None, None, 10, 30), (None, None, 10, 30), t_ns=t_ns * S) for t_ns in (12, 13)))
    assert tail.poll().tokens_per_s is None
    append(first, loss(0, (None, None, 500, 500), t_ns=15 * S))  # of the step under way
    append(driver, {"ev": "step", "step": 1, "start_ns": 10 * S, "end_ns": 14 * S, "probe_ns": 0})
    assert tail.poll().tokens_per_s == pytest.approx(80 / 4)
    append(second, WORKER, *(loss(0, (None, None, 10, 50), t_ns=t_ns * S) for t_ns in (12, 13)))
    assert tail.poll().tokens_per_s == pytest.approx((80 + 60) / 4)
    append(driver, {"ev": "step", "step": 2, "start_ns": 14 * S, "end_ns": 16 * S, "probe_ns": 0})
    assert tail.poll().tokens_per_s == pytest.approx(500 / 2)


def test_a_stage_left_by_an_exception_stays(tmp_path: Path) -> None:
    begin = {"ev": "begin", "stage": "reward", "name": "score", "step": 2, "t_ns": 1}
    append(
        tmp_path / "a.jsonl", DRIVER, begin, {"ev": "span", "id": 1, "parent": None, "stage": "reward", "end_ns": 2, "error": "KeyError"}
    )
    assert ProbeTail(tmp_path).poll().stage == "reward"


def test_the_innermost_stage_is_the_one_under_way_and_the_one_that_raised(tmp_path: Path) -> None:
    path, tail = tmp_path / "a.jsonl", ProbeTail(tmp_path)
    outer, inner = {"stage": "actor_update", "name": "training_step"}, {"stage": "reward", "name": "score"}
    append(path, DRIVER, *({"ev": "begin", "step": 1, "t_ns": 1, **span} for span in (outer, inner)))
    assert tail.poll().stage == "reward"
    append(path, {"ev": "span", "id": 2, "parent": 1, "end_ns": 2, **inner})
    assert tail.poll().stage == "actor_update"
    append(path, {"ev": "span", "id": 3, "parent": 1, "end_ns": 3, "error": "KeyError", **inner})  # whose beginning was not told
    append(path, {"ev": "span", "id": 1, "parent": None, "end_ns": 4, "error": "KeyError", **outer})
    assert tail.poll().stage == "reward"
    append(path, {"ev": "begin", "step": 1, "t_ns": 5, "stage": "data", "name": "batch"})
    assert tail.poll().stage == "data"


def test_half_written_and_unknown_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    step = json.dumps({"ev": "step", "step": 1, "start_ns": 0, "end_ns": 2 * S, "probe_ns": 0})
    path.write_text('{"ev": "future", "x": 1}\n{"ev": "st\n[1]\n' + step[:20])
    tail = ProbeTail(tmp_path)
    assert tail.poll().steps_done == 0
    with path.open("a") as file:
        file.write(step[20:] + "\n")
    assert tail.poll().last_step_s == 2.0
    assert tail.poll().steps_done == 1


def test_a_damaged_event_does_not_end_the_run(tmp_path: Path) -> None:
    """What is JSON and yet no event of ours: progress goes on, and the tables count it."""
    damaged = [
        {"ev": "span", "end_ns": "late"},
        {"ev": "loss", "step": 1, "rows": [[1, 2]]},
        {"ev": "loss"},
        {"ev": "step", "step": None},
        {"ev": "step", "step": 1, "start_ns": "a", "end_ns": 3},
        {"ev": "begin", "step": "two"},
    ]
    append(tmp_path / "a.jsonl", DRIVER, *damaged, {"ev": "step", "step": 1, "start_ns": 0, "end_ns": 2 * S, "probe_ns": 0})
    assert ProbeTail(tmp_path).poll().last_step_s == 2.0


def test_seconds_left_leaves_the_first_step_out() -> None:
    assert ProbeState().seconds_left(5) is None
    assert ProbeState(steps_done=1, step_seconds=[10.0]).seconds_left(5) == 40.0
    assert ProbeState(steps_done=3, step_seconds=[10.0, 2.0, 4.0]).seconds_left(5) == 6.0


def test_the_part_of_the_start_up_that_was_begun_last_is_told_whichever_process_is_at_it(tmp_path: Path) -> None:
    tail = ProbeTail(tmp_path)
    begin = {"ev": "begin", "stage": "startup", "step": 0, "t_ns": 7}
    append(tmp_path / "launcher.jsonl", {**begin, "name": "ray_init"})
    assert tail.poll().starting == "ray_init"
    append(tmp_path / "worker.jsonl", WORKER, {**begin, "name": "engine_load_model"})
    assert (tail.poll().starting, tail.poll().step, tail.poll().stage) == ("engine_load_model", 0, None)
