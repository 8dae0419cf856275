"""Where a step's time goes: stage, substage, overlap, unattributed and coverage.

All arithmetic is on whole nanoseconds, so that ``sum(stages) + unattributed - overlap = step`` holds exactly. Source:
`spans` and `steps` (CLOCK_MONOTONIC); definitions: docs/metrics.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rlmbench.records.frames import plain_rows
from rlmbench.records.vocabulary import STAGE_GROUPS

if TYPE_CHECKING:
    import pandas as pd

Interval = tuple[int, int]
Key = TypeVar("Key", bound=Hashable)


class Window(NamedTuple):
    """One step on the driver's clock."""

    step: int
    start_ns: int
    end_ns: int


class Segment(NamedTuple):
    """A stretch of one thread during which one span was the innermost one."""

    start_ns: int
    end_ns: int
    stage: str
    substage: str | None


@dataclass(frozen=True)
class StepStages:
    """One step, taken apart. Nanoseconds.

    `stages_ns`: union of the stage's innermost segments, over the driver's threads, clipped to the step.
    `substages_ns`: the same for (stage, substage). `groups_ns`: the same for a group of stages such as training.
    `overlap_ns`: time in which k > 1 stages ran at once, counted k - 1 times. `unattributed_ns`: time in which none ran.
    """

    step: int
    step_ns: int
    stages_ns: Mapping[str, int]
    substages_ns: Mapping[tuple[str, str], int]
    groups_ns: Mapping[str, int]
    overlap_ns: int
    unattributed_ns: int

    @property
    def coverage(self) -> float | None:
        """Share of the step that some stage covers, in [0, 1]: 1 - unattributed / step. None for an empty step."""
        return 1 - self.unattributed_ns / self.step_ns if self.step_ns else None


@dataclass(frozen=True)
class WorkerBusy:
    """Busy seconds of one stage over the processes of one role that ever run it, in one step."""

    processes: int
    minimum_s: float
    mean_s: float
    median_s: float
    maximum_s: float

    @property
    def skew(self) -> float | None:
        """(maximum - mean) / maximum, in [0, 1]: the share of the slowest process's time that the average one waits."""
        return (self.maximum_s - self.mean_s) / self.maximum_s if self.maximum_s else None


def windows_of(steps: pd.DataFrame) -> list[Window]:
    """The steps in order of time."""
    windows = [Window(*row) for row in plain_rows(steps, "step", "start_ns", "end_ns")]
    return sorted(windows, key=lambda window: window.start_ns)


class Overlay(NamedTuple):
    """A stretch in which a thread of the driver counts for another stage than its innermost span's."""

    thread: int
    start_ns: int
    end_ns: int
    stage: str


def awaited(driver_spans: pd.DataFrame, other_spans: pd.DataFrame, offsets_ns: Mapping[str, int]) -> tuple[list[Overlay], list[Segment]]:
    """What really went on while the driver only waited for other processes.

    A driver's span that `awaits` stages, such as a poll for finished rollouts, is the first of them only while some other
    process runs it. Where only one of the others runs (rewards of the last samples) it is that one, and where none does,
    such as in a poll interval that outlasts the work, it is a wait. These are the overlays. Second, the stretches in
    which one of the others runs beside the first: a stage that overlaps, and counts once.
    """
    others_at_work = other_spans[other_spans["awaits"].isna()]  # who only awaits it as well, as other ranks do, does not run it
    overlays: list[Overlay] = []
    beside: list[Segment] = []
    awaiting = list(plain_rows(driver_spans.dropna(subset=["awaits"]), "thread", "start_ns", "end_ns", "awaits"))
    names = {name for *_, stages in awaiting for name in str(stages).split()}
    at_work = {name: _at_work(others_at_work, name, offsets_ns) for name in names}
    for thread, start, end, stages in awaiting:
        first, *others = str(stages).split()
        running = part_of(at_work[first], start, end)
        for stage in others:
            busy = part_of(at_work[stage], start, end)
            alone = [part for gap in gaps(running, start, end) for part in part_of(busy, *gap)]
            overlays += [Overlay(thread, *part, stage) for part in alone]
            beside += [Segment(*part, stage, None) for shared in running for part in part_of(busy, *shared)]
            running = merged([*running, *alone], start, end)
        overlays += [Overlay(thread, *gap, "wait") for gap in gaps(running, start, end)]
    return sorted(overlays), beside


def _at_work(spans: pd.DataFrame, stage: str, offsets_ns: Mapping[str, int]) -> list[Interval]:
    """When any process runs the stage."""
    rows = plain_rows(spans[spans["stage"] == stage], "process", "start_ns", "end_ns")
    intervals = [(start + offsets_ns.get(process, 0), end + offsets_ns.get(process, 0)) for process, start, end in rows]
    return union_of(intervals)


