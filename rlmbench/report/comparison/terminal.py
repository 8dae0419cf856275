"""A comparison in the terminal: who is faster, can I trust it, why do they differ; readable at 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlmbench.report.comparison import words
from rlmbench.report.console_parts import hanging, heading, say, table, text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rlmbench.comparison.figures import Comparison

_STYLES = {"comparable": "green", "comparable with reservations": "yellow", "not comparable": "bold red"}
_LABEL_WIDTH, _COLUMN_WIDTH = 22, 16
"""Of the stage table, in characters: as many configurations stand beside each other as fit, the others below."""


def print_comparison(comparison: Comparison, console: Console) -> None:
    """The whole comparison, the answer first."""
    console.print(text(words.title(comparison), "bold"))
    say(console, words.device_line(comparison), "dim")
    for one in comparison.configurations:
        hanging(console, f"  {one.key}  ", words.legend(one))
    console.print()
    for pairs, verdict, speed in words.verdicts(comparison):
        hanging(console, f"{pairs}: ", verdict, _STYLES[verdict])
        hanging(console, " " * 7, speed)
    if not comparison.pairs:
        say(console, words.nothing_to_compare(comparison), "yellow")
    for pairs, reason in words.shared_reasons(comparison):
        mark, style = ("X ", "bold red") if reason.severity == "prevents" else ("! ", "yellow")
        prefix = f"{pairs}: " if len(comparison.pairs) > 1 else ""
        hanging(console, f"  {mark}", f"{prefix}{reason.sentence}", style)
    console.print(_headline(comparison))
    for one in comparison.configurations:
        for run, ending in words.lost_runs(one):
            hanging(console, f" {one.key}  ", f"{run.id}: {ending}", "bold red")
    _print_stages(comparison, console)
    if (warning := words.many_pairs(comparison)) is not None:
        say(console, warning, "dim")
    _print_differences(comparison, console)


def _headline(comparison: Comparison) -> Table:
    heads = [name for name in words.HEADLINE if name != "configuration"]
    made = table(*(f"#{name}" if name else name for name in heads))
    for one in comparison.configurations:
        cells = dict(zip(words.HEADLINE, words.headline(one), strict=True))
        made.add_row(*(text(cells[name]) for name in heads))
    return made


def _print_differences(comparison: Comparison, console: Console) -> None:
    merged = words.merged_differences(comparison)
    if not merged:
        return
    heading(console, "In what they differ: it changes the work, the numbers, or neither")
    for difference, told in merged:
        style = {"work": "bold yellow", "unknown": "bold yellow", "numbers": "", "neither": "dim"}[difference.changes]
        hanging(console, f"{difference.changes:<8} ", told, style)
        hanging(console, " " * 9, words.consequence(difference), "dim")


def _print_stages(comparison: Comparison, console: Console) -> None:
    heads = words.stage_heads(comparison)
    if not heads:
        return
    rows = words.stage_rows(comparison)
    beside = max(2, (console.width - _LABEL_WIDTH) // _COLUMN_WIDTH)
    for first in range(0, len(heads), beside):
        title = None if first else "Where a step's time goes: mean seconds of a measured step"
        made = table("stage", *(f"#{head}" for head in heads[first : first + beside]), title=title)
        for row in rows:
            made.add_row(text(row.label), *(text(value) for value in row.cells[first : first + beside]))
        console.print(made)
    say(console, words.CAPTION, "dim")
