"""Predictions by hand: bytes of a published shape on known devices, and the placement's arithmetic."""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console

from rlmbench.adapter import find_adapter
from rlmbench.cli.plan import with_devices
from rlmbench.costmodel.devices import DEVICES, Ceiling, datasheet, find_device
from rlmbench.costmodel.memory import activation_bytes, held_parameters, logits_bytes
from rlmbench.costmodel.prediction import Prediction, expected_lengths, predict, sharding_of
from rlmbench.errors import UserError
from rlmbench.experiment import Experiment
from rlmbench.experiment.load import build_experiment, load_suite
from rlmbench.report.plan import print_prediction
from rlmbench.runner.predicted import as_mapping
from rlmbench.workload.shapes import find_shape

P7B = 7_615_616_512
"""Parameters of Qwen2.5-7B, as published."""


def experiment(suite: str = "gsm8k_grpo", scale: str = "base", *changes: str) -> Experiment:
    return build_experiment(load_suite(suite), scale, list(changes))


def predicted(one: Experiment, framework: str = "verl", capacity: float = 80e9, device: str = "H100-SXM") -> Prediction:
    translation = as_mapping(find_adapter(framework).translate(one, "cuda"))
    assert one.model.shape is not None
    return predict(one, find_shape(one.model.shape), translation, datasheet(find_device(device), one.model.dtype), capacity)


def test_memory_of_a_device_is_what_its_driver_reports() -> None:
    """MiB by nvidia-smi, and bytes by rocm-smi, as logs of such devices have them; 79.6 GiB of an H100 that is sold with 80 GB."""
    mib = {"A10": 23028, "A100-SXM-40GB": 40960, "A100-SXM-80GB": 81920, "L4": 23034, "L40S": 46068, "H100-SXM": 81559, "H100-PCIe": 81559}
    mib |= {"H100-NVL": 95830, "H200-SXM": 143771, "H20": 97871, "B200": 183359, "V100-SXM2": 32768, "A100-PCIe-80GB": 81920}
    assert {name: device.memory_bytes for name, device in DEVICES.items()} == {name: size * 2**20 for name, size in mib.items()} | {
        "MI300X": 206_141_652_992
    }
    assert f"{find_device('H100-SXM').memory_bytes / 2**30:.1f}" == "79.6"


def test_state_of_7b_on_8_devices() -> None:
    """Float32 weights, gradients and moments, FSDP over 8 ranks: 16 bytes a parameter over 8. Replicated: the same on each."""
    training = predicted(experiment()).memory["training"].terms
    assert training["weights"] == pytest.approx(4 * P7B / 8)
    assert training["optimizer"] == pytest.approx(8 * P7B / 8)
    assert training["reference weights"] == pytest.approx(2 * P7B / 8)
    assert training["rollout weights"] == pytest.approx(2 * P7B / 2)  # TP=2
    assert predicted(experiment(), "trl").memory["training"].terms["reference weights"] == pytest.approx(
        4 * P7B / 8
    )  # float32, as the policy's
    alone = predicted(experiment("gsm8k_grpo", "base", "parallelism.data=1"))
    assert alone.memory["training"].verdict == "does not fit"
    assert alone.memory["training"].breaks == "optimizer"
    assert alone.verdict == "does not fit"


def test_zero_stages_cut_what_they_are_said_to() -> None:
    """DeepSpeed with bfloat16 weights: 2 + 2 + 12 bytes a parameter; stage 1 cuts the optimizer, 2 the gradients, 3 the weights."""
    held = {}
    for stage in ("none", "zero1", "zero2", "zero3"):
        terms = predicted(experiment("gsm8k_grpo", "base", f"parallelism.sharding={stage}"), "openrlhf").memory["training"].terms
        held[stage] = [round(terms[part] / P7B, 3) for part in ("weights", "gradients", "optimizer")]
    assert held == {"none": [2, 2, 12], "zero1": [2, 2, 1.5], "zero2": [2, 0.25, 1.5], "zero3": [0.25, 0.25, 1.5]}


