"""The execution modes, simulated step by step from a run's measurements.

A run of an RL loop is a graph of events with few kinds of precedence: a batch is generated, assessed, trained, its weights are
published; a generation waits for the version it is allowed to lag behind, a trainer for its batch. Nothing competes for a resource in
an order that the simulation would have to find out, so the event times obey a recurrence in max and plus over steps, which is the
discrete-event simulation itself, without an event queue. What happens inside a step (thousands of replicas that end at different
moments) is numpy over devices. That is exact, and three orders of magnitude faster than a coroutine per device.

Definitions: `generation` ends when the last replica does. A step is the time between two published policy versions. Waiting: the
share of a step in which a role's devices neither generate, assess nor train.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rlmbench.errors import UserError
from rlmbench.whatif.assumptions import Assumptions
from rlmbench.whatif.asynchronous import Floats
from rlmbench.whatif.inputs import ON_DEVICES, ON_HOST, Decode, Inputs, decode_cost, without_waiting

Lengths = npt.NDArray[np.int32]
MODELLED = "cost model"


@dataclass(frozen=True)
class Layout:
    """Who runs where: `rollout` devices generate, `training` devices train; the same ones where a mode is not split.

    `staleness`: policy versions that a batch's generation may lag behind its training. `tensor`: devices of one rollout replica.
    """

    devices: int
    rollout: int
    training: int
    staleness: int = 1
    tensor: int = 1

    @property
    def replicas(self) -> int:
        return max(self.rollout // self.tensor, 1)


@dataclass(frozen=True)
class Prediction:
    """One mode on one layout. Seconds are per step, over the simulated steps after the pipeline has filled.

    `ratio`: to the measured step, on the devices that it had; `own_ratio`: to the run's own mode on the same devices as this prediction, which
    leaves nothing but the mode (None where that mode does not fit them).
    `waiting`: role -> share of the time in which its devices do no work; `bubble_s`: the same in seconds per step.
    `memory_bytes`: role -> highest peak that the run measured in the stages the role runs, not rescaled; empty where none was recorded.
    With `memory_source` "cost model" what a device of the role holds at least in this layout (`rlmbench.whatif.memory`).
    """

    mode: str
    layout: Layout
    steps: int
    step_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    ratio: float
    tokens_per_s: float
    tokens_per_s_per_device: float
    waiting: Mapping[str, float]
    bubble_s: Mapping[str, float]
    staleness_mean: float
    staleness_max: int
    memory_bytes: Mapping[str, int]
    memory_source: str = "measured"
    own_ratio: float | None = None


@dataclass(frozen=True)
class Drawn:
    """Steps to simulate, drawn once and used for every mode and split, so that these differ by nothing else."""

    inputs: Inputs
    assumptions: Assumptions
    decode: Decode
    lengths: Lengths
    picked: npt.NDArray[np.int64]

    @cached_property
    def tokens(self) -> Floats:
        return self.lengths.sum(axis=1, dtype=np.float64) + self.inputs.prompt_tokens

    @cached_property
    def work(self) -> Floats:
        """Tokens of each drawn step over those of a measured one, to the power that token seconds grow with."""
        return (self.tokens / float(self.inputs.tokens.mean())) ** self.assumptions.token_exponent

    def measured(self, seconds: Floats) -> Floats:
        """A figure as in the measured step that was drawn, or its mean."""
        return seconds[self.picked] if self.assumptions.variation else np.full(len(self.picked), float(seconds.mean()))

    def by_tokens(self, seconds: Floats, devices: int) -> Floats:
        """Seconds of work in proportion to tokens, measured on the training devices, on `devices` of them."""
        explained = (self.inputs.tokens / float(self.inputs.tokens.mean())) ** self.assumptions.token_exponent
        times = devices / self.inputs.training_devices
        scale = 1 / (times * self.assumptions.training_efficiency ** float(np.log2(times)))
        return self.measured(seconds / explained) * self.work * scale

    def generation(self, layout: Layout, *, refill: bool = False) -> tuple[Floats, Floats]:
        """(when the last replica ends, mean busy seconds of a replica) for each drawn step.

        With `refill` no replica waits for the longest response of a batch: a batch takes what its tokens take at a steady number of
        responses in flight, which is the longest response replaced by the mean one.
        """
        faster = 1.0 if layout.tensor == self.inputs.tensor else layout.tensor / self.inputs.tensor * self.assumptions.tensor_efficiency
        scale = self._generation_factors / faster
        if refill:
            each = self._steady(layout.replicas, layout.staleness) * scale
            return each, each * self.filled(layout.replicas, layout.staleness) / layout.replicas
        busy = self._dealt(layout.replicas) * scale[:, None]
        return busy.max(axis=1), busy.sum(axis=1) / layout.replicas

    def filled(self, replicas: int, staleness: int) -> int:
        """Replicas that get a response when each takes a new one: no more than the batches hold that may be begun at once."""
        return min(replicas, self.lengths.shape[1] * (staleness + 1))

    def _steady(self, replicas: int, staleness: int) -> Floats:
        """What each drawn step takes of a replica that takes a new prompt when a response ends, by the decode cost."""
        cost, samples, filled = self.decode, self.lengths.shape[1], self.filled(replicas, staleness)
        in_flight = max(samples / filled, 1.0)
        total = self.lengths.sum(axis=1, dtype=np.float64)
        return total / (filled * in_flight) * (cost.latency_s + cost.token_s * in_flight) + cost.sample_s * samples / filled

    def _dealt(self, replicas: int) -> Floats:
        """What each drawn step, by rows, takes of each replica that gets a sample, by the decode cost."""
        cost, samples = self.decode, self.lengths.shape[1]
        used = min(replicas, samples)  # the others get no sample
        columns = -(-samples // used)
        padded = np.zeros((self.lengths.shape[0], columns * used), dtype=np.int32)
        padded[:, :samples] = self.lengths
        of_replica = padded.reshape(self.lengths.shape[0], columns, used)
        longest = of_replica.max(axis=1)
        count = np.full(used, columns) - (np.arange(used) >= samples - (columns - 1) * used)
        work = longest * count if cost.is_static else of_replica.sum(axis=1)
        seconds: Floats = cost.latency_s * longest + cost.token_s * work + cost.sample_s * count
        return seconds

    @cached_property
    def _generation_factors(self) -> Floats:
        """For each drawn step the measured generation over what the decode cost makes of it on the measured replicas, in the mean over its
        dealings: so the measured layout takes what it took, whatever the cost does not explain.
        """
        inputs = self.inputs
        own = self._steady(inputs.replicas, inputs.staleness) if inputs.refilled else self._dealt(inputs.replicas).max(axis=1)
        drawn = np.bincount(self.picked, minlength=len(inputs.generation_s))
        explained = np.bincount(self.picked, own, minlength=len(inputs.generation_s))
        factors = inputs.generation_s * drawn / np.where(drawn, explained, 1.0)
        return factors[self.picked] if self.assumptions.variation else np.full(len(self.picked), float(factors[drawn > 0].mean()))

    def assessment(self, devices: int, roles: tuple[str, ...] = (*ON_DEVICES, *ON_HOST)) -> Floats:
        """Seconds of the `roles` on `devices`, in turn; with roles apart the longest of those on devices, as they were measured."""
        apart, seconds = self.assumptions.roles_apart, self.inputs.assessment_s
        parts = [
            self.by_tokens(seconds[role], self.inputs.training_devices if apart else devices)
            for role in roles
            if role in seconds and role in ON_DEVICES
        ]
        host = sum((self.measured(seconds[role]) for role in roles if role in seconds and role in ON_HOST), np.zeros(len(self.picked)))
        none = np.zeros(len(self.picked))
        return host + (np.maximum.reduce([none, *parts]) if apart else sum(parts, none))

    def training(self, devices: int, *, fused: bool = False) -> Floats:
        """Seconds of the updates on `devices`. Fused ones fill each other's pipeline bubbles, and are never shorter than the longest."""
        parts = [self.by_tokens(seconds, devices) for seconds in self.inputs.training_s.values()]
        in_turn = sum(parts, np.zeros(len(self.picked)))
        if self.assumptions.roles_apart or self.inputs.updates_beside:
            return np.maximum.reduce(parts)
        if fused and len(parts) > 1:
            return np.maximum(np.maximum.reduce(parts), (1 - self.assumptions.pipeline_bubble) * in_turn)
        return in_turn

    def sync(self, layout: Layout) -> Floats:
        given = self.assumptions.sync_s
        seconds = self.measured(self.inputs.sync_s) if given is None else np.full(len(self.picked), given)
        return seconds * (layout.replicas / self.inputs.replicas) ** self.assumptions.sync_replica_exponent

    def load(self) -> float:
        """Seconds in which rollouts of their own take up new weights, beside the trainers; part of `sync_s` where that is given."""
        return self.inputs.load_s if self.assumptions.sync_s is None else 0.0

    def refills(self) -> bool:
        """Whether an asynchronous replica takes a new prompt when a response ends: as set, else as in the run, else yes."""
        given = self.assumptions.rollout_refill
        wanted = (self.inputs.refilled if self.inputs.ahead else True) if given is None else given
        return wanted and not self.decode.is_static

    def sync_pauses(self) -> bool:
        """Whether a sync lengthens the generation it falls into: as set, else as in the run, else yes."""
        given = self.assumptions.sync_pauses_rollout
        return self.inputs.sync_pauses is not False if given is None else given

    def switch(self) -> Floats:
        return self.measured(self.inputs.switch_s)

    def other(self) -> Floats:
        given = self.assumptions.waiting_s
        return self.measured(self.inputs.other_s) if given is None else self.measured(without_waiting(self.inputs)) + given

    def fuse(self, first: Floats, second: Floats) -> Floats:
        """Two stages of which the second takes up samples as the first ends them: the longer, and one part of the shorter."""
        parts = self.assumptions.stream_parts or self.inputs.micro_batches
        return np.maximum(first, second) + np.minimum(first, second) / parts


