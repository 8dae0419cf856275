"""OpenRLHF's translation: every field accounted for, OpenRLHF's units, and a refusal where OpenRLHF (or this adapter) cannot."""

from __future__ import annotations

import json
import math

import pytest
from pydantic import ValidationError

from rlmbench.adapter import Fidelity, RunInputs
from rlmbench.cli.main import main
from rlmbench.costmodel.stages import devices_held, setup_of
from rlmbench.experiment.load import suite_files
from rlmbench.ledger import missing
from rlmbench_openrlhf import adapter
from rlmbench_openrlhf.adapter import CPU, arguments
from rlmbench_openrlhf.translate import ray_devices, translate
from tests.unit.adapters.cells import CELLS, experiment


@pytest.mark.parametrize(("suite", "scale"), CELLS)
def test_the_ledger_covers_every_field(suite, scale):
    cell = experiment(suite, scale)
    ledger = translate(cell, "cuda" if scale != "tiny" else "cpu").ledger
    assert missing(cell, ledger) == []
    for entry in ledger:
        assert entry.fidelity is Fidelity.EXACT or entry.reason
        assert entry.native_key or entry.reason


@pytest.mark.parametrize("suite", sorted(suite_files()))
def test_suites_run_at_tiny(suite):
    assert [entry.field for entry in translate(experiment(suite), "cpu").unsupported] == []


def test_batches_are_counted_in_openrlhfs_units():
    """8 prompts x 4 samples in mini-batches of 16: rollout.batch_size counts prompts, train.batch_size samples (train_ppo_ray.py)."""
    native = translate(experiment(), "cpu").native
    assert (native["rollout.batch_size"], native["rollout.n_samples_per_prompt"]) == (8, 4)
    assert (native["train.batch_size"], native["train.micro_batch_size"], native["rollout.micro_batch_size"]) == (16, 8, 8)
    assert (native["data.max_len"], native["rollout.max_new_tokens"]) == (160 + 64, 64)


def test_a_mini_batch_above_the_step_is_no_experiment():
    """OpenRLHF would train without any optimizer step: train.batch_size above rollout.batch_size x n_samples_per_prompt."""
    with pytest.raises(ValidationError, match="must divide the step's samples"):
        experiment(optimization__mini_batch_samples=64)


def test_defaults_that_openrlhf_would_take_otherwise_are_set():
    """OpenRLHF's own: 8 devices for each model, cosine with warm-up, flash attention, KL k1 in the reward, nccl, seed 42."""
    native = translate(experiment(), "cpu").native
    assert {native[f"{model}.num_gpus_per_node"] for model in ("actor", "ref")} == {1}
    assert (native["actor.lr_scheduler"], native["actor.lr_warmup_ratio"]) == ("constant", 0)
    assert native["ds.attn_implementation"] == "sdpa"
    assert (native["algo.kl.use_loss"], native["algo.kl.estimator"], native["algo.kl.init_coef"]) == (True, "k3", 0.001)
    assert (native["vllm.sync_backend"], native["train.seed"]) == ("gloo", 0)
    assert native["algo.advantage.is_correction_level"] == "off"


@pytest.mark.parametrize("warmup", [0, 1, 3, 10])
def test_warm_up_survives_openrlhfs_rounding(warmup):
    """DeepspeedStrategy: ceil(updates x ratio) steps of warm-up; 5 steps of 2 updates."""
    native = translate(experiment(optimization__warmup_steps=warmup), "cpu").native
    assert math.ceil(10 * native["actor.lr_warmup_ratio"]) == warmup
    assert native["actor.lr_scheduler"] == ("constant_with_warmup" if warmup else "constant")


@pytest.mark.parametrize(
    ("suite", "over", "estimator"),
    [
        ("gsm8k_grpo", {}, "group_norm"),
        ("gsm8k_grpo", {"optimization__advantage_scaling": "none"}, "dr_grpo"),
        ("gsm8k_grpo", {"optimization__advantage_scaling": "batch"}, "reinforce_baseline"),
        ("gsm8k_rloo", {}, "rloo"),
        ("gsm8k_grpo", {"optimization__algorithm": "reinforce_pp", "optimization__advantage_scaling": "batch"}, "reinforce"),
        ("gsm8k_ppo", {}, "gae"),
    ],
)
def test_estimators(suite, over, estimator):
    translation = translate(experiment(suite, **over), "cpu")
    assert translation.native["algo.advantage.estimator"] == estimator
    assert translation.unsupported == []


def test_the_critic_follows_the_policys_optimizer():
    native = translate(experiment("gsm8k_ppo"), "cpu").native
    assert native["critic.adam.lr"] == 1e-5
    assert (native["critic.value_clip"], native["algo.advantage.gamma"], native["algo.advantage.lambd"]) == (0.5, 1.0, 1.0)
    assert native["critic.adam.betas"] == native["actor.adam.betas"] == [0.9, 0.999]
    assert (native["critic.lr_scheduler"], native["critic.lr_warmup_ratio"]) == ("constant", 0)


