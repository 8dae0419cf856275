"""Times of several processes on one clock: the driver's."""

from __future__ import annotations

from collections import defaultdict
from statistics import median_low
from typing import TYPE_CHECKING

from rlmbench.records.frames import plain_rows

if TYPE_CHECKING:
    import pandas as pd


def clock_offsets_ns(processes: pd.DataFrame, driver: str) -> dict[str, int]:
    """Process -> what to add to its monotonic times to get the driver's; 0 within one boot, where the clock is shared.

    A boot has one offset, by the median of its processes' pairs: should its wall clock be set while they start, they still agree with
    each other.
    """
    origins, boots = _origins_ns(processes), _boots(processes, "process")
    if driver not in boots:
        return {}
    return {process: origins[boot] - origins[boots[driver]] for process, boot in boots.items()}


def node_offsets_ns(collectors: pd.DataFrame, processes: pd.DataFrame, driver: str) -> dict[str, int]:
    """Node -> what to add to its collector's times to get the driver's: the same as for its processes. Nodes without a known clock are left out."""
    origins, boots = {**_origins_ns(collectors), **_origins_ns(processes)}, _boots(processes, "process")
    if driver not in boots:
        return {}
    return {node: origins[boot] - origins[boots[driver]] for node, boot in _boots(collectors, "node").items()}


def _boots(frame: pd.DataFrame, name: str) -> dict[str, str | None]:
    """Process or node -> the boot in which it ran, of those whose clock is known."""
    return dict(plain_rows(frame.dropna(subset=["mono_ns", "real_ns"]), name, "boot_id"))


def _origins_ns(frame: pd.DataFrame) -> dict[str | None, int]:
    """Boot -> the real time at which its monotonic clock was 0."""
    pairs: dict[str | None, list[int]] = defaultdict(list)
    for boot, mono, real in plain_rows(frame.dropna(subset=["mono_ns", "real_ns"]), "boot_id", "mono_ns", "real_ns"):
        pairs[boot].append(real - mono)
    return {boot: median_low(of_boot) for boot, of_boot in pairs.items()}


def join_steps(frames: dict[str, pd.DataFrame]) -> None:
    """Give the events of workers, which do not know the step (0), the step of the driver in which they happened.

    `frames` are the tables by name, changed in place. What lies outside every step keeps step 0.
    """
    steps = frames["steps"]
    if steps.empty:
        return
    driver = str(steps["process"].iloc[0])
    windows = steps[steps["process"] == driver].sort_values("start_ns")
    offsets = clock_offsets_ns(frames["processes"], driver)
    unplaced = frames["microbatches"]["step"] == 0  # micro-batches are numbered within the step that their process knew
    for name, time in (("spans", "start_ns"), ("microbatches", "t_ns"), ("rewards", "t_ns"), ("logprobs", "t_ns"), ("updates", "t_ns")):
        frame = frames[name]
        unknown = (frame["step"] == 0) & (frame["process"] != driver) & frame[time].notna()
        if unknown.any():
            at_ns = frame.loc[unknown, time].astype("int64") + frame.loc[unknown, "process"].map(offsets).fillna(0).astype("int64")
            frame.loc[unknown, "step"] = _step_at(windows, at_ns)
    batches = frames["microbatches"][unplaced].drop_duplicates(["process", "micro_batch"])
    samples = frames["samples"]
    unknown = samples["step"] == 0
    if unknown.any():
        found = samples.loc[unknown, ["process", "micro_batch"]].merge(
            batches[["process", "micro_batch", "step"]], on=["process", "micro_batch"], how="left"
        )
        samples.loc[unknown, "step"] = found["step"].fillna(0).astype("int64").to_numpy()


def _step_at(windows: pd.DataFrame, at_ns: pd.Series) -> pd.Series:
    """The step whose window [start, end) holds each time, else 0."""
    starts, ends, steps = (windows[column].to_numpy("int64") for column in ("start_ns", "end_ns", "step"))
    place = starts.searchsorted(at_ns.to_numpy("int64"), side="right") - 1
    inside = (place >= 0) & (at_ns.to_numpy("int64") < ends[place.clip(0)])
    return (steps[place.clip(0)] * inside).astype("int64")
