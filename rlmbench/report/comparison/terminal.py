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
_GATE = {"passed": "green", "not judged": "yellow", "missing": "bold red", "slower": "bold red"}
_LABEL_WIDTH, _COLUMN_WIDTH = 22, 16
"""Of the stage table, in characters: as many configurations stand beside each other as fit, the others below."""


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
        prefix = f"{words.few(pairs)}: " if len(comparison.pairs) > 1 else ""
        hanging(console, f"  {mark}", f"{prefix}{reason.sentence}", style)
    _more(console, len(reasons), "reasons")
    console.print(_headline(comparison))
    lost = [(one.key, run.id, ending) for one in comparison.configurations for run, ending in words.lost_runs(one)]
    for key, run_id, ending in lost[: words.MOST_LINES]:
        hanging(console, f" {key}  ", f"{run_id}: {ending}", "bold red")
    _more(console, len(lost), "runs that did not end well")
    _print_stages(comparison, console)
    if (warning := words.many_pairs(comparison)) is not None:
        say(console, warning, "dim")
    _print_differences(comparison, console)


def _headline(comparison: Comparison) -> Table:
    heads = [name for name in words.HEADLINE if name != "configuration"]
    made = table(*(f"#{name}" if name else name for name in heads))
    for one in words.told_first(comparison):
        cells = dict(zip(words.HEADLINE, words.headline(one, comparison), strict=True))
        made.add_row(*(text(cells[name]) for name in heads))
    return made


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
    rows = words.stage_rows(comparison)
    beside = max(2, (console.width - _LABEL_WIDTH) // _COLUMN_WIDTH)
    shown = min(len(heads), words.MOST_COLUMNS)
    for first in range(0, shown, beside):
        title = None if first else "Where a step's time goes: mean seconds of a measured step"
        made = table("stage", *(f"#{head}" for head in heads[first : min(shown, first + beside)]), title=title)
        for row in rows:
            made.add_row(text(row.label), *(text(value) for value in row.cells[first : min(shown, first + beside)]))
        console.print(made)
    if len(heads) > shown:
        say(console, f"The fastest {shown} of {len(heads):,} configurations: --json prints all", "dim")
    say(console, words.CAPTION, "dim")
