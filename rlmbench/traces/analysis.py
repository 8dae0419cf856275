"""From columns to `Trace`: rlmbench's own definitions (docs/traces.md)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlmbench.traces.columns import CPU_FIGURES, DEVICE_FIGURES, Annotation, Columns, LaunchClass, Mask, Wanted, launch_class
from rlmbench.traces.intervals import Intervals, Ints, distinct, union
from rlmbench.traces.model import STAGE_PREFIX, CpuOnly, CpuStage, CpuUsage, DeviceUsage, StageUsage, Step, Trace, Usage
from rlmbench.traces.names import Kind, is_communication
from rlmbench.traces.reading import Reading, read_columns
from rlmbench.traces.stages import Segments, segments

STEP = re.compile(r"ProfilerStep#(\d+)")
LOST_LAUNCHES_ALLOWED = 0.01
"""Share of kernel launches without a kernel above which a trace is called unreliable."""

COMPUTE, COMMUNICATION, COPY = 0, 1, 2
CLASSES = (
    (COMPUTE,),
    (COMMUNICATION,),
    (COPY,),
    (COMMUNICATION, COPY),
    (COMPUTE, COPY),
    (COMPUTE, COMMUNICATION),
    (COMPUTE, COMMUNICATION, COPY),
)


def read_trace(path: Path | str) -> Trace:
    """Read one torch.profiler trace (.json or .json.gz) in bounded memory: about 170 bytes per device event with its launch, whatever the file's size.

    Raises:
        UserError: the file cannot be read, is cut off or damaged, or is no trace. One line, with the file and the fix.
    """
    path = Path(path)
    reading = read_columns(path, Wanted(*DEVICE_FIGURES))
    if len(reading.columns.device):
        return _device_trace(path, reading)
    return _cpu_trace(path, read_columns(path, Wanted(*CPU_FIGURES)))


def steps_of(columns: Columns) -> tuple[Step, ...]:
    """The ``ProfilerStep#N`` of the CPU's timeline, by time."""
    found = {
        Step(int(match[1]), note.start_ns, note.end_ns)
        for note in columns.annotations
        if note.kind is Kind.ANNOTATION and (match := STEP.fullmatch(note.name))
    }
    return tuple(sorted(found, key=lambda step: (step.start_ns, step.number)))


@dataclass(frozen=True)
class Launches:
    """The calls that start work on a device, by ascending correlation id."""

    correlation: Ints
    kind: npt.NDArray[np.int8]
    """`LaunchClass`."""
    stage: npt.NDArray[np.int16]
    """The stage in which the call was made, by its number in `Stages`; -1 for none."""

    def find(self, correlation: Ints) -> tuple[Ints, Mask]:
        """The row of each correlation id, and whether there is one."""
        if not len(self.correlation):
            return np.zeros(len(correlation), np.int64), np.zeros(len(correlation), np.bool_)
        row = np.searchsorted(self.correlation, correlation)
        np.minimum(row, len(self.correlation) - 1, out=row)
        return row, (self.correlation[row] == correlation) & (correlation >= 0)


def launches_of(columns: Columns, stages: Stages) -> Launches:
    """Launches, without those made while a graph was captured, which start nothing. Uses the runtime's columns up."""
    runtime = columns.runtime
    kind = columns.classes(launch_class, runtime.take("name")).astype(np.int8)
    start, thread, correlation = runtime.take("start"), runtime.take("thread"), runtime.take("correlation")
    keep = (correlation >= 0) & (kind != LaunchClass.NOTHING) & (kind < LaunchClass.BEGIN_CAPTURE)
    begins, ends = kind == LaunchClass.BEGIN_CAPTURE, kind == LaunchClass.END_CAPTURE
    process = np.array([pid for pid, _ in columns.threads] or [0])
    for which in distinct(process[thread[begins]]):
        mine = process[thread] == which
        captured = _captures(np.sort(start[mine & begins]), np.sort(start[mine & ends]))
        keep &= ~(mine & (captured.within(start, start + 1) > 0))
    stage = stages.at(start, thread, columns.threads)
    del start, thread
    order = np.flatnonzero(keep)
    order = order[np.argsort(correlation[order], kind="stable")]
    return Launches(correlation[order], kind[order], stage[order])


