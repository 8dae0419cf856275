"""Everything that `rlmbench whatif` says of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlmbench.errors import UserError, did_you_mean
from rlmbench.whatif.assumptions import Assumptions
from rlmbench.whatif.inputs import Decode, Inputs, inputs_from_run, without_waiting
from rlmbench.whatif.memory import device_memory
from rlmbench.whatif.modes import MODELLED, MODES, Drawn, Layout, Prediction, draw, predict
from rlmbench.whatif.search import best_split

if TYPE_CHECKING:
    from rlmbench.metrics import RunSummary
    from rlmbench.records import Run

STEPS = 400
PUBLISHED_ERRORS = (
    "six published GPU runs in other modes were predicted 10% to 117% too slow (docs/whatif.md): a smaller difference may be none"
)
MUCH_WAITING = 0.05
"""Of the shortest predicted step: from here on it is said that the driver's waiting is kept."""
MOST_RESPONSES = 100_000_000
"""Simulated at once: a few GB."""


@dataclass(frozen=True)
class Question:
    """What is asked. `modes` empty: all. `devices` None: as many as the run had, two at least. `split` None: the best one."""

    modes: tuple[str, ...] = ()
    devices: int | None = None
    split: tuple[int, int] | None = None
    staleness: int | None = None
    tensor: int | None = None
    steps: int = STEPS
    seed: int = 0
    assumptions: Assumptions = Assumptions()  # noqa: RUF009


@dataclass(frozen=True)
class WhatIf:
    """The predictions for one run. `replay` is the model's own word on the run as it was: of a run in turn it must give it back; of one whose
    rollouts ran ahead (`measured_ahead`) it follows from each role's own seconds, so that its error is the schedule's.

    `own`: the run's own mode on `devices`, to which the predictions' `own_ratio` is.
    `impossible`: mode -> why the run cannot tell about it. `best`: the fastest of the predictions' modes.
    """

    run: str
    framework: str
    measured_mode: str
    measured_ahead: bool
    measured_devices: int
    measured_steps: int
    measured_step_s: float
    replay: Prediction
    decode: Decode
    devices: int
    own: Prediction | None
    predictions: tuple[Prediction, ...]
    impossible: Mapping[str, str]
    best: str
    assumptions: tuple[tuple[str, Any, str], ...]
    notes: tuple[str, ...]


def what_if(run: Run, summary: RunSummary, question: Question) -> WhatIf:
    """Every mode asked for, simulated from what `run` measured.

    Raises:
        UserError: the run measured too little, or what is asked for does not exist or fit.
    """
    for mode in question.modes:
        if mode not in MODES:
            raise UserError(f"--mode {mode}: unknown mode{did_you_mean(mode, MODES)}; modes are {', '.join(MODES)}")
    staleness = max(run.experiment.placement.max_staleness, 1) if question.staleness is None else question.staleness
    enough = 2 * (staleness + 2)
    if question.staleness is not None and enough > question.steps:
        raise UserError(f"--staleness {staleness}: so many steps only fill the pipeline; simulate --steps {enough} or more")
    inputs = inputs_from_run(run, summary)
    if max(question.steps, enough) * inputs.samples > MOST_RESPONSES:
        most = MOST_RESPONSES // inputs.samples
        raise UserError(
            f"--steps {question.steps}: each has {inputs.samples:,} responses, more than memory holds; simulate {most:,} steps at most"
        )
    drawn = draw(inputs, question.assumptions, max(question.steps, enough), question.seed)
    tensor = question.tensor or inputs.tensor
    devices = question.devices or (sum(question.split) if question.split else max(inputs.devices, 2))
    predictions: list[Prediction] = []
    impossible: dict[str, str] = {}
    for mode in dict.fromkeys(question.modes or MODES):
        try:
            found = _predicted(drawn, mode, Layout(devices, devices, devices, staleness, tensor), question.split)
            modelled = device_memory(run, inputs, mode, found.layout)
            predictions.append(replace(found, memory_bytes=modelled, memory_source=MODELLED) if modelled else found)
        except UserError as error:
            if question.modes:
                raise
            impossible[mode] = str(error).removeprefix(f"{mode}: ")
    if not predictions:
        raise UserError(f"no mode can be simulated: {'; '.join(dict.fromkeys(impossible.values()))}")
    own = _own(drawn, devices)
    if own is not None:
        predictions = [replace(one, own_ratio=one.step_s / own.step_s) for one in predictions]
    shortest_s = min(one.step_s for one in predictions)
    return WhatIf(
        run=run.id,
        framework=run.manifest.framework,
        measured_mode=inputs.mode,
        measured_ahead=inputs.ahead,
        measured_devices=inputs.devices,
        measured_steps=len(inputs.step_s),
        measured_step_s=float(inputs.step_s.mean()),
        replay=replay(drawn),
        decode=drawn.decode,
        devices=devices,
        own=own,
        predictions=tuple(predictions),
        impossible=impossible,
        best=min(predictions, key=lambda one: one.step_s).mode,
        assumptions=tuple(question.assumptions.stated()),
        notes=(*_ended(summary), *_trust(run), *_notes(inputs), *_waiting(run, drawn, shortest_s)),
    )


