import pytest

from rlmbench.adapter import NativeMetric, find_adapter
from rlmbench.metrics.learning import (
    LogprobDifference,
    NativeMean,
    dtypes_at_work,
    grad_norm_mean,
    logprob_difference,
    native_sanity,
    reward_mean,
    step_rewards,
    sync_tolerance,
    weights_changed,
)
from rlmbench.metrics.memory import growth_per_step, peaks_by_stage
from rlmbench.metrics.native import native_figures
from rlmbench.metrics.selection import excluded_steps
from rlmbench.metrics.stages import StepStages


def test_peaks_are_the_highest_of_any_process_and_measured_step(tables_of, span):
    tables = tables_of(
        {
            "rank-0": [span("generation", 0, 9, rss_peak_bytes=100), span("generation", 10, 19, step=2, rss_peak_bytes=150)],
            "rank-1": [
                span("generation", 0, 9, rss_peak_bytes=140, torch_allocated_peak_bytes=7),
                span("reward", 20, 21),
                span("generation", 30, 31, step=3, rss_peak_bytes=999),
            ],
        }
    )
    assert peaks_by_stage(tables.spans, [1, 2]) == {"generation": {"rss_peak_bytes": 150, "torch_allocated_peak_bytes": 7}}


def test_growth_takes_each_steps_last_resident_set(tables_of, span):
    spans = [
        event
        for step in (2, 3, 4)
        for event in (
            span("reward", 100 * step, 100 * step + 50, step=step, rss_bytes=10**6),
            span("data", 100 * step + 60, 100 * step + 70, step=step, rss_bytes=1000 + 64 * step),
        )
    ]
    tables = tables_of({"driver": [*spans, span("data", 1, 2, step=1, rss_bytes=5)], "other": [span("data", 1, 2, rss_bytes=9)]})
    growth = growth_per_step(tables.spans, "driver", [2, 3, 4])
    assert (growth.value, growth.n) == (pytest.approx(64), 3)
    assert growth_per_step(tables.spans, "other", [1]) is None


def _update(step, **fields):
    return {
        "ev": "update",
        "step": step,
        "update": 0,
        "t_ns": 1,
        "role": "actor",
        "learning_rate": 1e-6,
        "grad_norm": None,
        "weights_changed": None,
        **fields,
    }


def test_weights_changed_is_unknown_until_a_step_was_checked(tables_of):
    assert weights_changed(tables_of(_update(1)).updates) is None
    assert weights_changed(tables_of(_update(1, weights_changed=False), _update(2)).updates) is False
    assert weights_changed(tables_of(_update(1, weights_changed=False), _update(2, weights_changed=True)).updates) is True


def _logprobs(step, tokens, total, largest):
    return {"ev": "logprobs", "step": step, "t_ns": 1, "tokens": tokens, "difference_sum": total, "difference_max": largest}


def test_log_probs_of_trainer_and_rollout_engine_are_compared_by_token(tables_of):
    batches = tables_of(
        _logprobs(1, 5, 0.5, 0.9), _logprobs(2, 5, 0.5, 0.3), _logprobs(2, 15, 0.1, 0.04), _logprobs(3, 0, 0.0, 0.0)
    ).logprobs
    found = logprob_difference(batches, [2, 3], ["float32"])
    assert found == LogprobDifference(mean=pytest.approx(0.6 / 20), maximum=0.3, tokens=20, dtype="float32", tolerance=1e-3)
    assert not found.is_rounding
    assert logprob_difference(batches, [3], ["float32"]) is None


def test_the_coarsest_type_at_work_says_what_rounding_explains(tables_of):
    facts = tables_of({"ev": "fact", "name": "weights_dtype", "value": "bfloat16"}, {"ev": "fact", "name": "device", "value": "cpu"}).facts
    assert dtypes_at_work("float32", facts) == ["float32", "bfloat16"]
    assert sync_tolerance(["float32", "bfloat16"]) == ("bfloat16", 2e-2)
    assert sync_tolerance(["float8"]) == ("bfloat16", 2e-2)


def test_grad_norm_is_the_actors_over_the_measured_steps(tables_of):
    tables = tables_of(
        _update(1, grad_norm=99.0), _update(2, grad_norm=1.0), _update(3, grad_norm=2.0), _update(2, role="critic", grad_norm=50.0)
    )
    assert grad_norm_mean(tables.updates, [2, 3]) == 1.5
    assert grad_norm_mean(tables.updates, [4]) is None


def test_reward_is_the_mean_of_the_steps_means(tables_of):
    def loss(step, rows):
        return {"ev": "loss", "step": step, "update": 0, "t_ns": 1, "computed_tokens": None, "rows": rows}

    tables = tables_of(
        {"ev": "reward", "step": 2, "t_ns": 1, "rows": [[0, 0, 1.0], [0, 1, 0.0]]},
        {"ev": "reward", "step": 3, "t_ns": 1, "rows": [[1, 0, 1.0]]},
        loss(2, [[0, 0, "a", 1, 1], [0, 1, "a", 1, 1]]),
        loss(3, [[1, 0, "b", 1, 1]]),
    )
    by_step = step_rewards(tables.samples, tables.rewards)
    assert by_step == {2: 0.5, 3: 1.0}
    assert reward_mean(by_step, [2, 3]).value == 0.75  # (0.5 + 1) / 2