@dataclass(frozen=True)
class Simulated:
    """What a mode's recurrence gives: seconds of each step, busy seconds of each role in it, staleness of each step's batch."""

    step_s: Floats
    busy_s: Mapping[str, Floats]
    staleness: npt.NDArray[np.int64]


def draw(inputs: Inputs, assumptions: Assumptions, steps: int, seed: int = 0) -> Drawn:
    """`steps` of the measured steps, each as often as any other: its own variation, and its own responses in a new order, which is how
    they are dealt to the replicas. Lengths of one step resemble each other (a prompt's samples do), so steps are not mixed.
    """
    rng = np.random.default_rng(seed)
    picked = rng.permutation(np.arange(steps) % len(inputs.step_s))
    lengths = rng.permuted(np.stack(inputs.lengths).astype(np.int32)[picked], axis=1)
    return Drawn(inputs, assumptions, decode_cost(inputs, assumptions), lengths, picked)


def _fresh(drawn: Drawn) -> npt.NDArray[np.int64]:
    return np.zeros(len(drawn.picked), dtype=np.int64)


def _colocated(drawn: Drawn, layout: Layout) -> Simulated:
    generation, busy = drawn.generation(layout)
    work = drawn.assessment(layout.devices) + drawn.training(layout.devices)
    step = generation + work + drawn.sync(layout) + drawn.switch() + drawn.other()
    return Simulated(step, {"all": busy + work}, _fresh(drawn))


