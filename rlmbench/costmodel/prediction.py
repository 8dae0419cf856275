"""What a step will need before anything runs: memory per device, and the least time of each stage and of the step.

Times are lower bounds: `rlmbench.costmodel.stages` leaves out communication, launches, padding, skew and everything else that only adds.
docs/plan.md says by how much real runs were above them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rlmbench.costmodel.devices import Ceiling
from rlmbench.costmodel.memory import CACHE, ENGINE_TERMS, StageMemory, processes_bytes, stage_memory
from rlmbench.costmodel.paper import Sharding
from rlmbench.costmodel.stages import (
    Limit,
    Setup,
    StageWork,
    devices_of,
    latency_bytes_of_one,
    least_step,
    least_times,
    setup_of,
    stage_work,
)
from rlmbench.costmodel.work import Sequences
from rlmbench.experiment import Experiment
from rlmbench.experiment.models import TraceLengths
from rlmbench.workload.replay import read_trace, response_tokens
from rlmbench.workload.shapes import Shape

Verdict = Literal["fits", "tight", "does not fit", "unknown"]
TIGHT_SHARE = 0.85
"""Above this share of the capacity an estimate of memory is no promise."""
GENERATED_PROMPT_TOKENS = 59
"""Mean of rlmbench's generated problems by its own tokenizer (1,024 of seed 0: 58.6)."""
GSM8K_PROMPT_TOKENS = 105
"""Mean of GSM8K with a chat template by Qwen2.5's tokenizer (verl docs/start/quickstart.rst); assumed for files and data sets."""
MOST_DRAWS = 20_000
PROCESSES = "processes"
"""Term of a CPU machine's memory: what the run's processes hold besides the model."""


@dataclass(frozen=True)
class StagePrediction:
    """One stage: FLOPs and least bytes over all of its `devices`, and the least seconds (None where no ceiling is known).

    `executed_flops`: the model's, with what gradient checkpointing computes again (as `hardware_flops`) and without what an engine spares that computes
    a group's prompt once. `limit`: what the least seconds follow from: executed FLOPs ("products") or least bytes ("traffic") over the devices, or
    `latency_bytes`, which one device reads in "decode steps" one after the other.
    """

    model_flops: float
    hardware_flops: float
    least_bytes: float
    least_s: float | None
    executed_flops: float
    devices: int
    latency_bytes: float
    limit: Limit | None


@dataclass(frozen=True)
class MemoryPrediction:
    """One stage's bytes on one device, by term, against the capacity. A CPU machine is one device: its terms are those of all ranks and processes.

    `breaks` is the largest term where it does not clearly fit. `cache_rounds`: how often the KV cache of all samples fills the room that
    is left: above 1 the engine generates in so many rounds, or preempts."""

    terms: Mapping[str, float]
    total_bytes: float
    verdict: Verdict
    breaks: str | None
    cache_rounds: float | None


@dataclass(frozen=True)
class Prediction:
    """Of one step of one framework. `lengths` says where prompt and response tokens come from, `mode` is the placement's.

    `not_run`: stage of a usual step that this one does not have -> why.
    """

    shape: str
    dtype: str
    devices: int
    device: str
    basis: str | None
    capacity_bytes: float | None
    prompt_tokens: float
    response_tokens: float
    lengths: str
    stages: Mapping[str, StagePrediction]
    least_step_s: float | None
    memory: Mapping[str, MemoryPrediction]
    steps: int
    mode: str
    not_run: Mapping[str, str]

    @property
    def verdict(self) -> Verdict:
        """The worst stage's."""
        order: tuple[Verdict, ...] = ("does not fit", "tight", "unknown", "fits")
        return min((one.verdict for one in self.memory.values()), key=order.index, default="unknown")

    @property
    def device_hours(self) -> float | None:
        """At least, for all steps, start-up aside."""
        return None if self.least_step_s is None else self.least_step_s * self.steps * self.devices / 3600


def predict(
    experiment: Experiment,
    shape: Shape,
    translation: Mapping[str, Any],
    ceiling: Ceiling | None,
    capacity_bytes: float | None,
    *,
    prompt_tokens: float | None = None,
    one_machine: bool = False,
) -> Prediction:
    """Predict a step. `translation` holds traits, expected_facts and ledger (mappings, as in a manifest).

    With `one_machine` (a CPU) all ranks share the device and its memory.
    """
    facts = translation.get("expected_facts", {})
    traits = translation.get("traits", {})
    setup = setup_of(experiment, traits, facts.get("weights_dtype"))
    lengths, told = expected_lengths(experiment, prompt_tokens)
    work = stage_work(shape, lengths, setup)
    devices = 1 if one_machine else None
    stages = {stage: _stage(stage, done, setup, ceiling, devices) for stage, done in work.items()}
    sharding = sharding_of(experiment, translation.get("ledger", ()))
    # On one machine nothing lies on devices of its own: engine, actor and critic all take of its memory.
    sharing = replace(setup, apart=False, critic_devices=0) if one_machine else setup
    held = stage_memory(
        shape, experiment, sharing, lengths, facts.get("weights_dtype") or experiment.model.dtype, sharding, on_gpu=not one_machine
    )
    trainers, engines = (setup.training_devices, setup.rollout_devices) if one_machine else (1, 1)
    processes = processes_bytes(setup, str(translation.get("traits", {}).get("process_model", ""))) if one_machine else 0.0
    return Prediction(
        shape=shape.name,
        dtype=setup.dtype,
        devices=1 if one_machine else setup.devices,
        device=ceiling.device if ceiling else "unknown",
        basis=ceiling.basis if ceiling else None,
        capacity_bytes=capacity_bytes,
        prompt_tokens=lengths.prompt_tokens / lengths.samples,
        response_tokens=lengths.response_tokens / lengths.samples,
        lengths=told,
        stages=stages,
        least_step_s=None if ceiling is None else least_step(work, setup, ceiling, devices),
        memory={stage: _memory(of, capacity_bytes, trainers, engines, processes) for stage, of in held.items()},
        steps=experiment.measurement.steps,
        mode=setup.mode,
        not_run=_not_run(setup, traits),
    )