def merged(intervals: Iterable[Interval], start: int, end: int) -> list[Interval]:
    """The union of `intervals` within [start, end), as intervals in order that do not touch."""
    found: list[Interval] = []
    for begun, ended in sorted((max(begun, start), min(ended, end)) for begun, ended in intervals):
        if ended <= begun:
            continue
        if found and begun <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], ended))
        else:
            found.append((begun, ended))
    return found


def union_of(intervals: Collection[Interval]) -> list[Interval]:
    """The union of `intervals`, in order and disjoint."""
    return merged(intervals, min(start for start, _ in intervals), max(end for _, end in intervals)) if intervals else []


def part_of(union: Sequence[Interval], start: int, end: int) -> list[Interval]:
    """What lies of `union`, in order and disjoint, within [start, end); only that is looked at."""
    found: list[Interval] = []
    for begun, ended in islice(union, bisect_right(union, start, key=lambda interval: interval[1]), None):
        if max(begun, start) >= end:
            break
        found.append((max(begun, start), min(ended, end)))
    return found


def gaps(covered: Sequence[Interval], start: int, end: int) -> list[Interval]:
    """What `covered`, in order and disjoint, leaves of [start, end)."""
    edges = [start, *(edge for interval in covered for edge in interval), end]
    return [(begun, ended) for begun, ended in zip(edges[::2], edges[1::2], strict=True) if begun < ended]


def innermost_segments(spans: pd.DataFrame, overlays: Sequence[Overlay] = ()) -> list[Segment]:
    """Flatten the nested spans of one process, thread by thread, into segments that do not overlap within a thread.

    At any moment the span that began last is the innermost. A span without a substage takes that of the span around it,
    when both are of the same stage. `overlays` are laid over the spans as their innermost (see `awaited`).
    """
    rows = [*plain_rows(spans, "thread", "start_ns", "end_ns", "stage", "substage"), *((*overlay, None) for overlay in overlays)]
    rows_in_order = sorted(rows, key=lambda row: (row[0], row[1], -row[2]))
    segments: list[Segment] = []
    for _, thread in groupby(rows_in_order, key=lambda row: row[0]):
        _flatten((row[1:] for row in thread), segments)
    return segments


def _flatten(spans: Iterable[tuple[Any, ...]], segments: list[Segment]) -> None:
    """Append the innermost segments of one thread's spans: (start, end, stage, substage) by start, longest first."""
    stack: list[Segment] = []
    reached = 0

    def advance(until: int) -> None:
        """Emit what is innermost from `reached` to `until`, closing the spans that end on the way."""
        nonlocal reached
        while stack and reached < until:
            _, top_end, stage, substage = stack[-1]
            end = min(until, top_end)
            if end > reached:
                segments.append(Segment(reached, end, stage, substage))
                reached = end
            if top_end <= reached:
                stack.pop()
        reached = max(reached, until)

    for start, end, stage, substage in spans:
        advance(start)
        while stack and stack[-1].end_ns <= start:
            stack.pop()
        if substage is None and stack and stack[-1].stage == stage:
            substage = stack[-1].substage
        stack.append(Segment(start, end, stage, substage))
    advance(max((span.end_ns for span in stack), default=reached))


def union_ns(intervals: Iterable[Interval]) -> int:
    """Length of the union of half-open intervals: time that several cover counts once."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            reached = start
        if end > reached:
            total += end - reached
            reached = end
    return total


def stage_breakdown(segments: Sequence[Segment], windows: Sequence[Window]) -> list[StepStages]:
    """Each step taken apart; a segment that crosses a step's boundary counts in each step for its part there."""
    return [_take_apart(window, part) for window, part in zip(windows, _clipped(segments, windows), strict=True)]


def _clipped(segments: Sequence[Segment], windows: Sequence[Window]) -> list[list[Segment]]:
    """For each window the segments in it, cut at its boundaries. Windows are in order and do not overlap."""
    parts: list[list[Segment]] = [[] for _ in windows]
    starts = [window.start_ns for window in windows]
    for segment in segments:
        start, end = segment.start_ns, segment.end_ns
        index = max(bisect_right(starts, start) - 1, 0)
        while index < len(windows) and starts[index] < end:
            window = windows[index]
            if window.start_ns <= start and end <= window.end_ns:
                parts[index].append(segment)
            elif max(start, window.start_ns) < min(end, window.end_ns):
                parts[index].append(segment._replace(start_ns=max(start, window.start_ns), end_ns=min(end, window.end_ns)))
            index += 1
    return parts


def _take_apart(window: Window, segments: Sequence[Segment]) -> StepStages:
    by_stage: dict[str, list[Interval]] = defaultdict(list)
    by_substage: dict[tuple[str, str], list[Interval]] = defaultdict(list)
    for start, end, stage, substage in segments:
        by_stage[stage].append((start, end))
        if substage is not None:
            by_substage[stage, substage].append((start, end))
    groups = {group: [interval for stage in stages for interval in by_stage.get(stage, ())] for group, stages in STAGE_GROUPS.items()}
    step_ns = window.end_ns - window.start_ns
    overlap_ns, covered_ns = _overlap_and_covered(by_stage)
    return StepStages(
        step=window.step,
        step_ns=step_ns,
        stages_ns=_unions(by_stage),
        substages_ns=_unions(by_substage),
        groups_ns={group: union_ns(intervals) for group, intervals in groups.items() if intervals},
        overlap_ns=overlap_ns,
        unattributed_ns=step_ns - covered_ns,
    )