def _hybrid_layouts(drawn: Drawn, layout: Layout) -> Simulated:
    """Co-located, with `layout.tensor` devices to a replica in generation, and the weights resharded between the stages."""
    generation, busy = drawn.generation(layout)
    work = drawn.assessment(layout.devices) + drawn.training(layout.devices)
    given = drawn.assumptions.reshard_s
    change = drawn.sync(layout) + drawn.switch() if given is None else np.full(len(drawn.picked), given)
    return Simulated(generation + work + change + drawn.other(), {"all": busy + work}, _fresh(drawn))


def _partially_colocated(drawn: Drawn, layout: Layout) -> Simulated:
    """The policy generates and trains on the rollout devices; reference and critic have the others, beside it."""
    inputs = drawn.inputs
    if not {"reference_logprob", "values"} & set(inputs.assessment_s) and "critic_update" not in inputs.training_s:
        raise UserError("partially_colocated: this run has neither a reference model nor a critic to be placed apart from the policy")
    generation, busy = drawn.generation(layout)
    own = drawn.assessment(layout.rollout, ("old_logprob",))
    others = drawn.assessment(layout.training, ("reference_logprob", "values"))
    host = drawn.assessment(1, ON_HOST)
    actor = drawn.by_tokens(inputs.training_s["actor_update"], layout.rollout)
    critic = drawn.by_tokens(inputs.training_s["critic_update"], layout.training) if "critic_update" in inputs.training_s else 0 * actor
    step = generation + host + np.maximum(own, others) + np.maximum(actor, critic) + drawn.sync(layout) + drawn.switch() + drawn.other()
    return Simulated(step, {"policy": busy + own + actor, "others": others + critic}, _fresh(drawn))


