"""The simulator against closed forms (deterministic limit), against an event-queue simulation, and against hand calculations."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmbench.costmodel import modes as closed
from rlmbench.errors import UserError
from rlmbench.whatif import MODES, Assumptions, best_split, predict
from rlmbench.whatif.inputs import Inputs, decode_cost, fixed_inputs
from rlmbench.whatif.modes import Drawn, Layout, draw

SECONDS = st.floats(0.5, 100.0)
PAPER = Assumptions(latency_share=0.0, roles_apart=True, stream_parts=math.inf, rollout_refill=False, assessment_beside_rollout=True)
"""Table 9's own: roles on devices of their own, samples handed on one by one, no refill."""
STAGES = {"reference_logprob": 3.0, "old_logprob": 5.0}
EIGHT = Layout(16, 8, 8)


def step_s(inputs: Inputs, mode: str, layout: Layout, assumptions: Assumptions) -> float:
    return predict(draw(inputs, assumptions, 60), mode, layout).step_s


@given(SECONDS, SECONDS, SECONDS, SECONDS, SECONDS, st.floats(0.0, 10.0))
@settings(max_examples=25, deadline=None)
def test_every_mode_is_its_closed_form_where_nothing_varies(
    generation: float, reference: float, old: float, actor: float, critic: float, sync: float
) -> None:
    """Measured on 8 devices, predicted on 8 for each group: no stage is rescaled, so the modes' forms hold as they are printed."""
    assessment = {"reference_logprob": reference, "old_logprob": old}
    training = {"actor_update": actor, "critic_update": critic}
    inputs = fixed_inputs(generation, assessment, training, devices=8, sync_s=sync)
    times = closed.StageTimes(generation, assessment, training, sync)
    in_turn = PAPER.model_copy(update={"roles_apart": False})
    assert step_s(inputs, "colocated", Layout(8, 8, 8), in_turn) == pytest.approx(closed.colocated(times))
    assert step_s(inputs, "one_step_off", EIGHT, in_turn) == pytest.approx(closed.one_step_off(times))
    for mode in ("disaggregated", "stage_fusion", "bounded_asynchrony", "combined"):
        assert step_s(inputs, mode, EIGHT, PAPER) == pytest.approx(closed.MODES[mode](times)), mode


def test_the_same_by_hand() -> None:
    """G 10, reference 3, old 5, actor 12, critic 4, sync 1, on the devices they were measured with."""
    inputs = fixed_inputs(10, STAGES, {"actor_update": 12, "critic_update": 4}, devices=8, sync_s=1)
    expected = {
        "disaggregated": 10 + 5 + 12 + 1,
        "inter_stage_fusion": 10 + 12 + 1,
        "intra_stage_fusion": 10 + 5 + 12 + 1,
        "stage_fusion": 10 + 12 + 1,
        "bounded_asynchrony": 10 + 5 + 1,
        "combined": 12 + 1,
        "one_step_off": max(10, 5 + 12) + 1,
        "partially_colocated": 10 + 5 + 12 + 1,
    }
    assert {mode: step_s(inputs, mode, EIGHT, PAPER) for mode in expected} == pytest.approx(expected)


def test_roles_on_shared_devices_run_in_turn() -> None:
    inputs = fixed_inputs(10, STAGES, {"actor_update": 12, "critic_update": 4}, devices=8)
    shared = PAPER.model_copy(update={"roles_apart": False})
    assert step_s(inputs, "disaggregated", EIGHT, shared) == pytest.approx(10 + 3 + 5 + 12 + 4)
    assert step_s(inputs, "inter_stage_fusion", EIGHT, shared) == pytest.approx(10 + 12 + 4)
    bubbles = shared.model_copy(update={"pipeline_bubble": 0.125})
    assert step_s(inputs, "intra_stage_fusion", EIGHT, bubbles) == pytest.approx(10 + 8 + 0.875 * 16)
    parts = shared.model_copy(update={"stream_parts": 4})
    assert step_s(inputs, "inter_stage_fusion", EIGHT, parts) == pytest.approx(10 + 8 / 4 + 16)


def test_a_fused_update_gains_nothing_without_a_critic() -> None:
    inputs = fixed_inputs(10, STAGES, {"actor_update": 12}, devices=8)
    bubbles = Assumptions(pipeline_bubble=0.5)
    assert step_s(inputs, "intra_stage_fusion", EIGHT, bubbles) == step_s(inputs, "disaggregated", EIGHT, bubbles)


