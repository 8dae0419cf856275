"""What the simulator is fed with: the distributions that one run measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rlmbench.costmodel.stages import devices_held
from rlmbench.errors import UserError
from rlmbench.metrics.idle import sample_intervals
from rlmbench.metrics.work import unique_samples
from rlmbench.records.clocks import clock_offsets_ns
from rlmbench.whatif.asynchronous import WAITED, Floats, taken_apart

if TYPE_CHECKING:
    from rlmbench.metrics import RunSummary
    from rlmbench.records import Run
    from rlmbench.whatif.assumptions import Assumptions

ON_DEVICES = ("reference_logprob", "old_logprob", "values")
"""Parts of assessment that are a model's work; reward and advantage are the host's and take as long on any number of devices."""
ON_HOST = ("reward", "advantage")
UPDATES: tuple[str, ...] = ("actor_update", "critic_update")
UNKNOWN_LATENCY_SHARE = 0.5
"""Taken where nothing tells: half of the generation follows the longest response, half the tokens per replica."""


@dataclass(frozen=True)
class Decode:
    """What generation costs one replica: `latency_s` x its longest response + `token_s` x its tokens + `sample_s` x its samples.

    Exact for a replica that decodes all of its responses at once, in steps that each cost a fixed part and a part for each response
    still unfinished. With `is_static` the longest response times the samples stand for the tokens: a batch computes until its longest
    has ended. `source` says how these came about.
    """

    latency_s: float
    token_s: float
    sample_s: float
    is_static: bool
    source: str

    def seconds(self, lengths: npt.NDArray[np.int64], replicas: int, *, refilled: bool = False) -> float:
        """One batch over `replicas` that share its tokens evenly. `refilled`: it waits for its mean response, not for its longest."""
        work = _work(lengths, self.is_static) / replicas
        return self.latency_s * _awaited(lengths, refilled) + self.token_s * work + self.sample_s * len(lengths) / replicas


@dataclass(frozen=True)
class Inputs:
    """A run's measured steps, in seconds per step on the devices it had. Arrays have one entry per measured step.

    `lengths`: response lengths of each measured step. `prompt_tokens`: prompt tokens of a step, mean. `rollout_devices` and
    `training_devices` are the same ones where `mode` is colocated. `tensor`: devices of one rollout replica. `other_s`: what is no
    stage below (data, bookkeeping, waiting, unattributed), kept on the critical path. `peak_bytes`: stage -> highest memory of a process.
    `updates_beside`: actor and critic were updated at the same time, each by processes of its own.

    Of a run whose rollouts ran ahead (`ahead`), `staleness` versions at most: `generation_s` and `load_s`, in which they take up new
    weights, are the rollouts' own; everything else is the trainers', without what they awaited of the rollouts; `idle_s` is the part of
    `other_s` in which the driver waited and nothing ran. `refilled`, `sync_pauses`: as `rlmbench.whatif.asynchronous` found.
    """

    mode: str
    devices: int
    rollout_devices: int
    training_devices: int
    step_s: Floats
    lengths: tuple[npt.NDArray[np.int64], ...]
    generation_s: Floats
    assessment_s: Mapping[str, Floats]
    training_s: Mapping[str, Floats]
    sync_s: Floats
    switch_s: Floats
    other_s: Floats
    prompt_tokens: float = 0.0
    tensor: int = 1
    micro_batches: float = 1.0
    sample_ends: tuple[Floats, ...] | None = None
    is_static: bool = False
    updates_beside: bool = False
    peak_bytes: Mapping[str, int] = field(default_factory=dict)
    ahead: bool = False
    staleness: int = 0
    load_s: float = 0.0
    idle_s: Floats | None = None
    refilled: bool = False
    sync_pauses: bool | None = None

    @property
    def samples(self) -> int:
        """Samples per step."""
        return len(self.lengths[0])

    @property
    def tokens(self) -> Floats:
        """Prompt and response tokens of each measured step."""
        return np.array([lengths.sum() for lengths in self.lengths], dtype=np.float64) + self.prompt_tokens

    @property
    def replicas(self) -> int:
        """Rollout replicas of the measured run."""
        return max(self.rollout_devices // self.tensor, 1)


def inputs_from_run(run: Run, summary: RunSummary) -> Inputs:
    """The measured steps of `run`.

    Raises:
        UserError: nothing was measured, a table is missing, replicas do not fit, or the record of an asynchronous run does not tell generation
            from training.
    """
    placement = run.experiment.placement
    steps = [step for step in summary.steps if step.excluded is None]
    ran_ahead = placement.mode == "async"
    if not steps:
        raise UserError(f"{run.id}: it ended before it had measured a step; give a run that did")
    if summary.lengths is None or not (ran_ahead or summary.stages_s.get("generation")):
        raise UserError(f"{run.id}: no measured step with a generation stage; nothing to predict from")
    for table in ("processes", "spans", "steps", "samples"):
        if getattr(run.tables, table).empty:
            raise UserError(
                f"{run.id}: {table}.parquet is missing or has no rows, though steps were measured; take another copy of this run"
            )
    if "actor_update" not in summary.stages_s:
        raise UserError(f"{run.id}: no measured step with an update of the policy; nothing to predict from")

    held = devices_held(run.experiment, run.manifest.traits)
    training_devices = held - placement.rollout_devices
    rollout_devices, tensor = placement.rollout_devices or training_devices, run.experiment.parallelism.rollout_tensor
    if rollout_devices % tensor:
        raise UserError(
            f"{run.id}: its {rollout_devices} rollout devices are no whole number of replicas of {tensor}; it cannot be simulated"
        )
    numbers = [step.step for step in steps]
    driver = summary_driver(run)
    apart = taken_apart(run, driver, numbers) if ran_ahead else None
    none = np.zeros(len(steps))

    def seconds(*stages: str) -> Floats:
        if apart:
            return apart.seconds(*stages)
        return np.array([sum(step.stages_s.get(stage, 0.0) for stage in stages) for step in steps])

    step_s = np.array([step.step_s for step in steps])
    assessment = {
        role: found for role in (*ON_DEVICES, *ON_HOST) if role in summary.stages_s and ((found := seconds(role)).any() or not apart)
    }
    training = {role: seconds(role) for role in UPDATES if role in summary.stages_s}
    sync, switch = seconds("weight_sync"), seconds("offload", "onload")
    generation = apart.generation_s if apart else seconds("generation")
    if placement.mode != "colocated":  # nobody makes way for another there: what is moved all the same stays with the rest
        switch = none
    awaited = seconds(WAITED) if apart else generation
    named = awaited + sync + switch + sum(assessment.values(), none) + sum(training.values(), none)
    # Stages that ran at once are counted twice by their sum: the updates of actor and critic, or reward beside generation.
    overlap = np.array([step.overlap_ns / 1e9 for step in apart.breakdown] if apart else [step.overlap_s for step in steps])
    shorter = np.minimum.reduce(list(training.values())) if len(training) > 1 else none
    beside = bool(shorter.any() and (overlap > shorter / 2).all())
    if beside:
        named = named - overlap
    elif "reward" in assessment and not apart:  # scored beside generation: only the rest of it is on the critical path
        hidden = np.minimum(assessment["reward"], overlap)
        assessment["reward"] = assessment["reward"] - hidden
        named = named - hidden
    lengths = response_lengths(run, numbers)
    ends = apart.sample_ends if apart else _ends_in_turn(run, driver, numbers)
    recorded = ends is not None and all(len(mine) == len(theirs) for mine, theirs in zip(ends, lengths, strict=True))
    engine = any(spans == "engine" for spans in run.processes["role"]) or recorded or ran_ahead
    micro = [step.micro_batches for step in steps if step.micro_batches]
    return Inputs(
        mode=("one_step_off" if apart.meets and placement.max_staleness == 1 else "bounded_asynchrony") if apart else placement.mode,
        devices=held,
        rollout_devices=rollout_devices,
        training_devices=training_devices,
        step_s=step_s,
        lengths=lengths,
        generation_s=generation,
        assessment_s=assessment,
        training_s=training,
        sync_s=sync,
        switch_s=switch,
        other_s=np.maximum(step_s - named, 0.0),
        prompt_tokens=float(np.mean([step.prompt_tokens or 0 for step in steps])),
        tensor=tensor,
        micro_batches=max(float(np.mean(micro)) / (run.experiment.devices - placement.rollout_devices), 1.0) if micro else 1.0,
        sample_ends=ends if recorded else None,
        is_static=not engine,
        updates_beside=beside,
        peak_bytes=_peaks(summary),
        ahead=ran_ahead,
        staleness=placement.max_staleness if ran_ahead else 0,
        load_s=apart.load_s if apart else 0.0,
        idle_s=seconds("wait"),
        refilled=apart.refilled if apart else False,
        sync_pauses=apart.pauses if apart else None,
    )


def _ends_in_turn(run: Run, driver: str, numbers: Sequence[int]) -> tuple[Floats, ...] | None:
    """Each step's samples by when they ended, from the begin of its first; None where some step recorded none."""
    intervals = sample_intervals(run.spans, clock_offsets_ns(run.processes, driver), numbers).values()
    if not all(intervals):
        return None
    return tuple(np.sort([end - min(start for start, _ in of_step) for _, end in of_step]) / 1e9 for of_step in intervals)