def _in_turn(drawn: Drawn, layout: Layout, *, inter: bool, intra: bool) -> Simulated:
    generation, busy = drawn.generation(layout)
    assessment, training = drawn.assessment(layout.training), drawn.training(layout.training, fused=intra)
    rollout = drawn.fuse(generation, assessment) if inter else generation + assessment
    step = rollout + training + drawn.sync(layout) + drawn.load() + drawn.other()
    return Simulated(step, {"rollout": busy, "training": assessment + training}, _fresh(drawn))


def _disaggregated(drawn: Drawn, layout: Layout) -> Simulated:
    return _in_turn(drawn, layout, inter=False, intra=False)


def _inter_stage_fusion(drawn: Drawn, layout: Layout) -> Simulated:
    return _in_turn(drawn, layout, inter=True, intra=False)


def _intra_stage_fusion(drawn: Drawn, layout: Layout) -> Simulated:
    return _in_turn(drawn, layout, inter=False, intra=True)


def _stage_fusion(drawn: Drawn, layout: Layout) -> Simulated:
    return _in_turn(drawn, layout, inter=True, intra=True)


def _one_step_off(drawn: Drawn, layout: Layout) -> Simulated:
    """While batch k is assessed and trained, batch k + 1 is generated; both sides meet for the sync. What else a step holds is the trainer's
    where the run tells so, which one that ran in turn does not."""
    generation, busy = drawn.generation(layout)
    work = drawn.assessment(layout.training) + drawn.training(layout.training)
    beside, after = (drawn.other(), 0.0) if drawn.inputs.ahead else (0.0, drawn.other())
    step = np.maximum(np.roll(generation, -1) + drawn.load(), work + beside) + drawn.sync(layout) + after
    return Simulated(step, {"rollout": np.roll(busy, -1), "training": work}, _fresh(drawn) + 1)


def _bounded_asynchrony(drawn: Drawn, layout: Layout) -> Simulated:
    return _asynchronous(drawn, layout, fused=False)


def _combined(drawn: Drawn, layout: Layout) -> Simulated:
    return _asynchronous(drawn, layout, fused=True)


def _asynchronous(drawn: Drawn, layout: Layout, *, fused: bool) -> Simulated:
    """Rollouts run ahead. Batch k may begin once version k - 1 - staleness is published, and is trained to make version k."""
    assume = drawn.assumptions
    generation, busy = drawn.generation(layout, refill=drawn.refills() and layout.staleness > 0)
    assessment, training = drawn.assessment(layout.training), drawn.training(layout.training)
    other, sync = drawn.other(), drawn.sync(layout)
    beside = assume.assessment_beside_rollout or fused
    rollout = (drawn.fuse(generation, assessment) if fused else generation + assessment) if beside else generation
    train = training if beside else assessment + training
    load, pauses = drawn.load(), drawn.sync_pauses()
    published = [0.0]  # published[v]: when version v reached the rollouts; version 0 are the first weights
    staleness = []
    loaded = 0
    rollout_free = trainer_free = 0.0
    for batch, (rollout_s, train_s, sync_s, other_s) in enumerate(zip(rollout, train, sync, other, strict=True), start=1):
        begin = max(rollout_free, published[max(batch - 1 - layout.staleness, 0)])
        version = bisect_right(published, begin) - 1
        end = begin + rollout_s + (load if version > loaded else 0.0)
        loaded = version
        if pauses:
            for later in range(version + 1, batch):
                if published[later] - sync[later - 1] >= end:
                    break  # so do all later ones
                end += sync[later - 1]
        rollout_free = end
        trainer_free = max(end, trainer_free) + train_s + sync_s + other_s
        published.append(trainer_free)
        staleness.append(batch - 1 - version)
    return Simulated(
        np.diff(published),
        {"rollout": busy + (assessment if beside else 0), "training": train},
        np.array(staleness, dtype=np.int64),
    )


