"""verl itself trains, generates and is audited, with vLLM's own token count as a second witness."""

from __future__ import annotations

import json

import pytest

from tests.frameworks.conftest import settings


def test_grpo_does_exactly_the_planned_work(all_grpo):
    run, record = all_grpo.figures["verl"], all_grpo.records["verl"]
    plan = json.loads((record.path / "plan.json").read_text())
    for step in (1, 2, 3):
        rows = [row for row in plan["rows"] if row["step"] == step]
        trained = record.samples[record.samples["step"] == step]
        planned = sorted((row["prompt_hash"], row["prompt_tokens"], tokens) for row in rows for tokens in row["response_tokens"])
        assert sorted(zip(trained["prompt_hash"], trained["prompt_tokens"], trained["response_tokens"], strict=True)) == planned
        received = record.rewards[record.rewards["step"] == step]["reward"]
        assert sorted(received) == sorted(reward for row in rows for reward in row["rewards"])
    assert run["audit"]["optimizer_steps"] == 6  # 32 samples in mini-batches of 16
    assert run["coverage"]["median"] >= 0.98
    # vLLM's engine, a process of its own, counted the tokens it made: the planned ones.
    engine = record.spans[record.spans["name"] == "engine_step"]
    assert engine["response_tokens"].sum() == sum(tokens for row in plan["rows"] for tokens in row["response_tokens"])
    # verl polls for finished rollouts every 2 s: its own timer says at least that, and ours tells work from waiting.
    native = record.native
    gen = native[(native["key"] == "timing_s/gen") & (native["step"] > 1)]["value"].mean()
    waited, generated = run["stages_s"]["wait"], run["stages_s"]["generation"]
    assert gen >= 2.0
    assert waited > 0
    assert abs(waited + generated - gen) < 0.1 * gen
    # Seconds around the same calls, by verl's clock and by ours; a step of verl's ends before its metrics and its log.
    ratios = {key: figure["ratio"] for key, figure in run["native"].items() if key.startswith("timing_s/") and figure["canonical"]}
    assert set(ratios) == {f"timing_s/{timer}" for timer in ("step", "gen", "old_log_prob", "ref", "adv", "update_actor", "update_weights")}
    short = {"timing_s/adv": "advantage", "timing_s/update_weights": "weight_sync"}
    assert all(0.9 < ratio < 1.1 for key, ratio in ratios.items() if key not in short), ratios
    # Of 20 ms, a wait for a core between the two clocks' readings takes a tenth and more: in the step that had least of it.
    for key, stage in short.items():
        theirs = native[native["key"] == key].set_index("step")["value"]
        assert min(abs(theirs[step["step"]] / step["stages_s"][stage] - 1) for step in run["steps"]) < 0.02, key
    assert run["native"]["critic/score/mean"]["ratio"] == pytest.approx(1)
    assert {"start_workers", "start_rollout_engine", "first_weight_sync"} <= set(run["startup"]["stages_s"])


def test_ppo_on_two_ranks_with_a_split_rollout_engine_that_is_polled_fast(rlmbench_run):
    """Two FSDP ranks with actor, critic and reference; vLLM over both; the 2 s poll of the replay buffer removed."""
    fields = {"parallelism__data": 2, "parallelism__rollout_tensor": 2, "placement__fast_rollout_poll": True}
    result = rlmbench_run("gsm8k_ppo", "--framework", "verl", *settings(measurement__steps=2, **fields)).ok()
    run, record = result.run, result.record
    assert run["coverage"]["median"] >= 0.98
    assert run["stages_s"]["wait"] < 0.15 * run["step_s"]["median"], "0.04 s here; with verl's own poll 1.5 s of a step's 3.4 s"
    (facts,) = {tuple(sorted(set(record.facts[record.facts["name"] == name]["value"]))) for name in ("world_size", "training_devices")}
    assert facts == ("2",)
    # Every process says what it is; ranks are those of torch and of vLLM.
    parts = record.processes.groupby("role")["rank"].apply(sorted).to_dict()
    assert (parts["trainer"], parts["engine rank"], len(parts["driver"]), len(parts["rollout"])) == ([0, 1], [0, 1], 1, 1)
    work = {(worker["stage"], worker["role"]): worker for worker in run["workers"]}
    stages = ("reference_logprob", "old_logprob", "values", "critic_update", "actor_update", "weight_sync")
    assert {stage: work[stage, "trainer"]["processes"] for stage in stages} == dict.fromkeys(stages, 2)
    assert (work["generation", "engine rank"]["processes"], work["generation", "rollout"]["processes"]) == (2, 1)
    assert all(worker["max_s"] <= run["stages_s"][stage] for (stage, _), worker in work.items()), "workers work while the driver waits"
    # Each rank makes every optimizer step, of actor and critic: one mini-batch of 32 samples in each of two steps.
    made = record.updates.groupby(["process", "role"]).size()
    assert set(made) == {2}
    assert made.index.get_level_values("role").tolist() == ["actor", "critic"] * 2


def test_remax_in_the_v0_trainer(rlmbench_run):
    """V0 is a loop of its own, with padded batches; ReMax adds one greedy response per prompt, as long as the prompt's first sample."""
    arguments = settings(measurement__steps=2, optimization__algorithm="remax")
    result = rlmbench_run("gsm8k_rloo", "--framework", "verl", *arguments).ok()
    run, record = result.run, result.record
    assert run["coverage"]["median"] >= 0.98
    (trainer,) = record.facts[record.facts["name"] == "trainer_class"]["value"]
    assert json.loads(trainer) == "RayPPOTrainer"
    plan = json.loads((result.folder / run["path"] / "plan.json").read_text())
    engine = record.spans[record.spans["name"] == "engine_step"]
    baselines = sum(row["response_tokens"][0] for row in plan["rows"])
    assert engine["response_tokens"].sum() == baselines + sum(tokens for row in plan["rows"] for tokens in row["response_tokens"])
    assert 0.9 < run["native"]["timing_s/gen"]["ratio"] < 1.1
    assert run["hooks"]["missing"] == []
