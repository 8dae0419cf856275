"""Asynchronous runs as input: the reference framework's schedules, from records to its closed forms, and what no record can tell."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
sys.path.insert(0, str(Path(__file__).parent))

from asynchronous_run import parts_with, write_run

from rlmbench.errors import UserError
from rlmbench.metrics import RunSummary, summarize
from rlmbench.metrics.stages import Segment, Window
from rlmbench.records import Run, load
from rlmbench.whatif import Assumptions, Inputs, Question, best_split, inputs_from_run, predict, what_if
from rlmbench.whatif.asynchronous import _load_s, _of_each_batch
from rlmbench.whatif.guidelines import guidelines
from rlmbench.whatif.inputs import decode_cost, fixed_inputs
from rlmbench.whatif.modes import Layout, draw
from rlmbench.whatif.result import _of_a_run_ahead
from rlmbench_reference.expected import expected
from rlmbench_reference.schedule import LOAD, SCHEDULES, Part, Schedule

GRPO = ("data", "generation", "reward", "reference_logprob", "old_logprob", "advantage", "actor_update", "weight_sync", "bookkeeping")
PPO = (*GRPO[:5], "values", "advantage", "critic_update", *GRPO[6:])
Recorded = tuple[Run, RunSummary]

SLOW_ROLLOUTS = Schedule("one_step_off", parts_with(SCHEDULES["one_step_off"], *GRPO), rollouts=1, max_staleness=1)
SLOW_TRAINERS = Schedule("one_step_off", parts_with(SCHEDULES["one_step_off"], *PPO), rollouts=1, max_staleness=1)
AHEAD = Schedule("asynchronous", parts_with(SCHEDULES["asynchronous"], *GRPO), rollouts=1, max_staleness=2)
SEVERAL = replace(AHEAD, ranks=2, rollouts=2)
SEVERAL_SLOW = replace(AHEAD, parts={**AHEAD.parts, "generation": Part(0.5, skew=0.2)}, ranks=2, rollouts=2, max_staleness=3)
ALL = {"slow rollouts": SLOW_ROLLOUTS, "slow trainers": SLOW_TRAINERS, "ahead": AHEAD, "several": SEVERAL, "several, slow": SEVERAL_SLOW}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    folder = tmp_path_factory.mktemp("asynchronous")
    runs = {name: write_run(folder / name.replace(" ", "-"), schedule) for name, schedule in ALL.items()}
    return {name: (run, summarize(run)) for name, run in runs.items()}


def in_turn(schedule: Schedule, name: str) -> float:
    """The closed form of the same parts in another layout."""
    apart = name != "colocated"
    parts = {stage: part for stage, part in schedule.parts.items() if apart or stage != LOAD}
    return expected(replace(schedule, name=name, parts=parts, rollouts=schedule.rollouts if apart else 0, max_staleness=0)).step_s


def predicted(found: Recorded, mode: str, split: tuple[int, int] | None, devices: int, staleness: int | None = None) -> float:
    return what_if(*found, Question((mode,), devices, split, staleness, steps=60)).predictions[0].step_s


@pytest.mark.parametrize("name", list(ALL))
def test_its_own_mode_is_given_back_within_2_percent(recorded: dict[str, Recorded], name: str) -> None:
    """Of the measured step, and of the schedule's closed form."""
    found = what_if(*recorded[name], Question(steps=60))
    assert found.replay.step_s == pytest.approx(found.measured_step_s, rel=0.02)
    assert found.replay.step_s == pytest.approx(expected(ALL[name]).step_s, rel=0.02)
    assert found.measured_mode in ("one_step_off", "bounded_asynchrony")


@pytest.mark.parametrize("name", list(ALL))
def test_in_turn_it_would_have_been_the_closed_form(recorded: dict[str, Recorded], name: str) -> None:
    """Co-located and disaggregated, on as many devices for each role as the run had: within 2%."""
    schedule = ALL[name]
    split = (schedule.rollouts, schedule.ranks)
    assert predicted(recorded[name], "disaggregated", split, sum(split)) == pytest.approx(in_turn(schedule, "disaggregated"), rel=0.02)
    assert predicted(recorded[name], "colocated", None, schedule.ranks) == pytest.approx(in_turn(schedule, "colocated"), rel=0.02)


def test_more_staleness_gives_the_asynchronous_closed_form(recorded: dict[str, Recorded]) -> None:
    """From one step behind to three, and back: who is slower decides, in each."""
    for name, staleness in (("slow rollouts", 3), ("several, slow", 1)):
        schedule = replace(ALL[name], max_staleness=staleness)
        split = (schedule.rollouts, schedule.ranks)
        found = predicted(recorded[name], "bounded_asynchrony", split, sum(split), staleness)
        assert found == pytest.approx(expected(schedule).step_s, rel=0.02)


