"""Stage work and least times by hand, on a shape whose numbers fit on paper: the tiny one.

tiny: d 128, I 384, L 2, n_q 4, n_kv 2, d_h 32, V 1024, tied. A = 128 x 32 x 12 = 49,152; F = 3 x 128 x 384 = 147,456;
L(A + F) = 393,216; V d = 131,072; N_act = 524,288.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlmbench.costmodel.devices import DEVICES, Ceiling, by_nvml_name, datasheet, find_device
from rlmbench.costmodel.memory import stage_memory
from rlmbench.costmodel.stages import Setup, least_seconds, least_step, setup_of, stage_work
from rlmbench.costmodel.work import Sequences
from rlmbench.errors import UserError
from rlmbench.experiment import Experiment
from rlmbench.experiment.load import build_experiment, load_suite
from rlmbench.metrics.efficiency import Efficiency, ceilings_of, efficiency
from rlmbench.workload.shapes import find_shape

TINY = find_shape("tiny")
LENGTHS = Sequences.of([(10, 5), (20, 3)])
N_ACT, BODY, HEAD = 524_288, 393_216, 131_072
ATTENTION = 2 * 2 * 4 * 32  # 2 L n_q d_h
FORWARD = 2 * N_ACT * 38 + ATTENTION * (15**2 + 23**2)
PREFILL = 2 * BODY * 30 + 2 * HEAD * 2 + ATTENTION * (100 + 400)  # the head once per sample
GENERATION = (
    PREFILL
    + 2 * N_ACT * 6 + 2 * ATTENTION * (11 + 12 + 13 + 14 + 21 + 22)  # decode: T - 1 tokens each, attending to S + t
)  # fmt: skip


def experiment(suite: str = "gsm8k_grpo", *changes: str) -> Experiment:
    return build_experiment(load_suite(suite), "tiny", list(changes))


def setup(suite: str = "gsm8k_grpo", *changes: str, traits: dict[str, str] | None = None) -> Setup:
    return setup_of(experiment(suite, *changes), {"old_logprob": "a forward of their own", "rollout_engine": "hf"} | (traits or {}))


def test_stages_of_grpo() -> None:
    stages = stage_work(TINY, LENGTHS, setup())
    assert set(stages) == {"generation", "reference_logprob", "old_logprob", "actor_update"}
    assert stages["generation"].model_flops == GENERATION
    assert stages["reference_logprob"].model_flops == stages["old_logprob"].model_flops == FORWARD
    assert stages["actor_update"].model_flops == stages["actor_update"].hardware_flops == 3 * FORWARD


def test_what_a_framework_does_by_itself_adds_and_drops_stages() -> None:
    bare = stage_work(
        TINY, LENGTHS, setup("gsm8k_grpo", "optimization.kl.coefficient=0", traits={"old_logprob": "from the training forward"})
    )
    assert set(bare) == {"generation", "actor_update"}
    synced = stage_work(TINY, LENGTHS, setup(traits={"rollout_engine": "vllm"}))
    assert synced["weight_sync"].least_bytes == TINY.parameters * 4
    again = stage_work(TINY, LENGTHS, setup("gsm8k_grpo", "model.gradient_checkpointing=true"))["actor_update"]
    assert again.hardware_flops - again.model_flops == FORWARD - 2 * HEAD * 38 - 2 * 38 * 2 * 384 * 128  # without head and down projections


def test_ppo_separate_and_joint() -> None:
    apart = stage_work(TINY, LENGTHS, setup("gsm8k_ppo"))
    joint = stage_work(TINY, LENGTHS, setup("gsm8k_ppo", traits={"critic_update": "joint with the policy: one loss, one optimizer step"}))
    critic = FORWARD - 2 * HEAD * 38 + 2 * 128 * 38
    assert apart["values"].model_flops == critic
    assert apart["critic_update"].model_flops == 3 * critic
    assert "critic_update" not in joint
    assert joint["actor_update"].model_flops == 3 * (FORWARD + critic)


def test_epochs_train_again_and_generate_once() -> None:
    once, twice = (stage_work(TINY, LENGTHS, setup("gsm8k_grpo", f"optimization.epochs={n}")) for n in (1, 2))
    assert twice["actor_update"].model_flops == 2 * once["actor_update"].model_flops
    assert twice["generation"] == once["generation"]


def test_remax_generates_a_baseline_for_each_prompt() -> None:
    remax = setup("gsm8k_grpo", "optimization.algorithm=remax", "optimization.group_size=4", "optimization.advantage_scaling=none")
    done = stage_work(TINY, LENGTHS, remax)["generation"]
    assert done.model_flops == GENERATION * 5 / 4
    assert done.spared_flops == PREFILL * (5 / 4 - 1 / 4)  # five responses of one prompt


def test_least_traffic() -> None:
    stages = stage_work(TINY, LENGTHS, setup())
    # 32 samples in micro-batches of 8 on one device: 4 passes over N_act float32 weights.
    assert stages["reference_logprob"].least_bytes == 4 * N_ACT * 4
    assert stages["actor_update"].least_bytes == 3 * 4 * N_ACT * 4 + 28 * TINY.parameters * 2
    # The longest response has 5 tokens: a prefill and 4 decode steps; the cache is 2 L n_kv d_h = 256 values a token.
    weights, cache = 5 * TINY.parameters * 4, (11 + 12 + 13 + 14 + 21 + 22) * 256 * 4
    assert stages["generation"].least_bytes == weights + cache


def test_the_roof_is_products_or_memory_whichever_takes_longer() -> None:
    one = setup()
    work = stage_work(TINY, LENGTHS, one)["old_logprob"]
    assert least_seconds("old_logprob", work, one, Ceiling("measured", "x", 1e9, 1e15, "")) == pytest.approx(FORWARD / 1e9)
    assert least_seconds("old_logprob", work, one, Ceiling("measured", "x", 1e15, 1e6, "")) == pytest.approx(4 * N_ACT * 4 / 1e6)
    assert least_seconds("old_logprob", work, one, Ceiling("datasheet", "x", None, 1e6, "")) is None


def test_rollout_replicas_decode_side_by_side_but_each_one_token_after_the_other() -> None:
    memory_bound = Ceiling("measured", "x", 1e18, 1e6, "")
    seconds = {}
    for data in (1, 4):
        there = setup("gsm8k_grpo", f"parallelism.data={data}", "optimization.micro_batch_samples=4", traits={"rollout_engine": "vllm"})
        seconds[data] = least_seconds("generation", stage_work(TINY, LENGTHS, there)["generation"], there, memory_bound)
    # The replica with the longest sample reads the weights as often as one replica would, and no other one holds it up.
    assert seconds[1] == pytest.approx((5 * TINY.parameters * 4 + 93 * 1024) / 1e6)
    assert seconds[4] == pytest.approx(5 * TINY.parameters * 4 / 1e6)


def test_least_step_by_placement() -> None:
    flops = Ceiling("measured", "x", 1e9, 1e15, "")
    one = setup()
    stages = stage_work(TINY, LENGTHS, one)
    # An engine may compute a prompt once for the four samples of its group, and so spare three of four prefills.
    assert least_step(stages, one, flops) == pytest.approx((GENERATION - 3 / 4 * PREFILL + 2 * FORWARD + 3 * FORWARD) / 1e9)
    apart = setup(
        "gsm8k_grpo",
        "placement.mode=async",
        "placement.rollout_devices=1",
        "placement.rollout_engine=vllm",
        traits={"rollout_engine": "vllm"},
    )
    assert apart.devices == 2
    without_sync = {stage: work for stage, work in stage_work(TINY, LENGTHS, apart).items() if stage != "weight_sync"}
    # The trainer assesses while the next batch is generated: nothing that a longer generation has to wait for.
    assert least_step(without_sync, apart, flops) == pytest.approx((FORWARD + 3 * FORWARD) / 1e9)
    long = without_sync | {"generation": replace(without_sync["generation"], hardware_flops=10 * FORWARD, spared_flops=0.0)}
    assert least_step(long, apart, flops) == pytest.approx(10 * FORWARD / 1e9)


def test_rollouts_that_run_ahead_on_the_training_devices_hold_no_others() -> None:
    """As verl's colocate_async: async without rollout devices, four ranks."""
    four = ("parallelism.data=4", "optimization.micro_batch_samples=4", "placement.mode=async", "placement.rollout_engine=vllm")
    shared = setup("gsm8k_grpo", *four, traits={"rollout_engine": "vllm"})
    assert (shared.devices, shared.rollout_devices, shared.replicas) == (4, 4, 4)
    beside = setup("gsm8k_grpo", *four, "placement.rollout_devices=2", traits={"rollout_engine": "vllm"})
    assert (beside.devices, beside.rollout_devices) == (6, 2)
    one, apart = (
        stage_memory(TINY, experiment("gsm8k_grpo", *four), which, LENGTHS, "float32", "none")["generation"].terms
        for which in (shared, beside)
    )
    assert one["optimizer"] == 8 * TINY.parameters and "optimizer" not in apart


