"""Waiting, bubbles and the long tail, by hand (docs/metrics.md has the same example)."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from rlmbench.metrics import summarize
from rlmbench.metrics.idle import long_tail, roles_waiting, sample_intervals
from rlmbench.metrics.stages import Window
from rlmbench.records.store import load

MS = 1_000_000
STEPS = [Window(2, 100 * MS, 200 * MS), Window(3, 200 * MS, 300 * MS)]


def spans(*rows):
    """Rows of process, thread, step, start and end in ms, stage, awaits."""
    frame = pd.DataFrame(rows, columns=["process", "thread", "step", "start_ns", "end_ns", "stage", "awaits"])
    frame[["start_ns", "end_ns"]] *= MS
    return frame.assign(substage=None).astype({"awaits": "string", "substage": "string"})


TRAINERS = (
    ("a", 1, 2, 110, 150, "actor_update", None),
    ("b", 1, 2, 140, 160, "actor_update", None),
    ("a", 1, 3, 260, 310, "old_logprob", None),
    ("a", 1, 0, 0, 90, "startup", None),
)


def test_a_roles_waiting_is_what_none_of_its_processes_covers():
    """Busy 110-160 and 260-300: 90 of 200 ms. Idle 100-110 and 160-260, the second over the steps' boundary: two bubbles."""
    (role,) = roles_waiting(spans(*TRAINERS), {"a": "trainer", "b": "trainer"}, {}, STEPS)
    assert (role.role, role.processes) == ("trainer", 2)
    assert (role.busy_s, role.role_waiting) == (pytest.approx(0.045), pytest.approx(0.55))
    assert role.process_waiting == pytest.approx({"a": 0.6, "b": 0.9})
    assert (role.bubbles.per_step, role.bubbles.s_per_step, role.bubbles.longest_s) == pytest.approx((1.0, 0.055, 0.1))


def test_a_wait_and_a_span_that_awaits_others_are_no_work():
    """Of the update's 100 ms the collective's 30 are a wait; the poll from 200 to 280 only awaits; a reward within it is work."""
    (role,) = roles_waiting(
        spans(
            ("a", 1, 2, 100, 200, "actor_update", None),
            ("a", 1, 2, 150, 180, "wait", None),
            ("a", 1, 3, 200, 280, "generation", "generation reward"),
            ("a", 1, 3, 210, 220, "reward", None),
        ),
        {"a": "trainer"},
        {},
        STEPS,
    )
    assert role.busy_s * 2 == pytest.approx(0.080)
    assert (role.bubbles.per_step, role.bubbles.longest_s) == pytest.approx((1.5, 0.080))  # 150-180, 200-210, 220-300


def test_gaps_below_a_millisecond_wait_but_are_no_bubbles():
    (role,) = roles_waiting(
        spans(("e", 1, 2, 100, 150, "generation", None), ("e", 1, 2, 150.75, 300, "generation", None)), {"e": "engine"}, {}, STEPS
    )
    assert role.role_waiting == pytest.approx(0.75 / 200)
    assert (role.bubbles.per_step, role.bubbles.s_per_step, role.bubbles.longest_s) == (0, 0, 0)


def test_a_step_left_out_between_two_measured_ones_is_no_part_of_a_bubble():
    """Steps 100-200 and 300-400, idle from 150 to 350: two bubbles of 50 ms."""
    windows = [Window(2, 100 * MS, 200 * MS), Window(4, 300 * MS, 400 * MS)]
    frame = spans(("a", 1, 2, 100, 150, "generation", None), ("a", 1, 4, 350, 400, "generation", None))
    (role,) = roles_waiting(frame, {"a": "engine"}, {}, windows)
    assert (role.role_waiting, role.bubbles.per_step, role.bubbles.longest_s) == pytest.approx((0.5, 1.0, 0.05))


def test_another_nodes_times_are_moved_to_the_drivers_clock():
    """On its own clock the engine works from 1100 to 1200 ms; it is 1000 ms ahead."""
    frame = spans(("e", 1, 2, 1100, 1200, "generation", None))
    (role,) = roles_waiting(frame, {"e": "engine"}, {"e": -1000 * MS}, STEPS)
    assert (role.role_waiting, role.bubbles.longest_s) == pytest.approx((0.5, 0.1))


def test_roles_are_apart_and_a_process_without_stages_is_left_out():
    frame = spans(*TRAINERS, ("e", 1, 2, 100, 300, "generation", None), ("idle", 1, 0, 0, 90, "startup", None))
    roles = roles_waiting(frame, {"a": "trainer", "e": "engine", "idle": "reward"}, {}, STEPS)
    assert [(role.role, list(role.process_waiting)) for role in roles] == [("engine", ["e"]), ("trainer", ["a"])]
    assert roles[0].role_waiting == 0
    assert roles_waiting(frame, {"a": "trainer"}, {}, []) == []


