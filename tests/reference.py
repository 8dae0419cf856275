"""Runs of the simulated framework in this process, and what its processes wrote down of themselves beside the probe: the truth."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlmbench.environment import ensure
from rlmbench.metrics import RunSummary
from rlmbench.records import Run
from rlmbench.runner.campaign import new_campaign
from rlmbench.runner.cells import Request, make_plan
from rlmbench.runner.execute import execute
from rlmbench.runner.interrupts import Interrupts
from rlmbench.runner.progress import open_progress
from rlmbench_reference.expected import Expected, expected
from rlmbench_reference.schedule import Schedule, schedule_of

Interval = tuple[int, int]
SEEN, AT_MOST = ("start_ns", "end_ns"), ("after_ns", "before_ns")
"""When a part began and ended by our own readings around it, and by the neighbouring parts'."""
NO_STAGES = {"thread", "join", "request", "end"}
"""The whole of a thread that scores beside generation, waits for it and for a request, and what follows the last step."""


@dataclass(frozen=True)
class Bounds:
    """A figure as the truth allows it, in seconds. The probe reads its clock around our own readings, so that it lies between what they
    enclose (`low`) and what lies between the neighbouring ones (`high`), however long the process was kept from running in between."""

    low: float
    high: float

    def allow(self, value: float) -> bool:
        return self.low - 1e-4 <= value <= self.high + 1e-4


