"""Did several runs do the same work? Step by step, from what reached the loss of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlmbench.report import numbers, words
from rlmbench.report.console_parts import say, table, text

if TYPE_CHECKING:
    from rich.console import Console

    from rlmbench.metrics import RunSummary
    from rlmbench.metrics.figures import StepFigures

COUNTS = ("prompts", "samples", "prompt_tokens", "response_tokens", "optimizer_steps")


@dataclass(frozen=True)
class StepAgreement:
    """One step over several runs: `work` is what most of them did, `others` the runs that did something else."""

    step: int
    work: StepFigures
    others: tuple[RunSummary, ...]


def agreement(summaries: Sequence[RunSummary]) -> list[StepAgreement]:
    """Every step that some run finished. A run that lacks the step is among the others."""
    found = []
    for number in sorted({step.step for summary in summaries for step in summary.steps}):
        of_run = [next((step for step in summary.steps if step.step == number), None) for summary in summaries]
        done = [step for step in of_run if step is not None]
        most = max(done, key=lambda step: sum(_same(step, other) for other in done))
        others = tuple(summary for summary, step in zip(summaries, of_run, strict=True) if step is None or not _same(step, most))
        found.append(StepAgreement(number, most, others))
    return found


def _same(a: StepFigures, b: StepFigures) -> bool:
    return a.work_digest == b.work_digest and all(getattr(a, name) == getattr(b, name) for name in COUNTS)


def print_agreement(summaries: Sequence[RunSummary], console: Console) -> None:
    """One table: what reached the loss in each step, and which runs did otherwise. Nothing for runs of different suites or lengths left to the model."""
    comparable = [summary for summary in summaries if summary.audit is not None and summary.audit.planned.response_tokens is not None]
    if len(comparable) < 2 or len({(summary.suite, summary.scale) for summary in comparable}) > 1:
        return
    steps = agreement(comparable)
    shown = table(
        "#step", "#prompts", "#samples", "#prompt tok", "#response tok", "#updates", "digest", "agree",
        title="What reached the loss, step by step",
    )  # fmt: skip
    for one in steps:
        counts = [numbers.count(getattr(one.work, name)) for name in COUNTS]
        others = ", ".join(f"{words.summary_name(run)} ({run.id})" for run in one.others)
        told = f"{len(comparable) - len(one.others)} of {len(comparable)}: not {others}" if others else f"all {len(comparable)}"
        shown.add_row(text(one.step), *map(text, counts), text(one.work.work_digest or ""), text(told, "bold red" if others else "green"))
    console.print(shown)
    agreed = all(not one.others for one in steps)
    names = list(dict.fromkeys(words.summary_name(run) for run in comparable))
    if agreed:
        say(
            console,
            f"{', '.join(names)}: the same prompts with the same token counts in every step. The digest is over all samples of a step.",
        )
