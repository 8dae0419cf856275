"""The work of each stage of a step, and the least time it can take on given devices.

Stages are those of the records (`rlmbench.records.vocabulary`). Work is that of the valid tokens: what a framework computes beyond it
(padding, a prompt once per sample of its group) is its own affair, and shows as a lower MFU. Units: FLOPs, bytes, seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rlmbench.costmodel import work
from rlmbench.costmodel.devices import Ceiling
from rlmbench.costmodel.modes import StageTimes, colocated, disaggregated, trainer_assessed_asynchrony
from rlmbench.costmodel.work import Sequences
from rlmbench.experiment import Algorithm, Experiment
from rlmbench.workload.shapes import BYTES_PER_VALUE, Shape

STATE_READ_AND_WRITTEN = 28
"""Bytes per parameter that Adam in float32 touches: weight, gradient and two moments read (16), all but the gradient written (12)."""
FORWARDS = ("reference_logprob", "old_logprob", "values")
JOINT = "joint"
"""How an adapter's trait `critic_update` begins where one update serves policy and critic."""


@dataclass(frozen=True)
class StageWork:
    """Of one step, over all devices that run the stage.

    `model_flops` is what the algorithm needs, `hardware_flops` that and what gradient checkpointing computes again. `least_bytes` is the
    least memory traffic: weights once per pass or decode step, the KV cache, the optimizer's state; activations are left out.
    `spared_flops` is the part of them that an engine spares which computes a group's prompt once, as vLLM's prefix cache does.
    `latency_bytes` is what the decode steps of the replica with the longest sample read one after the other (weights, once per step).
    """

    model_flops: float
    hardware_flops: float
    least_bytes: float
    latency_bytes: float = 0.0
    spared_flops: float = 0.0

    @property
    def executed_flops(self) -> float:
        """What the devices compute at least: hardware FLOPs without what an engine spares."""
        return self.hardware_flops - self.spared_flops

    @property
    def intensity(self) -> float:
        """Hardware FLOPs per byte of least traffic: right of a device's ridge, products are the limit, left of it memory is."""
        return self.hardware_flops / self.least_bytes if self.least_bytes else 0.0


@dataclass(frozen=True)
class Setup:
    """What decides a step's stages besides its samples. `replicas` are the rollout engine's, each over `rollout_tensor` devices.

    `apart`: the rollout engine has devices of its own; asynchronous rollouts need not (verl's colocate_async). `critic_devices`: the critic's
    own, as many again as the actor's, where the framework gives it some (adapters' trait of that name); 0 where it shares the actor's.
    `baselines` is what is generated besides, per sample: ReMax's greedy response of each prompt, 1 / group_size.
    `mixed`: micro-batches are packed and hold samples of any length; else they are padded to the longest, or sorted by length. `group`: samples
    that share a prompt. `reference_dtype` is that of the reference's weights, `dtype` where it is empty: TRL loads them as it loads the policy's.
    """

    dtype: str
    epochs: int
    updates: int
    micro_batches: int
    checkpointing: bool
    critic: bool
    joint_critic: bool
    reference: bool
    recomputed: bool
    syncs: bool
    replicas: int
    rollout_tensor: int
    training_devices: int
    mode: Literal["colocated", "disaggregated", "async"]
    baselines: float = 0.0
    apart: bool = False
    critic_devices: int = 0
    mixed: bool = False
    group: int = 1
    reference_dtype: str = ""

    @property
    def rollout_devices(self) -> int:
        return self.replicas * self.rollout_tensor

    @property
    def devices(self) -> int:
        """All that the run holds."""
        return self.training_devices + self.critic_devices + (self.rollout_devices if self.apart else 0)