@pytest.mark.parametrize("name", ["slow rollouts", "slow trainers", "several"])
def test_each_roles_own_seconds(recorded: dict[str, Recorded], name: str) -> None:
    """The script's, to the microsecond, whoever waits for whom; of several processes the slowest's."""
    inputs, parts = inputs_from_run(*recorded[name]), ALL[name].parts
    assert inputs.generation_s == pytest.approx(np.full(7, parts["generation"].seconds), abs=1e-6)
    assert inputs.load_s == pytest.approx(0.02, abs=1e-6)
    for role, seconds in {**inputs.assessment_s, **inputs.training_s, "weight_sync": inputs.sync_s}.items():
        assert seconds == pytest.approx(np.full(7, parts[role].seconds), abs=1e-6), role
    assert inputs.other_s == pytest.approx(np.full(7, 0.01 + 0.005), abs=1e-6)  # data and bookkeeping
    assert (inputs.rollout_devices, inputs.training_devices) == (ALL[name].rollouts, ALL[name].ranks)
    assert (inputs.refilled, inputs.sync_pauses or False, inputs.is_static) == (False, False, False)


def test_a_sync_that_both_sides_meet_for(tmp_path: Path) -> None:
    """By hand: rollouts 0.35, the trainer 0.01 + 0.25 + 0.005 beside it, then 0.03: max(0.35, 0.265) + 0.03 = 0.38. Its rollouts know no step."""
    parts = {stage: part for stage, part in SLOW_ROLLOUTS.parts.items() if stage != LOAD}
    run = write_run(tmp_path / "meets", replace(SLOW_ROLLOUTS, parts=parts), meets=True, named=False)
    found = run, summarize(run)
    inputs = inputs_from_run(*found)
    assert (inputs.mode, inputs.load_s) == ("one_step_off", 0.0)
    assert inputs.generation_s == pytest.approx(np.full(7, 0.35), abs=1e-6)
    answer = what_if(*found, Question(("colocated",), 1, steps=60))
    assert answer.replay.step_s == pytest.approx(0.38, rel=0.02)
    assert answer.predictions[0].step_s == pytest.approx(0.35 + 0.25 + 0.03 + 0.015, rel=0.02)


@pytest.mark.parametrize(("engine", "generation_s", "pauses"), [("goes on", 0.35, False), ("stops", 0.32, True)])
def test_whether_a_sync_stops_generation_is_read_from_the_engine(
    tmp_path: Path, engine: Literal["goes on", "stops"], generation_s: float, pauses: bool
) -> None:
    """Syncs of 0.03 s fall into generations of 0.35 s: 0.32 + 0.03 where the engine stops in them. A step takes 0.02 + 0.35 either way."""
    run = write_run(tmp_path / engine, SLOW_ROLLOUTS, engine=engine)
    found = run, summarize(run)
    inputs = inputs_from_run(*found)
    assert inputs.generation_s[1:] == pytest.approx(np.full(6, generation_s), abs=1e-6)  # no sync falls into the second batch
    assert inputs.sync_pauses is pauses
    replayed = what_if(*found, Question(("colocated",), 1, steps=60)).replay
    assert replayed.step_s == pytest.approx(0.37, rel=0.02)


def test_batches_that_share_their_time() -> None:
    """10 s of the first, of which the second shares 5: 5 + 2.5 and 2.5 + 5; without the last 2 s, in which a sync stops it, 5 + 2.5 and 2.5 + 3."""
    batches = {"rollout": {1: [(0, 10_000_000_000)], 2: [(5_000_000_000, 15_000_000_000)]}}
    assert _of_each_batch(batches, []) == ({"rollout": {1: 7.5, 2: 7.5}}, pytest.approx(5 / 15))
    assert _of_each_batch(batches, [(13_000_000_000, 16_000_000_000)]) == ({"rollout": {1: 7.5, 2: 5.5}}, pytest.approx(5 / 13))


def refilled(**changes: object) -> Inputs:
    """10 s of generation for lengths of 10 and 30 on a replica that waits for neither."""
    base = fixed_inputs(10, {}, {"actor_update": 4}, devices=2, samples=2)
    told = {"mode": "bounded_asynchrony", "rollout_devices": 1, "training_devices": 1, "ahead": True, "staleness": 2, "refilled": True}
    told |= {"lengths": (np.array([10, 30]),), "step_s": np.array([10.0]), **changes}
    return replace(base, **told)  # type: ignore[arg-type]