def _captures(begins: Ints, ends: Ints) -> Intervals:
    """From each begin to the next end; one without an end is left out."""
    index = np.searchsorted(ends, begins)
    closed = index < len(ends)
    return union(begins[closed], ends[index[closed]])


class Timeline:
    """Device events by ascending start. Each union is made, measured in all windows asked for, and let go: several at once would be what memory peaks at."""

    def __init__(self, start: Ints, end: Ints, kind: npt.NDArray[np.int8]) -> None:
        self.start, self.end, self.kind = start, end, kind

    def usages(self, windows: Sequence[Intervals]) -> list[Usage]:
        """In each set of disjoint windows, taken together."""
        lengths = self._lengths(lambda covered: [int(covered.within(window.start, window.end).sum()) for window in windows])
        return [_usage(window.total_ns, length, self._events(window)) for window, length in zip(windows, lengths, strict=True)]

    def total(self, mine: Ints) -> Usage:
        """All of the chosen events, in no window."""
        chosen = Timeline(self.start[mine], self.end[mine], self.kind[mine])
        return _usage(None, chosen._lengths(lambda covered: [covered.total_ns])[0], len(mine))

    def _lengths(self, measure: Callable[[Intervals], list[int]]) -> list[tuple[int, ...]]:
        """What `measure` says of the union of each of `CLASSES`. A tuple per window."""
        found = []
        for classes in CLASSES:
            mine = np.flatnonzero(np.logical_or.reduce([self.kind == which for which in classes]))
            found.append(measure(union(self.start[mine], self.end[mine])))
        return list(zip(*found, strict=True))

    def _events(self, windows: Intervals) -> int:
        """How many events lie at least partly in one of the windows."""
        if not len(windows.end):
            return 0
        window = np.searchsorted(windows.end, self.start, side="right")
        inside = window < len(windows.end)
        np.minimum(window, len(windows.end) - 1, out=window)
        return int((inside & (windows.start[window] < self.end)).sum())


def _usage(window_ns: int | None, lengths: tuple[int, ...], events: int) -> Usage:
    compute, communication, copy, no_compute, no_communication, no_copy, busy = lengths
    return Usage(
        window_ns=window_ns,
        busy_ns=busy,
        compute_ns=compute,
        communication_ns=communication,
        copy_ns=copy,
        exposed_communication_ns=no_copy - compute,
        only_compute_ns=busy - no_compute,
        only_communication_ns=busy - no_communication,
        only_copy_ns=busy - no_copy,
        events=events,
    )


class Stages:
    """rlmbench's annotations of one trace: on the CPU by thread, and their images on devices by stream."""

    def __init__(self, annotations: Sequence[Annotation]) -> None:
        mine = sorted((note for note in annotations if note.name.startswith(STAGE_PREFIX)), key=lambda note: note.start_ns)
        self.names = list(dict.fromkeys(note.name for note in mine))
        self.number = {name: i for i, name in enumerate(self.names)}
        on_cpu = [note for note in mine if note.kind is Kind.ANNOTATION]
        on_device = [note for note in mine if note.kind is Kind.DEVICE_ANNOTATION]
        self.counts = [sum(note.name == name for note in on_cpu) or sum(note.name == name for note in on_device) for name in self.names]
        self.threads = self._by(on_cpu, lambda note: (note.pid, note.tid))
        self.processes = self._by(on_cpu, lambda note: note.pid)
        self.streams = self._by(on_device, lambda note: (note.pid, note.tid))

    def _by(self, notes: Sequence[Annotation], key: Callable[[Annotation], Any]) -> dict[Any, Segments]:
        groups: dict[Any, list[Annotation]] = defaultdict(list)
        for note in notes:
            groups[key(note)].append(note)
        return {which: segments(group, self.number) for which, group in groups.items()}

    def windows(self, stage: int) -> Intervals:
        """When the stage's annotations were open, on any thread."""
        parts = [timeline.of(stage) for timeline in self.threads.values()]
        return union(
            *(np.concatenate([np.zeros(0, np.int64), *edge]) for edge in ([part.start for part in parts], [part.end for part in parts]))
        )

    def at(self, start: Ints, thread: npt.NDArray[np.int32], threads: Mapping[tuple[int, int], int]) -> npt.NDArray[np.int16]:
        """The stage in which each call was made: by its thread's annotations; without any there, by its process's (a backward pass
        launches from a thread of its own). -1 for none."""
        stage = np.full(len(start), -1, np.int16)
        nothing = segments((), self.number)
        for (process, its_thread), number in threads.items():
            mine = np.flatnonzero(thread == number)
            own = self.threads.get((process, its_thread), nothing).at(start[mine])
            stage[mine] = np.where(own >= 0, own, self.processes.get(process, nothing).at(start[mine]))
        return stage


