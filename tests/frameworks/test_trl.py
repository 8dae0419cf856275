"""TRL itself trains, generates and is audited: one test for each way in which the adapter can drive it."""

from __future__ import annotations

import json
import math
import statistics

import pytest

from tests.frameworks.conftest import SHORT, settings


def planned(result):
    """The workload plan of a run, as it lies on disk."""
    return json.loads((result.folder / result.run["path"] / "plan.json").read_text())


def test_grpo_does_exactly_the_planned_work(rlmbench_run):
    result = rlmbench_run("gsm8k_grpo", "--framework", "trl", "--scale", "tiny").ok()
    run, plan = result.run, planned(result)
    # Independent of our audit: the samples table against the plan, sum by sum.
    samples = result.record.samples
    for step in range(1, 6):
        rows = [row for row in plan["rows"] if row["step"] == step]
        trained = samples[samples["step"] == step]
        assert len(trained) == 32
        assert trained["prompt_tokens"].sum() == 4 * sum(row["prompt_tokens"] for row in rows)
        assert sorted(trained["response_tokens"]) == sorted(tokens for row in rows for tokens in row["response_tokens"])
        assert sorted(trained["reward"]) == sorted(reward for row in rows for reward in row["rewards"])
    assert run["audit"]["response_tokens"] == sum(tokens for row in plan["rows"] for tokens in row["response_tokens"])
    assert (run["audit"]["prompts"], run["audit"]["samples"], run["audit"]["optimizer_steps"]) == (40, 160, 10)
    # What was generated, scored and trained are the same tokens, whatever padding each stage computed with them.
    measured = samples[samples["step"] > 1]
    valid = int(measured["prompt_tokens"].sum() + measured["response_tokens"].sum())
    stages = ("generation", "old_logprob", "reference_logprob", "actor_update")
    assert {stage: run["padding"][stage]["valid_tokens"] for stage in stages} == dict.fromkeys(stages, valid)
    assert run["measured_steps"] == 4
    assert run["coverage"]["median"] >= 0.99
    assert {"generation", "reward", "reference_logprob", "old_logprob", "actor_update", "data", "advantage"} <= set(run["stages_s"])
    assert {"generation.prefill", "generation.decode", "actor_update.forward", "actor_update.backward", "actor_update.optimizer"} <= set(
        run["substages_s"]
    )
    assert run["hooks"]["missing"] == [] or all("vllm" in hook["target"] for hook in run["hooks"]["missing"])
    # TRL counts the same tokens in its own log (num_tokens is cumulative over the run).
    native = result.record.native
    counted = native[native["key"] == "num_tokens"]["value"].max()
    assert counted == samples["prompt_tokens"].sum() + samples["response_tokens"].sum()
    assert (result.folder / "reports" / f"{run['id']}.html").stat().st_size > 10_000
    sampled(result.record)


def sampled(record):
    """The collector saw the steps at ten samples a second, and as much memory as the kernel's own high-water mark says, read by the probe."""
    begin, end = record.steps["start_ns"].min(), record.steps["end_ns"].max()
    tree = record.tree_samples[record.tree_samples["t_ns"].between(begin, end)]
    looks, due, (late,) = len(tree), (end - begin) / 1e8, record.collectors["late_ticks"]
    assert looks <= due + 2 and looks + late >= due - 2  # where a busy machine did not let it look, it counted that
    peak = record.spans["rss_peak_bytes"].max()
    assert 0.85 * peak <= tree["rss_bytes"].max() <= 1.01 * peak
    assert tree["cpu_s"].is_monotonic_increasing
    # One process that computes without pause; on a busy machine it gets less than its core.
    assert 0.2 <= (tree["cpu_s"].iloc[-1] - tree["cpu_s"].iloc[0]) / ((end - begin) / 1e9) <= 2.1
    assert record.collectors["end_ns"].notna().all()
    assert record.collectors["damaged_lines"].tolist() == [0]
    assert record.capabilities.query("name == 'host.tree'")["available"].tolist() == [True]


def test_padding_is_counted_as_trl_pads(rlmbench_run):
    """TRL pads every micro-batch to the generation batch: computed tokens are samples x (longest prompt + longest response)."""
    result = rlmbench_run("gsm8k_grpo", "--framework", "trl", *SHORT).ok()
    rows = [row for row in planned(result)["rows"] if row["step"] == 2]
    width = max(row["prompt_tokens"] for row in rows) + max(tokens for row in rows for tokens in row["response_tokens"])
    batches = result.record.microbatches
    computed = batches[batches["step"] == 2]["computed_tokens"]
    # pad_to_multiple_of may round each side up to a multiple of 8.
    assert 16 * width <= computed.sum() <= 16 * (width + 14)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "sequence_sum_constant", "micro_batch_token_mean"])
