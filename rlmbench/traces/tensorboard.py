"""The overall breakdown of torch-tb-profiler, TensorBoard's plugin, by its definitions (checked against 0.4.3; docs/traces.md).

Every moment of a step goes to the first of these that runs, on any device or thread: kernel, memcpy, memset, communication, runtime, data loader, CPU operator;
the rest is "other". The plugin knows neither ``cuda_runtime`` nor ``user_annotation``, the categories of torch since 1.13: with these, runtime is 0,
data loading is only what an operator says, and communication only what ``nccl:`` and ``gloo:`` operators of five names cover or launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlmbench.errors import UserError
from rlmbench.traces.columns import Annotation, Columns, Mask, Wanted
from rlmbench.traces.intervals import Intervals, Ints, intersect, join, subtract, union
from rlmbench.traces.names import Kind
from rlmbench.traces.reading import read_columns

STEP = re.compile(r"ProfilerStep#(\d+)")
COMMUNICATION = frozenset(
    f"{library}:{what}" for library in ("nccl", "gloo") for what in ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
)


@dataclass(frozen=True)
class TensorboardStep:
    """One step, in ns. The parts sum up to `total_ns`, unless steps overlap."""

    name: str
    """The number of its ``ProfilerStep``; without any, the whole profile is one step called 0."""
    kernel_ns: int
    memcpy_ns: int
    memset_ns: int
    communication_ns: int
    runtime_ns: int
    data_loader_ns: int
    cpu_exec_ns: int
    other_ns: int
    total_ns: int


def tensorboard_overall(path: Path | str) -> tuple[TensorboardStep, ...]:
    """torch-tb-profiler's figures of each step of one trace file.

    Raises:
        UserError: as `read_trace`, or the trace is of a torch before 1.13, or has neither steps nor operators.
    """
    path = Path(path)
    wanted = Wanted(
        Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.ANNOTATION, Kind.DEVICE_ANNOTATION, Kind.OPERATOR, Kind.OLD_RUNTIME, external_ids=True
    )
    columns = read_columns(path, wanted).columns
    if len(columns.runtime):
        raise UserError(f"{path}: torch before 1.13 wrote it (category Runtime); TensorBoard's definitions are only there for later ones")
    threads = columns.operators.by_thread()
    operators = union_of(list(threads.values()))
    threads.clear()
    communicating = [note for note in columns.special_operators + columns.annotations if note.name in COMMUNICATION]
    loading = [note for note in columns.special_operators if _loads_data(note.name)]
    plain = [note for note in columns.special_operators if note.name not in COMMUNICATION and not _loads_data(note.name)]
    steps = _steps(columns)
    if not steps:
        host = join(operators, _intervals(columns.special_operators))
        if not len(host.start):
            raise UserError(f"{path}: neither ProfilerStep nor CPU operators; TensorBoard's definitions need one of them")
        steps = [("0", int(host.start[0]), int(host.end[-1]))]

    windows = union(np.array([begin for _, begin, _ in steps]), np.array([finish for _, _, finish in steps]))
    parts = _in_order(windows, _roles(columns, operators, communicating, loading, plain))
    begins, ends = np.array([begin for _, begin, _ in steps]), np.array([finish for _, _, finish in steps])
    lengths = [part.within(begins, ends) for part in parts]
    return tuple(_step(name, finish - begin, [int(its[number]) for its in lengths]) for number, (name, begin, finish) in enumerate(steps))


def _step(name: str, total_ns: int, lengths: list[int]) -> TensorboardStep:
    kernel, memcpy, memset, communication, runtime, data_loader, cpu_exec, other = lengths
    return TensorboardStep(name, kernel, memcpy, memset, communication, runtime, data_loader, cpu_exec, other, total_ns)


def _roles(
    columns: Columns, operators: Intervals, communicating: list[Annotation], loading: list[Annotation], plain: list[Annotation]
) -> Iterator[Intervals]:
    """Kernel, memcpy, memset, communication, runtime, data loader, CPU operators: each made when it is its turn."""
    device = columns.device
    start, end, kind = device.take("start"), device.take("end"), device.take("kind")
    ids = np.array(sorted({note.external_id for note in communicating}), np.int64)
    communicates = (kind == Kind.KERNEL) & np.isin(device.take("external"), ids[ids >= 0])

    def chosen(mine: Mask) -> Intervals:
        index = np.flatnonzero(mine)
        return union(start[index], end[index])

    yield chosen((kind == Kind.KERNEL) & ~communicates)
    yield chosen(kind == Kind.MEMCPY)
    yield chosen(kind == Kind.MEMSET)
    yield join(chosen(communicates), _intervals(communicating))
    yield _intervals([])
    yield _intervals(loading)
    yield join(operators, _intervals(plain))


def _in_order(windows: Intervals, roles: Iterable[Intervals]) -> Iterator[Intervals]:
    """What each role gets, and the rest. As in the plugin, nothing left means that everything is there again."""
    left: Intervals | None = None
    for role in roles:
        if left is not None and len(left.start):
            part = intersect(left, role)
        else:
            part, left = role, windows
        yield part
        left = subtract(left, part)
    yield left if left is not None else windows


def _steps(columns: Columns) -> list[tuple[str, int, int]]:
    """Every ``ProfilerStep#N`` by start: those drawn on a device count as steps of their own, as in the plugin."""
    found = [(match[1], note.start_ns, note.end_ns) for note in columns.annotations if (match := STEP.match(note.name))]
    return sorted(found, key=lambda step: step[1])


def _loads_data(name: str) -> bool:
    return (name.startswith("enumerate(DataLoader)#") and name.endswith(".__next__")) or name.startswith("enumerate(DataPipe)#")


def _intervals(notes: list[Annotation]) -> Intervals:
    return union(np.array([note.start_ns for note in notes], np.int64), np.array([note.end_ns for note in notes], np.int64))


def union_of(parts: list[Intervals]) -> Intervals:
    """The union of unions."""
    nothing: Ints = np.zeros(0, np.int64)
    return union(np.concatenate([nothing, *(part.start for part in parts)]), np.concatenate([nothing, *(part.end for part in parts)]))
