"""Work per second, as a ratio of sums over the measured steps, so that throughput x time = work exactly.

Never the total work over a mean latency, nor cumulative work over the last step's time: both are how other tools came
to print figures 10 times too high. Source: `samples`, `steps`, `spans`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlmbench.metrics.stages import StepStages
from rlmbench.metrics.work import StepWork


@dataclass(frozen=True)
class Throughput:
    """Over the measured steps. Rates are per second of step time, and of a group of stages' own driver seconds.

    `tokens` are the prompt and response tokens of the trained samples, each sample once however many epochs it was
    trained for. `generation` counts response tokens, `assessment` and `training` prompt and response tokens; they are
    None when the group of stages took no time of its own. `per device` divides by all devices the run held.
    """

    seconds: float
    samples: int
    response_tokens: int
    tokens: int
    devices: int
    step_tokens_per_s: float
    response_tokens_per_s: float
    samples_per_s: float
    generation_tokens_per_s: float | None
    assessment_tokens_per_s: float | None
    training_tokens_per_s: float | None

    @property
    def step_tokens_per_s_per_device(self) -> float:
        """Step tokens per second over all devices the run held, rollout devices included."""
        return self.step_tokens_per_s / self.devices


def throughput(steps: Sequence[tuple[StepStages, StepWork]], devices: int, generation_ns: int | None = None) -> Throughput | None:
    """Throughput over `steps`. None when they hold no time or no work: absent, not zero.

    `generation_ns` are generation's own seconds where those of the driver are not: in an asynchronous run, whose driver only sees what
    training does not hide.
    """
    step_ns = sum(stages.step_ns for stages, _ in steps)
    samples = sum(work.samples for _, work in steps)
    if not step_ns or not samples:
        return None
    response_tokens = sum(work.response_tokens for _, work in steps)
    tokens = sum(work.total_tokens for _, work in steps)

    def over_group(group: str, amount: int, own_ns: int | None = None) -> float | None:
        group_ns = sum(stages.groups_ns.get(group, 0) for stages, _ in steps) if own_ns is None else own_ns
        return amount * 1e9 / group_ns if group_ns else None

    return Throughput(
        seconds=step_ns / 1e9,
        samples=samples,
        response_tokens=response_tokens,
        tokens=tokens,
        devices=devices,
        step_tokens_per_s=tokens * 1e9 / step_ns,
        response_tokens_per_s=response_tokens * 1e9 / step_ns,
        samples_per_s=samples * 1e9 / step_ns,
        generation_tokens_per_s=over_group("generation", response_tokens, generation_ns),
        assessment_tokens_per_s=over_group("assessment", tokens),
        training_tokens_per_s=over_group("training", tokens),
    )