def test_a_critic_doubles_the_state_and_checkpointing_cuts_activations() -> None:
    ppo = predicted(experiment("gsm8k_ppo")).memory["training"].terms
    assert ppo["optimizer"] == pytest.approx(8 * (P7B + P7B - 152_064 * 3584 + 3584) / 8)  # the critic has a value head of d
    shape = find_shape("qwen2.5-7b")
    layer = 2 * (6 * 3584 + 2 * (28 + 4) * 128 + 4 * 18_944) + 2 * 2 * 3584  # bfloat16; each norm's input in float32 too
    assert activation_bytes(shape, "bfloat16", 10, 28, checkpointing=False) == 10 * (28 * layer + 3 * 2 * 3584)
    assert activation_bytes(shape, "bfloat16", 10, 28, checkpointing=True) == 10 * (28 * 2 * 3584 + layer + 3 * 2 * 3584)
    assert logits_bytes(shape, "bfloat16", 10) == 10 * 152_064 * 10


def test_what_one_device_holds_of_experts() -> None:
    shape = find_shape("qwen3-30b-a3b")
    experts = 48 * 128 * 3 * 2048 * 768
    split = experiment("gsm8k_grpo", "large")
    assert split.parallelism.expert == 8
    assert held_parameters(shape, split) == pytest.approx(shape.parameters - experts * 7 / 8)


def test_experts_are_sharded_over_the_ranks_that_hold_the_same_ones() -> None:
    """64 data ranks, expert parallel 8: 16 experts a rank, each held by 8 ranks, which share its optimizer state."""
    shape = find_shape("qwen3-30b-a3b")
    experts = 48 * 128 * 3 * 2048 * 768
    terms = predicted(experiment("gsm8k_grpo", "large")).memory["training"].terms  # Megatron's distributed optimizer: ZeRO-1
    assert terms["weights"] == pytest.approx(2 * (shape.parameters - experts * 7 / 8))
    assert terms["optimizer"] == pytest.approx(12 * shape.parameters / 64)


def test_pipeline_stages_hold_their_layers_and_the_first_the_embedding() -> None:
    """Qwen2.5-7B in four stages: 7 layers and one of the two tables; the first keeps the activations of four micro-batches, the last has the logits."""
    shape = find_shape("qwen2.5-7b")
    layer = (P7B - 2 * 152_064 * 3584 - 3584) / 28
    split = ("parallelism.pipeline=4", "parallelism.data=2", "parallelism.sharding=none", "parallelism.rollout_tensor=1")
    one = experiment("gsm8k_grpo", "base", *split)
    assert held_parameters(shape, one) == pytest.approx(7 * layer + 152_064 * 3584, rel=1e-5)
    tied = find_shape("qwen2.5-0.5b")
    assert held_parameters(tied, one) == pytest.approx((494_032_768 - 151_936 * 896) / 4 + 151_936 * 896)
    apart = [predicted(experiment("gsm8k_grpo", "base", *split, f"model.gradient_checkpointing={on}")) for on in ("false", "true")]
    plain, checkpointed = (of.memory["training"].terms for of in apart)
    tokens = 8 * (59 + expected_lengths(one)[0].longest_response)
    kept = activation_bytes(shape, "bfloat16", 1, 7, checkpointing=False)
    assert plain["activations"] == pytest.approx(4 * tokens * kept) and "logits" not in plain
    assert checkpointed["logits"] == pytest.approx(logits_bytes(shape, "bfloat16", tokens))
    assert checkpointed["activations"] == pytest.approx(tokens * activation_bytes(shape, "bfloat16", 1, 7, checkpointing=True))


