"""What must hold on every record, whatever was measured. A violation means that a figure is wrong, not that the run was slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from math import isclose

from rlmbench.metrics.figures import Energy, RunSummary, StepFigures
from rlmbench.records.vocabulary import STAGES, STARTUP, SUBSTAGES

_SECOND_TOLERANCE = 1e-6


def check_invariants(summary: RunSummary) -> list[str]:
    """The violations, a sentence each; empty for a sound record.

    Per step: stages + unattributed - overlap = step, coverage and probe share in [0, 1], known stages and substages; steps in order,
    without overlap, each once; measured and excluded steps add up; throughput x time = work; padding share in [0, 1]; energy of stages,
    of no stage and of overlap adds up to that of a step.
    """
    found = [sentence for step in summary.steps for sentence in _of_step(step)]
    found += _of_order(summary.steps)
    if summary.measured_steps + len(summary.excluded_steps) != summary.completed_steps:
        found.append(
            f"{summary.measured_steps} measured and {len(summary.excluded_steps)} excluded steps are not the {summary.completed_steps} completed ones"
        )
    found += _of_throughput(summary)
    unknown = {name for name in summary.substages_s if name.rpartition(".")[2] not in SUBSTAGES}
    found += [f"unknown substage {name!r}" for name in sorted(unknown)]
    for stage, padding in summary.padding.items():
        if not _share(padding.padding_share):
            found.append(f"{stage}: {padding.valid_tokens} valid tokens exceed the {padding.computed_tokens} computed ones")
    if summary.energy is not None:
        found += _of_energy(summary.energy, {name for device in summary.devices for name in device.stages})
    return found


def _of_energy(energy: Energy, stages: set[str]) -> Iterable[str]:
    if stages == set(energy.stages_j) and energy.no_stage_j is not None and energy.overlap_j is not None:
        total = sum(amount.value for amount in energy.stages_j.values()) + energy.no_stage_j.value - energy.overlap_j
        if not isclose(total, energy.j_per_step.value, rel_tol=1e-6, abs_tol=1e-6):
            yield f"stages + no stage - overlap take {total:.3f} J, but a step takes {energy.j_per_step.value:.3f} J"


def _of_step(step: StepFigures) -> Iterable[str]:
    total = sum(step.stages_s.values()) + step.unattributed_s - step.overlap_s
    if abs(total - step.step_s) > _SECOND_TOLERANCE:
        yield f"step {step.step}: stages + unattributed - overlap are {total:.6f} s, but the step took {step.step_s:.6f} s"
    if not _share(step.coverage):
        yield f"step {step.step}: coverage {step.coverage} is not in [0, 1]"
    if not _share(step.probe_share):
        yield f"step {step.step}: the probe's share {step.probe_share} is not in [0, 1]"
    for stage in sorted({*step.stages_s} - {*STAGES, STARTUP}):
        yield f"step {step.step}: unknown stage {stage!r}"


def _of_order(steps: list[StepFigures]) -> Iterable[str]:
    for number, times in Counter(step.step for step in steps).items():
        if times > 1:
            yield f"step {number} was recorded {times} times"
    for before, after in pairwise(steps):
        if after.start_s < before.start_s + before.step_s - _SECOND_TOLERANCE:
            yield f"step {after.step} begins before step {before.step} ends"


def _of_throughput(summary: RunSummary) -> Iterable[str]:
    rates = summary.throughput
    if rates is None:
        return
    for name, rate, work in (
        ("step tokens", rates.step_tokens_per_s, rates.tokens),
        ("response tokens", rates.response_tokens_per_s, rates.response_tokens),
        ("samples", rates.samples_per_s, rates.samples),
    ):
        if not isclose(rate * rates.seconds, work, rel_tol=1e-9):
            yield f"{rate} {name}/s over {rates.seconds} s are not the {work} that were counted"
    measured = [step for step in summary.steps if step.excluded is None]
    if not isclose(rates.seconds, sum(step.step_s for step in measured), abs_tol=_SECOND_TOLERANCE * max(len(measured), 1)):
        yield f"throughput is over {rates.seconds} s, which are not the measured steps' seconds"


def _share(value: float | None) -> bool:
    return value is None or 0 <= value <= 1