@dataclass(frozen=True)
class Reference:
    """One run: its record, its figures, and its truth (rows of native/truth-*.jsonl)."""

    run: Run
    summary: RunSummary

    @cached_property
    def truth(self) -> list[dict[str, Any]]:
        """Each row also has what lies around it: the end of the part before and the start of the part after, in its thread."""
        files = sorted((self.run.path / "native").glob("truth-*.jsonl"))
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        for row in rows:
            beside = [other for other in rows if (other["process"], other["thread"]) == (row["process"], row["thread"])]
            around = [
                one for one in beside if one["stage"] == "thread" and one["start_ns"] < row["start_ns"] and row["end_ns"] < one["end_ns"]
            ]
            before = [one["end_ns"] for one in beside if one["end_ns"] <= row["start_ns"]] + [one["start_ns"] for one in around]
            after = [one["start_ns"] for one in beside if one["start_ns"] >= row["end_ns"]] + [one["end_ns"] for one in around]
            row["after_ns"] = max(before, default=row["start_ns"] - 10**9)
            row["before_ns"] = min(after, default=row["end_ns"] + 10**9)
        return rows

    @cached_property
    def schedule(self) -> Schedule:
        return schedule_of(self.run.manifest.native)

    @cached_property
    def expected(self) -> Expected:
        return expected(self.schedule)

    @cached_property
    def names(self) -> dict[str, str]:
        """The record's name of a process -> ours, by role and rank."""
        rows = self.run.processes[["process", "role", "rank"]].itertuples(index=False)
        return {process: f"{'rollout' if role == 'rollout' else 'trainer'}-{rank}" for process, role, rank in rows}

    @property
    def measured(self) -> list[int]:
        return [step.step for step in self.summary.steps if step.excluded is None]

    def parts(self, process: str, stage: str, step: int | None = None) -> tuple[list[Interval], list[Interval]]:
        """When a process (or all whose names begin so) acted a stage out, waits for others aside: at least, and at most."""
        rows = [
            row
            for row in self.truth
            if row["process"].startswith(process) and row["stage"] == stage and not row.get("awaits") and step in (None, row["step"])
        ]
        return _union([(row["start_ns"], row["end_ns"]) for row in rows]), _union([(row["after_ns"], row["before_ns"]) for row in rows])

    def windows(self, steps: list[int]) -> tuple[list[Interval], list[Interval]]:
        """Steps of the driver's, from its request for data to the next one's: at least, and at most."""
        found = ([], [])  # type: tuple[list[Interval], list[Interval]]
        rows = {(row["stage"], row["step"]): row for row in self.truth if row["process"] == "trainer-0"}
        for step in steps:
            first, following, last = rows["data", step], rows.get(("data", step + 1)), rows["bookkeeping", step]
            found[0].append((first["start_ns"], last["end_ns"]))
            found[1].append(
                (first["after_ns"] if step > 1 else first["start_ns"] - 10**9, following["start_ns"] if following else last["before_ns"])
            )
        return found

    def step(self, step: int) -> Bounds:
        low, high = self.windows([step])
        return Bounds(_length(low) / 1e9, _length(high) / 1e9)

    def stages(self, step: int) -> dict[str, Bounds]:
        """Each stage in the driver's step, by hand: its own, and while it awaits the rollouts what they do."""
        own = {row["stage"] for row in self.truth if row["process"] == "trainer-0" and not row.get("awaits")} - NO_STAGES
        least, most = ({stage: _length(self.parts("trainer-0", stage, step)[side]) for stage in own} for side in (0, 1))
        if self.schedule.rollouts:
            waits, making, loading = self._awaited(step)
            for found, side in ((least, 0), (most, 1)):
                found["generation"] = _length(making[side])
                found["weight_sync"] += _length(loading[side])
                found["wait"] = found.get("wait", 0) + _length(waits[side]) - _length([*making[1 - side], *loading[1 - side]])
        return {stage: Bounds(least[stage] / 1e9, most[stage] / 1e9) for stage in least}

    def substages(self, step: int) -> dict[str, Bounds]:
        """The driver's, of its update."""
        rows = [row for row in self.truth if row["process"] == "trainer-0" and row["step"] == step and row["substage"]]
        return {
            name: Bounds(*(sum(row[end] - row[start] for row in rows if row["substage"] == name) / 1e9 for start, end in (SEEN, AT_MOST)))
            for name in {row["substage"] for row in rows}
        }

    def overlap(self, step: int) -> Bounds:
        """Time in which two stages ran at once in the driver's step."""
        sides = []
        for side in (0, 1):
            generating, scoring = (self.parts("trainer-0", stage, step)[side] for stage in ("generation", "reward"))
            _, making, loading = self._awaited(step)
            # Neighbouring parts of one thread touch in what they are at most, and never run at once.
            fused = _length(_common(generating, scoring)) if self.schedule.overlapped else 0
            sides.append((fused + _length(_common(making[side], loading[side]))) / 1e9)
        return Bounds(*sides)

    def waiting(self, process: str, steps: list[int]) -> Bounds:
        """Share of the steps in which no process whose name begins so did anything."""
        stages = {row["stage"] for row in self.truth} - NO_STAGES - {"wait"}
        windows = self.windows(steps)
        busy = [_union([part for stage in stages for part in self.parts(process, stage)[side]]) for side in (0, 1)]
        least, most = (1 - _length(_common(busy[1 - side], windows[1])) / _length(windows[1]) for side in (0, 1))
        return Bounds(least, most)

    def _awaited(self, step: int) -> tuple[tuple[list[Interval], list[Interval]], ...]:
        """When the driver only waited for the rollouts, and when one of them generated or loaded meanwhile."""
        rows = [row for row in self.truth if row["process"] == "trainer-0" and row["step"] == step and row.get("awaits")]
        waits = [(row["start_ns"], row["end_ns"]) for row in rows], [(row["after_ns"], row["before_ns"]) for row in rows]
        making, loading = (
            tuple(_common(parts, wait) for parts, wait in zip(self.parts("rollout", stage), waits, strict=True))
            for stage in ("generation", "load")
        )
        return waits, making, loading  # type: ignore[return-value]


def _union(intervals: list[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _common(a: list[Interval], b: list[Interval]) -> list[Interval]:
    """What lies in both, each a union."""
    pairs = ((max(x, v), min(y, w)) for x, y in a for v, w in _union(b))
    return [(start, end) for start, end in pairs if start < end]


def _length(intervals: list[Interval]) -> int:
    return sum(end - start for start, end in _union(intervals))


def run_reference(folder: Path, suite: str = "gsm8k_grpo", native: str | None = None, **settings: Any) -> Reference:
    """One run at tiny, whatever its end. `native` is the text of a ``--native`` file; in names of settings a double underscore is a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    if native is not None:
        (folder / "native.yaml").write_text(native)
    overrides = tuple(f"{name.replace('__', '.')}={json.dumps(value)}" for name, value in settings.items())
    files = (str(folder / "native.yaml"),) if native is not None else ()
    plan = make_plan(Request(suite, ("reference",), "tiny", overrides, native=files, when_busy="allow"))
    assert plan.refusals == []
    with Interrupts() as interrupts, open_progress(quiet=True) as progress:
        environment = ensure(plan.parts["reference"].spec)
        ended = execute(plan, plan.cells[0], environment, new_campaign(plan.suite, plan.request), folder, progress, interrupts)
    return Reference(ended.run, ended.summary)