def response_lengths(run: Run, numbers: Sequence[int]) -> tuple[npt.NDArray[np.int64], ...]:
    """Response lengths of each of these steps, as many as the step with the fewest samples has.

    Raises:
        UserError: a step without recorded samples, or without a token.
    """
    by_step = dict(list(unique_samples(run.samples, run.experiment.optimization.epochs).groupby("step")))
    if lacking := [number for number in numbers if number not in by_step]:
        raise UserError(f"{run.id}: samples.parquet holds no sample of step {lacking[0]}, which was measured; nothing to predict from")
    lengths = [by_step[number]["response_tokens"].to_numpy(dtype=np.int64) for number in numbers]
    if empty := [number for number, of_step in zip(numbers, lengths, strict=True) if of_step.sum() <= 0]:
        raise UserError(f"{run.id}: all responses of step {empty[0]} are empty in samples.parquet; nothing to predict from")
    fewest = min(map(len, lengths))
    return tuple(of_step[:fewest] for of_step in lengths)


def without_waiting(inputs: Inputs) -> Floats:
    """`other_s` of each measured step without what the driver waited while nothing ran."""
    return inputs.other_s if inputs.idle_s is None else np.maximum(inputs.other_s - inputs.idle_s, 0.0)


def affordable_steps(samples: int, at_most: int = 100) -> int:
    """Steps to simulate where nobody waits for the answer: about a million samples in all, ten steps at least."""
    return min(at_most, max(1_000_000 // max(samples, 1), 10))


def summary_driver(run: Run) -> str:
    """The process whose clock the steps are on."""
    from rlmbench.metrics.summary import driver_of

    return driver_of(run.processes, run.steps, run.spans) or ""


def _peaks(summary: RunSummary) -> dict[str, int]:
    """Stage -> peak of a process: the device's reserved memory where recorded, else the host's."""
    peaks = summary.memory.peak_bytes
    kind = "torch_reserved_peak_bytes"
    if not any(kind in of_stage for of_stage in peaks.values()):
        kind = "rss_peak_bytes"
    return {stage: of_stage[kind] for stage, of_stage in peaks.items() if kind in of_stage}


def fixed_inputs(
    generation_s: float,
    assessment_s: Mapping[str, float],
    training_s: Mapping[str, float],
    *,
    devices: int,
    sync_s: float = 0.0,
    switch_s: float = 0.0,
    other_s: float = 0.0,
    samples: int = 64,
    length: int = 100,
) -> Inputs:
    """Inputs of one colocated step that never varies, all responses as long: what a publication prints, and what closed forms assume."""

    def one(value: float) -> Floats:
        return np.array([value], dtype=np.float64)

    total = generation_s + sum(assessment_s.values()) + sum(training_s.values()) + sync_s + switch_s + other_s
    return Inputs(
        mode="colocated",
        devices=devices,
        rollout_devices=devices,
        training_devices=devices,
        step_s=one(total),
        lengths=(np.full(samples, length, dtype=np.int64),),
        generation_s=one(generation_s),
        assessment_s={role: one(value) for role, value in assessment_s.items()},
        training_s={role: one(value) for role, value in training_s.items()},
        sync_s=one(sync_s),
        switch_s=one(switch_s),
        other_s=one(other_s),
    )


def decode_cost(inputs: Inputs, assumptions: Assumptions) -> Decode:
    """What generation costs a replica: fitted to each sample's end where the run recorded them, else divided by `latency_share`."""
    static = assumptions.rollout_engine == "static" if assumptions.rollout_engine else inputs.is_static
    if assumptions.latency_share is None and inputs.sample_ends is not None and not static:
        fitted = _fit(inputs)
        if fitted is not None:
            return fitted
    share = UNKNOWN_LATENCY_SHARE if assumptions.latency_share is None else assumptions.latency_share
    longest = float(np.mean([_awaited(lengths, inputs.refilled) for lengths in inputs.lengths]))
    work = float(np.mean([_work(lengths, static) for lengths in inputs.lengths])) / inputs.replicas
    seconds = float(inputs.generation_s.mean())
    said = "set" if assumptions.latency_share is not None else "assumed, since the run did not record each sample's end"
    return Decode(share * seconds / longest, (1 - share) * seconds / work, 0.0, static, f"latency_share {share:g}, {said}")


def _awaited(lengths: npt.NDArray[np.int64], refilled: bool) -> float:
    """The response that a replica waits for: its longest, or the mean where it takes a new prompt when one ends."""
    return float(lengths.mean() if refilled else lengths.max())


def _work(lengths: npt.NDArray[np.int64], static: bool) -> int:
    return int(len(lengths) * lengths.max()) if static else int(lengths.sum())


def _fit(inputs: Inputs) -> Decode | None:
    """Least squares over all samples: the i-th to end is the i-th shortest, and ends when it and all that ran beside it were decoded.

    end(l) = latency_s l + token_s sum(min(l_j, l)) / replicas + sample_s samples / replicas, none of them negative.
    """
    rows, ends = [], []
    assert inputs.sample_ends is not None
    for lengths, of_step in zip(inputs.lengths, inputs.sample_ends, strict=True):
        ordered = np.sort(lengths).astype(np.float64)
        before = np.concatenate(([0.0], np.cumsum(ordered)[:-1]))
        beside = before + ordered * np.arange(len(ordered), 0, -1)
        count = np.full(len(ordered), len(ordered) / inputs.replicas)
        rows.append(np.column_stack((ordered, beside / inputs.replicas, count)))
        ends.append(of_step)
    table, seconds = np.concatenate(rows), np.concatenate(ends)
    cost = _least_squares(table, seconds)
    if cost is None:
        return None
    explained = 1 - float(((seconds - table @ cost) ** 2).sum() / ((seconds - seconds.mean()) ** 2).sum()) if seconds.std() else 1.0
    latency_s, token_s, sample_s = (float(value) for value in cost)
    return Decode(latency_s, token_s, sample_s, False, f"fitted to the ends of {len(seconds):,} samples (R^2 {explained:.2f})")


def _least_squares(table: Floats, seconds: Floats) -> Floats | None:
    """The coefficients, none negative, with the smallest squared error: the best of all subsets of columns."""
    columns = range(table.shape[1])
    best: tuple[float, Floats] | None = None
    for chosen in map(list, chain.from_iterable(combinations(columns, size) for size in range(1, len(columns) + 1))):
        found = np.linalg.lstsq(table[:, chosen], seconds, rcond=None)[0]
        if (found < 0).any():
            continue
        cost = np.zeros(table.shape[1])
        cost[chosen] = found
        error = float(((seconds - table @ cost) ** 2).sum())
        if best is None or error < best[0] * (1 - 1e-9):
            best = error, cost
    return best[1] if best else None
