"""The parts a page is made of. They hold text ready to be shown and know nothing of runs; the template renders them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rlmbench.report.glossary import Term

State = Literal["ok", "warn", "bad", "none"]
"""How good something is: passed, worth a look, failed, or not known."""


@dataclass(frozen=True)
class Cell:
    """One cell: text, and what may stand with it.

    `bar` (0 to 1) draws a bar of that share, `colour` is the bar's or else that of a swatch before the text, `state` colours and marks
    the text, `code` sets it in a fixed-width face.
    """

    text: str
    colour: str | None = None
    bar: float | None = None
    state: State | None = None
    code: bool = False


@dataclass(frozen=True)
class Column:
    """A column's heading; numbers are set to the right, so that their digits align."""

    title: str
    number: bool = False


@dataclass(frozen=True)
class Line:
    """One row of a table, and the tag a filter selects it by."""

    cells: tuple[Cell, ...]
    tag: str = ""


def line(*cells: Cell | str, tag: str = "") -> Line:
    """A row from cells and plain texts."""
    return Line(tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells), tag)


def columns(*titles: str) -> tuple[Column, ...]:
    """Headings; one that begins with ``#`` is of numbers."""
    return tuple(Column(title.removeprefix("#"), title.startswith("#")) for title in titles)


@dataclass(frozen=True)
class Table:
    """A table with its caption. Without lines the page shows `empty`, which says why.

    With `filters`, buttons show only the lines with that tag. A `prose` table is one of sentences: where there is no room for its
    columns, each line becomes a block of its own.
    """

    caption: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    empty: str = "nothing was recorded"
    filters: tuple[str, ...] = ()
    prose: bool = False


@dataclass(frozen=True)
class Choice:
    """One of several data sets a chart can show."""

    label: str
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Chart:
    """A drawing, its text alternative and its table. `legend` pairs a label with a colour."""

    id: str
    title: str
    summary: str
    spec: dict[str, Any]
    table: Table
    legend: tuple[tuple[str, str], ...] = ()
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True)
class Check:
    """One reason to trust a run, or not to."""

    name: str
    state: State
    text: str


@dataclass(frozen=True)
class Tile:
    """One headline figure; `unit` is set smaller beside it."""

    label: str
    value: str
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class Failing:
    """What ended a run that did not succeed."""

    title: str
    message: str
    facts: tuple[tuple[str, str], ...]
    cause: str | None
    tail: tuple[str, ...]
    log_path: str | None
    command: str | None


@dataclass(frozen=True)
class Share:
    """One stage's part of the measured time; `part` is a share of 1."""

    label: str
    colour: str
    time: str
    share: str
    part: float


@dataclass(frozen=True)
class Group:
    """Charts that belong beside each other."""

    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Code:
    """Text to copy: a command or a configuration."""

    title: str
    text: str
    folded: bool = False


@dataclass(frozen=True)
class Note:
    """A sentence that stands out."""

    text: str
    state: State = "none"


@dataclass(frozen=True)
class Facts:
    """Names with their values."""

    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Folded:
    """A table that is shown on demand."""

    table: Table


@dataclass(frozen=True)
class Legend:
    """What colours mean, for several charts at once: labels with their colours."""

    entries: tuple[tuple[str, str], ...]


Part = Chart | Table | Group | Code | Note | Facts | Folded | Legend


@dataclass(frozen=True)
class Section:
    """A chapter of the page: its parts in order, under a heading that is also an entry (`short`) of the navigation."""

    id: str
    title: str
    short: str
    intro: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Download:
    """Data that travel with the page, under the file name `name`: a text, or an object that becomes JSON. `id` is the element's."""

    id: str
    label: str
    name: str
    content: Any


@dataclass(frozen=True)
class Page:
    """The page of one run."""

    title: str
    subtitle: str
    status: State
    status_word: str
    device_label: str | None
    lead: str
    checks: tuple[Check, ...]
    tiles: tuple[Tile, ...]
    shares: tuple[Share, ...]
    share_note: str
    failing: Failing | None
    sections: tuple[Section, ...]
    glossary: tuple[Term, ...]
    downloads: tuple[Download, ...]
