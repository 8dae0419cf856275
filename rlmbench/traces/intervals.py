"""Unions and intersections of half-open intervals [start, end) in integer nanoseconds, as numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def distinct(values: npt.NDArray[Any]) -> list[int]:
    """The different values, ascending. (np.unique and np.isin would load numpy.ma first, which takes as long as reading 40 MB.)"""
    ordered = np.sort(values)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))].tolist() if len(ordered) else []


@dataclass(frozen=True)
class Intervals:
    """Disjoint intervals in ascending order. Touching ones are one; empty ones are left out."""

    start: Ints
    end: Ints

    @property
    def total_ns(self) -> int:
        return int((self.end - self.start).sum())

    def covered_before(self, instants: Ints) -> Ints:
        """How many ns before each instant are covered."""
        if not len(self.start):
            return np.zeros(len(instants), np.int64)
        before = np.concatenate(([0], np.cumsum(self.end - self.start)))
        index = np.searchsorted(self.start, instants, side="right")
        last = np.maximum(index - 1, 0)
        return np.where(index > 0, before[last] + np.minimum(instants, self.end[last]) - self.start[last], 0)

    def within(self, start: Ints, end: Ints) -> Ints:
        """Covered ns in each window [start, end)."""
        return self.covered_before(end) - self.covered_before(start)


def union(start: Ints, end: Ints) -> Intervals:
    """The union of any intervals, which may overlap and come in any order."""
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if not len(start):
        return Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    return Intervals(start[first], reach[np.concatenate((first[1:] - 1, [len(start) - 1]))])


def join(one: Intervals, other: Intervals) -> Intervals:
    """The union of two unions."""
    return union(np.concatenate((one.start, other.start)), np.concatenate((one.end, other.end)))


def intersect(one: Intervals, other: Intervals) -> Intervals:
    """What both cover."""
    if not len(one.start) or not len(other.start):
        return Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
    first = np.searchsorted(other.end, one.start, side="right")
    beyond = np.searchsorted(other.start, one.end, side="left")
    count = np.maximum(beyond - first, 0)
    mine = np.repeat(np.arange(len(one.start)), count)
    theirs = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return union(np.maximum(one.start[mine], other.start[theirs]), np.minimum(one.end[mine], other.end[theirs]))


def subtract(one: Intervals, other: Intervals) -> Intervals:
    """What `one` covers and `other` does not."""
    if not len(one.start) or not len(other.start):
        return one
    low, high = int(one.start[0]), int(one.end[-1])
    start = np.concatenate(([low], other.end))
    end = np.concatenate((other.start, [max(high, int(other.end[-1]))]))
    return intersect(one, union(start, end))
