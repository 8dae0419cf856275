"""Memory peaks per stage and growth over steps, in bytes.

Source: spans. Host: resident set of the process (RSS; pages shared with other processes count in each). Device: torch's
allocated and reserved peaks, which the probe resets at stage boundaries.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rlmbench.metrics.statistics import Estimate, slope
from rlmbench.records.frames import plain_rows

if TYPE_CHECKING:
    import pandas as pd

PEAKS = ("rss_peak_bytes", "torch_allocated_peak_bytes", "torch_reserved_peak_bytes")


def peaks_by_stage(spans: pd.DataFrame, steps: Collection[int]) -> dict[str, dict[str, int]]:
    """Stage -> kind of peak -> the highest of any process and step in `steps`, bytes. What was not recorded is left out.

    A span's peak includes the spans within it, so an outer stage is at least as high as the stages it calls.
    """
    measured = spans[spans["step"].isin(steps)]
    highest = measured.groupby("stage")[list(PEAKS)].max()
    rows = plain_rows(highest.reset_index(), "stage", *PEAKS)
    found = {row[0]: {kind: peak for kind, peak in zip(PEAKS, row[1:], strict=True) if peak is not None} for row in rows}
    return {stage: peaks for stage, peaks in found.items() if peaks}


def growth_per_step(spans: pd.DataFrame, process: str, steps: Collection[int]) -> Estimate | None:
    """Slope of the process's resident set over `steps`, bytes per step: above 0 with its whole interval, it leaks.

    Each step gives one value, the resident set at its last span's end. None below 3 such steps.
    """
    measured = spans[(spans["process"] == process) & spans["step"].isin(steps)].dropna(subset=["rss_bytes"])
    last = measured.sort_values("end_ns").groupby("step")["rss_bytes"].last()
    return slope([float(step) for step in last.index], [float(value) for value in last])
