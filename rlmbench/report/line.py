"""A run in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlmbench.errors import as_line
from rlmbench.report import numbers
from rlmbench.report.words import how_it_ended

if TYPE_CHECKING:
    from rlmbench.metrics import RunSummary


def one_line(summary: RunSummary) -> str:
    """Status first, then the figures that exist: ``ok, 4 steps measured, 0.85 s/step, 4,200 tokens/s, audit passed``."""
    kind = summary.failure_class
    status = f"{summary.status} ({kind})" if kind and kind != summary.status else summary.status
    parts = [how_it_ended(status, summary.failure.message, ", ") if summary.failure else status]
    parts.append("1 step measured" if summary.measured_steps == 1 else f"{summary.measured_steps} steps measured")
    if summary.step_s.median is not None:
        parts.append(f"{numbers.significant(summary.step_s.median)} s/step")
    if summary.throughput:
        parts.append(f"{summary.throughput.step_tokens_per_s:,.0f} tokens/s")
    if summary.audit and kind in (None, "audit"):
        parts.append("audit passed" if summary.audit.ok else "audit failed")
    return as_line(", ".join(parts))