def _stage(stage: str, done: StageWork, setup: Setup, ceiling: Ceiling | None, devices: int | None) -> StagePrediction:
    count = devices or devices_of(stage, setup)
    times = (None if ceiling is None else least_times(stage, done, setup, ceiling, devices)) or {}
    least = max(((seconds, limit) for limit, seconds in times.items()), default=None)
    return StagePrediction(
        model_flops=done.model_flops,
        hardware_flops=done.hardware_flops,
        least_bytes=done.least_bytes,
        least_s=least[0] if least else None,
        executed_flops=done.executed_flops,
        devices=count,
        latency_bytes=latency_bytes_of_one(done, setup, count),
        limit=least[1] if least else None,
    )


def _not_run(setup: Setup, traits: Mapping[str, str]) -> dict[str, str]:
    """Stages that a reader would look for, with the adapter's words on where their figures come from."""
    found = {}
    if not setup.recomputed:
        found["old_logprob"] = traits["old_logprob"]
    if not setup.reference:
        found["reference_logprob"] = "no KL term asks for them"
    return found


def _memory(of: StageMemory, capacity: float | None, trainers: int, engines: int, processes: float) -> MemoryPrediction:
    """Of one device, or of a machine with so many ranks that train and that generate."""
    terms = {term: size * (engines if term in ENGINE_TERMS else trainers) for term, size in of.terms.items()}
    terms |= {PROCESSES: processes} if processes else {}
    total = sum(terms.values())
    if capacity is None:
        return MemoryPrediction(terms, total, "unknown", None, None)
    rounds = None
    if of.wanted_cache:
        one = of.terms[CACHE]
        rounds = of.wanted_cache / max((capacity - total) / engines + one, one)
    verdict: Verdict = "does not fit" if total > capacity else "tight" if total > TIGHT_SHARE * capacity else "fits"
    breaks = None if verdict == "fits" else max(terms, key=lambda term: terms[term])
    return MemoryPrediction(terms, total, verdict, breaks, rounds)


def sharding_of(experiment: Experiment, ledger: Sequence[Mapping[str, Any]]) -> Sharding:
    """How the training state really is sharded. A ledger that only comes near names what it becomes in brackets: (zero3)."""
    asked: Sharding = experiment.parallelism.sharding
    for entry in ledger:
        if entry["field"] == "parallelism.sharding" and entry["fidelity"] == "approximated":
            named = re.search(r"\((zero[123])\)", str(entry["reason"]))
            return named[1] if named else asked  # type: ignore[return-value]
    return asked


def expected_lengths(experiment: Experiment, prompt_tokens: float | None = None) -> tuple[Sequences, str]:
    """An average step's samples, and in words where their lengths come from."""
    work, samples = experiment.workload, experiment.samples_per_step
    assumed = "" if prompt_tokens is not None else "; the prompts' mean is assumed"
    if prompt_tokens is None:
        usual = GENERATED_PROMPT_TOKENS if work.prompts.source == "generated" else GSM8K_PROMPT_TOKENS
        prompt_tokens = min(usual, work.max_prompt_tokens)
    prompt = round(prompt_tokens)
    if work.replay is None:
        capped = Sequences.of([(prompt, work.max_response_tokens)] * samples)
        cap = "natural lengths are not known before a run: every response is taken to reach its cap, and times are bounds for that"
        return capped, cap + assumed
    trace = read_trace(Path(work.replay.lengths.path)) if isinstance(work.replay.lengths, TraceLengths) else ()
    steps = max(1, min(experiment.measurement.steps, MOST_DRAWS // samples))
    drawn = [
        [response_tokens(work.replay, work.max_response_tokens, f"plan-{step}", 0, sample, trace) for sample in range(samples)]
        for step in range(steps)
    ]
    every = Sequences.of((prompt, response) for of_step in drawn for response in of_step)
    longest = round(sum(max(of_step) for of_step in drawn) / steps)
    return every.per_step(steps, longest), "responses drawn from the suite's replayed distribution" + assumed
