"""The figures of HolisticTraceAnalysis, by its definitions (checked against 0.5.0; docs/traces.md).

They differ from ours: all devices of a file are one; an event's start is rounded up and its end down to whole microseconds; waits
of the CUDA API drawn on a stream are events; with several profiled steps, what the last one launched is left out; the window is
first start to last end; only kernels called ``nccl...Kernel`` communicate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlmbench.errors import UserError
from rlmbench.traces.columns import Columns, Wanted
from rlmbench.traces.intervals import Ints, distinct, intersect, union
from rlmbench.traces.names import DEVICE_KINDS, RUNTIME_KINDS, Kind
from rlmbench.traces.reading import read_columns

KERNEL_WAIT_US = 30
"""HTA's default: a shorter gap between two kernels of a stream is taken for the cost of a launch."""

COMMUNICATION = re.compile(rb"^nccl.*Kernel")
MEMORY = re.compile(rb"^Memcpy|^Memset|^dma")
NOT_COMPUTATION = re.compile(rb"(^nccl.*Kernel)|(.*(Memcpy)|(Memset))|(.*Sync)")


@dataclass(frozen=True)
class HtaStream:
    """`get_idle_time_breakdown` of one stream, in us: gaps between an event and the one before it."""

    stream: int
    host_wait_us: int
    """The event was launched after the one before it had ended."""
    kernel_wait_us: int
    """It was launched before that, and the gap is below 30 us."""
    other_us: int


@dataclass(frozen=True)
class HtaBreakdown:
    """`get_temporal_breakdown`, `get_comm_comp_overlap` and `get_idle_time_breakdown` of one file."""

    idle_us: int
    compute_us: int
    non_compute_us: int
    kernel_us: int
    """First start to last end."""
    overlap: float | None
    """Share of communication during which something computes; None without communication."""
    streams: tuple[HtaStream, ...]


def hta_breakdown(path: Path | str) -> HtaBreakdown:
    """HolisticTraceAnalysis' figures of one trace file.

    Raises:
        UserError: as `read_trace`, or no device event is left to count.
    """
    path = Path(path)
    columns = read_columns(path, Wanted(*DEVICE_KINDS, *RUNTIME_KINDS, Kind.ANNOTATION, Kind.DEVICE_ANNOTATION, all_runtime=True)).columns
    device, runtime = columns.device, columns.runtime
    correlation = device.take("correlation")
    order = np.argsort(runtime.column("correlation"), kind="stable")
    ids, called = runtime.take("correlation")[order], runtime.take("start")[order]
    del order
    row = np.maximum(np.searchsorted(ids, correlation, side="right") - 1, 0)
    has_call = (ids[row] == correlation) & (correlation >= 0) if len(ids) else np.zeros(len(correlation), np.bool_)
    call = called[row] if len(ids) else np.zeros(len(correlation), np.int64)
    del ids, called, row, correlation
    call, _ = _rounded(call, call)
    keep = device.column("stream") != -1
    last = _last_step(columns)
    if last is not None:
        keep &= has_call & (call < last)
    chosen = np.flatnonzero(keep)
    if not len(chosen):
        raise UserError(f"{path}: HTA's definitions leave no device event in it; `rlmbench trace` without --definitions says what it holds")
    start, end = _rounded(device.take("start")[chosen], device.take("end")[chosen])
    call, has_call, kind = call[chosen], has_call[chosen], device.take("kind")[chosen]
    names, stream = device.column("name")[chosen], device.column("stream")[chosen]
    computes, communicates = columns.classes(_computes, names) != 0, columns.classes(_communicates, names) != 0
    busy_us, first, final = _merged(start, end)
    compute_us, *_ = _merged(start[computes], end[computes])
    computing, communicating = union(start[computes], end[computes]), union(start[communicates], end[communicates])
    shared = intersect(computing, communicating).total_ns
    kernel_us, idle_us = final - first, final - first - busy_us
    no_wait = kind != Kind.SYNC
    return HtaBreakdown(
        idle_us=idle_us,
        compute_us=compute_us,
        non_compute_us=kernel_us - compute_us - idle_us,
        kernel_us=kernel_us,
        overlap=shared / communicating.total_ns if communicating.total_ns else None,
        streams=tuple(
            _stream(number, start[mine], end[mine], call[mine], has_call[mine])
            for number in distinct(stream[no_wait])
            for mine in (np.flatnonzero(no_wait & (stream == number)),)
        ),
    )


def _rounded(start_ns: npt.NDArray[Any], end_ns: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """Start up and end down to whole us, by way of doubles as HTA does: in a trace whose ``ts`` count from 1970 these are 0.25 us apart."""
    exact: type[np.floating[Any]] = np.float64 if not len(end_ns) or int(end_ns.max()) < 1 << 53 else np.longdouble
    start = (start_ns.astype(exact) / exact(1000)).astype(np.float64)
    duration = ((end_ns - start_ns).astype(exact) / exact(1000)).astype(np.float64)
    return np.ceil(start).astype(np.int64), np.floor(start + duration).astype(np.int64)


def _last_step(columns: Columns) -> int | None:
    """When the last ``ProfilerStep`` begins, on the CPU or as drawn on a device; None with fewer than two."""
    steps = [note for note in columns.annotations if "ProfilerStep" in note.name]
    if len({note.name for note in steps}) < 2:
        return None
    begins, _ = _rounded(np.array([note.start_ns for note in steps]), np.array([note.start_ns for note in steps]))
    return int(begins.max())


def _merged(start: Ints, end: Ints) -> tuple[int, int, int]:
    """Length of the union, first start and last end. An event that rounding turned around (below 1 us) counts -1 where it stands alone, as in HTA."""
    if not len(start):
        return 0, 0, 0
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    ends = np.maximum.reduceat(end, first)
    return int(ends.sum() - start[first].sum()), int(start[first[0]]), int(ends[-1])


def _stream(number: int, start: Ints, end: Ints, call: Ints, has_call: npt.NDArray[np.bool_]) -> HtaStream:
    order = np.argsort(start, kind="stable")
    start, end, call, has_call = start[order], end[order], call[order], has_call[order]
    gap = start[1:] - end[:-1]
    host = has_call[1:] & (call[1:] > end[:-1])
    launch = ~host & (gap < KERNEL_WAIT_US)
    return HtaStream(number, int(gap[host].sum()), int(gap[launch].sum()), int(gap[~host & ~launch].sum()))


def _communicates(name: bytes) -> int:
    return int(COMMUNICATION.match(name) is not None)


def _computes(name: bytes) -> int:
    return int(not COMMUNICATION.match(name) and not MEMORY.match(name) and not NOT_COMPUTATION.match(name))
