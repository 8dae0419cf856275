"""One device that several processes used: the traces of all of them together, since each holds its own process's kernels only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlmbench.traces.analysis import COMMUNICATION, COMPUTE, COPY, Timeline, integer, steps_of
from rlmbench.traces.columns import DEVICE_FIGURES, Wanted
from rlmbench.traces.intervals import Ints, union
from rlmbench.traces.model import Usage
from rlmbench.traces.names import Kind, is_communication
from rlmbench.traces.reading import read_columns


def read_shared(parts: Sequence[tuple[Path, str]]) -> Usage:
    """What the device did from the first to the last of the traces' steps; `parts` are files with the device's index in each.

    Kineto's times, with ``baseTimeNanoseconds``, are those of the host's clock, so that traces of one host lie on one axis.

    Raises:
        UserError: a file cannot be read or is no trace.
    """
    starts, ends, kinds = [], [], []
    edges: list[int] = []
    for path, device in parts:
        reading = read_columns(path, Wanted(*DEVICE_FIGURES))
        columns = reading.columns
        base_ns = integer(reading.metadata.get("baseTimeNanoseconds")) or 0
        table = columns.device
        mine = np.flatnonzero((table.column("device") == int(device)) & (table.column("kind") != Kind.SYNC))
        kind, name = table.column("kind")[mine], table.column("name")[mine]
        group = np.full(len(kind), COPY, np.int8)
        kernels = kind == Kind.KERNEL
        group[kernels] = np.where(columns.classes(is_communication, name[kernels]) != 0, COMMUNICATION, COMPUTE)
        starts.append(table.column("start")[mine] + base_ns)
        ends.append(table.column("end")[mine] + base_ns)
        kinds.append(group)
        edges += [edge + base_ns for step in steps_of(columns) for edge in (step.start_ns, step.end_ns)]
    start, end, kind = np.concatenate(starts), np.concatenate(ends), np.concatenate(kinds)
    edges = edges or ([int(start.min()), int(end.max())] if len(start) else [0, 0])
    window = union(_one(min(edges)), _one(max(edges)))
    order = np.argsort(start, kind="stable")
    return Timeline(start[order], end[order], kind[order]).usages([window])[0]


def _one(instant_ns: int) -> Ints:
    return np.array([instant_ns])
