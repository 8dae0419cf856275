"""FSDP2 or Megatron: which of the two, and how the model is split."""

from __future__ import annotations

import pytest

from rlmbench_verl.translate import expected_facts, translate
from tests.unit.adapters.cells import experiment

ACTOR = "actor_rollout_ref.actor."
FLASH = {"model__attention": "flash_attention_2"}


def on_gpus(**over):
    return experiment(scale="base", **over)


@pytest.mark.parametrize("split", ["tensor", "pipeline", "expert"])
def test_these_splits_need_megatron_and_megatron_needs_gpus(split):
    over = {f"parallelism__{split}": 2, "parallelism__data": 4}
    assert translate(on_gpus(**over), "cuda").native["model_engine"] == "megatron"
    refused = {entry.field: entry.reason for entry in translate(on_gpus(**over), "cpu").unsupported}
    assert "GPU" in refused[f"parallelism.{split}"]


def test_context_alone_is_ulysses_and_beside_tensor_parallelism_megatrons():
    alone = translate(on_gpus(parallelism__data=4, parallelism__context=2, **FLASH), "cuda").native
    assert alone[ACTOR + "ulysses_sequence_parallel_size"] == 2
    assert alone["actor_rollout_ref.model.use_remove_padding"] is True  # FSDPActorConfig.validate insists
    assert "model_engine" not in alone
    beside = translate(on_gpus(parallelism__data=2, parallelism__context=2, parallelism__tensor=2, **FLASH), "cuda").native
    assert beside[ACTOR + "megatron.context_parallel_size"] == 2
    assert ACTOR + "ulysses_sequence_parallel_size" not in beside


def test_no_key_of_the_other_engine_is_left():
    """Their hydra groups differ: fsdp_config and lr_scheduler_type here, megatron and lr_decay_style there."""
    megatron = translate(on_gpus(parallelism__data=4, parallelism__tensor=2), "cuda").native
    assert not [key for key in megatron if "fsdp" in key or "strategy" in key.rpartition(".")[2] or "lr_scheduler_type" in key]
    fsdp = translate(on_gpus(), "cuda").native
    assert not [key for key in fsdp if "megatron" in key or "lr_decay_style" in key]


@pytest.mark.parametrize(
    ("over", "devices", "dtype"),
    [
        ({}, 8, "float32"),
        ({"parallelism__data": 4, "parallelism__context": 2}, 8, "float32"),
        ({"parallelism__data": 2, "parallelism__tensor": 2, "parallelism__pipeline": 2}, 8, "bfloat16"),
        ({"parallelism__data": 4, "placement__mode": "disaggregated", "placement__rollout_devices": 4}, 4, "float32"),
    ],
)
def test_training_ranks_are_all_degrees_without_rollout_devices(over, devices, dtype):
    cell = on_gpus(**over)
    assert expected_facts(cell) == {"world_size": devices, "training_devices": devices, "weights_dtype": dtype}
    native = translate(cell, "cuda").native
    assert native["trainer.nnodes"] * native["trainer.n_gpus_per_node"] == devices


@pytest.mark.parametrize(
    ("over", "field"),
    [
        ({"parallelism__tensor": 2, "parallelism__data": 4, "model__dtype": "float32"}, "model.dtype"),
        ({"parallelism__expert": 3}, "parallelism.expert"),
        ({"parallelism__context": 2, "parallelism__data": 4}, "parallelism.context"),
        (
            {"parallelism__tensor": 2, "parallelism__data": 2, "parallelism__context": 2, "model__attention": "eager"},
            "parallelism.context",
        ),
        ({"parallelism__context": 3, "parallelism__data": 8, **FLASH}, "parallelism.context"),
    ],
)
def test_splits_that_are_refused(over, field):
    assert field in {entry.field for entry in translate(on_gpus(**over), "cuda").unsupported}


@pytest.mark.parametrize(("sharding", "distributed"), [("none", False), ("zero1", True), ("zero3", True)])
def test_megatron_shards_the_optimizers_state_alone(sharding, distributed):
    cell = on_gpus(parallelism__data=4, parallelism__tensor=2, parallelism__sharding=sharding)
    translation = translate(cell, "cuda")
    assert translation.native[ACTOR + "megatron.use_distributed_optimizer"] is distributed
    (entry,) = [entry for entry in translation.ledger if entry.field == "parallelism.sharding"]
    assert entry.fidelity == ("approximated" if sharding == "zero3" else "exact")


def test_a_critic_is_trained_like_its_policy():
    over = {"optimization__warmup_steps": 3, "optimization__lr_schedule": "cosine"}
    native = translate(experiment("gsm8k_ppo", scale="base", **over), "cuda").native
    for key in ("lr_warmup_steps", "lr_scheduler_type", "betas", "clip_grad", "weight_decay"):
        assert native[f"critic.optim.{key}"] == native[f"{ACTOR}optim.{key}"]
    assert native["critic.optim.lr"] == 1e-5
