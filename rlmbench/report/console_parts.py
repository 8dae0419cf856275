"""Pieces of terminal output: open tables, hanging labels, headings. Texts of a record are never taken for markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlmbench.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def table(*titles: str, title: str | None = None) -> Table:
    """An open table; columns whose title begins with ``#`` are of numbers."""
    from rich import box
    from rich.table import Table

    shown = text(title, "bold") if title is not None else None  # a str would be read as markup
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title=shown, title_justify="left")
    for name in titles:
        number = name.startswith("#")
        made.add_column(text(name.removeprefix("#")), justify="right" if number else "left", no_wrap=number, overflow="fold")
    return made


def fitting(
    columns: Mapping[str, Sequence[str | Text]], dispensable: Sequence[str], width: int, title: str | None = None
) -> tuple[Table, list[str]]:
    """An open table with all columns, or with as many as fit `width` without a word broken: the `dispensable` go in their order. And their titles."""
    kept = dict(columns)
    for dropped in dispensable:
        if sum(_needed(name, cells) for name, cells in kept.items()) <= width:
            break
        del kept[dropped]
    made = table(*kept, title=title)
    for row in zip(*kept.values(), strict=True):
        made.add_row(*(text(cell) if isinstance(cell, str) else cell for cell in row))
    return made, list(kept)


def _needed(title: str, cells: Sequence[str | Text]) -> int:
    """Characters that a column takes at least, with the two around it: its longest line, and where it wraps its longest word."""
    if title.startswith("#"):
        return 2 + max(len(part) for cell in (title.removeprefix("#"), *cells) for part in str(cell).split("\n"))
    return 2 + max((len(word) for cell in (title, *cells) for word in str(cell).split()), default=0)


def text(value: object, style: str = "") -> Any:
    """`value` as it is, without what would move the cursor or colour the terminal."""
    from rich.text import Text

    return Text(printable(str(value)), style=style)


def say(console: Console, words: str, style: str = "") -> None:
    console.print(text(words, style))


def heading(console: Console, words: str) -> None:
    from rich.rule import Rule

    console.print()
    console.print(text(words, "bold"), overflow="fold")
    console.print(Rule(characters="─", style="dim"))


def hanging(console: Console, label: str, words: str, style: str = "") -> None:
    """`label`, and beside it `words`, whose further lines are set in below its first."""
    from rich.table import Table

    grid = Table.grid(padding=0)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(text(label, style), text(words))
    console.print(grid)


def to_copy(console: Console, label: str, words: str) -> None:
    """A path or command on one line however long, so that it can be copied."""
    console.print(text(f"{label}{words}"), soft_wrap=True)