def _device_trace(path: Path, reading: Reading) -> Trace:
    columns = reading.columns
    stages = Stages(columns.annotations)
    steps = steps_of(columns)
    launches = launches_of(columns, stages)
    table = columns.device
    order = np.argsort(table.column("start"), kind="stable")
    start, end, correlation = (table.take(name)[order] for name in ("start", "end", "correlation"))
    device, stream, kind, name = (table.take(name)[order] for name in ("device", "stream", "kind", "name"))
    row, launched = launches.find(correlation)
    del order, correlation
    has_event = np.zeros(len(launches.kind), np.bool_)
    has_event[row[launched]] = True
    stage = np.where(launched, launches.stage[row], -1) if len(launches.stage) else np.full(len(row), -1, np.int16)
    del row
    group = np.full(len(kind), COPY, np.int8)
    kernels = kind == Kind.KERNEL
    group[kernels] = np.where(columns.classes(is_communication, name[kernels]) != 0, COMMUNICATION, COMPUTE)
    work = kind != Kind.SYNC
    graphs, single = launches.kind == LaunchClass.GRAPH, launches.kind == LaunchClass.KERNEL
    lost, empty = int((single & ~has_event).sum()), int((graphs & ~has_event).sum())
    reason = _unreliable(int(single.sum()), lost, int(graphs.sum()), empty)
    first, last, source = _window(steps, start[work] if work.any() else start, end[work] if work.any() else end)
    window = _single(first, last)
    step_windows = [_single(step.start_ns, step.end_ns) for step in steps]
    stage_windows = [stages.windows(number) for number in range(len(stages.names))]
    devices = []
    for index in distinct(device):
        mine = np.flatnonzero((device == index) & work)
        streams = stream[mine]
        timeline = Timeline(start, end, group) if len(mine) == len(start) else Timeline(start[mine], end[mine], group[mine])
        if 2 * int(launched[mine].sum()) >= len(mine):
            stage_of, attribution = stage[mine], "launch"
        else:
            stage_of = _by_device_annotation(stages, index, streams, timeline.start)
            attribution = "gpu annotation" if any(which[0] == index for which in stages.streams) else "none"
        whole, *parts = timeline.usages([window, *step_windows, *stage_windows])
        devices.append(
            DeviceUsage(
                device=str(index),
                name=_device_name(reading.metadata, index),
                streams=len(distinct(streams)),
                usage=whole,
                steps=tuple(parts[: len(steps)]),
                stages=tuple(
                    StageUsage(
                        stage=its_name.removeprefix(STAGE_PREFIX),
                        count=stages.counts[number],
                        during=during,
                        launched=timeline.total(np.flatnonzero(stage_of == number)),
                        attribution=attribution,
                    )
                    for number, (its_name, during) in enumerate(zip(stages.names, parts[len(steps) :], strict=True))
                ),
                reliable=not reason,
                reason=reason,
            )
        )
    return _trace(
        path, reading, steps, (first, last, source), devices=tuple(devices), launches=len(launches.kind),
        lost_launches=lost, graph_launches=int(graphs.sum()), empty_graph_launches=empty,
    )  # fmt: skip


