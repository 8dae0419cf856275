"""Guidelines that a run's figures speak to: each with the figure that triggers it, and what the what-if predicts for following it.

The guidelines are the paper's (arXiv 2608.27046, Sections 4 to 6, restated in the cost model), made checkable: a figure, a threshold,
a change that can be simulated. A guideline whose figure the run did not record is not given. The thresholds are rlmbench's own choice
and stand beside every figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from rlmbench.errors import UserError
from rlmbench.metrics.figures import Guideline, StepFigures
from rlmbench.whatif.assumptions import Assumptions
from rlmbench.whatif.inputs import ON_DEVICES, Inputs, affordable_steps, inputs_from_run, without_waiting
from rlmbench.whatif.modes import MODES, Drawn, Layout, draw, predict
from rlmbench.whatif.result import own_layout, replay
from rlmbench.whatif.search import best_split
from rlmbench.workload.shapes import SHAPES

if TYPE_CHECKING:
    from rlmbench.metrics import RunSummary
    from rlmbench.records import Run

Outcome = tuple[float, float, str]
"""(step seconds now, step seconds if followed, what was simulated)."""


@dataclass(frozen=True)
class Facts:
    """A run as the guidelines look at it. `inputs` is None where the run cannot be simulated (`why_not` says why)."""

    run: Run
    summary: RunSummary
    inputs: Inputs | None
    why_not: str

    @cached_property
    def drawn(self) -> Drawn | None:
        return draw(self.inputs, Assumptions(), affordable_steps(self.inputs.samples)) if self.inputs else None

    def share(self, *stages: str) -> float | None:
        """Share of a step in these stages, median over the measured steps, so that one odd step triggers nothing; None where none ran."""
        if not any(stage in step.stages_s for step in self.measured for stage in stages):
            return None
        shares = [sum(step.stages_s.get(stage, 0.0) for stage in stages) / step.step_s for step in self.measured if step.step_s]
        return median(shares) if shares else None

    @cached_property
    def measured(self) -> list[StepFigures]:
        return [step for step in self.summary.steps if step.excluded is None]

    def changed(self, what: str, change: Callable[[Inputs], Inputs]) -> Outcome | None:
        """The run's own mode again, with other inputs."""
        if self.inputs is None or self.drawn is None:
            return None
        other = replace(self.drawn, inputs=change(self.inputs))
        return replay(self.drawn).step_s, replay(other).step_s, what

    def moved(self, mode: str, layout: Layout | None = None) -> Outcome | None:
        """Another mode on as many devices (two at least), against the run's own mode there."""
        if self.inputs is None or self.drawn is None:
            return None
        count = max(self.inputs.devices, 2)
        tensor = self.inputs.tensor
        together = Layout(count, count, count, 0, tensor)
        try:
            now = predict(self.drawn, "colocated", together) if self.inputs.mode == "colocated" else replay(self.drawn)
            then = predict(self.drawn, mode, layout) if layout else best_split(self.drawn, mode, Layout(count, count, count, 1, tensor))
        except UserError:
            return None
        return now.step_s, then.step_s, f"{mode} {then.layout.rollout}:{then.layout.training} against {self.inputs.mode} on {count} devices"


@dataclass(frozen=True)
class Rule:
    """`value`: the figure, None where the run lacks it. `follow`: what following it would give, None where it cannot be simulated."""

    name: str
    says: str
    figure: str
    threshold: float
    value: Callable[[Facts], float | None]
    follow: Callable[[Facts], Outcome | None]


def guidelines(run: Run, summary: RunSummary) -> list[Guideline]:
    """Every guideline whose figure the run recorded, those triggered first; empty for a run that measured nothing, or under a profiler."""
    if not summary.measured_steps or summary.run_pass == "profile":
        return []
    inputs, why_not = _inputs(run, summary)
    facts = Facts(run, summary, inputs, why_not)
    found = [_checked(rule, facts, value) for rule in RULES if (value := rule.value(facts)) is not None]
    return sorted(found, key=lambda one: (not one.triggered, -one.value / one.threshold))


def advised(run: Run, summary: RunSummary) -> RunSummary:
    """`summary` with its guidelines, which are derived unless it has them."""
    if summary.guidelines is not None:
        return summary
    return summary.model_copy(update={"guidelines": guidelines(run, summary)})


def _inputs(run: Run, summary: RunSummary) -> tuple[Inputs | None, str]:
    try:
        return inputs_from_run(run, summary), ""
    except UserError as error:
        return None, str(error).removeprefix(f"{run.id}: ")


