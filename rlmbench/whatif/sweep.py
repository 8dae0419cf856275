"""The variants of a sweep side by side: what each measured, and what the first one and the cost model say it should have taken.

Prediction: generation by the first variant's decode cost for the variant's own lengths; assessment and training by the ratio of
their model FLOPs (`rlmbench.costmodel`); everything else as in the first variant; then the variant's own placement, simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from rlmbench.costmodel import work
from rlmbench.costmodel.stages import StageWork, devices_held, setup_of, stage_work
from rlmbench.errors import UserError
from rlmbench.metrics.efficiency import step_lengths
from rlmbench.metrics.work import unique_samples
from rlmbench.records.vocabulary import STAGE_GROUPS
from rlmbench.whatif.assumptions import Assumptions
from rlmbench.whatif.asynchronous import Floats
from rlmbench.whatif.inputs import ON_DEVICES, Decode, Inputs, decode_cost, inputs_from_run, response_lengths
from rlmbench.whatif.modes import Layout, draw, predict
from rlmbench.workload.shapes import SHAPES

if TYPE_CHECKING:
    from rlmbench.metrics import RunSummary
    from rlmbench.records import Run

STEPS = 200
MODES = {"colocated": "colocated", "disaggregated": "disaggregated", "async": "bounded_asynchrony"}


@dataclass(frozen=True)
class Row:
    """One variant of one framework, means over its runs, per measured step. Seconds are the driver's.

    `linear_flops` and `attention_flops` are those of actor and critic updates: products with weights, which grow with the tokens, and
    attention, which grows with the square of each sequence. `predicted_s`, and what is in `predicted`, from the first variant.
    """

    framework: str
    variant: str
    runs: int
    step_s: float
    stages_s: dict[str, float]
    tokens: float
    linear_flops: float | None
    attention_flops: float | None
    predicted_s: float | None
    predicted: dict[str, float]


@dataclass(frozen=True)
class _Measured:
    run: Run
    summary: RunSummary

    @property
    def key(self) -> tuple[str, str]:
        return self.summary.framework, self.summary.variant


def rows(runs: Sequence[tuple[Run, RunSummary]]) -> list[Row]:
    """A row for each framework and variant with a run that ended well, in the order of the runs; of other suites' runs none."""
    good = [
        _Measured(run, summary)
        for run, summary in runs
        if summary.variant and summary.status == "ok" and summary.run_pass == "measure" and summary.measured_steps
    ]
    groups: dict[tuple[str, str], list[_Measured]] = {}
    for one in good:
        groups.setdefault(one.key, []).append(one)
    found = []
    for (framework, variant), members in groups.items():
        first = next(group for key, group in groups.items() if key[0] == framework)
        found.append(_row(framework, variant, members, first))
    return found


def _row(framework: str, variant: str, members: Sequence[_Measured], first: Sequence[_Measured]) -> Row:
    steps = [step for one in members for step in one.summary.steps if step.excluded is None]
    groups = {
        group: fmean(sum(step.stages_s.get(stage, 0.0) for stage in stages) for step in steps) for group, stages in STAGE_GROUPS.items()
    }
    flops = _update_flops(members[0])
    predicted = _predicted(members[0], first[0])
    return Row(
        framework=framework,
        variant=variant,
        runs=len(members),
        step_s=fmean(step.step_s for step in steps),
        stages_s=groups,
        tokens=fmean((step.prompt_tokens or 0) + (step.response_tokens or 0) for step in steps),
        linear_flops=flops.matmul if flops else None,
        attention_flops=flops.attention if flops else None,
        predicted_s=predicted.pop("step") if predicted else None,
        predicted=predicted,
    )


def _sequences(one: _Measured) -> work.Sequences | None:
    """The samples of an average measured step; None where none was recorded."""
    measured = [step.step for step in one.summary.steps if step.excluded is None]
    return step_lengths(unique_samples(one.run.samples, one.run.experiment.optimization.epochs), measured)


def _update_flops(one: _Measured) -> work.Flops | None:
    experiment = one.run.experiment
    shape = SHAPES.get(experiment.model.shape or "")
    if shape is None:
        return None
    lengths = _sequences(one)
    if lengths is None:
        return None
    flops = work.training(shape, lengths.tokens, lengths.squares)
    if experiment.optimization.critic is not None:
        flops = flops.plus(work.training(shape, lengths.tokens, lengths.squares, "value"))
    return flops.times(experiment.optimization.epochs)


def _stage_work(one: _Measured) -> dict[str, StageWork]:
    experiment, lengths = one.run.experiment, _sequences(one)
    shape = SHAPES[experiment.model.shape or ""]
    return stage_work(shape, lengths, setup_of(experiment, one.run.manifest.traits)) if lengths else {}


def _predicted(one: _Measured, first: _Measured) -> dict[str, float]:
    """Seconds of step, generation, assessment and training that follow from the first variant; empty where nothing follows."""
    experiment = one.run.experiment
    if any(run.experiment.model.shape not in SHAPES for run in (one.run, first.run)):
        return {}
    try:
        inputs, cost = _with_other_work(inputs_from_run(first.run, first.summary), one, first)
    except UserError:
        return {}
    drawn = replace(draw(inputs, Assumptions(), STEPS), decode=cost)
    place, tensor = experiment.placement, experiment.parallelism.rollout_tensor
    held = devices_held(experiment, one.run.manifest.traits)
    training = held - place.rollout_devices
    layout = Layout(held, place.rollout_devices or training, training, place.max_staleness, tensor)
    try:
        found = predict(drawn, MODES[place.mode], layout)
    except UserError:
        return {}
    return {
        "step": found.step_s,
        "generation": float(drawn.generation(layout)[0].mean()),
        "assessment": float(drawn.assessment(training).mean()),
        "training": float(drawn.training(training).mean()),
    }


def _with_other_work(base: Inputs, one: _Measured, first: _Measured) -> tuple[Inputs, Decode]:
    """What the first variant would have measured of the other's samples, on its own devices, and its decode cost."""
    lengths = response_lengths(one.run, [step.step for step in one.summary.steps if step.excluded is None])
    mine, theirs = _stage_work(one), _stage_work(first)
    cost = decode_cost(base, Assumptions())
    # A fitted cost need not meet the mean generation: here its ratios count, on the level that was measured.
    level = float(base.generation_s.mean()) / fmean(
        cost.seconds(of_step, base.replicas, refilled=base.refilled) for of_step in base.lengths
    )

    def everywhere(seconds: Floats, times: float = 1.0) -> Floats:
        return np.full(len(lengths), float(seconds.mean()) * times)

    def ratio(group: str) -> float:
        flops = [sum(of[stage].model_flops for stage in STAGE_GROUPS[group] if stage in of) for of in (mine, theirs)]
        return flops[0] / flops[1] if flops[1] else 1.0

    inputs = replace(
        base,
        step_s=everywhere(base.step_s),
        lengths=lengths,
        generation_s=np.array([level * cost.seconds(of_step, base.replicas, refilled=base.refilled) for of_step in lengths]),
        assessment_s={
            role: everywhere(seconds, ratio("assessment") if role in ON_DEVICES else 1.0) for role, seconds in base.assessment_s.items()
        },
        training_s={role: everywhere(seconds, ratio("training")) for role, seconds in base.training_s.items()},
        sync_s=everywhere(base.sync_s),
        switch_s=everywhere(base.switch_s),
        other_s=everywhere(base.other_s),
        sample_ends=None,
    )
    return inputs, cost
