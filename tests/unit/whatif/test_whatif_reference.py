"""The reference framework's schedules: its own closed forms, predicted from its co-located stage times alone."""

from __future__ import annotations

import pytest

from rlmbench.whatif import Assumptions, predict
from rlmbench.whatif.inputs import Inputs, fixed_inputs
from rlmbench.whatif.modes import Layout, draw
from rlmbench_reference.expected import expected
from rlmbench_reference.schedule import LOAD, SCHEDULES, Part, Schedule

GRPO = ("data", "generation", "reward", "reference_logprob", "old_logprob", "advantage", "actor_update", "weight_sync", "bookkeeping")
PPO = (*GRPO[:5], "values", *GRPO[5:6], "critic_update", *GRPO[6:])
APART = Layout(2, 1, 1)


def parts_of(name: str, stages: tuple[str, ...]) -> dict[str, Part]:
    """The schedule's parts that run, and what loading weights takes where rollouts are apart."""
    parts = SCHEDULES[name]
    return {stage: parts[stage] for stage in (*stages, *([LOAD] if LOAD in parts else []))}


def colocated(parts: dict[str, Part]) -> Inputs:
    """What a co-located run of one process measures of the same stages."""
    seconds = {stage: part.seconds for stage, part in parts.items()}
    roles = ("reward", "reference_logprob", "old_logprob", "values", "advantage")
    return fixed_inputs(
        seconds["generation"],
        {role: seconds[role] for role in roles if role in seconds},
        {role: seconds[role] for role in ("actor_update", "critic_update") if role in seconds},
        devices=1,
        sync_s=seconds["weight_sync"],
        other_s=seconds["data"] + seconds["bookkeeping"],
    )


def predicted(parts: dict[str, Part], mode: str, layout: Layout, **assumed: object) -> float:
    return predict(draw(colocated(parts), Assumptions.model_validate(assumed), 40), mode, layout).step_s


@pytest.mark.parametrize("stages", [GRPO, PPO])
def test_its_schedules_are_predicted_within_2_percent(stages: tuple[str, ...]) -> None:
    """Its trainer assesses, its rollouts load weights for 20 ms, which the co-located run cannot know: it is set, as a user would."""
    parts = parts_of("colocated", stages)
    assert predicted(parts, "colocated", Layout(1, 1, 1)) == pytest.approx(expected(Schedule("colocated", parts)).step_s, rel=0.02)
    parts = parts_of("disaggregated", stages)
    exact = expected(Schedule("disaggregated", parts, rollouts=1)).step_s
    assert predicted(parts, "disaggregated", APART, sync_s=0.03 + 0.02) == pytest.approx(exact, rel=0.02)
    by_trainer = {"rollout_refill": False}
    parts = parts_of("asynchronous", stages)  # the trainer is the slower side
    exact = expected(Schedule("asynchronous", parts, rollouts=1, max_staleness=2)).step_s
    assert predicted(parts, "bounded_asynchrony", Layout(2, 1, 1, 2), **by_trainer) == pytest.approx(exact, rel=0.02)
    parts = parts_of("one_step_off", stages)
    exact = expected(Schedule("one_step_off", parts, rollouts=1, max_staleness=1)).step_s
    slower_rollout = exact > sum(part.seconds for stage, part in parts.items() if stage not in ("generation", LOAD))
    sync_s = 0.02 if slower_rollout else 0.03  # what the slower side spends on it
    assert predicted(parts, "bounded_asynchrony", APART, **by_trainer, sync_s=sync_s) == pytest.approx(exact, rel=0.02)


def test_waiting_of_its_synchronous_split() -> None:
    """Its own waiting counts host work and the sync as work of the trainer: here only what devices do, so the difference is known."""
    parts = parts_of("disaggregated", GRPO)
    exact = expected(Schedule("disaggregated", parts, rollouts=1))
    found = predict(draw(colocated(parts), Assumptions(sync_s=0.05), 40), "disaggregated", APART)
    assert found.waiting["rollout"] == pytest.approx(exact.role_waiting["rollout"] + 0.02 / exact.step_s)
    assert found.waiting["training"] == pytest.approx(exact.role_waiting["trainer"] + (0.01 + 0.005 + 0.03) / exact.step_s)
