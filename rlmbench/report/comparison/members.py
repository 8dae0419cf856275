"""The configurations of a comparison with the runs behind them, for what the figures object does not hold."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from rlmbench.comparison.configurations import Group
from rlmbench.comparison.evidence import Evidence
from rlmbench.comparison.figures import Comparison, Configuration
from rlmbench.records.store import Run, load
from rlmbench.report.palette import CONFIGURATION_COLOURS, CONFIGURATION_DASHES

MOST_DRAWN = len(CONFIGURATION_COLOURS)
"""Configurations that charts and side-by-side tables show, the fastest first; `rlmbench compare --json` holds all."""


@dataclass(frozen=True)
class Member:
    """One configuration: its figures and its runs. `place` counts from 0, the fastest first."""

    figures: Configuration
    runs: tuple[Evidence, ...]
    place: int

    @property
    def key(self) -> str:
        return self.figures.key

    @property
    def colour(self) -> str:
        return CONFIGURATION_COLOURS[self.place % MOST_DRAWN]

    @property
    def dash(self) -> list[int]:
        return CONFIGURATION_DASHES[self.place % MOST_DRAWN]

    @cached_property
    def ok(self) -> tuple[Evidence, ...]:
        """Runs that ended well."""
        return tuple(run for run in self.runs if run.ok)

    @cached_property
    def typical(self) -> Evidence:
        """The run nearest to the mean throughput. Only for a configuration with a run that ended well."""
        mean = self.figures.tokens_per_s.value if self.figures.tokens_per_s else 0.0
        return min(self.ok, key=lambda run: abs(_rate(run) - mean))

    @cached_property
    def typical_run(self) -> Run:
        """The record of `typical`."""
        return load(self.typical.path)

    def mean(self, figure: Callable[[Evidence], float | None]) -> float | None:
        """Mean of one figure over the runs that ended well and have it; None where none has."""
        values = [value for run in self.ok if (value := figure(run)) is not None]
        return statistics.fmean(values) if values else None


def _rate(run: Evidence) -> float:
    return run.summary.throughput.step_tokens_per_s if run.summary.throughput else 0.0


def members_of(comparison: Comparison, groups: Sequence[Group]) -> list[Member]:
    """Each configuration with its runs. `groups` are those the comparison was made from, in its order."""
    pairs = zip(comparison.configurations, groups, strict=True)
    return [Member(figures, group.runs, place) for place, (figures, group) in enumerate(pairs)]


def drawn(members: Iterable[Member]) -> list[Member]:
    """Those with figures that charts show."""
    return [member for member in members if member.ok][:MOST_DRAWN]


def left_out_note(members: Sequence[Member]) -> str | None:
    """That not all are shown; None where they are."""
    good = [member for member in members if member.ok]
    if len(good) <= MOST_DRAWN:
        return None
    return f"Shown are the fastest {MOST_DRAWN} of {len(good)} configurations with figures; rlmbench compare --json prints all."
