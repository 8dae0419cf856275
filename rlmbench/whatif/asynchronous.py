"""What an asynchronous run tells of its stages: each role's own seconds, though generation and training run at the same time.

The trainer's step is taken apart by its own processes: what the driver runs, what other trainers run while the driver waits for them, and
what it waits for the rollouts, which is no work of the trainer's. What generation takes is what the rollout processes say themselves.
Source: `spans`, on the driver's clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from rlmbench.errors import UserError
from rlmbench.metrics.idle import at_work
from rlmbench.metrics.stages import (
    Interval,
    Segment,
    StepStages,
    Window,
    gaps,
    innermost_segments,
    part_of,
    stage_breakdown,
    union_of,
    windows_of,
)
from rlmbench.records.clocks import clock_offsets_ns
from rlmbench.records.frames import plain_rows
from rlmbench.records.vocabulary import STAGES

if TYPE_CHECKING:
    import pandas as pd

    from rlmbench.records import Run

Floats = npt.NDArray[np.float64]

ENGINES = ("engine", "engine rank")
ROLLOUTS = ("rollout", *ENGINES)
"""Roles of processes that generate (docs/records.md, and the adapters' hooks)."""
NEITHER = ("launcher", "reward")
WAITED = "rollouts"
"""Stands for a stage here: the trainers wait while a rollout process is at work."""
SHARED = 0.1
"""From this share on things count as going on at once: batches in a rollout's busy time (then a replica takes a new prompt when a response ends),
generation in the time of the syncs."""


@dataclass(frozen=True)
class Asynchronous:
    """The measured steps of an asynchronous run. Arrays have one entry per measured step, in seconds.

    `breakdown`: the trainers' stages, with `WAITED` for what they await of the rollouts. `generation_s`: busy seconds of the replica that
    generated longest for the step, without pauses for a sync. `load_s`: what a rollout spends on taking up weights, beside the trainers.
    `sample_ends`: of each step's samples, from the begin of its first, None where batches share their time or samples were not recorded.
    `refilled`: a replica takes a new prompt when a response ends. `pauses`: a sync stops generation; None where no sync met one.
    `meets`: the trainers' sync waits until nothing generates.
    """

    breakdown: tuple[StepStages, ...]
    generation_s: Floats
    load_s: float
    sample_ends: tuple[Floats, ...] | None
    refilled: bool
    pauses: bool | None
    meets: bool

    def seconds(self, *stages: str) -> Floats:
        """Of these stages in each measured step."""
        return np.array([sum(step.stages_ns.get(stage, 0) for stage in stages) / 1e9 for step in self.breakdown])


class Flight(NamedTuple):
    """A span in which a rollout process generates. `is_sample`: of one sample by itself, which stands as a negative thread."""

    step: int
    is_sample: bool
    start_ns: int
    end_ns: int


Flights = Mapping[str, Sequence[Flight]]
"""Rollout process -> its flights."""
Batches = Mapping[str, Mapping[int, Sequence[Interval]]]
"""Rollout process -> step that trains on it -> when the process generated for it."""


def taken_apart(run: Run, driver: str, numbers: Sequence[int]) -> Asynchronous:
    """The measured steps `numbers` of `run`.

    Raises:
        UserError: the record does not tell the rollouts' own time from the trainers'.
    """
    if not run.experiment.placement.rollout_devices:
        raise UserError(
            f"{run.id}: its rollouts ran ahead on the trainer's own devices, where each slows the other down, so that the record does not "
            "tell what either takes alone; give a run with rollout devices of its own, or a colocated one"
        )
    roles = dict(plain_rows(run.processes, "process", "role"))
    offsets = clock_offsets_ns(run.processes, driver)
    rollouts = [process for process, role in roles.items() if role in ROLLOUTS and process != driver]
    flights = _flights(run.spans[run.spans["process"].isin([one for one in rollouts if roles[one] not in ENGINES])], offsets)
    if not flights:
        raise UserError(
            f"{run.id}: generation ran ahead of training, and no rollout process recorded what it generated, so that its steps do not tell "
            "what generation takes; give a run whose rollouts were probed, or a colocated or disaggregated one"
        )
    batches = _batches(run, flights, numbers)
    busy = at_work(run.spans[run.spans["process"].isin(rollouts)], offsets)
    windows = [window for window in windows_of(run.steps[run.steps["process"] == driver]) if window.step in set(numbers)]
    trainers = [process for process, role in roles.items() if process not in rollouts and role not in NEITHER]
    syncs = _when(at_work(run.spans[run.spans["process"].isin(trainers)], offsets).values(), "weight_sync")
    measured = [part for window in windows for part in part_of(syncs, window.start_ns, window.end_ns)]
    generating = union_of([interval for of_process in batches.values() for parts in of_process.values() for interval in parts])
    beside = _common(measured, generating)
    decoding = _when((parts for process, parts in busy.items() if roles[process] in ENGINES), "generation")
    fell_in = _length_ns(beside) >= SHARED * _length_ns(measured) if measured else False
    pauses = bool(decoding) and _length_ns(_common(beside, decoding)) < _length_ns(beside) / 2 if fell_in else None
    seconds, shared = _of_each_batch(batches, _without(syncs, decoding) if pauses else [])
    return Asynchronous(
        breakdown=tuple(_trainers(run, driver, trainers, offsets, windows, _when(busy.values()))),
        generation_s=np.array([max(of_process.get(number, 0.0) for of_process in seconds.values()) for number in numbers]),
        load_s=max((_load_s(parts, windows, syncs) for parts in busy.values()), default=0.0),
        sample_ends=None if shared >= SHARED or pauses else _sample_ends(flights, batches, numbers),
        refilled=shared >= SHARED,
        pauses=pauses,
        meets=bool(measured) and not fell_in,
    )


def _flights(spans: pd.DataFrame, offsets: Mapping[str, int]) -> dict[str, list[Flight]]:
    making = spans[(spans["stage"] == "generation") & spans["awaits"].isna()]
    found: dict[str, list[Flight]] = defaultdict(list)
    for process, step, thread, start, end in plain_rows(making, "process", "step", "thread", "start_ns", "end_ns"):
        shift = offsets.get(process, 0)
        found[process].append(Flight(step, thread < 0, start + shift, end + shift))
    return found


def _batches(run: Run, flights: Flights, numbers: Sequence[int]) -> dict[str, dict[int, list[Interval]]]:
    """What was generated for each step. Flights name the step that trains on them where the rollouts know it. Where some step has more samples
    than it trains on they only name the driver's step: then samples are taken to be trained in the order in which they began, and a flight
    around samples to be of the first one's step.

    Raises:
        UserError: a measured step for which nothing was generated.
    """
    per_step = run.experiment.samples_per_step
    samples = sorted((flight.start_ns, flight.step) for of_process in flights.values() for flight in of_process if flight.is_sample)
    named = all(count <= per_step for count in Counter(step for _, step in samples).values())
    starts = [start for start, _ in samples]
    found: dict[str, dict[int, list[Interval]]] = {process: defaultdict(list) for process in flights}
    for process, of_process in flights.items():
        for flight in of_process:
            step = flight.step
            if not named:
                first = bisect_left(starts, flight.start_ns)
                if first == len(starts) or starts[first] > flight.end_ns:
                    continue
                step = first // per_step + 1
            found[process][step].append((flight.start_ns, flight.end_ns))
    made = {step for of_process in found.values() for step in of_process}
    if lacking := [number for number in numbers if number not in made]:
        raise UserError(f"{run.id}: no rollout process recorded what it generated for step {lacking[0]}; nothing to predict from")
    return {process: {step: union_of(parts) for step, parts in of_process.items()} for process, of_process in found.items()}


def _of_each_batch(batches: Batches, stopped: Sequence[Interval]) -> tuple[dict[str, dict[int, float]], float]:
    """Process -> step -> its busy seconds, without `stopped`; a moment in which several are in flight is divided evenly among them. And the
    share of busy time in which several are.
    """
    seconds: dict[str, dict[int, float]] = {}
    busy_ns = shared_ns = 0
    for process, of_process in batches.items():
        edges = sorted(
            edge
            for step, parts in of_process.items()
            for start, end in _without(parts, stopped)
            for edge in ((start, 1, step), (end, -1, step))
        )
        running: set[int] = set()
        mine: dict[int, float] = defaultdict(float)
        before = edges[0][0] if edges else 0
        for at_ns, change, step in edges:
            for one in running:
                mine[one] += (at_ns - before) / len(running) / 1e9
            busy_ns += (at_ns - before) * bool(running)
            shared_ns += (at_ns - before) * (len(running) > 1)
            before = at_ns
            running = running | {step} if change > 0 else running - {step}
        seconds[process] = mine
    return seconds, shared_ns / busy_ns if busy_ns else 0.0


def _trainers(
    run: Run, driver: str, trainers: Sequence[str], offsets: Mapping[str, int], windows: Sequence[Window], rollouts: Sequence[Interval]
) -> list[StepStages]:
    """The measured steps by the driver's stages. Where it only waits: the stage that some trainer runs; else `WAITED` while a rollout
    process is at work; else a wait.
    """
    spans = run.spans[run.spans["process"].isin(trainers)]
    own = spans[spans["process"] == driver]
    segments = innermost_segments(own.assign(stage=own["stage"].where(own["awaits"].isna(), "wait")))
    working = at_work(spans, offsets).values()
    waiting = union_of([(part.start_ns, part.end_ns) for part in segments if part.stage == "wait"])
    found = [part for part in segments if part.stage != "wait"]
    for stage in STAGES:
        if stage not in ("wait", "generation"):
            at = _when(working, stage)
            found += [Segment(*part, stage, None) for part in _common(waiting, at)]
            waiting = _without(waiting, at)
    found += [Segment(*part, WAITED, None) for part in _common(waiting, rollouts)]
    found += [Segment(*part, "wait", None) for part in _without(waiting, rollouts)]
    return stage_breakdown(found, windows)


def _load_s(parts: Sequence[Segment], windows: Sequence[Window], syncs: Sequence[Interval]) -> float:
    """Mean seconds in which a rollout process takes up weights without a trainer that sends them, over the times it begins to in these steps."""
    loads = [load for load in _when([parts], "weight_sync") if any(window.start_ns <= load[0] < window.end_ns for window in windows)]
    return _length_ns(_without(loads, syncs)) / len(loads) / 1e9 if loads else 0.0


def _sample_ends(flights: Flights, batches: Batches, numbers: Sequence[int]) -> tuple[Floats, ...] | None:
    """Each step's samples by when they ended, counted from when the process that generated them began with the step's first."""
    found: dict[int, list[float]] = {number: [] for number in numbers}
    for process, of_process in flights.items():
        begins = sorted((parts[0][0], step) for step, parts in batches[process].items() if parts)
        starts = [start for start, _ in begins]
        for flight in of_process:
            index = bisect_left(starts, flight.start_ns + 1) - 1
            if flight.is_sample and index >= 0 and begins[index][1] in found:
                found[begins[index][1]].append((flight.end_ns - begins[index][0]) / 1e9)
    return tuple(np.sort(ends) for ends in found.values()) if all(found.values()) else None


def _when(processes: Iterable[Sequence[Segment]], stage: str | None = None) -> list[Interval]:
    """When any of the processes runs the stage, or any at all."""
    return union_of([(part.start_ns, part.end_ns) for parts in processes for part in parts if stage in (None, part.stage)])


def _common(some: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """What two sets of stretches, each in order and disjoint, have in common."""
    return [part for stretch in some for part in part_of(others, *stretch)]


def _without(some: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """What `others` leave of `some`."""
    return [gap for stretch in some for gap in gaps(part_of(others, *stretch), *stretch)]


def _length_ns(stretches: Sequence[Interval]) -> int:
    return sum(end - start for start, end in stretches)