@pytest.mark.parametrize(("rollout", "training"), [(8, 8), (4, 12), (15, 1)])
def test_idle_of_a_synchronous_split(rollout: int, training: int) -> None:
    inputs = fixed_inputs(16, {}, {"actor_update": 32}, devices=16, sync_s=2, samples=240)
    layout = Layout(16, rollout, training)
    generation_s, training_s = 16 * 16 / rollout, 32 * 16 / training
    for mode, form in (("disaggregated", closed.disaggregated_idle), ("one_step_off", closed.one_step_off_idle)):
        waiting = predict(draw(inputs, PAPER, 20), mode, layout).waiting
        idle = (rollout * waiting["rollout"] + training * waiting["training"]) / 16
        assert idle == pytest.approx(form(rollout, generation_s, training, training_s, 2)), mode


def test_skewed_replicas_wait_for_the_longest() -> None:
    """Two replicas with one response each, of 10 and 30 tokens: 20/60 of their time is idle, as skew_idle says."""
    inputs = replace(fixed_inputs(40, {}, {"actor_update": 1e-9}, devices=2, samples=2), lengths=(np.array([10, 30]),))
    drawn = replace(draw(inputs, PAPER, 1), lengths=np.array([[10, 30]], dtype=np.int32))
    end, busy = drawn.generation(Layout(2, 2, 2))
    assert 1 - busy[0] / end[0] == pytest.approx(closed.skew_idle([10.0, 30.0])) == pytest.approx(1 / 3)


def test_the_best_split_is_the_balanced_one() -> None:
    inputs = fixed_inputs(30, {}, {"actor_update": 50}, devices=100, samples=100 * 99 * 97)
    best = best_split(draw(inputs, PAPER, 4), "one_step_off", Layout(100, 1, 99)).layout
    assert abs(best.rollout - closed.balanced_split(30 * 100, 50 * 100, 100)[0]) <= 1  # whole samples per replica


def test_the_best_split_is_the_best_of_all() -> None:
    drawn = varying(4, 1)
    every = [predict(drawn, "bounded_asynchrony", Layout(40, n, 40 - n)).step_s for n in range(1, 40)]
    assert best_split(drawn, "bounded_asynchrony", Layout(40, 1, 39)).step_s == min(every)
    # Samples are dealt whole: in turn, a step's time has more than one valley.
    drawn = varying(6, 2, latency_share=0.0)
    every = [predict(drawn, "partially_colocated", Layout(40, n, 40 - n)).step_s for n in range(1, 40)]
    assert best_split(drawn, "partially_colocated", Layout(40, 1, 39)).step_s == min(every)


@pytest.mark.parametrize("training", [(1.0, 1.02), (1.02, 1.0)])
def test_of_equally_fast_splits_the_one_with_the_fewest_rollout_devices(training: tuple[float, float]) -> None:
    """Every replica takes 10 s, and training is shorter on any number of devices: one replica is enough, whatever step comes last."""
    base = fixed_inputs(10, {}, {}, devices=4)
    inputs = replace(
        base,
        step_s=np.array([11.0, 11.0]),
        lengths=base.lengths * 2,
        generation_s=np.array([10.0, 10.0]),
        training_s={"actor_update": np.array(training)},
        sync_s=np.zeros(2),
        switch_s=np.zeros(2),
        other_s=np.zeros(2),
    )
    found = best_split(draw(inputs, Assumptions(latency_share=1.0), 40), "bounded_asynchrony", Layout(64, 1, 63))
    assert (found.layout.rollout, found.layout.training) == (1, 63)
    assert found.step_s == pytest.approx(10, rel=1e-3)


def test_the_worst_efficiencies_on_the_most_devices_stay_finite() -> None:
    """One device to ten million: 23.25 doublings at 0.01 each make 3 s of training 3 x 10^46.5 / 10^7."""
    worst = Assumptions(training_efficiency=0.01, tensor_efficiency=0.01)
    drawn = draw(fixed_inputs(1, {}, {"actor_update": 3}, devices=1), worst, 10)
    everywhere = predict(drawn, "colocated", Layout(10**7, 10**7, 10**7, tensor=10**7)).step_s
    assert math.log10(everywhere) == pytest.approx(math.log10(3) + 2 * math.log2(10**7) - 7, rel=1e-6)
    assert math.isfinite(predict(drawn, "combined", Layout(10**7, 1, 10**7 - 1)).p99_s)


