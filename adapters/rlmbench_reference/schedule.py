"""The script: which stage takes how long in which layout, what it does to the machine, and where it fails.

A named schedule fits a layout. Settings of the user's own (``--native FILE``) take another one for the same layout, change parts
of it, or plant a failure:

    schedule: fused
    stages:
      generation: {seconds: 0.3, allocate_mib: 200}
    failure: {process: trainer-0, step: 2, stage: actor_update, kind: exception}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from rlmbench.errors import UserError, did_you_mean

KINDS = ("exception", "exit", "hang", "kill", "out_of_memory")
"""How a scripted part may fail: halfway through it raises, exits with code 3, sleeps for ever, gets signal 9, or allocates what there is not."""


@dataclass(frozen=True)
class Part:
    """One scripted stage of one process.

    `seconds`: how long it takes in the slowest process. `skew`: by which share of that the fastest process is faster, the others in
    between, evenly; nothing with one process. `burn`: share of one core that it keeps busy, in [0, 1]; the rest is sleep.
    `allocate_mib`: memory that it takes, touches and gives back, in MiB. `threads`: how many threads do the same at once, each
    burning and allocating its own part.
    """

    seconds: float
    skew: float = 0.0
    burn: float = 0.0
    allocate_mib: float = 0.0
    threads: int = 1


@dataclass(frozen=True)
class Failure:
    """`process` is ``trainer-RANK`` or ``rollout-RANK``; `kind` one of `KINDS`."""

    step: int
    stage: str
    kind: str
    process: str = "trainer-0"


@dataclass(frozen=True)
class Schedule:
    """Everything that a run's duration follows from. `parts` holds the stages that run, in a step's order.

    `ranks` and `rollouts` are processes; without rollouts the ranks generate. `max_staleness`: how many versions the rollouts may be
    behind when they are trained on. `overlapped`: each half of a step's samples is scored while the other half is generated.
    """

    name: str
    parts: Mapping[str, Part]
    ranks: int = 1
    rollouts: int = 0
    max_staleness: int = 0
    overlapped: bool = False
    failure: Failure | None = None

    def document(self) -> dict[str, Any]:
        """As plain data, for the processes of the run."""
        return asdict(replace(self, parts=dict(self.parts)))


_PARTS = MappingProxyType(
    {
        "data": Part(0.01),
        "generation": Part(0.15, skew=0.2),
        "reward": Part(0.02),
        "reference_logprob": Part(0.05),
        "old_logprob": Part(0.05),
        "values": Part(0.05),
        "advantage": Part(0.01),
        "critic_update": Part(0.06),
        "actor_update": Part(0.12, skew=0.1),
        "weight_sync": Part(0.03),
        "bookkeeping": Part(0.005),
    }
)
LOAD = "load"
"""Not a stage of its own: the rollouts' side of weight_sync, before they generate with weights that they do not have."""

SCHEDULES: Mapping[str, Mapping[str, Part]] = MappingProxyType(
    {
        "colocated": _PARTS,
        "fused": {**_PARTS, "reward": Part(0.1)},
        "disaggregated": {**_PARTS, LOAD: Part(0.02)},
        "one_step_off": {**_PARTS, LOAD: Part(0.02), "generation": Part(0.35, skew=0.2)},
        "asynchronous": {**_PARTS, LOAD: Part(0.02)},
    }
)
LAYOUTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"colocated": ("colocated", "fused"), "disaggregated": ("disaggregated",), "async": ("one_step_off", "asynchronous")}
)
"""placement.mode -> the schedules that fit it."""
STAGES = tuple(_PARTS)


def schedule_of(native: Mapping[str, Any]) -> Schedule:
    """The schedule that a run's native configuration (`manifest.native`) describes.

    Raises:
        UserError: a setting that is none, of another type, or that does not fit the layout.
    """
    name = native["schedule"]
    fitting = LAYOUTS[native["layout"]]
    if name not in fitting:
        raise UserError(
            f"reference: schedule {name!r} does not fit placement.mode={native['layout']}, which has {' and '.join(fitting)}: "
            "write another schedule, or --set placement.mode=..."
        )
    parts = {stage: part for stage, part in SCHEDULES[name].items() if stage in native["runs"] or (stage == LOAD and native["rollouts"])}
    for stage, settings in _mapping(native["stages"], "stages").items():
        if stage not in parts:
            raise UserError(f"reference: stages.{stage}: this schedule has no such stage{did_you_mean(stage, parts)}")
        parts[stage] = _changed(parts[stage], _mapping(settings, f"stages.{stage}"), f"stages.{stage}")
    return Schedule(
        name=name,
        parts=parts,
        ranks=native["ranks"],
        rollouts=native["rollouts"],
        max_staleness=native["max_staleness"],
        overlapped=name == "fused",
        failure=_failure(native["failure"], parts, {"trainer": native["ranks"], "rollout": native["rollouts"]}),
    )


def _changed(part: Part, settings: Mapping[str, Any], place: str) -> Part:
    known = {field.name: type(getattr(part, field.name)) for field in fields(Part)}
    for key, value in settings.items():
        if key not in known:
            raise UserError(f"reference: {place}.{key}: unknown{did_you_mean(key, known)}; a stage has {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise UserError(f"reference: {place}.{key}: {value!r} is no number of at least 0")
    changed = replace(part, **{key: known[key](value) for key, value in settings.items()})
    if changed.burn > 1 or changed.skew >= 1 or changed.threads < 1:
        raise UserError(f"reference: {place}: burn is at most 1, skew below 1, threads at least 1")
    return changed


def _failure(settings: Any, parts: Mapping[str, Part], processes: Mapping[str, int]) -> Failure | None:
    if settings is None:
        return None
    given = _mapping(settings, "failure")
    known = [field.name for field in fields(Failure)]
    for key in given:
        if key not in known:
            raise UserError(f"reference: failure.{key}: unknown{did_you_mean(key, known)}; a failure has {', '.join(known)}")
    try:
        failure = Failure(**given)
    except TypeError:
        raise UserError("reference: failure: give step, stage and kind") from None
    if failure.kind not in KINDS:
        raise UserError(f"reference: failure.kind: {failure.kind!r} is none of {', '.join(KINDS)}{did_you_mean(str(failure.kind), KINDS)}")
    if isinstance(failure.step, bool) or not isinstance(failure.step, int) or failure.step < 1:
        raise UserError(f"reference: failure.step: {failure.step!r} is no step: a whole number from 1")
    names = [f"{role}-{rank}" for role, count in processes.items() for rank in range(count)]
    if failure.process not in names:
        raise UserError(f"reference: failure.process: {failure.process!r} is none of {', '.join(names)}")
    if failure.stage not in list(parts):
        raise UserError(f"reference: failure.stage: this schedule has no {failure.stage!r}{did_you_mean(str(failure.stage), parts)}")
    return failure


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UserError(f"reference: {place}: {value!r} is no mapping")
    return value
