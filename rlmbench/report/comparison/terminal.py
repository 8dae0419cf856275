"""A comparison in the terminal: who is faster, can I trust it, why do they differ; readable at 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlmbench.report.comparison import words
from rlmbench.report.console_parts import hanging, heading, say, table, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from rlmbench.comparison.figures import Comparison

_STYLES = {"comparable": "green", "comparable with reservations": "yellow", "not comparable": "bold red"}
_GATE = {"passed": "green", "not judged": "yellow", "missing": "bold red", "slower": "bold red"}


def print_comparison(comparison: Comparison, console: Console) -> None:
    """The whole comparison, the answer first."""
    console.print(text(words.title(comparison), "bold"))
    say(console, words.device_line(comparison), "dim")
    for one in words.told_first(comparison):
        hanging(console, f"  {one.key}  ", words.legend(one))
    _more(console, len(comparison.configurations), "configurations")
    console.print()
    told = words.verdicts(comparison)
    for pairs, verdict, speed in told[: words.MOST_LINES]:
        hanging(console, f"{words.few(pairs)}: ", verdict, _STYLES[verdict])
        hanging(console, " " * 7, speed)
    _more(console, len(told), "verdicts")
    if not comparison.pairs:
        say(console, words.nothing_to_compare(comparison), "yellow")
    if (more := words.left_out(comparison)) is not None:
        say(console, more, "dim")
    if comparison.gate:
        console.print(text(words.gate_line(comparison), _GATE[comparison.gate.outcome]))
        for judged in comparison.gate.pairs:
            hanging(console, f"  {judged.outcome}: ", judged.sentence, _GATE[judged.outcome])
    for what, sentence in words.alone(comparison):
        hanging(console, f"  {what}: ", sentence, _GATE.get(what, "yellow"))
    reasons = words.shared_reasons(comparison)
    for pairs, reason in reasons[: words.MOST_LINES]:
        mark, style = ("X ", "bold red") if reason.severity == "prevents" else ("! ", "yellow")
        prefix = f"{words.few(pairs)}: " if words.names_needed(comparison) else ""
        hanging(console, f"  {mark}", f"{prefix}{reason.sentence}", style)
    _more(console, len(reasons), "reasons")
    _print_headline(comparison, console)
    lost = [(one.key, run.id, ending) for one in comparison.configurations for run, ending in words.lost_runs(one)]
    for key, run_id, ending in lost[: words.MOST_LINES]:
        hanging(console, f" {key}  ", f"{run_id}: {ending}", "bold red")
    _more(console, len(lost), "runs that did not end well")
    if (again := words.made_again(comparison)) is not None:
        hanging(console, " -  ", again, "dim")
    _print_stages(comparison, console)
    if (warning := words.many_pairs(comparison)) is not None:
        say(console, warning, "dim")
    _print_differences(comparison, console)


def _print_headline(comparison: Comparison, console: Console) -> None:
    """The legend has said what the letters stand for."""
    kept = [place for place, name in enumerate(words.HEADLINE) if name != "configuration"]
    rows = [[cells[place] for place in kept] for cells in (words.headline(one, comparison) for one in words.told_first(comparison))]
    _print_stacked(console, [words.HEADLINE[place] for place in kept], rows)


def _print_stacked(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """A table of numbers whose first column names its rows. As many of the others stand beside it as fit, the rest below, named again: squeezed
    into the width, rich would take the names away first."""
    first = 1
    while first < len(heads):
        end = len(heads)
        while end > first + 1 and _width(_columns(heads, rows, first, end, None), console) > console.width:
            end -= 1
        console.print(_columns(heads, rows, first, end, title))
        first, title = end, None


def _columns(heads: Sequence[str], rows: Sequence[Sequence[str]], first: int, end: int, title: str | None) -> Table:
    """The column of names and those from `first` to before `end`."""
    made = table(heads[0], *(f"#{head}" for head in heads[first:end]), title=title)
    made.columns[0].no_wrap = True
    made.columns[0].min_width = max(len(row[0]) for row in rows)
    for row in rows:
        made.add_row(*(text(cell) for cell in (row[0], *row[first:end])))
    return made


def _width(made: Table, console: Console) -> int:
    """Characters that a table takes where it has all the room it wants."""
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(width=10_000, max_width=10_000), made).maximum


def _print_differences(comparison: Comparison, console: Console) -> None:
    merged = words.merged_differences(comparison)
    if not merged:
        return
    heading(console, "In what they differ: it changes the work, the numbers, or neither")
    for difference, told in merged[: words.MOST_LINES]:
        style = {"work": "bold yellow", "unknown": "bold yellow", "numbers": "", "neither": "dim"}[difference.changes]
        hanging(console, f"{difference.changes:<8} ", told, style)
        hanging(console, " " * 9, words.consequence(difference), "dim")
    _more(console, len(merged), "differences")


def _more(console: Console, found: int, what: str) -> None:
    if (note := words.more(found, what)) is not None:
        say(console, note, "dim")


def _print_stages(comparison: Comparison, console: Console) -> None:
    heads = words.stage_heads(comparison)
    if not heads:
        return
    shown = min(len(heads), words.MOST_COLUMNS)
    rows = [(row.label, *row.cells[:shown]) for row in words.stage_rows(comparison)]
    _print_stacked(console, ("stage", *heads[:shown]), rows, "Where a step's time goes: mean seconds of a measured step")
    if len(heads) > shown:
        say(console, f"The fastest {shown} of {len(heads):,} configurations: --json prints all", "dim")
    say(console, words.CAPTION, "dim")