def test_rewards_stand_for_samples_that_are_not_identified(tables_of):
    """Two ranks report sample 0 of row 0 of step 2; in step 3 nobody knows which sample is which, and both count; step 4 took row 2 twice."""
    rewards = (
        {"ev": "reward", "step": 2, "t_ns": 1, "rows": [[0, 0, 1.0], [0, 1, 0.0]]},
        {"ev": "reward", "step": 3, "t_ns": 3, "rows": [[1, None, 0.25], [1, None, 0.25], [1, None, 1.0]]},
        {"ev": "reward", "step": 4, "t_ns": 4, "rows": [[2, 0, 1.0], [2, 0, 0.0], [2, 1, 0.5]]},
        {"ev": "loss", "step": 2, "update": 0, "t_ns": 1, "computed_tokens": None, "rows": [[None, None, "a", 1, 1]]},
    )
    tables = tables_of({"rank-0": rewards, "rank-1": [{"ev": "reward", "step": 2, "t_ns": 2, "rows": [[0, 0, 1.0]]}]})
    assert step_rewards(tables.samples, tables.rewards) == {2: 0.5, 3: 0.5, 4: 0.5}


def test_native_sanity_takes_the_first_known_key(tables_of):
    values = {"objective/kl": 0.5, "policy/entropy_avg": 3.0, "entropy": float("nan"), "unrelated": 1}
    tables = tables_of(
        {"ev": "native", "step": 1, "t_ns": 1, "values": {"objective/kl": 9.0}}, {"ev": "native", "step": 2, "t_ns": 1, "values": values}
    )
    assert native_sanity(tables.native, [2], find_adapter("trl").native_metrics()) == {
        "kl": NativeMean(0.5, "objective/kl"),
        "entropy": NativeMean(3.0, "policy/entropy_avg"),
    }


def test_verls_timers_stand_beside_the_stages_that_they_time(tables_of):
    tables = tables_of({"ev": "native", "step": 2, "t_ns": 1, "values": {"timing_s/adv": 0.5, "timing_s/ref": 1.0, "timing_s/gen": 3.0}})
    figures = native_figures(tables.native, [2], {"advantage_s": 0.25, "rollout_s": 3.0}, find_adapter("verl").native_metrics())
    assert (figures["timing_s/adv"].canonical, figures["timing_s/adv"].ratio) == ("advantage_s", 2.0)
    assert (figures["timing_s/gen"].canonical, figures["timing_s/gen"].ratio) == ("rollout_s", 1.0)
    assert (figures["timing_s/ref"].canonical, figures["timing_s/ref"].ratio) == ("reference_logprob_s", None), "no such stage ran"


def test_native_figures_stand_beside_the_canonical_ones(tables_of):
    def native(step, **values):
        return {"ev": "native", "step": step, "t_ns": step, "values": values}

    tables = tables_of(
        native(1, step_time=100.0),
        native(2, step_time=1.0),
        native(3, step_time=2.0, train_samples_per_second=8.0, odd=7),
        native(4, late=1.0),
    )
    known = {
        "step_time": NativeMetric("its own clock", "update_s"),
        "train_samples_per_second": NativeMetric("the whole loop", "samples_per_s"),
    }
    figures = native_figures(tables.native, [2, 3], {"update_s": 3.0, "samples_per_s": 4.0}, known)
    step_time = figures["step_time"]
    assert (step_time.mean, step_time.last, step_time.n, step_time.ratio, step_time.reason) == (1.5, 2.0, 2, 0.5, "its own clock")
    assert figures["train_samples_per_second"].ratio == 2.0
    assert (figures["odd"].canonical, figures["odd"].ratio) == (None, None)
    assert (figures["late"].mean, figures["late"].n) == (1.0, 1), "what was logged outside the measured steps alone is still shown"


def _stages(step, **stages_ns):
    return StepStages(step, 100, stages_ns, {}, {}, 0, 0)


def test_the_first_step_and_steps_with_other_work_are_left_out():
    steps = [_stages(1), _stages(2), _stages(3, checkpoint=5), _stages(4, checkpoint=1, validation=1), _stages(5)]
    updates = dict.fromkeys(range(1, 6), 1)
    assert excluded_steps(steps, warmup_steps=1, updates=updates, updates_per_step=1) == {
        1: "warm-up", 3: "saved a checkpoint", 4: "saved a checkpoint and validated",
    }  # fmt: skip


def test_a_last_step_cut_short_is_left_out_but_no_other_is():
    steps, updates = [_stages(1), _stages(2), _stages(3)], {1: 2, 2: 1, 3: 1}
    assert excluded_steps(steps, warmup_steps=0, updates=updates, updates_per_step=2) == {3: "ended early (1 of 2 optimizer steps)"}