def replay(drawn: Drawn) -> Prediction:
    """The run's own mode on its own devices."""
    return predict(drawn, drawn.inputs.mode, own_layout(drawn.inputs))


def own_layout(inputs: Inputs) -> Layout:
    """The run's own devices."""
    return Layout(inputs.devices, inputs.rollout_devices, inputs.training_devices, inputs.staleness, inputs.tensor)


def _own(drawn: Drawn, devices: int) -> Prediction | None:
    """The run's own mode on `devices`: in its own split where they are as many as it had, else in the best one. None where it does not fit."""
    inputs = drawn.inputs
    if devices == inputs.devices:
        return replay(drawn)
    try:
        return _predicted(drawn, inputs.mode, Layout(devices, devices, devices, inputs.staleness, inputs.tensor), None)
    except UserError:
        return None


def _predicted(drawn: Drawn, mode: str, whole: Layout, split: tuple[int, int] | None) -> Prediction:
    if not MODES[mode].is_split:
        return predict(drawn, mode, whole)
    if split:
        return predict(drawn, mode, Layout(whole.devices, *split, whole.staleness, whole.tensor))
    if whole.devices <= whole.tensor:
        least = "two devices" if whole.tensor == 1 else f"{whole.tensor + 1} devices (one replica, and one that trains)"
        raise UserError(f"{mode}: two groups need at least {least}, not {whole.devices}; give --devices")
    return best_split(drawn, mode, whole)


def _trust(run: Run) -> list[str]:
    """How far such a prediction is to be trusted: what the measured seconds are not good for, and how wrong published pairs found it."""
    label = run.manifest.device_label
    return [*([f"{label}, and so is what follows from it"] if label else []), PUBLISHED_ERRORS]


def _waiting(run: Run, drawn: Drawn, shortest_s: float) -> list[str]:
    """What the driver waits in every mode, where that is much of the shortest predicted step; and what takes it away."""
    inputs = drawn.inputs
    waited_s = 0.0 if inputs.idle_s is None else float((inputs.other_s - without_waiting(inputs)).mean())
    if drawn.assumptions.waiting_s is not None or waited_s < MUCH_WAITING * shortest_s:
        return []
    poll = str(run.manifest.traits.get("rollout_poll", "none"))
    slow = poll.startswith("every") and not run.experiment.placement.fast_rollout_poll
    why = f" for its poll for finished rollouts ({poll}), which placement.fast_rollout_poll=true shortens in a run" if slow else ""
    return [f"in every mode {waited_s:.3g} s of a step are kept in which the driver waits{why}; --assume waiting_s=0 leaves them out"]


def _ended(summary: RunSummary) -> list[str]:
    notes = []
    if summary.status != "ok":
        why = f" ({summary.failure_class})" if summary.failure_class else ""
        notes.append(f"the run did not end well: {summary.status}{why}; this is what follows from the steps that it finished, right or not")
    if summary.run_pass != "measure":
        notes.append("torch.profiler slowed this run: its seconds are no measurement; give the run that it was made beside")
    return notes


def _notes(inputs: Inputs) -> list[str]:
    notes = []
    if inputs.ahead:
        notes += _of_a_run_ahead(inputs)
    if not inputs.sync_s.any() and not inputs.load_s:
        notes.append(
            "the run recorded no weight sync (its rollouts share the trainer's weights): 0 s are taken for it unless sync_s is set"
        )
    if inputs.is_static:
        notes.append("the trainer's own generate computes a batch until its longest response has ended, in every mode below")
    if inputs.updates_beside:
        notes.append("actor and critic were updated at the same time in the run, and are in every mode below: the longer update counts")
    if len(inputs.step_s) < 5:
        steps = "one measured step" if len(inputs.step_s) == 1 else f"{len(inputs.step_s)} measured steps"
        notes.append(f"only {steps}: percentiles are those of their few values")
    return notes


def _of_a_run_ahead(inputs: Inputs) -> list[str]:
    """How it ran, by its record; and whether its measured steps can go on like that."""
    syncs = {None: "no sync met a generation", False: "generation went on beside the syncs", True: "syncs stopped generation"}
    met = "both sides met for each sync" if inputs.mode == "one_step_off" else syncs[inputs.sync_pauses]
    batches = "a replica took a new prompt when a response ended" if inputs.refilled else "a replica ended a batch before it began the next"
    notes = [f"generation ran ahead: its seconds are the rollout processes' own, the other stages' the trainers'; {met}, and {batches}"]
    rollout_s, step_s = float(inputs.generation_s.mean()) + inputs.load_s, float(inputs.step_s.mean())
    if rollout_s > 1.02 * step_s:
        notes.append(
            f"the measured steps used up batches that were generated before: rollouts take {rollout_s:.3g} s for a batch, these steps took "
            f"{step_s:.3g} s; over more steps the rollouts decide, and the model gives that"
        )
    return notes
