"""A comparison as CSV, for a spreadsheet: the numbers of `rlmbench compare --json`, not rounded, absent ones empty."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from rlmbench.comparison.figures import Comparison

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings that a spreadsheet takes for a formula; a text from a record gets an apostrophe before them."""


def runs_csv(comparison: Comparison) -> str:
    """One line per run."""
    heads = ("configuration", "name", "suite", "scale", "framework", "version", "division", "device", "run", "status", "failure_class",
             "failure", "measured_steps", "step_s", "tokens_per_s")  # fmt: skip
    lines = (
        (
            one.key, one.name, one.suite, one.scale, one.framework, one.version, one.division, one.device, run.id, run.status,
            run.failure_class, run.failure, run.measured_steps, run.step_s, run.tokens_per_s,
        )
        for one in comparison.configurations
        for run in one.runs
    )  # fmt: skip
    return _csv(heads, lines)


def stages_csv(comparison: Comparison) -> str:
    """One line per configuration and stage: means over steps, then over runs."""
    heads = ("configuration", "name", "stage", "seconds", "share", "valid_tokens", "computed_tokens", "peak_bytes", "cpu_idle",
             "host_rss_peak_bytes", "device_peak_bytes", "energy_j")  # fmt: skip
    lines = (
        (
            one.key, one.name, name, stage.seconds, stage.share, stage.valid_tokens, stage.computed_tokens, stage.peak_bytes, stage.cpu_idle,
            stage.host_rss_peak_bytes, stage.device_peak_bytes, stage.energy_j,
        )
        for one in comparison.configurations
        for name, stage in one.stages.items()
    )  # fmt: skip
    return _csv(heads, lines)


def pairs_csv(comparison: Comparison) -> str:
    """One line per pair: verdict and speed."""
    heads = ("a", "b", "verdict", "speed", "ratio", "low", "high", "p", "attainable_p", "runs_a", "runs_b", "unadjusted_ratio",
             "ratio_without_waits", "reasons")  # fmt: skip
    return _csv(heads, (_pair(pair) for pair in comparison.pairs))


def _pair(pair: Any) -> Sequence[Any]:
    reasons = "; ".join(reason.sentence for reason in pair.reasons)
    speed = pair.speed
    if speed is None:
        return (pair.a, pair.b, pair.verdict, *[None] * 10, reasons)
    figures = (speed.verdict, speed.ratio, speed.low, speed.high, speed.p, speed.attainable_p, speed.runs_a, speed.runs_b,
               speed.adjustment.unadjusted_ratio if speed.adjustment else None, speed.without_waits.ratio if speed.without_waits else None)  # fmt: skip
    return (pair.a, pair.b, pair.verdict, *figures, reasons)


def _csv(heads: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_safe(value) for value in line] for line in lines)
    return out.getvalue()


def _safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