def test_gspo_is_a_loss_of_its_own():
    cell = experiment(optimization__importance_sampling="sequence", optimization__loss_aggregation="sequence_mean")
    translation = translate(cell, "cpu")
    assert translation.native["actor.policy_loss_type"] == "gspo"
    tokens = translate(experiment(optimization__importance_sampling="sequence"), "cpu")
    (entry,) = [entry for entry in tokens.ledger if entry.field == "optimization.loss_aggregation"]
    assert entry.fidelity is Fidelity.APPROXIMATED  # PolicyLoss: gspo sets token_level_loss to False


def test_float32_is_not_claimed():
    """--ds.param_dtype has bf16 and fp16 only."""
    translation = translate(experiment(), "cpu")
    (entry,) = [entry for entry in translation.ledger if entry.field == "model.dtype"]
    assert (entry.value, entry.fidelity, entry.native_value) == ("float32", Fidelity.APPROXIMATED, "bf16")
    assert translation.expected_facts["weights_dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("over", "keys", "devices"),
    [
        ({}, {"train.colocate_all": True, "vllm.num_engines": 1}, 1),
        (
            {"placement": {"mode": "disaggregated", "rollout_devices": 2}},
            {"train.colocate_actor_ref": True, "vllm.num_engines": 2},
            3,
        ),
        (
            {"placement": {"mode": "async", "rollout_devices": 1, "max_staleness": 2}},
            {"train.async_enable": True, "train.colocate_all": True, "train.async_queue_size": 2},
            2,
        ),
        (
            {"parallelism": {"data": 2, "sharding": "zero3"}, "optimization__micro_batch_samples": 4},
            {"ds.zero_stage": 3, "actor.num_gpus_per_node": 2, "vllm.num_engines": 2},
            2,
        ),
    ],
)
def test_placement_and_devices(over, keys, devices):
    cell = experiment(**over)
    native = translate(cell, "cpu").native
    assert {key: native[key] for key in keys} == keys
    assert ray_devices(cell) == devices


def test_a_critic_apart_has_devices_of_its_own():
    cell = experiment("gsm8k_ppo", placement={"mode": "disaggregated", "rollout_devices": 1})
    translation = translate(cell, "cpu")
    (entry,) = [entry for entry in translation.ledger if entry.field == "placement.mode"]
    assert (entry.fidelity, ray_devices(cell)) == (Fidelity.APPROXIMATED, 3)
    assert translation.traits["critic_devices"] == "its own, as many as the actor's"


@pytest.mark.parametrize("suite", ["gsm8k_grpo", "gsm8k_ppo"])
@pytest.mark.parametrize(
    "over",
    [
        {"parallelism": {"data": 2}, "optimization__micro_batch_samples": 4},
        {"placement": {"mode": "disaggregated", "rollout_devices": 3}},
        {"parallelism": {"data": 2}, "optimization__micro_batch_samples": 4, "placement": {"mode": "disaggregated", "rollout_devices": 1}},
        {"placement": {"mode": "async", "rollout_devices": 2, "max_staleness": 1}},
    ],
)
def test_devices_are_counted_as_openrlhf_reserves_them(suite, over):
    """By its flags, as ``train_ppo_ray.py`` makes placement groups of them: one for all, or actor and reference, critic, and engines."""
    cell = experiment(suite, **over)
    translation = translate(cell, "cpu")
    flags = translation.native
    engines = flags["vllm.num_engines"] * flags["vllm.tensor_parallel_size"]
    if flags.get("train.colocate_all"):
        reserved = flags["actor.num_gpus_per_node"] + (engines if flags.get("train.async_enable") else 0)
    else:
        reserved = flags["actor.num_gpus_per_node"] + flags.get("critic.num_gpus_per_node", 0) + engines
    assert ray_devices(cell) == devices_held(cell, translation.traits) == setup_of(cell, translation.traits).devices == reserved