def test_replicas_beyond_the_samples_wait() -> None:
    """4 samples that take 10 s each on 8 replicas: half of them do nothing; ten million replicas need no ten million columns."""
    drawn = draw(fixed_inputs(10, {}, {"actor_update": 5}, devices=4, samples=4), Assumptions(latency_share=1.0), 20)
    assert [float(seconds[0]) for seconds in drawn.generation(Layout(8, 8, 8))] == pytest.approx([10, 5])
    assert float(drawn.generation(Layout(10**7, 10**7, 10**7))[1][0]) == pytest.approx(10 * 4 / 10**7)


def varying(steps: int, seed: int, **settings_: float) -> Drawn:
    """Steps whose lengths and seconds vary."""
    rng = np.random.default_rng(seed)
    lengths = tuple(rng.lognormal(4, 1, 64).astype(np.int64) + 1 for _ in range(6))
    spread = lambda mean: mean * rng.uniform(0.6, 1.4, 6)  # noqa: E731
    inputs = replace(
        fixed_inputs(10, {}, {}, devices=4),
        lengths=lengths,
        step_s=spread(30.0),
        generation_s=spread(10.0),
        assessment_s={"reference_logprob": spread(3.0), "reward": spread(0.5)},
        training_s={"actor_update": spread(9.0)},
        sync_s=spread(0.7),
        switch_s=np.zeros(6),
        other_s=spread(0.3),
    )
    return draw(inputs, Assumptions(**settings_), steps, seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("staleness", [0, 1, 2, 5])
@pytest.mark.parametrize(("seed", "load_s"), [(0, 0.0), (1, 0.0), (2, 0.4)])
def test_bounded_asynchrony_against_an_event_queue(staleness: int, seed: int, load_s: float) -> None:
    """The recurrence gives the very publication times of a simulation with an event queue, a buffer and a version counter."""
    drawn = varying(40, seed, sync_pauses_rollout=False, rollout_refill=False, assessment_beside_rollout=True)
    drawn = replace(drawn, inputs=replace(drawn.inputs, load_s=load_s))
    layout = Layout(4, 2, 2, staleness)
    rollout = drawn.generation(layout)[0] + drawn.assessment(2)
    train = drawn.training(2) + drawn.sync(layout) + drawn.other()
    simulated = MODES["bounded_asynchrony"].simulate(drawn, layout)
    published, stale = events(rollout.tolist(), train.tolist(), staleness, load_s)
    assert np.cumsum(simulated.step_s) == pytest.approx(published)
    assert simulated.staleness.tolist() == stale
    assert max(stale) <= staleness


def events(rollout: list[float], train: list[float], bound: int, load_s: float) -> tuple[list[float], list[int]]:
    """Publication times and each batch's staleness, by an event queue: two workers, a buffer, a version, which takes `load_s` to take up."""
    queue: list[tuple[float, int, str]] = []
    buffer: list[int] = []
    published: list[float] = []
    began_with: list[int] = []
    trained, rolling, training = 0, False, False
    now = 0.0
    while len(published) < len(train):
        if not rolling and len(began_with) < len(rollout) and len(began_with) - len(published) <= bound:
            rolling = True
            is_new = len(published) > (began_with[-1] if began_with else 0)
            heapq.heappush(queue, (now + rollout[len(began_with)] + load_s * is_new, 1, "generated"))
            began_with.append(len(published))
        if not training and buffer:
            training = True
            heapq.heappush(queue, (now + train[buffer.pop(0)], 0, "published"))
        now, _, what = heapq.heappop(queue)
        if what == "generated":
            rolling = False
            buffer.append(trained)
            trained += 1
        else:
            training = False
            published.append(now)
    return published, [batch - version for batch, version in enumerate(began_with)]


def test_every_sync_that_falls_into_a_generation_lengthens_it() -> None:
    """Batches of 1, 1, 1 and 10 s, training 2 s, sync 1 s, by hand: the syncs end at 4, 7 and 10, all of them in the last generation, from
    3 to 3 + 10 + 3 = 16; without pauses it ends at 13."""
    base = fixed_inputs(1, {}, {"actor_update": 2}, devices=1, sync_s=1)
    inputs = replace(
        base,
        step_s=np.full(4, 4.0),
        lengths=base.lengths * 4,
        generation_s=np.array([1.0, 1.0, 1.0, 10.0]),
        training_s={"actor_update": np.full(4, 2.0)},
        sync_s=np.full(4, 1.0),
        switch_s=np.zeros(4),
        other_s=np.zeros(4),
    )
    for pauses, last in ((True, 16.0), (False, 13.0)):
        assumed = Assumptions(rollout_refill=False, sync_pauses_rollout=pauses)
        drawn = replace(draw(inputs, assumed, 4), picked=np.arange(4))
        simulated = MODES["bounded_asynchrony"].simulate(drawn, Layout(2, 1, 1, 3))
        assert np.cumsum(simulated.step_s) == pytest.approx([4, 7, 10, last + 3])


def test_without_staleness_asynchrony_is_synchronous() -> None:
    drawn = varying(30, 3)
    asynchronous = MODES["bounded_asynchrony"].simulate(drawn, Layout(4, 2, 2, 0))
    assert asynchronous.step_s == pytest.approx(MODES["disaggregated"].simulate(drawn, Layout(4, 2, 2, 0)).step_s)
    assert set(asynchronous.staleness) == {0}


def test_more_staleness_is_never_slower_without_pauses() -> None:
    drawn = varying(60, 4, sync_pauses_rollout=False, rollout_refill=False)
    total = [MODES["bounded_asynchrony"].simulate(drawn, Layout(4, 2, 2, bound)).step_s.sum() for bound in (0, 1, 2, 4)]
    assert total == sorted(total, reverse=True)


def test_the_longest_response_is_a_floor_for_any_number_of_devices() -> None:
    """Half of 10 s follows the longest of each batch: 10,000 replicas still take 5 s for it, and one response's own work."""
    inputs = replace(fixed_inputs(10, {}, {}, devices=1, samples=100), lengths=(np.array([1000] + [10] * 99),))
    drawn = replace(draw(inputs, Assumptions(latency_share=0.5), 1), lengths=np.array([[1000] + [10] * 99], dtype=np.int32))
    end, _ = drawn.generation(Layout(10_000, 10_000, 1))
    assert end[0] == pytest.approx(5 + 5 * 1000 / 1990)


def test_replicas_with_unequal_shares_take_on_average_what_was_measured() -> None:
    """Four replicas, responses of all lengths, each step drawn ten times and dealt anew: the longest replica's mean is the measured seconds."""
    drawn = varying(60, 5, latency_share=0.2)
    end, busy = drawn.generation(Layout(4, 4, 4))
    for step, seconds in enumerate(drawn.inputs.generation_s):
        assert end[drawn.picked == step].mean() == pytest.approx(seconds)
    assert (busy < end).all()
    halved, _ = drawn.generation(Layout(8, 8, 8))
    assert (end / 2 < halved).all() and halved.mean() < end.mean()


def test_refill_replaces_the_longest_response_by_the_mean() -> None:
    inputs = replace(fixed_inputs(10, {}, {}, devices=1, samples=4), lengths=(np.array([10, 10, 20, 40]),))
    drawn = replace(draw(inputs, Assumptions(latency_share=0.5), 1), lengths=np.array([[10, 10, 20, 40]], dtype=np.int32))
    assert drawn.generation(Layout(1, 1, 1))[0][0] == pytest.approx(10)
    assert drawn.generation(Layout(1, 1, 1), refill=True)[0][0] == pytest.approx(5 * 20 / 40 + 5)


def test_a_static_batch_computes_until_its_longest_has_ended() -> None:
    inputs = replace(fixed_inputs(10, {}, {}, devices=1, samples=4), lengths=(np.array([10, 10, 20, 40]),))
    static = decode_cost(inputs, Assumptions(rollout_engine="static", latency_share=0.0))
    assert static.token_s == pytest.approx(10 / (4 * 40))
    assert decode_cost(inputs, Assumptions(latency_share=0.0)).token_s == pytest.approx(10 / 80)
    # So it takes no new prompt when a response ends, whatever is asked for: 10 s for the batch, not 10 x 80 / 160.
    apart = replace(inputs, devices=2, training_s={"actor_update": np.array([1.0])})
    asked = Assumptions(rollout_engine="static", latency_share=0.0, rollout_refill=True)
    assert step_s(apart, "bounded_asynchrony", Layout(2, 1, 1), asked) == pytest.approx(10)


def test_decode_cost_is_found_from_when_samples_end() -> None:
    """Ends made by decoding token by token: each position costs 2 ms and 0.1 ms for every response still unfinished."""
    lengths = np.array([5, 9, 14, 30, 31, 60])
    clock, ends = 0.0, {}
    for position in range(1, 61):
        unfinished = int((lengths >= position).sum())
        clock += 0.002 + 0.0001 * unfinished
        ends[position] = clock
    inputs = replace(fixed_inputs(clock, {}, {}, devices=1), lengths=(lengths,), sample_ends=(np.array([ends[n] for n in lengths]),))
    found = decode_cost(inputs, Assumptions())
    assert (found.latency_s, found.token_s, found.sample_s) == pytest.approx((0.002, 0.0001, 0.0), abs=1e-12)
    assert "6 samples (R^2 1.00)" in found.source


def test_training_scales_by_its_efficiency_per_doubling() -> None:
    inputs = fixed_inputs(1, {}, {"actor_update": 80}, devices=4)
    drawn = draw(inputs, Assumptions(training_efficiency=0.9), 2)
    assert drawn.training(4)[0] == pytest.approx(80)
    assert drawn.training(16)[0] == pytest.approx(80 / (4 * 0.81))


def test_training_follows_the_tokens_of_a_step() -> None:
    inputs = replace(fixed_inputs(1, {}, {"actor_update": 80}, devices=4, samples=2), lengths=(np.array([100, 100]),))
    drawn = replace(draw(inputs, Assumptions(), 1), lengths=np.array([[100, 300]], dtype=np.int32))
    assert drawn.training(4)[0] == pytest.approx(160)
    quadratic = replace(drawn, assumptions=Assumptions(token_exponent=2))
    assert quadratic.training(4)[0] == pytest.approx(320)


def test_sync_grows_with_replicas_as_said() -> None:
    inputs = fixed_inputs(1, {}, {"actor_update": 1}, devices=2, sync_s=3)
    layout = Layout(16, 8, 8)
    assert draw(inputs, Assumptions(), 1).sync(layout)[0] == 3
    assert draw(inputs, Assumptions(sync_replica_exponent=1), 1).sync(layout)[0] == 12
    assert draw(inputs, Assumptions(sync_s=0.5), 1).sync(layout)[0] == 0.5


def test_hybrid_layouts_decode_faster_per_response_and_reshard() -> None:
    inputs = fixed_inputs(12, {}, {"actor_update": 5}, devices=8, samples=8)
    wide = Layout(8, 8, 8, tensor=4)
    half = Assumptions(latency_share=0.5, tensor_efficiency=0.5, reshard_s=0.25)
    # Two replicas of four devices: four times the tokens each, at 4 x 0.5 times the speed; the same longest response at that speed.
    assert step_s(inputs, "hybrid_layouts", wide, half) == pytest.approx((6 + 6 * 4) / 2 + 5 + 0.25)


def test_what_does_not_fit_is_refused() -> None:
    drawn = draw(fixed_inputs(1, {}, {"actor_update": 1}, devices=2), Assumptions(), 1)
    with pytest.raises(UserError, match="0:2 does not divide 2 devices"):
        predict(drawn, "one_step_off", Layout(2, 0, 2))
    with pytest.raises(UserError, match="3 rollout devices do not hold whole replicas of 2"):
        predict(drawn, "disaggregated", Layout(4, 3, 1, tensor=2))
    with pytest.raises(UserError, match="neither a reference model nor a critic"):
        predict(drawn, "partially_colocated", Layout(2, 1, 1))


def test_assumptions_are_set_by_name_and_stated() -> None:
    changed = Assumptions().with_settings(["latency_share=0.25", "roles_apart=true", "sync_s=null"])
    assert (changed.latency_share, changed.roles_apart, changed.sync_s) == (0.25, True, None)
    assert {name for name, _, meaning in changed.stated() if meaning} == set(Assumptions.model_fields)
    for wrong in ("latency=1", "latency_share=2", "training_efficiency=0", "latency_share"):
        with pytest.raises(UserError, match=f"--assume {wrong}"):
            Assumptions().with_settings([wrong])
