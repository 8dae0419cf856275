"""Interval arithmetic against sets of instants, which need no cleverness."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmbench.traces.columns import Annotation
from rlmbench.traces.intervals import Intervals, intersect, join, subtract, union
from rlmbench.traces.names import Kind
from rlmbench.traces.stages import segments

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12)


def made(pairs: list[tuple[int, int]]) -> Intervals:
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    return union(columns[:, 0], columns[:, 1])


def instants(pairs: list[tuple[int, int]]) -> set[int]:
    return {instant for start, end in pairs for instant in range(start, end)}


def of(intervals: Intervals) -> set[int]:
    """The instants, after a check of what the class promises: ascending, apart from each other, none empty."""
    start, end = intervals.start.tolist(), intervals.end.tolist()
    assert all(a < b for a, b in zip(start, end, strict=True))
    assert all(a < b for a, b in zip(end, start[1:], strict=False))
    return instants(list(zip(start, end, strict=True)))


@settings(deadline=None)
@given(PAIRS, PAIRS)
def test_union_intersection_and_difference_hold_the_right_instants(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    first, second = made(one), made(other)
    assert of(first) == instants(one)
    assert first.total_ns == len(instants(one))
    assert of(join(first, second)) == instants(one) | instants(other)
    assert of(intersect(first, second)) == instants(one) & instants(other)
    assert of(subtract(first, second)) == instants(one) - instants(other)


@settings(deadline=None)
@given(PAIRS, PAIRS)
def test_within_counts_what_is_covered_in_each_window(one: list[tuple[int, int]], windows: list[tuple[int, int]]) -> None:
    columns = np.array(windows, np.int64).reshape(-1, 2)
    assert made(one).within(columns[:, 0], columns[:, 1]).tolist() == [
        len(instants(one) & set(range(start, end))) for start, end in windows
    ]


@settings(deadline=None)
@given(PAIRS)
def test_a_moment_belongs_to_the_annotation_that_began_last_and_of_these_to_the_one_that_ends_first(pairs: list[tuple[int, int]]) -> None:
    notes = [Annotation(Kind.ANNOTATION, f"n{i}", 1, 1, start, end, -1) for i, (start, end) in enumerate(pairs)]
    found = segments(notes, {note.name: i for i, note in enumerate(notes)})
    for instant, stage in enumerate(found.at(np.arange(60)).tolist()):
        open_ones = [(note.start_ns, -note.end_ns, i) for i, note in enumerate(notes) if note.start_ns <= instant < note.end_ns]
        if not open_ones:
            assert stage == -1
        else:  # of two alike, either
            assert (notes[stage].start_ns, -notes[stage].end_ns) == max(open_ones)[:2]
