"""Waiting as spans show it: the share of a step in which a role runs no stage, its bubbles, and the long tail of generation.

Nothing here says whether a device was busy: a stage that runs may leave its device idle, and a device may work on what no span
covers. Source: `spans` and `steps`; definitions: docs/metrics.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from rlmbench.metrics.stages import Interval, Segment, Window, gaps, innermost_segments, merged, part_of, union_of
from rlmbench.records.frames import plain_rows
from rlmbench.records.vocabulary import STARTUP

if TYPE_CHECKING:
    import pandas as pd

BUBBLE_NS = 1_000_000
"""Shorter gaps are not counted as bubbles: a decoding loop has one of some microseconds between any two of its steps."""
TAIL_PART = 10
"""The tail begins when fewer than one in this many of a step's samples are unfinished."""


@dataclass(frozen=True)
class Bubbles:
    """Stretches of at least 1 ms in which no process of the role, or on the device, runs a stage. Over the end of one measured step into the next it is one.

    `per_step` and `s_per_step`: their number and seconds over the number of measured steps. `longest_s`: of all, 0 when there is none.
    """

    per_step: float
    s_per_step: float
    longest_s: float


@dataclass(frozen=True)
class RoleWaiting:
    """How much of the measured steps the processes of one role wait, by their spans.

    `busy_s`: mean seconds per measured step in which some process of the role runs a stage; a span of the stage wait, and one that
    only awaits other processes, is none. `role_waiting`: 1 - busy / step, both summed over the measured steps, in [0, 1].
    `process_waiting`: the same of each process by itself.
    """

    role: str
    processes: int
    busy_s: float
    role_waiting: float
    process_waiting: dict[str, float]
    bubbles: Bubbles


@dataclass(frozen=True)
class LongTail:
    """The end of each step's generation, when fewer than a tenth of its samples are unfinished.

    `tail_s`: from that moment until the last sample is finished, median over the measured steps. `tail_share`: the same over the time
    from the first sample's begin to the last one's end, both summed. `samples`: fewest of any step.
    """

    tail_s: float
    tail_share: float
    samples: int
    steps: int


def roles_waiting(
    spans: pd.DataFrame, roles: Mapping[str, str], offsets_ns: Mapping[str, int], windows: Sequence[Window]
) -> list[RoleWaiting]:
    """Each role's waiting in the measured steps `windows`, by role; empty without any time measured.

    `roles` are the processes to look at; those that recorded no stage, start-up aside, are left out. `offsets_ns` moves each process's
    times to the driver's clock.
    """
    total_ns = sum(window.end_ns - window.start_ns for window in windows)
    if not total_ns:
        return []
    stretches = merged(((window.start_ns, window.end_ns) for window in windows), windows[0].start_ns, windows[-1].end_ns)
    of_role: dict[str, dict[str, list[Interval]]] = defaultdict(dict)
    for process, parts in at_work(spans[spans["process"].isin(list(roles))], offsets_ns).items():
        of_role[roles[process]][process] = [(part.start_ns, part.end_ns) for part in parts]
    return [_waiting(role, busy, stretches, len(windows), total_ns) for role, busy in sorted(of_role.items())]


def at_work(spans: pd.DataFrame, offsets_ns: Mapping[str, int]) -> dict[str, list[Segment]]:
    """Process -> its innermost segments on the driver's clock: start-up aside, and without waits and spans that only await others."""
    working = spans[(spans["stage"] != STARTUP) & spans["awaits"].isna()]
    found = {}
    for process, of_process in working.groupby("process"):
        shift = offsets_ns.get(str(process), 0)
        found[str(process)] = [
            part._replace(start_ns=part.start_ns + shift, end_ns=part.end_ns + shift)
            for part in innermost_segments(of_process)
            if part.stage != "wait"
        ]
    return found


def _waiting(role: str, busy: Mapping[str, list[Interval]], stretches: Sequence[Interval], steps: int, total_ns: int) -> RoleWaiting:
    idle = _idle((interval for intervals in busy.values() for interval in intervals), stretches)
    return RoleWaiting(
        role=role,
        processes=len(busy),
        busy_s=(total_ns - sum(idle)) / steps / 1e9,
        role_waiting=sum(idle) / total_ns,
        process_waiting={process: sum(_idle(intervals, stretches)) / total_ns for process, intervals in sorted(busy.items())},
        bubbles=bubbles_of(idle, steps),
    )


def bubbles_of(idle_ns: Iterable[int], steps: int) -> Bubbles:
    """The bubbles among stretches of waiting, given by their lengths."""
    found = [ns for ns in idle_ns if ns >= BUBBLE_NS]
    return Bubbles(len(found) / steps, sum(found) / steps / 1e9, max(found, default=0) / 1e9)


def _idle(busy: Iterable[Interval], stretches: Sequence[Interval]) -> list[int]:
    """Lengths of what `busy` leaves of the stretches."""
    union = union_of(list(busy))
    return [end - start for stretch in stretches for start, end in gaps(part_of(union, *stretch), *stretch)]


def sample_intervals(spans: pd.DataFrame, offsets_ns: Mapping[str, int], steps: Iterable[int]) -> dict[int, list[Interval]]:
    """Step -> when each of its samples was in flight, for frameworks whose samples are coroutines of their own.

    Such an interval is a span of generation in a lane, which stands as a negative thread (docs/records.md).
    """
    found: dict[int, list[Interval]] = {step: [] for step in steps}
    lanes = spans[(spans["stage"] == "generation") & (spans["thread"] < 0) & spans["step"].isin(list(found))]
    for process, step, start, end in plain_rows(lanes, "process", "step", "start_ns", "end_ns"):
        shift = offsets_ns.get(process, 0)
        found[step].append((start + shift, end + shift))
    return found


def long_tail(intervals: Iterable[Sequence[Interval]]) -> LongTail | None:
    """The tail of several steps, each given by its samples' intervals; None where a step has too few samples to have one (10 or fewer)."""
    steps = list(intervals)
    fewest = min((len(step) for step in steps), default=0)
    if fewest <= TAIL_PART:
        return None
    tails = [_tail_ns(sorted(end for _, end in step)) for step in steps]
    lasted = sum(max(end for _, end in step) - min(start for start, _ in step) for step in steps)
    return LongTail(median(tails) / 1e9, sum(tails) / lasted if lasted else 0.0, fewest, len(steps))


def _tail_ns(ends: Sequence[int]) -> int:
    """From the end after which fewer than a tenth are unfinished to the last one."""
    fewer = (len(ends) - 1) // TAIL_PART  # the most that are fewer than a tenth
    return ends[-1] - ends[-1 - fewer]