def test_the_micro_batch_with_the_longest_samples_decides() -> None:
    """Of a long tail every sample of a padded micro-batch is as long as the longest; OpenRLHF packs them as they come, verl sorts them first."""
    changes = ("optimization.micro_batch_samples=2", "optimization.mini_batch_samples=16", "workload.max_prompt_tokens=512")
    one, packed = (experiment("longtail_grpo", "base", *changes, *more) for more in ((), ("model.attention=flash_attention_2",)))
    drawn, _ = expected_lengths(one)
    mean, longest = drawn.response_tokens / drawn.samples, drawn.longest_response
    assert longest > 5 * mean
    tokens = {}
    for name, which, framework in (("padded", one, "verl"), ("packed", packed, "openrlhf"), ("sorted", packed, "verl")):
        tokens[name] = predicted(which, framework).memory["training"].terms["logits"] / logits_bytes(find_shape("qwen3-8b"), "bfloat16", 1)
    prompt = drawn.prompt_tokens / drawn.samples
    assert tokens["padded"] == tokens["sorted"] == pytest.approx(2 * (prompt + longest))
    assert tokens["packed"] == pytest.approx(prompt + longest + prompt + mean)


def test_key_value_heads_are_not_split_further_than_they_are_many() -> None:
    """Qwen2.5-7B has four: eight devices of one replica hold each of them twice."""
    four, eight = (
        predicted(experiment("gsm8k_grpo", "base", f"parallelism.rollout_tensor={degree}")).memory["generation"].terms for degree in (4, 8)
    )
    assert four["KV cache of one sample"] == eight["KV cache of one sample"] == 1536 * 57_344 / 4


def test_sharding_is_what_the_framework_makes_of_it() -> None:
    def of(framework: str, *changes: str) -> str:
        one = experiment("gsm8k_grpo", "base", *changes)
        return sharding_of(one, as_mapping(find_adapter(framework).translate(one, "cuda"))["ledger"])

    assert of("verl", "parallelism.sharding=none") == "zero3"  # FSDP2 shards anyway
    assert of("verl", "parallelism.sharding=zero3", "parallelism.tensor=2") == "zero1"  # Megatron's distributed optimizer
    assert of("openrlhf", "parallelism.sharding=zero2") == "zero2"


def test_kv_cache_rounds() -> None:
    """7B: 57,344 bytes a token; 5120 samples of 285 tokens over 4 replicas of 2 devices."""
    found = predicted(experiment())
    wanted = (59 + found.response_tokens) * 1280 * 57_344 / 2
    needed = found.memory["generation"].terms
    room = 80e9 - sum(needed.values()) + needed["KV cache of one sample"]
    assert needed["KV cache of one sample"] == (512 + 1024) * 57_344 / 2
    assert found.memory["generation"].cache_rounds == pytest.approx(wanted / room, rel=0.001)


def test_bound_hours_and_cost() -> None:
    found = predicted(experiment())
    assert found.least_step_s == pytest.approx(sum(stage.least_s or 0 for stage in found.stages.values()))
    actor = found.stages["actor_update"]
    assert actor.least_s == pytest.approx(actor.hardware_flops / (8 * 989.4e12))
    assert actor.hardware_flops > actor.model_flops  # checkpointing
    assert found.device_hours == pytest.approx((found.least_step_s or 0) * 10 * 8 / 3600)
    out = io.StringIO()
    print_prediction(found, datasheet(find_device("H100-SXM"), "bfloat16"), 2.0, Console(file=out, width=120))
    assert f"{2 * (found.device_hours or 0):.3g} at 2 an hour" in out.getvalue()
    assert "lower bounds" in out.getvalue()


def test_lengths_before_a_run() -> None:
    replayed, assumed = expected_lengths(experiment())
    assert "prompts' mean is assumed" in assumed
    assert replayed.samples == 5120
    assert replayed.response_tokens / replayed.samples == pytest.approx(226, rel=0.02)  # the suite's lognormal, mean about 225
    natural, told = expected_lengths(experiment("gsm8k_grpo", "base", "workload.replay=null"), 80)
    assert (natural.prompt_tokens / 5120, natural.response_tokens / 5120) == (80, 1024)
    assert "cap" in told and "assumed" not in told


def test_an_unknown_ceiling_leaves_work_and_memory() -> None:
    one = experiment("gsm8k_grpo", "tiny")
    found = predict(one, find_shape("tiny"), as_mapping(find_adapter("trl").translate(one, "cpu")), None, None, one_machine=True)
    assert (found.least_step_s, found.device_hours, found.verdict) == (None, None, "unknown")
    assert found.stages["actor_update"].model_flops > 0