@pytest.mark.parametrize(
    ("samples", "tail"),
    [
        (20, 1),  # fewer than 2 are at most 1: from the 19th end, at 19 s, to the 20th
        (21, 2),  # fewer than 2.1 are at most 2: from the 19th end to the 21st
        (11, 1),
        (100, 9),  # 10 would be a tenth, and not fewer
    ],
)
def test_the_tail_begins_when_fewer_than_a_tenth_are_unfinished(samples, tail):
    """Sample k runs from 0 to k seconds."""
    found = long_tail([[(0, k * 1000 * MS) for k in range(1, samples + 1)]])
    assert (found.tail_s, found.tail_share, found.samples, found.steps) == (tail, pytest.approx(tail / samples), samples, 1)


def test_the_tail_of_several_steps_is_their_median_and_its_share_that_of_the_sums():
    """Of 20 samples all but one end at 10 s: tails of 1, 2 and 9 s in generations of 11, 12 and 19 s."""
    steps = [[(0, 10_000 * MS)] * 19 + [(0, (10 + tail) * 1000 * MS)] for tail in (1, 2, 9)]
    assert (long_tail(steps).tail_s, long_tail(steps).tail_share) == (2, pytest.approx(12 / 42))


def test_ten_samples_have_no_tail():
    assert long_tail([[(0, k) for k in range(1, 11)]]) is None
    assert long_tail([]) is None


def test_samples_are_the_generation_spans_in_lanes():
    frame = spans(
        ("r", -1, 2, 100, 150, "generation", None),
        ("r", -2, 2, 100, 160, "generation", None),
        ("r", -1, 3, 200, 250, "generation", None),
        ("r", -1, 1, 20, 50, "generation", None),
        ("r", -3, 2, 160, 170, "reward", None),
        ("driver", 7, 2, 90, 190, "generation", "generation"),
    )
    found = sample_intervals(frame, {"r": 10 * MS}, [2, 3])
    assert found == {2: [(110 * MS, 160 * MS), (110 * MS, 170 * MS)], 3: [(210 * MS, 260 * MS)]}


def test_a_runs_summary_has_them_with_reasons_for_what_is_absent(unchanged_run):
    """Each step's 1 s is covered but for its last 10 ms, which is no gap of another step's: three bubbles in three steps."""
    summary = summarize(unchanged_run)
    (role,) = summary.idle.roles
    assert (role.role, role.busy_s, role.role_waiting) == ("trainer", pytest.approx(0.99), pytest.approx(0.01))
    assert (role.bubbles.per_step, role.bubbles.s_per_step, role.bubbles.longest_s) == pytest.approx((1.0, 0.01, 0.01))
    assert summary.idle.tail is None
    assert "generates a batch in one call" in summary.absent["idle.tail"]
    assert {"idle.no_kernel", "idle.exposed_communication", "idle.low_sm", "idle.cpu_idle"} <= set(summary.absent)
    assert "idle" not in summary.absent


def lanes(synthetic, samples):
    """In every step a rollout process whose sample k runs from the step's begin to 10 k ms."""
    process = dict(synthetic.only("process")[0], role="rollout", pid=2)
    events = [process]
    for step in synthetic.only("step"):
        for k in range(1, samples + 1):
            times = {"start_ns": step["start_ns"], "end_ns": step["start_ns"] + 10 * k * MS}
            span = {"ev": "span", "id": k, "parent": None, "substage": None, "step": step["step"], "thread": -k}
            events.append({**span, "stage": "generation", "name": "sample", **times})
    run = synthetic.write()
    (run.path / "probe" / "worker-2.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return summarize(load(run.path))


def test_a_rollout_process_gives_a_run_its_tail(synthetic):
    summary = lanes(synthetic, 40)  # fewer than 4 unfinished: from 370 to 400 ms
    assert (summary.idle.tail.tail_s, summary.idle.tail.tail_share) == pytest.approx((0.03, 0.075))
    assert (summary.idle.tail.samples, summary.idle.tail.steps) == (40, 3)
    assert {role.role: role.role_waiting for role in summary.idle.roles} == pytest.approx({"trainer": 0.01, "rollout": 0.6})
    assert "idle.tail" not in summary.absent


def test_too_few_samples_have_no_tail_and_the_reason_says_so(synthetic):
    assert "10 samples or fewer" in lanes(synthetic, 4).absent["idle.tail"]


def test_an_asynchronous_run_has_no_tail(synthetic):
    synthetic.experiment["placement"] = {"mode": "async", "rollout_devices": 1, "rollout_engine": "vllm", "max_staleness": 1}
    summary = lanes(synthetic, 40)
    assert summary.idle.tail is None
    assert "runs ahead" in summary.absent["idle.tail"]


def test_without_spans_there_is_none_of_it(synthetic):
    synthetic.drop(synthetic.only("span"))
    summary = summarize(synthetic.write())
    assert summary.idle is None
    assert summary.absent["idle"].startswith("no spans were recorded")
