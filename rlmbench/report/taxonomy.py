"""The table of techniques: in the terminal, and as a chapter of a run's page for the run's own framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rlmbench.adapter import installed_adapters
from rlmbench.records.vocabulary import FRAMEWORK_NAMES
from rlmbench.report import console_parts
from rlmbench.report.parts import Cell, Column, Folded, Section, Table, line
from rlmbench.taxonomy import DeclaresTechniques, Support, rows

if TYPE_CHECKING:
    from rich.table import Table as Printed

    from rlmbench.adapter import Adapter
    from rlmbench.report.parts import State

_STYLES = {Support.RUN: "green", Support.TRANSLATED: "yellow", Support.ABSENT: "dim"}
_STATES: Mapping[Support, State] = {Support.RUN: "ok", Support.TRANSLATED: "warn", Support.ABSENT: "none"}
NOT_STATED = "not stated"


def table(adapters: Mapping[str, Adapter]) -> Printed:
    """Techniques down, frameworks across."""
    made = console_parts.table("technique", *[FRAMEWORK_NAMES.get(name, name) for name in adapters])
    for kind, of in rows(adapters):
        cells = [console_parts.text(one.support if one else NOT_STATED, _STYLES[one.support] if one else "dim") for one in of]
        made.add_row(console_parts.text(kind.title), *cells)
    return made


def taxonomy_sections(frameworks: Iterable[str]) -> tuple[Section, ...]:
    """The chapter for those of `frameworks` whose adapters are installed here; none where none is."""
    installed = installed_adapters()
    known = {name: installed[name] for name in dict.fromkeys(frameworks) if isinstance(installed.get(name), DeclaresTechniques)}
    return (taxonomy_section(known),) if known else ()


def taxonomy_section(adapters: Mapping[str, Adapter]) -> Section:
    """What the frameworks of a page could have been asked for, and whether that was ever run."""
    found = rows(adapters)
    names = [FRAMEWORK_NAMES.get(name, name) for name in adapters]
    lines = tuple(
        line(kind.title, *[Cell(one.support, state=_STATES[one.support]) if one else NOT_STATED for one in of]) for kind, of in found
    )
    hows = tuple(line(kind.title, *[one.how if one else "" for one in of]) for kind, of in found)
    heads = (Column("technique"), *(Column(name) for name in names))
    intro = (
        "Parallelism and techniques between models in the terms of arXiv 2608.27046, as rlmbench's adapters drive them. Run here: trained and audited on a "
        "machine of rlmbench's authors, a CPU at tiny."
    )
    parts = (Table("How far each framework goes", heads, lines), Folded(Table("How, or why not", heads, hows, prose=True)))
    return Section(
        "taxonomy", "What the frameworks could do" if len(adapters) > 1 else "What the framework could do", "Techniques", intro, parts
    )
