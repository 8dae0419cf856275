"""The variants of a sweep in the terminal: measured, predicted from the first one, and the work that the cost model counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlmbench.records.vocabulary import FRAMEWORK_NAMES
from rlmbench.report import numbers
from rlmbench.report.console_parts import say, table, text

if TYPE_CHECKING:
    from rich.console import Console

    from rlmbench.whatif.sweep import Row


def print_sweep(rows: Sequence[Row], console: Console) -> None:
    """Two tables: seconds beside their predictions, and each update's work and seconds over the first variant's."""
    if len(rows) < 2:
        return
    seconds = table("variant", "#step s", "#predicted", "#generation", "#assess", "#train", title="Variants")
    for row in rows:
        stages = (_beside(row, group) for group in ("generation", "assessment", "training"))
        cells = (_name(row), _s(row.step_s), _s(row.predicted_s), *stages)
        seconds.add_row(*map(text, cells))
    console.print(seconds)
    say(
        console,
        "Means over the measured steps, in seconds; in brackets what follows from the framework's first variant: its decode cost for "
        "these lengths, model FLOPs for the rest, ideal scaling (rlmbench whatif). Stages that run at once do not add up.",
        "dim",
    )
    work = table(
        "variant",
        "#tokens",
        "#linear",
        "#attention",
        "#both",
        "#measured",
        title="Work of the updates, over the first variant's",
    )
    for row in rows:
        first = next(one for one in rows if one.framework == row.framework)
        both, base = (None if one.linear_flops is None else one.linear_flops + (one.attention_flops or 0.0) for one in (row, first))
        cells = (
            _name(row),
            _ratio(row.tokens, first.tokens),
            _ratio(row.linear_flops, first.linear_flops),
            _ratio(row.attention_flops, first.attention_flops),
            _ratio(both, base),
            _ratio(row.stages_s["training"], first.stages_s["training"]),
        )
        work.add_row(*map(text, cells))
    console.print(work)
    say(
        console,
        "Linear: products with weights, in proportion to tokens. Attention: grows with the square of each sequence. Both: model FLOPs of "
        "the updates, epochs and critic included. Measured: seconds of the updates.",
        "dim",
    )


def _name(row: Row) -> str:
    name = f"{FRAMEWORK_NAMES.get(row.framework, row.framework)} {row.variant}"
    return name if row.runs == 1 else f"{name} ({row.runs} runs)"


def _beside(row: Row, group: str) -> str:
    return f"{_s(row.stages_s.get(group))} ({_s(row.predicted[group])})" if group in row.predicted else _s(row.stages_s.get(group))


def _s(value: float | None) -> str:
    return "n/a" if value is None else numbers.significant(value)


def _ratio(value: float | None, base: float | None) -> str:
    return numbers.ratio(value / base) if value is not None and base else "n/a"