def test_ranks_of_a_cpu_share_one_memory() -> None:
    def training(data: int) -> float:
        one = experiment("gsm8k_grpo", "tiny", f"parallelism.data={data}", "optimization.micro_batch_samples=4")
        terms: dict[str, Any] = dict(as_mapping(find_adapter("trl").translate(one, "cpu")))
        return (
            predict(one, find_shape("tiny"), terms, Ceiling("measured", "cpu", 1e9, 1e9, ""), 1e9, one_machine=True)
            .memory["training"]
            .total_bytes
        )

    assert training(2) == 2 * training(1)


def test_devices_of_their_own_share_the_memory_of_a_cpu() -> None:
    """OpenRLHF's disaggregated engine and critic: one of each beside the actor hold what they hold co-located; of two engines each its weights."""

    def held(*changes: str) -> dict[str, dict[str, float]]:
        one = experiment("gsm8k_ppo", "tiny", *changes)
        terms = as_mapping(find_adapter("openrlhf").translate(one, "cpu"))
        found = predict(one, find_shape("tiny"), terms, None, 64e9, one_machine=True).memory
        return {stage: {term: size for term, size in of.terms.items() if term != "processes"} for stage, of in found.items()}

    together = held()
    apart = ("placement.mode=disaggregated", "placement.rollout_devices=1")
    assert held(*apart) == together
    two = held(apart[0], "placement.rollout_devices=2")
    engine = ("rollout weights", "KV cache of one sample")
    assert two == {stage: {term: size * (2 if term in engine else 1) for term, size in terms.items()} for stage, terms in together.items()}
    shape = find_shape("tiny")
    critic = shape.parameters - (0 if shape.tied_embeddings else shape.vocab_size * shape.hidden_size) + shape.hidden_size
    assert two["generation"]["rollout weights"] == 2 * 2 * shape.parameters  # bfloat16
    assert two["training"]["optimizer"] == pytest.approx(12 * (shape.parameters + critic))


def test_processes_of_a_cpu_are_counted_once_for_the_machine() -> None:
    """TRL is one process a rank; OpenRLHF one for each model and rank, an engine for each rank, and Ray; tiny's model is 16 bytes a parameter."""
    for framework, expected in (("trl", 0.65e9), ("openrlhf", 2 * 0.65e9 + 1.9e9 + 2.5e9), ("verl", 0.65e9 + 1.9e9 + 2.5e9)):
        one = experiment("gsm8k_grpo", "tiny")
        terms = as_mapping(find_adapter(framework).translate(one, "cpu"))
        found = predict(one, find_shape("tiny"), terms, None, 4e9, one_machine=True).memory["training"]
        assert found.terms["processes"] == expected
        assert found.total_bytes == sum(found.terms.values())
        assert (found.verdict, found.breaks) == (("fits", None) if framework == "trl" else ("does not fit", "processes"))


def test_devices_change_the_ranks() -> None:
    assert with_devices(experiment(), 16).parallelism.data == 16
    apart = experiment("gsm8k_grpo", "base", "placement.mode=disaggregated", "placement.rollout_devices=4", "parallelism.data=4")
    assert with_devices(apart, 12).parallelism.data == 8
    with pytest.raises(UserError, match="--devices 3: 4 are the rollout's, and training needs at least 1$"):
        with_devices(apart, 3)
    with pytest.raises(UserError, match="--devices 0: training needs at least 1$"):
        with_devices(experiment(), 0)
    split = experiment("gsm8k_grpo", "base", "parallelism.tensor=4", "parallelism.data=2")
    with pytest.raises(UserError, match=r"--devices 6: training needs a multiple of 4 \(tensor x pipeline x context\)"):
        with_devices(split, 6)
    with pytest.raises(UserError, match="--devices 7: .*must divide"):
        with_devices(experiment(), 7)


def test_a_prediction_is_json() -> None:
    import json

    assert json.loads(json.dumps(asdict(predicted(experiment()))))["shape"] == "qwen2.5-7b"