@dataclass(frozen=True)
class Mode:
    """An execution mode (docs/whatif.md says what each is). `is_split`: whether devices are divided between two groups."""

    name: str
    simulate: Callable[[Drawn, Layout], Simulated]
    is_split: bool


MODES: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("colocated", _colocated, False),
        Mode("hybrid_layouts", _hybrid_layouts, False),
        Mode("partially_colocated", _partially_colocated, True),
        Mode("disaggregated", _disaggregated, True),
        Mode("inter_stage_fusion", _inter_stage_fusion, True),
        Mode("intra_stage_fusion", _intra_stage_fusion, True),
        Mode("stage_fusion", _stage_fusion, True),
        Mode("one_step_off", _one_step_off, True),
        Mode("bounded_asynchrony", _bounded_asynchrony, True),
        Mode("combined", _combined, True),
    )
}

_ROLE_STAGES = {
    "rollout": ("generation",),
    "policy": ("generation", "old_logprob", "actor_update"),
    "others": ("reference_logprob", "values", "critic_update"),
}


def predict(drawn: Drawn, mode: str, layout: Layout) -> Prediction:
    """The simulated steps of `mode` on `layout`, after the first ones in which a pipeline fills.

    Raises:
        UserError: the layout does not fit the mode, or the run lacks what the mode is about.
    """
    kind = MODES[mode]
    check_layout(kind, layout)
    simulated = kind.simulate(drawn, layout)
    fill = min(layout.staleness + 2, len(simulated.step_s) // 2) if simulated.staleness.any() else 0
    step, staleness = simulated.step_s[fill:], simulated.staleness[fill:]
    mean = float(step.mean())
    p50, p90, p99 = (float(value) for value in np.percentile(step, [50, 90, 99]))
    waiting = {role: max(1 - float(busy[fill:].mean()) / mean, 0.0) for role, busy in simulated.busy_s.items()}
    rate = float(drawn.tokens[fill:].mean()) / mean
    return Prediction(
        mode=mode,
        layout=layout,
        steps=len(step),
        step_s=mean,
        p50_s=p50,
        p90_s=p90,
        p99_s=p99,
        ratio=mean / float(drawn.inputs.step_s.mean()),
        tokens_per_s=rate,
        tokens_per_s_per_device=rate / layout.devices,
        waiting=waiting,
        bubble_s={role: share * mean for role, share in waiting.items()},
        staleness_mean=float(staleness.mean()),
        staleness_max=int(staleness.max()),
        memory_bytes={role: peak for role in waiting if (peak := _peak(drawn.inputs.peak_bytes, role))},
    )


def check_layout(mode: Mode, layout: Layout) -> None:
    """Refuse what cannot be.

    Raises:
        UserError: a group without devices, or replicas that do not fit.
    """
    if mode.is_split and (layout.rollout < 1 or layout.training < 1 or layout.rollout + layout.training != layout.devices):
        raise UserError(f"{mode.name}: {layout.rollout}:{layout.training} does not divide {layout.devices} devices into two groups")
    if layout.rollout % layout.tensor:
        raise UserError(f"{mode.name}: {layout.rollout} rollout devices do not hold whole replicas of {layout.tensor}")


def _peak(peaks: Mapping[str, int], role: str) -> int | None:
    if role == "training":
        return max((peak for stage, peak in peaks.items() if stage != "generation"), default=None)
    stages = _ROLE_STAGES.get(role, tuple(peaks))
    return max((peaks[stage] for stage in stages if stage in peaks), default=None)