def setup_of(experiment: Experiment, traits: Mapping[str, str], weights_dtype: str | None = None) -> Setup:
    """From an experiment, and from what the framework does by itself (``Translation.traits``; `weights_dtype` is one of its facts).

    A framework that holds bfloat16 weights computes in bfloat16, whatever was asked for.
    """
    opt, split, place = experiment.optimization, experiment.parallelism, experiment.placement
    training_devices = split.data * split.tensor * split.pipeline * split.context
    rollout_devices = place.rollout_devices or training_devices
    per_pass = -(-experiment.samples_per_step // opt.micro_batch_samples)
    return Setup(
        dtype="bfloat16" if weights_dtype == "bfloat16" else experiment.model.dtype,
        epochs=opt.epochs,
        updates=experiment.updates_per_step,
        micro_batches=per_pass,
        checkpointing=experiment.model.gradient_checkpointing,
        critic=opt.algorithm is Algorithm.PPO,
        joint_critic=traits.get("critic_update", "").startswith(JOINT),
        reference=opt.kl.coefficient > 0 or traits.get("reference_logprob") == "a forward",
        recomputed=traits.get("old_logprob", "a forward").startswith("a forward"),
        syncs=traits.get("rollout_engine", "vllm") != "hf",
        replicas=max(rollout_devices // split.rollout_tensor, 1),
        rollout_tensor=split.rollout_tensor,
        training_devices=training_devices,
        mode=place.mode,
        apart=place.rollout_devices > 0,
        critic_devices=training_devices if "critic_devices" in traits and place.mode == "disaggregated" else 0,
        baselines=1 / opt.group_size if opt.algorithm is Algorithm.REMAX else 0.0,
        group=opt.group_size,
        reference_dtype=(weights_dtype or "") if traits.get("training_engine") == "accelerate" else "",
        mixed=traits.get("padding", "").startswith("none") and "sorted" not in traits.get("sample_order", ""),
    )


def devices_held(experiment: Experiment, traits: Mapping[str, str]) -> int:
    """Devices that a run holds: those that the experiment names, and those that the framework gives its critic besides."""
    return setup_of(experiment, traits).critic_devices + experiment.devices


def stage_work(shape: Shape, lengths: Sequences, setup: Setup) -> dict[str, StageWork]:
    """Stage -> its work in one step of `lengths`. Only stages that compute or move something are in it."""
    weights = work.active_parameters(shape) * BYTES_PER_VALUE[setup.dtype]
    found = {"generation": _generation(shape, lengths, setup)}
    forward = work.forward(shape, lengths.tokens, lengths.squares).total
    once = StageWork(forward, forward, weights * setup.micro_batches)
    if setup.reference:
        found["reference_logprob"] = once
    if setup.recomputed:
        found["old_logprob"] = once
    actor = _training(shape, lengths, setup, "vocabulary")
    if setup.critic:
        values = work.forward(shape, lengths.tokens, lengths.squares, "value").total
        body = work.active_parameters(shape, "value") * BYTES_PER_VALUE[setup.dtype]
        found["values"] = StageWork(values, values, body * setup.micro_batches)
        critic = _training(shape, lengths, setup, "value")
        if setup.joint_critic:
            actor = _sum(actor, critic)
        else:
            found["critic_update"] = critic
    found["actor_update"] = actor
    if setup.syncs:
        found["weight_sync"] = StageWork(0.0, 0.0, float(work.sync_bytes(shape, setup.dtype, setup.replicas)))
    return found


def _generation(shape: Shape, lengths: Sequences, setup: Setup) -> StageWork:
    generated = 1 + setup.baselines
    flops = work.generation(shape, lengths).total * generated
    prefill = work.prefill(shape, lengths.samples, lengths.prompt_tokens, lengths.prompt_squares).total
    size = BYTES_PER_VALUE[setup.dtype]
    all_replicas, one_after_the_other = work.weights_read_in_generation(shape, lengths, setup.replicas)
    cache = generated * lengths.decoded_contexts * work.kv_bytes_per_token(shape, setup.dtype)
    spared = prefill * (generated - 1 / setup.group)
    return StageWork(flops, flops, all_replicas * size + cache, one_after_the_other * size, spared)


def _training(shape: Shape, lengths: Sequences, setup: Setup, head: work.Head) -> StageWork:
    model = work.training(shape, lengths.tokens, lengths.squares, head).total * setup.epochs
    again = work.recomputed(shape, lengths.tokens, lengths.squares).total * setup.epochs if setup.checkpointing else 0.0
    passes = 3 + setup.checkpointing  # forward, and two products of the backward that read weights or write their gradient
    weights = passes * work.active_parameters(shape, head) * BYTES_PER_VALUE[setup.dtype] * setup.micro_batches * setup.epochs
    return StageWork(model, model + again, weights + STATE_READ_AND_WRITTEN * work.parameters(shape, head) * setup.updates)


def _sum(first: StageWork, second: StageWork) -> StageWork:
    return StageWork(
        first.model_flops + second.model_flops, first.hardware_flops + second.hardware_flops, first.least_bytes + second.least_bytes
    )


def devices_of(stage: str, setup: Setup) -> int:
    """How many devices run the stage."""
    return setup.rollout_devices if stage in ("generation", "weight_sync") else setup.training_devices


Limit = Literal["products", "traffic", "decode steps"]
"""What a stage's least time follows from."""


def least_times(stage: str, done: StageWork, setup: Setup, ceiling: Ceiling, devices: int | None = None) -> dict[Limit, float] | None:
    """Seconds that each limit allows at least; the longest counts. None when a rate that it needs is not known."""
    count = devices or devices_of(stage, setup)
    if ceiling.bytes_per_s is None or (ceiling.flops_per_s is None and done.hardware_flops):
        return None
    return {
        "products": done.executed_flops / (count * ceiling.flops_per_s) if ceiling.flops_per_s else 0.0,
        "traffic": done.least_bytes / (count * ceiling.bytes_per_s),
        "decode steps": latency_bytes_of_one(done, setup, count) / ceiling.bytes_per_s,
    }


def latency_bytes_of_one(done: StageWork, setup: Setup, count: int) -> float:
    """What one device of a replica reads in decode steps that come one after the other."""
    return done.latency_bytes / min(setup.rollout_tensor, count)


def least_seconds(stage: str, done: StageWork, setup: Setup, ceiling: Ceiling, devices: int | None = None) -> float | None:
    """The stage cannot be shorter: products at the peak, or the least bytes at full bandwidth, spread evenly over its devices.

    None when a rate that it needs is not known. What it leaves out (communication, launches, padding, skew, sampling) only adds.
    """
    found = least_times(stage, done, setup, ceiling, devices)
    return None if found is None else max(found.values())


def least_step(stages: Mapping[str, StageWork], setup: Setup, ceiling: Ceiling, devices: int | None = None) -> float | None:
    """The least seconds of a step: the stages' least seconds by the closed form of the placement (`rlmbench.costmodel.modes`)."""
    each = {stage: least_seconds(stage, done, setup, ceiling, devices) for stage, done in stages.items()}
    known = {stage: seconds for stage, seconds in each.items() if seconds is not None}
    if len(known) < len(each):
        return None
    times = StageTimes(
        generation=known.get("generation", 0.0),
        assessment={stage: known[stage] for stage in FORWARDS if stage in known},
        training={stage: known[stage] for stage in ("actor_update", "critic_update") if stage in known},
        sync=known.get("weight_sync", 0.0),
    )
    return {"colocated": colocated, "disaggregated": disaggregated, "async": trainer_assessed_asynchrony}[setup.mode](times)
