"""Execution modes against schedules built event by event, and idle shares against device-seconds added up."""

from __future__ import annotations

import pytest

from rlmbench.costmodel import modes
from rlmbench.costmodel.modes import StageTimes

TIMES = StageTimes(
    generation=10.0,
    assessment={"reference": 3.0, "reward": 1.0, "critic": 2.0, "policy": 2.5},
    training={"policy": 6.0, "critic": 4.0},
    sync=0.5,
)


def in_turn(*durations: float) -> float:
    """End of the last when each begins as the one before ends."""
    clock = 0.0
    for duration in durations:
        clock += duration
    return clock


def beside(*durations: float) -> float:
    """End of the last when all begin together."""
    ends = [0.0 + duration for duration in durations]
    return max(ends)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("colocated", in_turn(10, 3, 1, 2, 2.5, 6, 4, 0.5)),
        ("disaggregated", in_turn(10, beside(3, 1, 2, 2.5), beside(6, 4), 0.5)),
        ("stage_fusion", in_turn(beside(10, 3, 1, 2, 2.5), beside(6, 4), 0.5)),
        ("bounded_asynchrony", in_turn(beside(in_turn(10, beside(3, 1, 2, 2.5)), beside(6, 4)), 0.5)),
        ("one_step_off", in_turn(beside(10, in_turn(3, 1, 2, 2.5, 6, 4)), 0.5)),
        ("trainer_assessed_asynchrony", in_turn(beside(10, in_turn(beside(3, 1, 2, 2.5), beside(6, 4))), 0.5)),
        ("combined", in_turn(beside(10, 3, 1, 2, 2.5, 6, 4), 0.5)),
        ("shared_actor_critic", in_turn(10, 3, 1, beside(2, 2.5), beside(6, 4), 0.5)),
    ],
)
def test_step_of_each_mode(mode: str, expected: float) -> None:
    assert modes.MODES[mode](TIMES) == pytest.approx(expected)


def test_asynchrony_in_steady_state_is_what_a_pipeline_of_two_converges_to() -> None:
    produced = trained = 0.0
    ends = []
    for _ in range(200):  # batch k is generated and assessed while k-1 trains; at most one batch waits
        started = max(produced, ends[-2] if len(ends) > 1 else 0.0)
        produced = started + TIMES.generation + TIMES.assessment_max
        trained = max(trained, produced) + TIMES.training_max
        ends.append(trained)
    step = (ends[-1] - ends[100]) / 99
    assert step == pytest.approx(modes.bounded_asynchrony(StageTimes(TIMES.generation, TIMES.assessment, TIMES.training)))


def test_hybrid_layouts_pay_for_resharding() -> None:
    assert modes.hybrid_layouts(TIMES, 4.0, {"policy": 5.0, "critic": 4.0}, 1.0) == pytest.approx(4 + 8.5 + 9 + 0.5 + 1)


def test_a_step_without_assessment_or_critic() -> None:
    bare = StageTimes(3.0, {}, {"policy": 2.0})
    assert {mode: form(bare) for mode, form in modes.MODES.items()} == {
        "colocated": 5,
        "shared_actor_critic": 5,
        "disaggregated": 5,
        "stage_fusion": 5,
        "bounded_asynchrony": 3,
        "one_step_off": 3,
        "trainer_assessed_asynchrony": 3,
        "combined": 3,
    }


def test_pipeline_bubble_counts_empty_slots() -> None:
    stages, micro_batches = 4, 8
    slots = micro_batches + stages - 1
    busy = sum(1 for stage in range(stages) for slot in range(slots) if stage <= slot < stage + micro_batches)
    assert modes.pipeline_bubble(stages, micro_batches) == pytest.approx(1 - busy / (stages * slots))
    assert modes.pipeline_bubble(1, 8) == 0


def test_idle_shares_are_device_seconds_that_nobody_used() -> None:
    assert modes.skew_idle([4.0, 3.0, 1.0]) == pytest.approx((0 + 1 + 3) / 12)
    assert modes.skew_idle([]) == modes.skew_idle([0.0, 0.0]) == 0
    # 6 devices generate 10 s, 2 train 5 s, 1 s passes weights: 8 x 16 held.
    assert modes.disaggregated_idle(6, 10, 2, 5, 1) == pytest.approx((6 * (5 + 1) + 2 * (10 + 1)) / (8 * 16))
    assert modes.one_step_off_idle(6, 10, 2, 5, 1) == pytest.approx((6 * 1 + 2 * (5 + 1)) / (8 * 11))


@pytest.mark.parametrize(
    ("generation", "training", "devices"), [(100.0, 50.0, 8), (1.0, 99.0, 4), (99.0, 1.0, 4), (70.0, 30.0, 32), (5.0, 5.0, 2)]
)
def test_the_best_split_by_trying_all(generation: float, training: float, devices: int) -> None:
    tried = {n: max(generation / n, training / (devices - n)) for n in range(1, devices)}
    chosen, rest = modes.balanced_split(generation, training, devices)
    assert chosen + rest == devices and tried[chosen] == min(tried.values())
    with pytest.raises(ValueError, match="two devices"):
        modes.balanced_split(1, 1, 1)


def test_resharding_of_hybridflows_table_2() -> None:
    # Each of 16 ranks holds 1/16 and gathers the rest; HybridFlow's holds 1/8 and gathers up to 1/2 of the model.
    assert modes.resharding_bytes_deepspeed_chat(16.0, 4, 2, 2) == 15.0
    assert modes.resharding_bytes_hybridflow(16.0, 4, 2, 2, 1) == pytest.approx(16 / 2 - 16 / 8)
    assert modes.resharding_bytes_hybridflow(16.0, 4, 2, 4, 2) == 0


def test_openrlhfs_published_step_of_34b_and_7b() -> None:
    """94.91 s = 5.25 generation + 51.01 training + 19.40 inference + 8.34 sync, and 10.92 s (11.5%) that nothing names."""
    published = StageTimes(5.25, {"all": 19.40}, {"all": 51.01}, sync=8.34)
    assert modes.colocated(published) + 10.92 == pytest.approx(94.91, abs=0.011)  # rounded to hundredths, each
    assert 1 - modes.colocated(published) / 94.91 == pytest.approx(0.115, abs=0.0005)
    # Its generation would hide beside training one step off: at least 5.25 s less.
    assert modes.colocated(published) - modes.one_step_off(published) == pytest.approx(5.25)


def test_verls_published_one_step_off() -> None:
    """749 s = 321 + 88 + 286 and 7% that nothing names; one step off took 520 s on as many devices."""
    published = StageTimes(321.0, {"policy": 88.0}, {"policy": 286.0})
    assert modes.colocated(published) == 695.0
    assert 1 - modes.colocated(published) / 749 == pytest.approx(0.072, abs=0.001)