def test_known_devices_and_unknown_ones() -> None:
    h100 = by_nvml_name("NVIDIA H100 80GB HBM3")
    assert h100 is not None and h100.name == "H100-SXM"
    assert datasheet(h100, "bfloat16").flops_per_s == pytest.approx(989.4e12)
    assert by_nvml_name("NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None
    assert datasheet(DEVICES["V100-SXM2"], "bfloat16").flops_per_s is None
    with pytest.raises(UserError, match="H100-SXM"):
        find_device("H100-SMX")
    names = [name for device in DEVICES.values() for name in device.nvml_names]
    assert len(names) == len(set(names))


RUN: dict[str, Any] = {"traits": {"old_logprob": "a forward of their own", "rollout_engine": "vllm"}, "devices": [{"name": "NVIDIA L4"}]}
SECONDS = {"generation": 2.0, "old_logprob": 0.5, "reference_logprob": 0.5, "actor_update": 1.0, "weight_sync": 0.25, "reward": 0.1}


def found(manifest: dict[str, Any], **changes: Any) -> Efficiency:
    figures = efficiency(experiment(), manifest, LENGTHS, SECONDS | changes, 5.0)
    assert isinstance(figures, Efficiency)
    return figures


def test_mfu_of_a_known_device_by_hand() -> None:
    figures = found(RUN)
    assert figures.step_model_flops == GENERATION + 5 * FORWARD
    assert figures.achieved_flops_per_s == figures.step_model_flops / 5
    (sheet,) = figures.against
    assert (sheet.basis, sheet.device, sheet.flops_per_s) == ("datasheet", "L4", 30.3e12)  # the run's dtype is float32
    assert sheet.step_mfu == pytest.approx((GENERATION + 5 * FORWARD) / (5 * 30.3e12))
    assert sheet.stages["actor_update"].mfu == pytest.approx(3 * FORWARD / 30.3e12)
    assert sheet.stages["generation"].mbu == pytest.approx(figures.stages["generation"].least_bytes / (2 * 300e9))
    assert sheet.least_step_s is not None and sheet.work_depth_ratio == pytest.approx(5 / sheet.least_step_s)
    assert figures.weight_sync is not None and figures.weight_sync.bytes_per_s == TINY.parameters * 4 / 0.25
    assert sheet.least_sync_s == pytest.approx(TINY.parameters * 4 / 300e9)
    assert sheet.sync_roofline == pytest.approx(TINY.parameters * 4 / 300e9 / 0.25)
    without = {**RUN, "traits": RUN["traits"] | {"rollout_engine": "hf"}}
    (bare,) = found(without).against
    assert (bare.least_sync_s, bare.sync_roofline) == (None, None)


def test_roofline_side_follows_the_ridge() -> None:
    (sheet,) = found(RUN).against
    ridge = 30.3e12 / 300e9
    sides = {name: ("compute" if stage.intensity >= ridge else "memory") for name, stage in found(RUN).stages.items()}
    assert {name: stage.limit for name, stage in sheet.stages.items()} == sides
    assert sides["generation"] == "memory"


def test_an_unknown_device_is_unknown_until_it_is_measured() -> None:
    unknown = RUN | {"devices": [{"name": "Some GPU"}]}
    assert found(unknown).against == []
    measured = {"device": "Some GPU", "flops_per_s": {"float32": 1e12}, "bytes_per_s": 1e11, "torch": "2.0"}
    (own,) = found(unknown | {"ceilings": [measured, {"device": "another"}]}).against
    assert (own.basis, own.step_mfu) == ("measured", pytest.approx((GENERATION + 5 * FORWARD) / 5e12))
    both = ceilings_of([{"name": "NVIDIA L4"}], [measured | {"device": "NVIDIA L4"}], "float32")
    assert [one.basis for one in both] == ["datasheet", "measured"]


def test_devices_that_are_alike_have_one_measured_ceiling() -> None:
    """`doctor --ceilings` measures each of a machine's eight GPUs; a ceiling is what one can do at most."""
    rates = ((1e12, 3e11), (1.5e12, 2e11), (1.2e12, None))
    measured = [{"device": "Some GPU", "flops_per_s": {"float32": flops}, "bytes_per_s": copied, "torch": "2.0"} for flops, copied in rates]
    (one,) = ceilings_of([{"name": "Some GPU"}] * 3, measured, "float32")
    assert (one.flops_per_s, one.bytes_per_s, one.source) == (1.5e12, 3e11, "rlmbench doctor --ceilings, torch 2.0")
    (unknown,) = ceilings_of([{"name": "Some GPU"}], measured, "bfloat16")
    assert (unknown.flops_per_s, unknown.bytes_per_s) == (None, 3e11)


def test_a_cpu_machine_is_one_device_however_many_ranks() -> None:
    two_ranks = experiment("gsm8k_grpo", "parallelism.data=2", "optimization.micro_batch_samples=4")
    figures = efficiency(two_ranks, {**RUN, "devices": []}, LENGTHS, SECONDS, 5.0)
    assert isinstance(figures, Efficiency)
    assert (figures.devices, figures.against) == (1, [])


def test_what_has_no_efficiency_says_why() -> None:
    assert "simulated" in str(efficiency(experiment(), RUN | {"simulated": "x"}, LENGTHS, SECONDS, 5.0))
    assert "no sample" in str(efficiency(experiment(), RUN, None, SECONDS, 5.0))
    hub = experiment("gsm8k_grpo", "model.shape=null", "model.hub=a/b")
    assert "published shapes" in str(efficiency(hub, RUN, LENGTHS, SECONDS, 5.0))


def test_ppo_without_a_critic_update_of_its_own_trains_both_in_one() -> None:
    ppo = experiment("gsm8k_ppo")
    figures = efficiency(ppo, RUN, LENGTHS, {"actor_update": 1.0}, 5.0)
    assert isinstance(figures, Efficiency)
    assert figures.stages["actor_update"].model_flops == 3 * (FORWARD + FORWARD - 2 * HEAD * 38 + 2 * 128 * 38)
