import numpy as np
import pytest

from rlmbench.metrics.work import Padding, StepWork, length_stats, optimizer_steps, padding_by_stage, step_work


def _loss(step, rows, update=0, computed_tokens=None):
    return {"ev": "loss", "step": step, "update": update, "t_ns": 1, "computed_tokens": computed_tokens, "rows": rows}


def _update(step, update=0, role="actor"):
    return {
        "ev": "update",
        "step": step,
        "update": update,
        "t_ns": 1,
        "role": role,
        "learning_rate": 1e-6,
        "grad_norm": None,
        "weights_changed": True,
    }


def _work(tables, epochs=1):
    return step_work(tables.samples, tables.microbatches, tables.updates, epochs)


# The digest is sha256 of 'a,10,5\na,10,7\nb,20,1', by sha256sum.
def test_work_of_a_step_is_counted_from_the_loss(tables_of):
    tables = tables_of(_loss(1, [[0, 0, "a", 10, 5], [0, 1, "a", 10, 7]]), _loss(1, [[1, 0, "b", 20, 1]]), _update(1))
    assert _work(tables) == {
        1: StepWork(
            1, prompts=2, samples=3, visits=3, prompt_tokens=40, response_tokens=13, micro_batches=2, optimizer_steps=1, digest="c3f56eeb"
        )
    }
    assert _work(tables)[1].total_tokens == 53


@pytest.mark.parametrize("identity", [(0, 0), (None, None)])
def test_two_epochs_are_two_visits_of_one_sample(tables_of, identity):
    sample = [*identity, "a", 10, 5]
    work = _work(tables_of(_loss(1, [sample]), _update(1), _loss(1, [sample], update=1), _update(1, update=1)), epochs=2)[1]
    assert (work.samples, work.visits, work.response_tokens, work.optimizer_steps) == (1, 2, 5, 2)


def test_equal_samples_without_identity_stay_apart(tables_of):
    work = _work(tables_of(_loss(1, [[None, None, "a", 10, 5], [None, None, "a", 10, 5], [None, None, "a", 10, 6]])))[1]
    assert (work.prompts, work.samples, work.response_tokens) == (1, 3, 16)


def test_a_prompt_that_comes_twice_in_a_step_is_two_prompts(tables_of):
    assert _work(tables_of(_loss(1, [[0, 0, "a", 10, 5], [1, 0, "a", 10, 5]])))[1].prompts == 2


def test_optimizer_steps_count_once_over_ranks_and_roles(tables_of):
    both = [_update(1), _update(1, 1), _update(1, role="critic"), _update(2)]
    assert optimizer_steps(tables_of({"rank-0": both, "rank-1": both}).updates) == {1: 2, 2: 1}


def test_length_statistics_against_numpy_and_by_hand():
    lengths = [4, 1, 3, 2, 10]
    stats = length_stats(lengths, cap_tokens=10)
    assert (stats.samples, stats.minimum, stats.mean, stats.p50, stats.maximum, stats.share_at_cap) == (5, 1, 4.0, 3.0, 10, 0.2)
    assert stats.p90 == pytest.approx(7.6)  # position 0.9 x 4 = 3.6 in 1 2 3 4 10: 4 + 0.6 x 6
    assert stats.p99 == pytest.approx(np.quantile(lengths, 0.99))
    assert length_stats([], cap_tokens=10) is None


def test_padding_takes_the_outermost_span_with_tokens(tables_of, span):
    outer = span("generation", 0, 90, id=1, valid_tokens=60, computed_tokens=80)
    between = span("wait", 10, 80, id=2, parent=1)
    inner = span("generation", 20, 70, id=3, parent=2, valid_tokens=50, computed_tokens=70)
    assess = span("old_logprob", 90, 95, id=4, prompt_tokens=20, response_tokens=10, computed_tokens=40)
    uncounted = span("reward", 96, 97, id=5, computed_tokens=5)
    warm_up = span("generation", 0, 9, id=6, step=0, valid_tokens=1, computed_tokens=100)
    tables = tables_of(outer, between, inner, assess, uncounted, warm_up)
    padding = padding_by_stage(tables.spans, tables.microbatches, [1])
    assert padding == {"generation": Padding(60, 80), "old_logprob": Padding(30, 40)}
    assert padding["generation"].share == pytest.approx(0.25)


def test_padding_of_training_is_what_the_loss_received(tables_of, span):
    tables = tables_of(
        span("actor_update", 0, 9, valid_tokens=1, computed_tokens=1),
        _loss(1, [[0, 0, "a", 10, 5], [0, 1, "a", 10, 7]], computed_tokens=40),
        _loss(2, [[0, 0, "a", 10, 5]], computed_tokens=999),
    )
    assert padding_by_stage(tables.spans, tables.microbatches, [1]) == {"actor_update": Padding(32, 40)}


def test_padding_of_nothing_is_absent():
    assert Padding(0, 0).share is None