def _checked(rule: Rule, facts: Facts, value: float) -> Guideline:
    triggered = value >= rule.threshold
    outcome = rule.follow(facts) if triggered else None
    why = facts.why_not or "following it is nothing that the what-if simulates"
    return Guideline(
        name=rule.name,
        says=rule.says,
        figure=rule.figure,
        value=value,
        threshold=rule.threshold,
        triggered=triggered,
        step_s=outcome[0] if outcome else None,
        predicted_step_s=outcome[1] if outcome else None,
        prediction=(outcome[2] if outcome else f"none: {why}") if triggered else None,
    )


def _tail(facts: Facts) -> float | None:
    """Longest response over the mean one, median over the measured steps; only where a step waits for its longest."""
    if facts.inputs is None or facts.inputs.ahead:
        return None
    return median(float(lengths.max() / lengths.mean()) for lengths in facts.inputs.lengths)


def _fits_alone(facts: Facts) -> float | None:
    """How many times the policy's weights fit into one device; only under tensor-parallel generation."""
    model, devices = facts.run.experiment.model, facts.run.manifest.devices
    shape = SHAPES.get(model.shape or "")
    if facts.run.experiment.parallelism.rollout_tensor < 2 or shape is None or not devices:
        return None
    known = [int(device["memory_bytes"]) for device in devices if device.get("memory_bytes")]
    return min(known) / shape.weight_bytes(model.dtype) if known else None


def _one_device_each(facts: Facts) -> Outcome | None:
    if facts.inputs is None or facts.inputs.mode != "colocated":
        return None
    count = facts.inputs.devices
    return facts.moved("colocated", Layout(count, count, count, 0, 1))


def _waiting_apart(facts: Facts) -> float | None:
    """Share of a step in which the rollout devices of a synchronous split wait, median over the steps of the replayed run."""
    if facts.inputs is None or facts.drawn is None or facts.inputs.mode != "disaggregated":
        return None
    simulated = MODES["disaggregated"].simulate(facts.drawn, own_layout(facts.inputs))
    return float(np.median(1 - simulated.busy_s["rollout"] / simulated.step_s))


def _overlapped(facts: Facts) -> Outcome | None:
    if facts.inputs is None:
        return None
    rollout, training = facts.inputs.rollout_devices, facts.inputs.training_devices
    return facts.moved("one_step_off", Layout(rollout + training, rollout, training, 1, facts.inputs.tensor))


def _stale(facts: Facts) -> float | None:
    """Mean staleness of trained samples, where the framework logs it."""
    native = facts.summary.learning.native.get("staleness")
    return native.value if native and facts.run.experiment.placement.mode == "async" else None


def _padding(facts: Facts) -> float | None:
    padding = facts.summary.padding.get("actor_update")
    return padding.padding_share if padding else None


def _without_padding(facts: Facts) -> Outcome | None:
    def change(inputs: Inputs) -> Inputs:
        kept = {stage: 1 - (of.padding_share or 0.0) for stage, of in facts.summary.padding.items()}
        return replace(
            inputs,
            training_s={role: seconds * kept.get(role, 1.0) for role, seconds in inputs.training_s.items()},
            assessment_s={
                role: seconds * (kept.get(role, 1.0) if role in ON_DEVICES else 1.0) for role, seconds in inputs.assessment_s.items()
            },
        )

    return facts.changed("the same run with training and log-probs in proportion to valid tokens", change)


def _without(facts: Facts, what: str, *roles: str) -> Outcome | None:
    return facts.changed(
        what,
        lambda inputs: replace(
            inputs,
            assessment_s={role: seconds for role, seconds in inputs.assessment_s.items() if role not in roles},
            training_s={role: seconds for role, seconds in inputs.training_s.items() if role not in roles},
        ),
    )


def _recomputed(facts: Facts) -> float | None:
    """Share of old log-probs, where a step makes one update of what its own policy generated: not where rollouts run ahead."""
    experiment = facts.run.experiment
    return facts.share("old_logprob") if experiment.updates_per_step == 1 and experiment.placement.mode != "async" else None


def _waits(facts: Facts) -> float | None:
    """Share of a step in which the driver waits and nothing runs; of an asynchronous run without its waiting for rollouts."""
    if facts.run.experiment.placement.mode != "async":
        return facts.share("wait")
    if facts.inputs is None or facts.inputs.idle_s is None or not facts.inputs.idle_s.any():
        return None
    return float(np.median(facts.inputs.idle_s / facts.inputs.step_s))


