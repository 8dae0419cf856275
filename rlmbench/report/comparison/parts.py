"""What the first screen of a comparison's page holds, as text ready to be shown; the rest is made of `rlmbench.report.parts`."""

from __future__ import annotations

from dataclasses import dataclass

from rlmbench.report.glossary import Term
from rlmbench.report.parts import Check, Download, Section, Share, State


@dataclass(frozen=True)
class Extent:
    """A mean with its interval and its runs, as shares (0 to 1) of the axis that all configurations have in common. `beyond`: the interval
    ends further on than the axis."""

    value: float
    low: float | None
    high: float | None
    runs: tuple[float, ...]
    beyond: bool = False


@dataclass(frozen=True)
class Rank:
    """One configuration's line: `cells` pairs each heading with its text, `extent` is None where it has no figures."""

    key: str
    name: str
    note: str
    cells: tuple[tuple[str, str], ...]
    extent: Extent | None


@dataclass(frozen=True)
class Told:
    """What is said of one or more pairs."""

    pairs: str
    state: State
    verdict: str
    sentence: str


@dataclass(frozen=True)
class Bar:
    """One configuration's step: `length` is its seconds beside the longest step's."""

    key: str
    time: str
    length: float
    shares: tuple[Share, ...]
    sentence: str


@dataclass(frozen=True)
class ComparisonPage:
    """The page of several runs."""

    title: str
    subtitle: str
    status: State
    status_word: str
    device_label: str | None
    lead: str
    ranks: tuple[Rank, ...]
    ranks_note: str
    told: tuple[Told, ...]
    told_note: str
    checks: tuple[Check, ...]
    checks_note: str
    bars: tuple[Bar, ...]
    legend: tuple[tuple[str, str], ...]
    bars_note: str
    sections: tuple[Section, ...]
    glossary: tuple[Term, ...]
    downloads: tuple[Download, ...]
    data_note: str
