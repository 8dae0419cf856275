"""The simulated framework's script: settings of a user's own, its closed forms by hand, and that it is never taken for a framework."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import rlmbench.runner.cells as cells
from rlmbench.conformance import static_checks
from rlmbench.environment import ensure
from rlmbench.errors import UserError
from rlmbench.experiment import Experiment
from rlmbench.experiment.load import build_experiment, load_suite
from rlmbench.runner.cells import Request, make_plan
from rlmbench_reference import adapter
from rlmbench_reference.expected import expected, seconds
from rlmbench_reference.schedule import LAYOUTS, SCHEDULES, Part, Schedule, schedule_of

DATA, GENERATION, REWARD, UPDATE, SYNC, LOAD = 1.0, 10.0, 4.0, 6.0, 2.0, 1.0
PARTS = {
    "data": Part(DATA),
    "generation": Part(GENERATION, skew=0.2),
    "reward": Part(REWARD),
    "actor_update": Part(UPDATE),
    "weight_sync": Part(SYNC),
}
APART = {**PARTS, "load": Part(LOAD)}


def native(suite: str = "gsm8k_grpo", **changed: object) -> dict[str, object]:
    return {**adapter.translate(build_experiment(load_suite(suite), "tiny"), "cpu").native, **changed}


def test_a_process_by_its_rank() -> None:
    assert [seconds(Part(10.0, skew=0.2), rank, 3) for rank in range(3)] == pytest.approx([8.0, 9.0, 10.0])
    assert seconds(Part(10.0, skew=0.2), 0, 1) == 10.0


def test_colocated_by_hand() -> None:
    """1 + 10 + 4 + 6 + 2 = 23. Of three ranks the first generates for 8 and waits for 2; their mean is 9, so that the skew is 1 of 10."""
    assert expected(Schedule("colocated", PARTS)).step_s == 23.0
    three = expected(Schedule("colocated", PARTS, ranks=3))
    assert (three.step_s, three.stages_s["generation"], three.stages_s["wait"]) == pytest.approx((23.0, 8.0, 2.0))
    assert [three.waiting[f"trainer-{rank}"] for rank in range(3)] == pytest.approx([2 / 23, 1 / 23, 0])
    assert (three.role_waiting["trainer"], three.skew["generation"]) == pytest.approx((0, 0.1))


def test_fused_by_hand() -> None:
    """Half of the reward, 2, runs beside the second half of generation, 5: 23 - 2."""
    fused = expected(Schedule("fused", PARTS, overlapped=True))
    assert (fused.step_s, fused.overlap_s, sum(fused.stages_s.values())) == (21.0, 2.0, 23.0)


def test_disaggregated_by_hand() -> None:
    """Trainers work for 1 + 4 + 6 + 2 = 13, rollouts for 1 + 10 = 11, one after the other: 24."""
    apart = expected(Schedule("disaggregated", APART, rollouts=1))
    assert (apart.step_s, apart.stages_s["generation"], apart.stages_s["weight_sync"]) == (24.0, 10.0, 3.0)
    assert apart.role_waiting == pytest.approx({"trainer": 11 / 24, "rollout": 13 / 24})


def test_one_step_off_by_hand() -> None:
    """Side by side the slower one decides: trainers with 13. With an update of 2 they have 9, rollouts 11: the driver awaits 2 of it."""
    trainers = expected(Schedule("one_step_off", APART, rollouts=1, max_staleness=1))
    assert (trainers.step_s, trainers.staleness, trainers.stages_s["generation"]) == (13.0, 1, 0.0)
    assert trainers.role_waiting == pytest.approx({"trainer": 0.0, "rollout": 2 / 13})
    rollouts = expected(Schedule("one_step_off", {**APART, "actor_update": Part(2.0)}, rollouts=1, max_staleness=1))
    assert (rollouts.step_s, rollouts.stages_s["generation"]) == (11.0, 2.0)
    assert rollouts.role_waiting == pytest.approx({"trainer": 2 / 11, "rollout": 0.0})


def test_staleness_is_bounded_by_the_experiment_or_by_the_rollouts() -> None:
    assert expected(Schedule("asynchronous", APART, rollouts=1, max_staleness=3)).staleness == 3
    assert expected(Schedule("asynchronous", {**APART, "actor_update": Part(2.0)}, rollouts=1, max_staleness=3)).staleness == 1


def test_every_named_schedule_has_a_layout_and_a_closed_form() -> None:
    assert {name for fitting in LAYOUTS.values() for name in fitting} == set(SCHEDULES)
    for layout, fitting in LAYOUTS.items():
        for name in fitting:
            rollouts = 0 if layout == "colocated" else 2
            wanted = expected(schedule_of(native(layout=layout, schedule=name, rollouts=rollouts, max_staleness=int(layout == "async"))))
            assert wanted.step_s > 0.2
            assert sum(wanted.stages_s.values()) - wanted.overlap_s == pytest.approx(wanted.step_s)


def test_stages_follow_from_the_algorithm() -> None:
    assert {"values", "critic_update"} <= set(schedule_of(native("gsm8k_ppo")).parts)
    assert not {"values", "critic_update"} & set(schedule_of(native()).parts)


def test_parts_can_be_changed() -> None:
    changed = schedule_of(native(stages={"generation": {"seconds": 1, "burn": 0.5, "allocate_mib": 20, "threads": 2}}))
    assert changed.parts["generation"] == Part(1.0, skew=0.2, burn=0.5, allocate_mib=20.0, threads=2)
    assert changed.parts["reward"] == schedule_of(native()).parts["reward"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "disaggregated"}, "does not fit placement.mode=colocated, which has colocated and fused"),
        ({"stages": {"generatio": {}}}, "stages.generatio: this schedule has no such stage (did you mean 'generation'?)"),
        ({"stages": {"values": {"seconds": 1}}}, "stages.values: this schedule has no such stage"),
        ({"stages": {"reward": {"second": 1}}}, "stages.reward.second: unknown (did you mean 'seconds'?)"),
        ({"stages": {"reward": {"seconds": "1"}}}, "'1' is no number of at least 0"),
        ({"stages": {"reward": 1}}, "stages.reward: 1 is no mapping"),
        ({"stages": {"reward": {"burn": 2}}}, "burn is at most 1"),
        ({"failure": {"step": 1, "stage": "reward"}}, "failure: give step, stage and kind"),
        ({"failure": {"step": 1, "stage": "reward", "kind": "kil"}}, "'kil' is none of exception, exit, hang, kill, out_of_memory"),
        ({"failure": {"step": 1, "stage": "values", "kind": "kill"}}, "failure.stage: this schedule has no 'values'"),
        ({"failure": {"step": 1, "stage": ["reward"], "kind": "kill"}}, "failure.stage: this schedule has no ['reward']"),
        ({"failure": {"step": "2", "stage": "reward", "kind": "kill"}}, "failure.step: '2' is no step"),
        ({"failure": {"step": 2, "stage": "reward", "kind": "kill", "process": "trainer-9"}}, "'trainer-9' is none of trainer-0"),
        ({"stages": {"reward": {"seconds": math.inf}}}, "stages.reward.seconds: inf is no number of at least 0"),
    ],
)
def test_mistakes_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as refused:
        schedule_of(native(**settings))
    assert message in str(refused.value)


def placed(**placement: object) -> Experiment:
    base = build_experiment(load_suite("gsm8k_grpo"), "tiny")
    return base.model_copy(update={"placement": base.placement.model_copy(update=placement)})


@pytest.mark.parametrize(
    ("placement", "field"),
    [
        ({"mode": "disaggregated"}, "placement.rollout_devices"),
        ({"mode": "async", "rollout_devices": 1}, "placement.max_staleness"),
        ({"max_staleness": 1}, "placement.max_staleness"),
    ],
)
def test_a_layout_that_it_has_no_script_for_is_refused(placement: dict[str, object], field: str) -> None:
    assert [entry.field for entry in adapter.translate(placed(**placement), "cpu").unsupported] == [field]


def test_all_frameworks_are_the_real_ones() -> None:
    """`installed_adapters` has it, `--framework all` has not; asked for by name it is there, and says what it is."""
    assert "reference" in cells.installed_adapters()
    assert "reference" not in make_plan(Request("gsm8k_grpo", ("all",), "tiny")).parts
    by_name = make_plan(Request("gsm8k_grpo", ("reference",), "tiny")).parts["reference"].translation
    assert by_name.simulated == "simulated: a scripted schedule, no training"


def test_it_passes_every_static_check() -> None:
    assert [f"{found.check}: {found.evidence}" for found in static_checks(adapter) if not found.ok] == []


def test_its_environment_is_python_alone(tmp_path: Path) -> None:
    """No package is installed, so nothing is asked of an index."""
    (spec,) = adapter.environments()
    built = ensure(spec, cache_dir=tmp_path)
    assert dict(built.packages) == {}
    assert built.torch is None
