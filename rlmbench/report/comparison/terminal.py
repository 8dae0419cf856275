"""A comparison in the terminal: who is faster, can I trust it, why do they differ; readable at 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlmbench.report.comparison import words
from rlmbench.report.console_parts import hanging, heading, say, table, text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rlmbench.comparison.figures import Comparison, Pair

_STYLES = {"comparable": "green", "comparable with reservations": "yellow", "not comparable": "bold red"}
_SPEED_STYLES = {"faster": "bold green", "slower": "bold green", "no difference shown": "", "too few runs": "yellow"}
_SIDE_BY_SIDE = 5
"""Columns of configurations that fit beside each other."""


def print_comparison(comparison: Comparison, console: Console) -> None:
    """The whole comparison, the answer first."""
    console.print(text(words.title(comparison), "bold"))
    say(console, words.device_line(comparison), "dim")
    console.print()
    for pair in comparison.pairs:
        _print_verdict(pair, comparison, console)
    if not comparison.pairs:
        say(console, words.nothing_to_compare(comparison), "yellow")
    for pairs, reason in words.shared_reasons(comparison):
        mark, style = ("X ", "bold red") if reason.severity == "prevents" else ("! ", "yellow")
        prefix = f"{pairs}: " if len(comparison.pairs) > 1 else ""
        hanging(console, f"  {mark}", f"{prefix}{reason.sentence}", style)
    console.print(_headline(comparison, console.width))
    for one in comparison.configurations:
        for run, ending in words.lost_runs(one):
            hanging(console, f" {one.key}  ", f"{run.id}: {ending}", "bold red")
    if (warning := words.many_pairs(comparison)) is not None:
        say(console, warning, "dim")
    for pair in comparison.pairs:
        _print_differences(pair, comparison, console)
    _print_stages(comparison, console)


def _print_verdict(pair: Pair, comparison: Comparison, console: Console) -> None:
    hanging(console, f"{words.pair_name(pair)}  ", pair.verdict, _STYLES[pair.verdict])
    style = _SPEED_STYLES[pair.speed.verdict] if pair.speed else "yellow"
    hanging(console, " " * len(words.pair_name(pair)) + "  ", words.speed_sentence(pair, comparison), style)


def _headline(comparison: Comparison, width: int) -> Table:
    wide = width >= 100
    made = table(*(f"#{name}" if place >= 2 else name for place, name in enumerate(words.HEADLINE) if wide or name != "spread"))
    for one in comparison.configurations:
        cells = dict(zip(words.HEADLINE, words.headline(one), strict=True))
        made.add_row(*(text(value) for name, value in cells.items() if wide or name != "spread"))
    return made


def _print_differences(pair: Pair, comparison: Comparison, console: Console) -> None:
    a, b = comparison.configuration(pair.a), comparison.configuration(pair.b)
    heading(console, f"In what {a.key} ({a.name}) and {b.key} ({b.name}) differ")
    if not pair.differences:
        say(console, "in nothing that was recorded")
    for difference in pair.differences:
        style = {"work": "bold yellow", "unknown": "bold yellow", "numbers": "", "neither": "dim"}[difference.changes]
        hanging(console, f"{difference.changes:<8} ", words.differing(difference, pair), style)
        hanging(console, " " * 9, f"{difference.why}; {words.unify(difference)}", "dim")


def _print_stages(comparison: Comparison, console: Console) -> None:
    shown = comparison.configurations[:_SIDE_BY_SIDE]
    heading(console, "Where a step's time goes: mean seconds of a measured step, and their share of it")
    made = table("stage", *(f"#{one.key}" for one in shown))
    for row in words.stage_rows(comparison):
        made.add_row(text(row.label), *(text(value) for value in row.cells[:_SIDE_BY_SIDE]))
    console.print(made)
    if len(comparison.configurations) > _SIDE_BY_SIDE:
        say(console, f"The first {_SIDE_BY_SIDE} of {len(comparison.configurations)} configurations; --json holds all.", "dim")
    say(console, words.CAPTION, "dim")
