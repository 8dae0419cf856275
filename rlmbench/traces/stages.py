"""Which annotation a moment belongs to: of those open at once, the one that began last."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rlmbench.traces.columns import Annotation
from rlmbench.traces.intervals import Intervals, Ints, union


@dataclass(frozen=True)
class Segments:
    """Disjoint stretches of one timeline in ascending order, each with the number of the stage that it belongs to."""

    start: Ints
    end: Ints
    stage: Ints

    def at(self, instants: Ints) -> Ints:
        """The stage at each instant; -1 for none."""
        if not len(self.start):
            return np.full(len(instants), -1, np.int64)
        index = np.searchsorted(self.start, instants, side="right") - 1
        last = np.maximum(index, 0)
        return np.where((index >= 0) & (instants < self.end[last]), self.stage[last], -1)

    def of(self, stage: int) -> Intervals:
        mine = self.stage == stage
        return union(self.start[mine], self.end[mine])


def segments(annotations: Iterable[Annotation], number: dict[str, int]) -> Segments:
    """The stretches of one timeline. An annotation that is not in `number` is left out."""
    begin = sorted(
        (note.start_ns, -note.end_ns, number[note.name]) for note in annotations if note.name in number and note.end_ns > note.start_ns
    )
    edges = sorted({edge for start, end, _ in begin for edge in (start, -end)})
    open_ones: list[tuple[int, int, int, int]] = []  # latest start first; of equal starts the one that ends first
    rows: list[tuple[int, int, int]] = []
    upcoming = 0
    for left, right in pairwise(edges):
        while upcoming < len(begin) and begin[upcoming][0] <= left:
            start, end, stage = begin[upcoming]
            heapq.heappush(open_ones, (-start, -end, upcoming, stage))
            upcoming += 1
        while open_ones and open_ones[0][1] <= left:
            heapq.heappop(open_ones)
        if open_ones:
            rows.append((left, right, open_ones[0][3]))
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return Segments(columns[:, 0], columns[:, 1], columns[:, 2])
