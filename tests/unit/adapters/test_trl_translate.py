"""TRL's translation: every field accounted for, the right native value, and a refusal where TRL cannot."""

from __future__ import annotations

import json

import pytest

from rlmbench.adapter import Fidelity, RunInputs
from rlmbench.experiment import merge
from rlmbench.experiment.load import suite_files
from rlmbench.ledger import leaves, missing
from rlmbench_trl import adapter
from rlmbench_trl.translate import translate
from tests.unit.adapters.cells import CELLS, experiment


def refused(translation):
    return {entry.field: entry.reason for entry in translation.unsupported}


@pytest.mark.parametrize(("suite", "scale"), CELLS)
def test_the_ledger_covers_every_field(suite, scale):
    cell = experiment(suite, scale)
    ledger = translate(cell, "cuda" if scale != "tiny" else "cpu").ledger
    assert missing(cell, ledger) == []
    known = leaves(cell)
    for entry in ledger:
        assert entry.field.startswith("(framework)") or any(leaf == entry.field or leaf.startswith(entry.field + ".") for leaf in known)
        assert entry.fidelity is Fidelity.EXACT or entry.reason  # what is not exact says why
        assert entry.native_key or entry.reason  # and what has no key says who sees to it


@pytest.mark.parametrize("suite", sorted(suite_files()))
def test_every_suite_runs_at_tiny(suite):
    assert refused(translate(experiment(suite), "cpu")) == {}


def test_batches_are_counted_in_trls_units():
    """8 prompts x 4 samples in mini-batches of 16 over 2 ranks with micro-batches of 4: design/frameworks/trl.md, by hand.

    generation_batch_size = 8 x 4; accumulation = 16 / (4 x 2) = 2; 5 steps of 32 / 16 = 2 optimizer steps = 10.
    """
    cell = experiment(optimization__mini_batch_samples=16, optimization__micro_batch_samples=4, parallelism__data=2)
    native = translate(cell, "cpu").native
    assert native["generation_batch_size"] == 32
    assert native["num_generations"] == 4
    assert native["per_device_train_batch_size"] == 4
    assert native["gradient_accumulation_steps"] == 2
    assert native["max_steps"] == 10


def test_epochs_multiply_the_optimizer_steps():
    native = translate(experiment(optimization__epochs=3), "cpu").native
    assert (native["num_iterations"], native["max_steps"]) == (3, 5 * 2 * 3)


def test_defaults_that_trl_would_take_otherwise_are_set():
    """TRL's own defaults: linear schedule, bf16 and checkpointing on, shuffled data, KL with a bias correction."""
    native = translate(experiment(), "cpu").native
    assert native["lr_scheduler_type"] == "constant"
    assert (native["bf16"], native["gradient_checkpointing"], native["shuffle_dataset"]) == (False, False, False)
    assert native["use_bias_correction_kl"] is False
    assert (native["report_to"], native["save_strategy"]) == ("none", "no")


def test_cispo_bounds_the_ratio_itself():
    native = translate(experiment(optimization__policy_loss="cispo", optimization__clip_high=0.28), "cpu").native
    assert native["loss_type"] == "cispo"
    assert native["epsilon_high"] == pytest.approx(1.28)


def test_ppo_counts_episodes():
    """32 prompts x 1 sample, micro-batch 8, one rank: accumulation 4; steps x 32 episodes."""
    cell = experiment("gsm8k_ppo")
    native = translate(cell, "cpu").native
    assert native["gradient_accumulation_steps"] == cell.workload.prompts_per_step // cell.optimization.micro_batch_samples
    assert native["total_episodes"] == cell.measurement.steps * cell.workload.prompts_per_step
    assert native["num_mini_batches"] == 1


@pytest.mark.parametrize(
    ("over", "field"),
    [
        ({"parallelism__tensor": 2}, "parallelism.tensor"),
        ({"parallelism__sharding": "zero3"}, "parallelism.sharding"),
        ({"placement__rollout_engine": "sglang"}, "placement.rollout_engine"),
        ({"placement__mode": "async", "placement__rollout_engine": "vllm"}, "placement.mode"),
        ({"placement__mode": "disaggregated"}, "placement.mode"),
        ({"optimization__dynamic_sampling": True}, "optimization.dynamic_sampling"),
        ({"optimization__mask_truncated": True}, "optimization.mask_truncated"),
        ({"optimization__kl": {"coefficient": 0.1, "placement": "reward", "estimator": "k3"}}, "optimization.kl.placement"),
        ({"optimization__kl": {"coefficient": 0.1, "placement": "loss", "estimator": "k2"}}, "optimization.kl.estimator"),
        ({"optimization__algorithm": "remax"}, "optimization.algorithm"),
    ],
)
def test_what_trl_cannot_do_is_refused(over, field):
    assert field in refused(translate(experiment(**over), "cpu"))


def test_ppos_single_update_is_refused_for_mini_batches():
    assert "optimization.mini_batch_samples" in refused(translate(experiment("gsm8k_ppo", optimization__mini_batch_samples=16), "cpu"))


def test_environments_follow_the_experiment():
    assert translate(experiment(), "cpu").environment == "trl"
    assert translate(experiment("gsm8k_ppo"), "cpu").environment == "trl-ppo"
    assert translate(experiment(placement__rollout_engine="vllm"), "cpu").environment == "trl-vllm"
    names = {(spec.name, spec.device) for spec in adapter.environments()}
    assert names == {(name, device) for name in ("trl", "trl-ppo", "trl-vllm") for device in ("cpu", "cuda")}


def launched(tmp_path, cell, device="cpu"):
    translation = translate(cell, device)
    inputs = RunInputs(tmp_path, tmp_path / "model", tmp_path / "plan.json", tmp_path / "python", device)
    return adapter.launch(translation, cell, inputs).processes


def test_one_rank_is_plain_python_and_two_are_torchrun(tmp_path):
    (alone,) = launched(tmp_path, experiment())
    assert alone.argv[0] == str(tmp_path / "python") and len(alone.argv) == 2
    (together,) = launched(tmp_path, experiment(parallelism__data=2, optimization__micro_batch_samples=4))
    assert "--nproc_per_node=2" in together.argv
    assert json.loads((tmp_path / "job.json").read_text())["trainer"]["per_device_train_batch_size"] == 4


def test_a_server_comes_first_and_has_devices_of_its_own(tmp_path):
    cell = experiment(
        placement={"rollout_engine": "vllm", "mode": "disaggregated", "rollout_devices": 2}, parallelism__data=2,
        parallelism__rollout_tensor=2, optimization__micro_batch_samples=4,
    )  # fmt: skip
    server, trainer = launched(tmp_path, cell, "cuda")
    assert server.ready_url and server.env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert trainer.env["CUDA_VISIBLE_DEVICES"] == "2,3"
    job = json.loads((tmp_path / "job.json").read_text())["trainer"]
    assert server.ready_url.startswith(f"http://127.0.0.1:{job['vllm_server_port']}/")


def test_expected_facts_name_the_silent_failures():
    """accelerate may run one process where two were asked for, and DDP where FSDP was: the audit needs to know."""
    assert translate(experiment(parallelism__data=2, optimization__micro_batch_samples=4), "cpu").expected_facts == {
        "world_size": 2, "device_type": "cpu", "weights_dtype": "float32", "model_wrapper": "DistributedDataParallel",
    }  # fmt: skip


def test_merge_leaves_its_arguments_alone():
    base = {"a": {"b": 1}}
    assert merge(base, {"a": {"c": 2}}) == {"a": {"b": 1, "c": 2}}
    assert base == {"a": {"b": 1}}