def _single(start_ns: int, end_ns: int) -> Intervals:
    return union(np.array([start_ns]), np.array([end_ns]))


def _by_device_annotation(stages: Stages, device: int, streams: Ints, start: Ints) -> npt.NDArray[np.int16]:
    stage = np.full(len(start), -1, np.int16)
    for (which, stream), timeline in stages.streams.items():
        if which == device:
            mine = streams == stream
            stage[mine] = timeline.at(start[mine])
    return stage


def _unreliable(kernel_launches: int, lost: int, graph_launches: int, empty: int) -> str:
    if empty:
        return f"{empty:,} of {graph_launches:,} graph launches have no kernel in the trace: what their graphs ran is missing"
    if lost > LOST_LAUNCHES_ALLOWED * kernel_launches:
        return f"{lost:,} of {kernel_launches:,} kernel launches have no kernel in the trace: the profiler lost events"
    return ""


def _window(steps: Sequence[Step], start: Ints, end: Ints) -> tuple[int, int, str]:
    if steps:
        return min(step.start_ns for step in steps), max(step.end_ns for step in steps), "steps"
    return (int(start.min()), int(end.max()), "events") if len(start) else (0, 0, "events")


def _cpu_trace(path: Path, reading: Reading) -> Trace:
    threads = reading.columns.operators.by_thread()
    steps = steps_of(reading.columns)
    starts = np.concatenate([np.zeros(0, np.int64), *(part.start for part in threads.values())])
    ends = np.concatenate([np.zeros(0, np.int64), *(part.end for part in threads.values())])
    everything = union(starts, ends)
    window = _window(steps, starts, ends)
    stages = Stages(reading.columns.annotations)

    def usage(windows: Intervals) -> CpuUsage:
        each = sum(int(part.within(windows.start, windows.end).sum()) for part in threads.values())
        return CpuUsage(windows.total_ns, each, int(everything.within(windows.start, windows.end).sum()))

    cpu = CpuOnly(
        reason="no device in this trace: it holds no kernel, memcpy or memset (a run on a CPU, or a profile without ProfilerActivity.CUDA)",
        threads=len(threads),
        usage=usage(_single(window[0], window[1])),
        steps=tuple(usage(_single(step.start_ns, step.end_ns)) for step in steps),
        stages=tuple(
            CpuStage(name.removeprefix(STAGE_PREFIX), stages.counts[number], usage(stages.windows(number)))
            for number, name in enumerate(stages.names)
        ),
    )
    return _trace(path, reading, steps, window, cpu=cpu)


def _trace(
    path: Path, reading: Reading, steps: tuple[Step, ...], window: tuple[int, int, str], *, devices: tuple[DeviceUsage, ...] = (), cpu: CpuOnly | None = None,
    launches: int = 0, lost_launches: int = 0, graph_launches: int = 0, empty_graph_launches: int = 0,
) -> Trace:  # fmt: skip
    distributed = reading.metadata.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    return Trace(
        path=path,
        rank=integer(distributed.get("rank")),
        world_size=integer(distributed.get("world_size")),
        base_ns=integer(reading.metadata.get("baseTimeNanoseconds")) or 0,
        start_ns=window[0],
        end_ns=window[1],
        window_source=window[2],
        steps=steps,
        devices=devices,
        cpu=cpu,
        launches=launches,
        lost_launches=lost_launches,
        graph_launches=graph_launches,
        empty_graph_launches=empty_graph_launches,
        layout=reading.layout,
    )


def integer(value: object) -> int | None:
    """A whole number of the metadata, also where it stands as text; None for anything else."""
    return int(value) if isinstance(value, int | float) or (isinstance(value, str) and value.isdecimal()) else None


def _device_name(metadata: dict[str, Any], index: int) -> str:
    listed = metadata.get("deviceProperties")
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and entry.get("id") == index:
            return str(entry.get("name", ""))
    return ""