def test_a_plan_counts_the_critics_devices_and_leaves_its_state_there(capsys):
    """--devices 12: 4 for rollouts, 4 for the actor, 4 for the critic. Optimizer states, 12 bytes a parameter over 4 ranks: an actor of
    Qwen2.5-7B alone, 7,615,616,512 parameters; where the critic shares its devices as many again, without the head of 152,064 x 3,584.
    """
    asked = ["plan", "gsm8k_ppo", "-f", "openrlhf", "--scale", "base", "--device-type", "H100-SXM", "--json"]
    apart = [*asked, "--set", "placement.mode=disaggregated", "--set", "placement.rollout_devices=4"]

    def planned(words):
        assert main(words) == 0
        (cell,) = json.loads(capsys.readouterr().out.splitlines()[-1])["cells"]
        return cell["prediction"]["devices"], cell["prediction"]["memory"]["training"]["terms"]["optimizer"]

    actor = 7_615_616_512
    assert planned([*apart, "--devices", "12"]) == (12, pytest.approx(12 * actor / 4))
    assert planned([*asked, "--devices", "4"]) == (4, pytest.approx(12 * (2 * actor - 152_064 * 3_584 + 3_584) / 4))
    assert main([*apart, "--devices", "11"]) == 2
    assert "a multiple of 2 (tensor x pipeline x context, for actor and critic each)" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("over", "field"),
    [
        ({"optimization__policy_loss": "cispo"}, "optimization.policy_loss"),
        ({"optimization__loss_aggregation": "sequence_sum_constant"}, "optimization.loss_aggregation"),
        ({"optimization__loss_aggregation": "micro_batch_token_mean"}, "optimization.loss_aggregation"),
        ({"optimization__algorithm": "remax"}, "optimization.algorithm"),
        ({"optimization__dynamic_sampling": True}, "optimization.dynamic_sampling"),
        ({"optimization__mask_truncated": True}, "optimization.mask_truncated"),
        ({"placement__rollout_engine": "hf"}, "placement.rollout_engine"),
        ({"placement": {"mode": "disaggregated"}}, "placement.rollout_devices"),
        ({"placement": {"mode": "async", "rollout_devices": 1}}, "placement.max_staleness"),
        ({"parallelism__rollout_tensor": 2}, "placement.rollout_devices"),
        ({"parallelism__pipeline": 2}, "parallelism.pipeline"),
        ({"parallelism__tensor": 2}, "parallelism.tensor"),
        ({"parallelism__context": 2}, "parallelism.context"),
        ({"model__attention": "flash_attention_2"}, "model.attention"),
        ({"measurement__strict_order": True, "workload__replay": None}, "measurement.strict_order"),
    ],
)
def test_what_cannot_be_done_is_refused(over, field):
    assert field in {entry.field for entry in translate(experiment(**over), "cpu").unsupported}


def launched(tmp_path, cell, device="cpu"):
    inputs = RunInputs(tmp_path, tmp_path / "model", tmp_path / "plan.json", tmp_path / "python", device)
    return adapter.launch(translate(cell, device), cell, inputs)


def test_nothing_for_cpus_is_active_on_a_gpu(tmp_path):
    (process,) = launched(tmp_path, experiment(), "cuda").processes
    assert not set(process.env) & set(CPU)
    assert "--vllm.enforce_eager" not in process.argv
    # Engine and optimizer take turns in the memory of one device.
    assert {"--vllm.enable_sleep", "--ds.enable_sleep"} <= set(process.argv)


def test_ray_is_a_cluster_of_the_runs_own(tmp_path):
    launch = launched(tmp_path, experiment())
    job = json.loads((tmp_path / "job.json").read_text())
    (folder,) = launch.scratch
    assert (job["ray_init"]["address"], job["ray_init"]["_temp_dir"]) == ("local", str(folder))
    assert job["ray_init"]["num_gpus"] == job["devices"] == 1


def test_the_dataset_is_the_plan(tmp_path):
    rows = [{"row": index, "question": f"q{index}", "answer": str(index)} for index in range(3)]
    (tmp_path / "plan.json").write_text(json.dumps({"rows": rows}))
    launched(tmp_path, experiment())
    lines = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert [line["question"] for line in lines] == ["q0", "q1", "q2"]
    assert [json.loads(line["label"]) for line in lines] == [{"row": index, "answer": str(index)} for index in range(3)]


def test_operators_are_kept_in_an_environment_of_ours_only(tmp_path):
    python = tmp_path / "bin" / "python"
    cell = experiment()
    inputs = RunInputs(tmp_path, tmp_path / "model", tmp_path / "plan.json", python, "cpu")
    (process,) = adapter.launch(translate(cell, "cpu"), cell, inputs).processes
    assert "TORCH_EXTENSIONS_DIR" not in process.env
    (tmp_path / "rlmbench-environment.json").write_text("{}")
    (process,) = adapter.launch(translate(cell, "cpu"), cell, inputs).processes
    assert process.env["TORCH_EXTENSIONS_DIR"] == str(tmp_path / "torch_extensions")


def test_flags_as_argparse_takes_them():
    flags = {"a.b": 1e-06, "on": True, "off": False, "none": None, "two": [0.2, 0.28], "text": "x y", "zero": 0}
    assert arguments(flags) == ["--a.b", "1e-06", "--on", "--two", "0.2", "0.28", "--text", "x y", "--zero", "0"]