def test_grpo_with_each_aggregation(rlmbench_run, aggregation):
    result = rlmbench_run("gsm8k_grpo", "--framework", "trl", *SHORT, *settings(optimization__loss_aggregation=aggregation)).ok()
    expected = {
        "token_mean": "dapo",
        "sequence_mean": "grpo",
        "sequence_sum_constant": "dr_grpo",
        "micro_batch_token_mean": "bnpo",
    }
    assert result.record.manifest.native["loss_type"] == expected[aggregation]


@pytest.mark.parametrize("loss", ["cispo", "sapo", "luspo", "vespo"])
def test_grpo_with_each_other_loss(rlmbench_run, loss):
    result = rlmbench_run("gsm8k_grpo", "--framework", "trl", *SHORT, *settings(optimization__policy_loss=loss)).ok()
    assert result.record.manifest.native["loss_type"] == loss


def test_gspo(rlmbench_run):
    fields = settings(optimization__importance_sampling="sequence", optimization__loss_aggregation="sequence_mean")
    assert (
        rlmbench_run("gsm8k_grpo", "--framework", "trl", *SHORT, *fields).ok().record.manifest.native["importance_sampling_level"]
        == "sequence"
    )


def test_several_updates_and_epochs_per_step(rlmbench_run):
    """Two mini-batches and two epochs: four optimizer steps a step, and every sample reaches the loss twice."""
    fields = settings(
        measurement__steps=3, workload__prompts_per_step=4, optimization__mini_batch_samples=8,
        optimization__micro_batch_samples=4, optimization__epochs=2,
    )  # fmt: skip
    result = rlmbench_run("gsm8k_grpo", "--framework", "trl", *fields).ok()
    assert result.run["audit"]["optimizer_steps"] == 12
    assert len(result.record.samples) == 2 * 3 * 16
    assert result.record.steps["step"].tolist() == [1, 2, 3]


def test_rloo(rlmbench_run):
    run = rlmbench_run("gsm8k_rloo", "--framework", "trl", "--scale", "tiny").ok().run
    assert run["coverage"]["median"] >= 0.99
    assert run["stages_s"]["old_logprob"] > 0  # RLOO always computes them


def test_ppo(rlmbench_run):
    result = rlmbench_run("gsm8k_ppo", "--framework", "trl", "--scale", "tiny").ok()
    assert result.run["coverage"]["median"] >= 0.97
    assert {"values", "reward", "reference_logprob", "advantage", "actor_update"} <= set(result.run["stages_s"])
    packages = result.record.manifest.environment.packages
    assert packages["trl"] == "1.12.0"
    # The critic learns at its own rate, in the joint optimizer.
    critic = result.record.experiment.optimization.critic
    assert critic.learning_rate != result.record.experiment.optimization.learning_rate


@pytest.mark.parametrize("suite", ["gsm8k_dapo", "longtail_grpo"])
def test_other_suites_at_tiny(rlmbench_run, suite):
    run = rlmbench_run(suite, "--framework", "trl", "--scale", "tiny").ok().run
    assert run["coverage"]["median"] >= 0.99


def test_natural_workload_is_judged_by_the_verifier(rlmbench_run):
    result = rlmbench_run("gsm8k_grpo", "--framework", "trl", *SHORT, *settings(workload__replay=None)).ok()
    samples = result.record.samples
    assert samples["response_tokens"].between(1, 64).all()
    # A random model answers nothing right: the verifier really ran, and gave no reward.
    assert samples["reward"].notna().all() and set(samples["reward"]) <= {0.0, 1.0}


def test_natural_ppo(rlmbench_run):
    fields = settings(measurement__steps=2, workload__replay=None)
    samples = rlmbench_run("gsm8k_ppo", "--framework", "trl", *fields).ok().record.samples
    assert set(samples["reward"]) <= {0.0, 1.0}


def test_two_ranks(rlmbench_run):
    result = rlmbench_run("gsm8k_grpo", "--framework", "trl", *SHORT, *settings(parallelism__data=2)).ok()
    facts = result.record.facts
    assert set(facts[facts["name"] == "world_size"]["value"]) == {"2"}
    assert set(facts[facts["name"] == "model_wrapper"]["value"]) == {'"DistributedDataParallel"'}
    samples = result.record.samples
    assert samples.groupby("process").size().tolist() == [16, 16]  # 2 steps x 8 samples each
    assert "wait" in result.run["stages_s"]