def _waited(facts: Facts) -> Outcome | None:
    return facts.changed(
        "the same run without its waiting",
        lambda inputs: replace(inputs, other_s=without_waiting(inputs)),
    )


def _apart(facts: Facts) -> Outcome | None:
    return facts.moved("one_step_off") if facts.inputs and facts.inputs.mode == "colocated" else None


def _skew(facts: Facts) -> float | None:
    skews = [
        worker.skew
        for worker in facts.summary.workers
        if worker.stage == "actor_update" and worker.processes > 1 and worker.skew is not None
    ]
    return max(skews, default=None)


def _balanced(facts: Facts) -> Outcome | None:
    skew = _skew(facts) or 0.0
    return facts.changed(
        "the same run with every rank's training as long as the mean",
        lambda inputs: replace(inputs, training_s={role: seconds * (1 - skew) for role, seconds in inputs.training_s.items()}),
    )


RULES = (
    Rule(
        "long_tail",
        "A synchronous step waits for its longest response: with a long tail overlap generation with training (one step off, bounded "
        "asynchrony) or fuse stages, rather than co-locate all in turn",
        "longest response over the mean one, median of the measured steps",
        3.0,
        _tail,
        lambda facts: facts.moved("one_step_off"),
    ),
    Rule(
        "tensor_parallel_where_it_fits",
        "Where the model fits on one device, replicas generate more than tensor parallelism, which pays communication at every token",
        "memory of one device over the policy's weights",
        3.0,
        _fits_alone,
        _one_device_each,
    ),
    Rule(
        "disaggregated_without_overlap",
        "Disaggregation alone is no speed-up: each side waits for the other; overlap them",
        "median share of a step in which rollout devices wait",
        0.25,
        _waiting_apart,
        _overlapped,
    ),
    Rule(
        "staleness_without_correction",
        "Stale samples need a correction (importance weights against the policy that generated), or the bound must be small",
        "mean policy versions behind, as the framework logs it",
        1.0,
        _stale,
        lambda facts: None,
    ),
    Rule(
        "critic_share",
        "PPO's critic costs a second model's forward and update: group-relative estimators train none, and a shared backbone lowers total work",
        "median share of a step in values and critic update",
        0.2,
        lambda facts: facts.share("values", "critic_update"),
        lambda facts: _without(facts, "the same run without the critic (as GRPO)", "values", "critic_update"),
    ),
    Rule(
        "padding",
        "Padded tokens cost like real ones: pack sequences or sort them by length",
        "share of padding among the tokens that the update computed",
        0.2,
        _padding,
        _without_padding,
    ),
    Rule(
        "weight_sync_share",
        "A weight sync moves the model's bytes into every rollout replica at every step: broadcast in parallel, in large buckets, or co-locate",
        "median share of a step in weight sync",
        0.1,
        lambda facts: facts.share("weight_sync"),
        lambda facts: facts.changed(
            "the same run with a sync of 0 s, the most it can give", lambda inputs: replace(inputs, sync_s=0 * inputs.sync_s, load_s=0.0)
        ),
    ),
    Rule(
        "switching_share",
        "Co-located stages move weights and state out of each other's way: where that is slow, give generation devices of its own",
        "median share of a step in offload and onload",
        0.1,
        lambda facts: facts.share("offload", "onload"),
        _apart,
    ),
    Rule(
        "reward_on_the_critical_path",
        "A verifier works on the host: score samples as they end, so that no device waits for it",
        "median share of a step in reward",
        0.05,
        lambda facts: facts.share("reward"),
        lambda facts: _without(facts, "the same run with rewards hidden behind generation, the most it can give", "reward"),
    ),
    Rule(
        "recomputed_log_probs",
        "With one update per step the old log-probs are the policy's own: their recomputation is a forward that can be spared",
        "median share of a step in old log-probs, with one update per step",
        0.05,
        _recomputed,
        lambda facts: _without(facts, "the same run without old log-probs", "old_logprob"),
    ),
    Rule(
        "waiting_driver",
        "A driver that polls for finished work adds its interval to every step (placement.fast_rollout_poll=true shortens it)",
        "median share of a step in which the driver waits and nothing runs",
        0.1,
        _waits,
        _waited,
    ),
    Rule(
        "skew_between_ranks",
        "A synchronous update waits for its slowest rank: balance tokens, not samples, over the ranks",
        "(most - mean) / most of the ranks' busy seconds in the actor's update",
        0.1,
        _skew,
        _balanced,
    ),
)
NAMES: Mapping[str, Rule] = {rule.name: rule for rule in RULES}
