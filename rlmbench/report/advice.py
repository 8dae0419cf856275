"""Guidelines that a run's figures speak to: the rows that terminal and page share, and the page's chapter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlmbench.report import numbers, words
from rlmbench.report.console_parts import hanging
from rlmbench.report.parts import Cell, Folded, Note, Part, Section, Table, columns, line

if TYPE_CHECKING:
    from rich.console import Console

    from rlmbench.metrics import RunSummary
    from rlmbench.metrics.figures import Guideline

IDEAL = "predicted with ideal scaling and the other defaults that rlmbench whatif prints: the most that can be expected"
NOT_LOOKED_AT = "not looked at: the record was written before guidelines were; rlmbench show derives them"


def print_advice(summary: RunSummary, console: Console) -> None:
    """What is triggered, with figure and prediction; what is not, in a line."""
    found = summary.guidelines
    if not found:
        return
    for one in found:
        if one.triggered:
            hanging(console, "guideline: ", f"{one.name}: {one.says}. {figure_text(one)}; {prediction_text(one)}", "bold")
    hanging(console, "guidelines: ", others_text(found), "dim")
    if any(one.predicted_step_s is not None for one in found):
        hanging(console, "            ", IDEAL, "dim")


def figure_text(one: Guideline) -> str:
    """The figure that triggers it, or does not, beside its threshold."""
    return f"Here: {one.figure} {number(one.value, one)}, threshold {number(one.threshold, one)}"


def number(value: float, one: Guideline) -> str:
    """A share as a percentage; anything else as a plain number."""
    return numbers.share(value) if "share" in one.figure or one.threshold < 1 else numbers.significant(value)


def prediction_text(one: Guideline) -> str:
    """What following it would give, by the what-if."""
    if one.step_s is None or one.predicted_step_s is None:
        return f"prediction: {one.prediction}"
    change = one.predicted_step_s / one.step_s - 1
    seconds = f"{numbers.seconds(one.step_s)} to {numbers.seconds(one.predicted_step_s)} a step ({change:+.1%})"
    return f"predicted: {seconds}{'' if change < -0.005 else ', no gain here'} ({one.prediction})"


def others_text(found: Sequence[Guideline]) -> str:
    """Those below their thresholds, so that silence is not mistaken for blindness."""
    others = [f"{one.name} {number(one.value, one)} of {number(one.threshold, one)}" for one in found if not one.triggered]
    first = "none is triggered" if len(others) == len(found) else "not triggered"
    return f"{first}: {', '.join(others)}" if others else "all with a figure in this run are triggered"


def advice_section(summary: RunSummary, predictions: tuple[Part, ...] = ()) -> Section:
    """The page's chapter: guidelines, and `predictions` of other modes."""
    found = summary.guidelines
    parts: tuple[Part, ...]
    if found is None:
        parts = (Note(NOT_LOOKED_AT),)
    elif not found:
        parts = (Note(words.SLOWED if summary.run_pass == "profile" else "The run measured no figure that a guideline looks at."),)
    else:
        triggered = [one for one in found if one.triggered]
        shown = Table(
            "Guidelines that are triggered",
            columns("guideline", "what it says", "figure here", "if followed"),
            tuple(
                line(Cell(one.name, code=True), one.says, figure_text(one).removeprefix("Here: "), prediction_text(one))
                for one in triggered
            ),
            empty=f"none of the {len(found)} that this run has figures for",
            prose=True,
        )
        rest = tuple(
            line(Cell(one.name, code=True), one.figure, number(one.value, one), number(one.threshold, one))
            for one in found
            if not one.triggered
        )
        parts = (
            shown,
            Folded(Table("Not triggered", columns("guideline", "figure", "#here", "#threshold"), rest, empty="all are triggered")),
        )
    intro = (
        "Each guideline is given with the figure that triggers it and the step time that rlmbench whatif simulates for following it, "
        "with ideal scaling: the most it can be expected to give. Thresholds are rlmbench's own choice."
    )
    return Section("guidelines", "What the figures suggest", "Guidelines", intro, (*parts, *predictions))
