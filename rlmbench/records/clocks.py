"""Times of several processes on one clock: the driver's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlmbench.records.frames import plain_rows

if TYPE_CHECKING:
    import pandas as pd


def clock_offsets_ns(processes: pd.DataFrame, driver: str) -> dict[str, int]:
    """Process -> what to add to its monotonic times to get the driver's; 0 within one boot, where the clock is shared."""
    known = processes.dropna(subset=["mono_ns", "real_ns"])
    pairs = {process: (boot, real - mono) for process, boot, mono, real in plain_rows(known, "process", "boot_id", "mono_ns", "real_ns")}
    if driver not in pairs:
        return {}
    boot, origin = pairs[driver]
    return {process: 0 if other == boot else own - origin for process, (other, own) in pairs.items()}


def node_offsets_ns(collectors: pd.DataFrame, processes: pd.DataFrame, driver: str) -> dict[str, int]:
    """Node -> what to add to its collector's times to get the driver's; nodes without a known clock are left out."""
    import pandas as pd

    nodes = collectors.assign(process="node " + collectors["node"].astype("string"))
    columns = ["process", "boot_id", "mono_ns", "real_ns"]
    offsets = clock_offsets_ns(pd.concat([processes.loc[processes["process"] == driver, columns], nodes[columns]]), driver)
    return {process.removeprefix("node "): offset for process, offset in offsets.items() if process != driver}


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
    for name, time in (("spans", "start_ns"), ("microbatches", "t_ns"), ("rewards", "t_ns"), ("logprobs", "t_ns"), ("updates", "t_ns")):
        frame = frames[name]
        unknown = (frame["step"] == 0) & (frame["process"] != driver) & frame[time].notna()
        if unknown.any():
            at_ns = frame.loc[unknown, time].astype("int64") + frame.loc[unknown, "process"].map(offsets).fillna(0).astype("int64")
            frame.loc[unknown, "step"] = _step_at(windows, at_ns)
    batches = frames["microbatches"].drop_duplicates(["process", "micro_batch"])
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