def test_a_replica_that_was_refilled_waited_for_no_longest_response() -> None:
    """All of it latency: 0.5 s per token of the mean, 20. In turn it waits for the longest, 30: 15 s. As it ran: 10 s, and none is lost."""
    assume = Assumptions(latency_share=1.0)
    cost = decode_cost(refilled(), assume)
    assert (cost.latency_s, cost.token_s) == (0.5, 0.0)
    drawn = draw(refilled(), assume, 40)
    assert predict(drawn, "bounded_asynchrony", Layout(2, 1, 1, 2)).step_s == pytest.approx(10)
    assert predict(drawn, "disaggregated", Layout(2, 1, 1)).step_s == pytest.approx(15 + 4)


def test_no_more_responses_are_in_flight_than_batches_may_be_begun() -> None:
    """Two samples a step, one version ahead: 4 of 100 replicas have a response, 40 tokens in 4 at once take 10 x 0.5 s; each is busy 4 / 100."""
    drawn = draw(refilled(), Assumptions(latency_share=1.0), 10)
    last, busy = drawn.generation(Layout(101, 100, 1, 1), refill=True)
    assert last == pytest.approx(np.full(10, 5.0)) and busy == pytest.approx(np.full(10, 0.2))
    assert best_split(drawn, "bounded_asynchrony", Layout(101, 1, 100, 1)).layout.rollout <= 4


def test_a_load_that_goes_on_into_the_next_step_is_one_load() -> None:
    """2 s from the first step into the second, of which a trainer's sync takes 0.5, and 1 s in the second: 2.5 s in two. Another was before."""
    second = 10**9
    parts = [Segment(start * second, end * second, "weight_sync", None) for start, end in ((1, 5), (19, 21), (25, 26))]
    windows = [Window(2, 10 * second, 20 * second), Window(3, 20 * second, 30 * second)]
    assert _load_s(parts, windows, [(20 * second, 20 * second + second // 2)]) == pytest.approx(2.5 / 2)
    assert _load_s(parts[:1], windows, []) == 0.0


def test_a_sync_stops_generation_where_the_run_says_so() -> None:
    """10 s of generation and a sync of 1 s: 11 s a step if it falls into it and stops it, 10 s if it does not."""
    for pauses, step_s in ((True, 11.0), (None, 11.0), (False, 10.0)):
        drawn = draw(refilled(sync_s=np.array([1.0]), sync_pauses=pauses), Assumptions(), 40)
        assert predict(drawn, "bounded_asynchrony", Layout(2, 1, 1, 2)).step_s == pytest.approx(step_s), pauses


def test_a_run_that_uses_up_what_was_generated_before_is_said() -> None:
    """Batches of 10 s of rollouts in steps of 8 s: they were there before, and no longer run gives that."""
    assert len(_of_a_run_ahead(refilled())) == 1
    told = _of_a_run_ahead(refilled(step_s=np.array([8.0])))
    assert "rollouts take 10 s for a batch, these steps took 8 s" in told[1]


def test_what_no_record_tells_is_refused(recorded: dict[str, Recorded], tmp_path: Path) -> None:
    unseen = write_run(tmp_path / "unseen", SLOW_ROLLOUTS, rollouts_recorded=False)
    with pytest.raises(
        UserError, match="no rollout process recorded what it generated, so that its steps do not tell what generation takes"
    ):
        inputs_from_run(unseen, summarize(unseen))
    run, summary = recorded["slow rollouts"]
    shared = load(run.path)
    shared.experiment = run.experiment.model_copy(update={"placement": run.experiment.placement.model_copy(update={"rollout_devices": 0})})
    with pytest.raises(UserError, match="its rollouts ran ahead on the trainer's own devices"):
        inputs_from_run(shared, summary)
    lost = load(run.path)
    spans = run.spans
    lost.tables = replace(run.tables, spans=spans[~((spans["step"] == 5) & (spans["stage"] == "generation"))])
    with pytest.raises(UserError, match="no rollout process recorded what it generated for step 5"):
        inputs_from_run(lost, summary)


def test_guidelines_of_an_asynchronous_run_are_about_what_it_does(recorded: dict[str, Recorded]) -> None:
    """It waits for no longest response in turn; weight sync is 0.03 of 0.405 s: below its threshold."""
    found = {one.name: one for one in guidelines(*recorded["slow trainers"])}
    assert "long_tail" not in found and "disaggregated_without_overlap" not in found
    assert not found["weight_sync_share"].triggered and found["weight_sync_share"].value == pytest.approx(0.03 / 0.405, rel=0.02)
    critic = found["critic_share"]
    assert critic.triggered and critic.step_s == pytest.approx(0.405, rel=0.02)
    assert critic.predicted_step_s == pytest.approx(0.37, rel=0.02)  # without 0.05 + 0.06 the rollouts, 0.35 + 0.02, are slower