def vllm_difference(result):
    """Mean |rollout - training log-prob| of the measured steps, by TRL's own count."""
    native = result.record.native
    key = "sampling/sampling_logp_difference/mean"
    values = native[(native["key"] == key)]["value"].tolist()
    assert len(values) >= 2
    return statistics.fmean(values)


def test_vllm_in_the_trainers_process(rlmbench_run):
    fields = settings(measurement__steps=3, placement__rollout_engine="vllm", optimization__learning_rate=1e-3)
    result = rlmbench_run("gsm8k_grpo", "--framework", "trl", *fields).ok()
    assert result.run["stages_s"]["weight_sync"] > 0
    # Weights moved at a large rate and the engine followed: a broken sync would show here.
    assert vllm_difference(result) < 1e-4


def test_vllm_server(rlmbench_run):
    fields = settings(
        measurement__steps=3, placement__rollout_engine="vllm", placement__mode="disaggregated", placement__rollout_devices=1,
        optimization__learning_rate=1e-3,
    )  # fmt: skip
    result = rlmbench_run("gsm8k_grpo", "--framework", "trl", *fields).ok()
    assert result.run["stages_s"]["weight_sync"] > 0
    assert vllm_difference(result) < 1e-4
    assert [process.name for process in result.record.manifest.launch] == ["rollout-server", "trainer"]
    # The probe followed into vLLM's engine, which counts the tokens it made itself: the very ones that were planned.
    record = result.record
    spans = record.spans.merge(record.processes[["process", "role"]], on="process")
    engine = spans[(spans["role"] == "server") & (spans["name"] == "engine_step")]
    assert engine["response_tokens"].sum() == result.run["audit"]["response_tokens"]
    assert (
        len(spans[(spans["role"] == "server") & (spans["stage"] == "weight_sync")]) == 3
    )  # TRL syncs before each step, the first included


def test_replay_leaves_log_probs_undistorted(rlmbench_run):
    """On the first update the policy is the one that sampled: with an aligned update TRL's ratio must be 1 to rounding.

    TRL's PPO logs the ratio of its new to its old log-probs; masking the end token (the naive way to fix lengths) moves it.
    """
    result = rlmbench_run("gsm8k_ppo", "--framework", "trl", *settings(measurement__steps=2)).ok()
    native = result.record.native
    ratios = native[native["key"] == "val/ratio"]["value"]
    assert len(ratios) == 2
    assert all(math.isclose(ratio, 1.0, abs_tol=1e-4) for ratio in ratios)


LOSING_HOOKS = """
import sys

sys.path.append({inject!r})
from rlmbench_probe import after_import, replace
from rlmbench_trl_worker.hooks import hooks as real_hooks, role


def hooks():
    after_import("trl.trainer.grpo_trainer", lose)
    return real_hooks()


def lose(module):
    def make(original):
        def shuffle(batch):
            # Sample 0 is lost on the way to the loss, and sample 1 takes its place: every count stays what it was.
            return original({{key: put(value) for key, value in batch.items()}})

        return shuffle

    replace(module, "shuffle_sequence_dict", make)


def put(value):
    if getattr(value, "ndim", 0) > 0:
        value[0] = value[1]
    return value
"""


def test_a_lost_sample_fails_the_run(tmp_path, monkeypatch, capsys):
    """The hard gate: TRL trains to the end with exit code 0, but one planned sample never reaches the loss."""
    from rlmbench.cli.main import main
    from rlmbench_trl import TRLAdapter

    class Losing(TRLAdapter):
        def probe_path(self):
            return tmp_path / "losing"

        def probe_module(self):
            return "losing_hooks"

    (tmp_path / "losing").mkdir()
    (tmp_path / "losing" / "losing_hooks.py").write_text(LOSING_HOOKS.format(inject=str(TRLAdapter().probe_path())))
    monkeypatch.setattr("rlmbench.runner.cells.find_adapter", lambda name: Losing())
    monkeypatch.chdir(tmp_path)
    assert main(["run", "gsm8k_grpo", "--framework", "trl", *SHORT, "--json"]) == 1
    (run,) = json.loads(capsys.readouterr().out.splitlines()[-1])["runs"]
    assert (run["status"], run["failure_class"], run["audit"]["ok"]) == ("failed", "audit", False)
    assert run["failure"]["exit_code"] is None
    assert "sample" in run["failure"]["message"]
    # Both steps lost one sample of row 0 of the step and saw another twice.
    assert any("step 1" in mismatch for mismatch in run["audit"]["mismatches"])
    assert any("step 2" in mismatch for mismatch in run["audit"]["mismatches"])