def stage_unions(segments: Iterable[Segment]) -> dict[str, int]:
    """Stage -> length of the union of its segments."""
    by_stage: dict[str, list[Interval]] = defaultdict(list)
    for segment in segments:
        by_stage[segment.stage].append((segment.start_ns, segment.end_ns))
    return _unions(by_stage)


def generation_ns(spans: pd.DataFrame, offsets_ns: Mapping[str, int], steps: Iterable[int]) -> int:
    """Time in which some process generates for `steps`, each by the spans that name it: of an asynchronous run, whose driver awaits only
    what training does not hide."""
    making = spans[(spans["stage"] == "generation") & spans["awaits"].isna()]
    of_step: dict[int, list[Interval]] = {step: [] for step in steps}
    for process, step, start, end in plain_rows(making[making["step"].isin(list(of_step))], "process", "step", "start_ns", "end_ns"):
        shift = offsets_ns.get(process, 0)
        of_step[step].append((start + shift, end + shift))
    return sum(map(union_ns, of_step.values()))


def _unions(intervals: Mapping[Key, list[Interval]]) -> dict[Key, int]:
    return {key: union_ns(of_key) for key, of_key in intervals.items()}


def _overlap_and_covered(by_stage: Mapping[str, Sequence[Interval]]) -> tuple[int, int]:
    """Sweep over all boundaries, counting the stages that run: independent of the unions, so that the identity can fail."""
    boundaries = sorted(
        boundary for stage, intervals in by_stage.items() for start, end in intervals for boundary in ((start, 1, stage), (end, -1, stage))
    )
    running: dict[str, int] = defaultdict(int)
    stages_now = overlap = covered = 0
    before = boundaries[0][0] if boundaries else 0
    for time_ns, change, stage in boundaries:
        if stages_now:
            covered += time_ns - before
            overlap += (stages_now - 1) * (time_ns - before)
        before = time_ns
        was = running[stage]
        running[stage] += change
        stages_now += (running[stage] > 0) - (was > 0)
    return overlap, covered


def check_identity(step: StepStages) -> str | None:
    """The violation of ``sum(stages) + unattributed - overlap = step`` as a sentence, or None when it holds exactly."""
    total = sum(step.stages_ns.values()) + step.unattributed_ns - step.overlap_ns
    if total == step.step_ns:
        return None
    return f"step {step.step}: stages + unattributed - overlap are {total} ns, but the step took {step.step_ns} ns"


def worker_busy(
    spans: pd.DataFrame, roles: Mapping[str, str], offsets_ns: Mapping[str, int], windows: Sequence[Window], *, asynchronous: bool = False
) -> dict[int, dict[tuple[str, str], WorkerBusy]]:
    """Step -> (stage, role) -> busy seconds over the role's processes that run the stage in any of the steps.

    `roles` are the processes to look at. Those of another boot (another node) are moved to the driver's clock by their
    (monotonic, realtime) pairs (`offsets_ns`), so they are as exact as the nodes' wall clocks agree. A span that only awaits other
    processes is no work of its own. In an `asynchronous` run a span belongs to the step that it names, which consumes what it makes,
    wherever in time it lies; else to the steps in whose windows it lies.
    """
    busy: dict[str, list[dict[str, int]]] = {}
    for process, of_process in spans[spans["process"].isin(list(roles)) & spans["awaits"].isna()].groupby("process"):
        if asynchronous:
            named = dict(list(of_process.groupby("step")))
            busy[str(process)] = [stage_unions(innermost_segments(named[step])) if step in named else {} for step, _, _ in windows]
            continue
        shift = offsets_ns.get(str(process), 0)
        segments = [
            segment._replace(start_ns=segment.start_ns + shift, end_ns=segment.end_ns + shift) for segment in innermost_segments(of_process)
        ]
        busy[str(process)] = [dict(step.stages_ns) for step in stage_breakdown(segments, windows)]
    runs_it: dict[tuple[str, str], list[str]] = defaultdict(list)
    for process, steps in busy.items():
        for stage in sorted({stage for step in steps for stage in step}):
            runs_it[stage, roles[process]].append(process)
    return {
        window.step: {key: _spread([busy[process][index].get(key[0], 0) for process in runs_it[key]]) for key in sorted(runs_it)}
        for index, window in enumerate(windows)
    }


def _spread(busy_ns: Sequence[int]) -> WorkerBusy:
    seconds = [ns / 1e9 for ns in busy_ns]
    return WorkerBusy(len(seconds), min(seconds), sum(busy_ns) / len(seconds) / 1e9, median(seconds), max(seconds))
