"""Everything that `rlmbench whatif` says of one run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rlmbench.errors import UserError, did_you_mean
from rlmbench.whatif.assumptions import Assumptions
from rlmbench.whatif.inputs import Decode, Inputs, inputs_from_run
from rlmbench.whatif.memory import device_memory
from rlmbench.whatif.modes import MODELLED, MODES, Drawn, Layout, Prediction, draw, predict
from rlmbench.whatif.search import best_split

if TYPE_CHECKING:
    from rlmbench.metrics import RunSummary
    from rlmbench.records import Run

STEPS = 400


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
    """The predictions for one run. `replay` is the model's own word on the run as it was: it must give the run back.

    `impossible`: mode -> why the run cannot tell about it. `best`: the fastest of the predictions' modes.
    """

    run: str
    framework: str
    measured_mode: str
    measured_devices: int
    measured_steps: int
    measured_step_s: float
    replay: Prediction
    decode: Decode
    devices: int
    predictions: tuple[Prediction, ...]
    impossible: Mapping[str, str]
    best: str | None
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
    inputs = inputs_from_run(run, summary)
    drawn = draw(inputs, question.assumptions, question.steps, question.seed)
    tensor = question.tensor or inputs.tensor
    devices = question.devices or (sum(question.split) if question.split else max(inputs.devices, 2))
    staleness = max(run.experiment.placement.max_staleness, 1) if question.staleness is None else question.staleness
    predictions: list[Prediction] = []
    impossible: dict[str, str] = {}
    for mode in question.modes or MODES:
        try:
            found = _predicted(drawn, mode, Layout(devices, devices, devices, staleness, tensor), question.split)
            modelled = device_memory(run, inputs, mode, found.layout)
            predictions.append(replace(found, memory_bytes=modelled, memory_source=MODELLED) if modelled else found)
        except UserError as error:
            if question.modes:
                raise
            impossible[mode] = str(error).removeprefix(f"{mode}: ")
    best = min(predictions, key=lambda one: one.step_s, default=None)
    return WhatIf(
        run=run.id,
        framework=run.manifest.framework,
        measured_mode=inputs.mode,
        measured_devices=inputs.devices,
        measured_steps=len(inputs.step_s),
        measured_step_s=float(inputs.step_s.mean()),
        replay=replay(drawn),
        decode=drawn.decode,
        devices=devices,
        predictions=tuple(predictions),
        impossible=impossible,
        best=best.mode if best else None,
        assumptions=tuple(question.assumptions.stated()),
        notes=tuple(_notes(inputs)),
    )


def replay(drawn: Drawn) -> Prediction:
    """The run's own mode on its own devices."""
    inputs = drawn.inputs
    return predict(drawn, inputs.mode, Layout(inputs.devices, inputs.rollout_devices, inputs.training_devices, 0, inputs.tensor))


def _predicted(drawn: Drawn, mode: str, whole: Layout, split: tuple[int, int] | None) -> Prediction:
    if not MODES[mode].is_split:
        return predict(drawn, mode, whole)
    if split:
        return predict(drawn, mode, Layout(whole.devices, *split, whole.staleness, whole.tensor))
    if whole.devices < 2:
        raise UserError(f"{mode}: two groups need at least two devices, not {whole.devices}; give --devices")
    return best_split(drawn, mode, whole)


def _notes(inputs: Inputs) -> list[str]:
    notes = []
    if not inputs.sync_s.any():
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


def document(found: Sequence[WhatIf]) -> dict[str, Any]:
    """The JSON object of `--json`: the fields of `WhatIf` and `Prediction`; infinity, which JSON lacks, as text."""
    return {"schema_version": 1, "whatif": [_plain(asdict(one)) for one in found]}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
