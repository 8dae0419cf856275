"""The wanted fields of a trace's events, as columns: 37 bytes a device event, 28 a launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlmbench.traces.intervals import Intervals, Ints, distinct, join, union
from rlmbench.traces.names import COPY_LAUNCH, DEVICE_KINDS, GRAPH_LAUNCH, KERNEL_LAUNCH, RUNTIME_KINDS, Kind

Mask = npt.NDArray[np.bool_]


class LaunchClass:
    """What a call of the runtime starts on a device."""

    NOTHING = 0
    KERNEL = 1
    COPY = 2
    GRAPH = 3
    BEGIN_CAPTURE = 4
    END_CAPTURE = 5


SPECIAL_OPERATOR = (b"enumerate(Data", b"nccl:", b"gloo:")
"""Beginnings of the names that matter to TensorBoard's definitions: data loading and communication."""


class Wanted:
    """Which events a reading is for."""

    def __init__(self, *kinds: Kind, all_runtime: bool = False, external_ids: bool = False) -> None:
        """`all_runtime`: calls that launch nothing, too. `external_ids`: of device events and of communicating operators."""
        self.all_runtime = all_runtime
        self.external_ids = external_ids
        self.by_kind: Mask = np.zeros(len(Kind), np.bool_)
        self.by_kind[list(kinds)] = True


@dataclass(frozen=True)
class Events:
    """What every event has: `name` is its number in `Columns.names`."""

    kind: Ints
    name: Ints
    pid: Ints
    tid: Ints
    start: Ints
    end: Ints

    def where(self, mine: Mask) -> Events:
        return Events(self.kind[mine], self.name[mine], self.pid[mine], self.tid[mine], self.start[mine], self.end[mine])


@dataclass(frozen=True)
class Annotation:
    """One ``record_function`` of the user's, or its image on a device's timeline (then `tid` is the stream)."""

    kind: Kind
    name: str
    pid: int
    tid: int
    start_ns: int
    end_ns: int
    external_id: int


class Table:
    """Columns that grow by blocks and are joined when first asked for."""

    def __init__(self, **types: Any) -> None:
        self._types = types
        self._parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in types}

    def __len__(self) -> int:
        return sum(map(len, next(iter(self._parts.values()))))

    def add(self, **columns: npt.NDArray[Any]) -> None:
        for name, values in columns.items():
            self._parts[name].append(values.astype(self._types[name]))

    def column(self, name: str) -> npt.NDArray[Any]:
        parts = self._parts[name]
        if len(parts) != 1:
            self._parts[name] = parts = [np.concatenate(parts) if parts else np.zeros(0, self._types[name])]
        return parts[0]

    def take(self, name: str) -> npt.NDArray[Any]:
        """A column, which the table then no longer holds: memory is what this package is careful about."""
        column = self.column(name)
        self._parts[name] = []
        return column


class Operators:
    """Operators' intervals by process and thread. Those inside another are merged into it, so that many take little room."""

    LIMIT = 50_000

    def __init__(self) -> None:
        self._merged: dict[tuple[int, int], Intervals] = {}
        self._pending: list[tuple[Ints, Ints, Ints, Ints]] = []
        self._count = 0

    def add(self, events: Events) -> None:
        self._pending.append((events.pid, events.tid, events.start, events.end))
        self._count += len(events.start)
        if self._count > self.LIMIT:
            self._merge()

    def by_thread(self) -> dict[tuple[int, int], Intervals]:
        self._merge()
        return self._merged

    def _merge(self) -> None:
        if not self._pending:
            return
        pid, tid, start, end = (np.concatenate(column) for column in zip(*self._pending, strict=True))
        self._pending, self._count = [], 0
        for process in distinct(pid):
            for thread in distinct(tid[pid == process]):
                mine = np.flatnonzero((pid == process) & (tid == thread))
                new = union(start[mine], end[mine])
                key = (process, thread)
                self._merged[key] = join(self._merged[key], new) if key in self._merged else new


class Columns:
    """Everything read from one trace so far."""

    def __init__(self) -> None:
        self.names: dict[bytes, int] = {}
        """Every name, to its number."""
        self.device = Table(
            kind=np.int8,
            name=np.int32,
            start=np.int64,
            end=np.int64,
            device=np.int32,
            stream=np.int32,
            correlation=np.int64,
            external=np.int64,
        )
        self.runtime = Table(name=np.int32, thread=np.int32, start=np.int64, correlation=np.int64)
        self.threads: dict[tuple[int, int], int] = {}
        """Process and thread of the runtime's calls, to their number."""
        self.operators = Operators()
        self.annotations: list[Annotation] = []
        self.special_operators: list[Annotation] = []
        """Operators of `SPECIAL_OPERATOR`, where external ids are wanted: not among `operators` then."""
        self._by_name: dict[Callable[[bytes], int], list[int]] = {}

    def numbers(self, names: Sequence[bytes]) -> Ints:
        """The number of each name."""
        get = self.names.get
        found = [get(name, -1) for name in names]
        if -1 in found:
            known = self.names
            found = [known.setdefault(name, len(known)) for name in names]
        return np.array(found, np.int64)

    def classes(self, function: Callable[[bytes], int], number: npt.NDArray[Any]) -> Ints:
        """`function` of the names with these numbers; it is called once per name."""
        known = self._by_name.setdefault(function, [])
        if len(known) < len(self.names):
            known += [function(name) for name in list(self.names)[len(known) :]]
        return np.array(known or [0], np.int64)[number]

    def is_launch(self, number: Ints) -> Mask:
        return self.classes(launch_class, number) != LaunchClass.NOTHING

    def is_special(self, number: Ints) -> Mask:
        return self.classes(_is_special, number) != 0

    def add_device(self, events: Events, device: Ints, stream: Ints, correlation: Ints, external: Ints | None) -> None:
        """Without ``args.device`` the event's process is its device."""
        self.device.add(
            kind=events.kind,
            name=events.name,
            start=events.start,
            end=events.end,
            device=np.where(device < 0, events.pid, device),
            stream=stream,
            correlation=correlation,
        )
        if external is not None:
            self.device.add(external=external)

    def add_runtime(self, events: Events, correlation: Ints) -> None:
        known = self.threads
        thread = [known.setdefault(which, len(known)) for which in zip(events.pid.tolist(), events.tid.tolist(), strict=True)]
        self.runtime.add(name=events.name, thread=np.array(thread, np.int32), start=events.start, correlation=correlation)

    def add_operators(self, events: Events, external: Ints | None) -> None:
        if external is not None:
            special = self.is_special(events.name)
            self.special_operators += self._annotations(events, external, np.flatnonzero(special))
            events = events.where(~special)
        self.operators.add(events)

    def add_annotations(self, events: Events, external: Ints) -> None:
        self.annotations += self._annotations(events, external, np.arange(len(events.name)))

    def _annotations(self, events: Events, external: Ints, index: Ints) -> list[Annotation]:
        if not len(index):
            return []
        names = list(self.names)
        return [
            Annotation(
                Kind(int(events.kind[i])),
                text(names[events.name[i]]),
                int(events.pid[i]),
                int(events.tid[i]),
                int(events.start[i]),
                int(events.end[i]),
                int(external[i]),
            )
            for i in index.tolist()
        ]


def launch_class(name: bytes) -> int:
    """What a call of this name starts (`LaunchClass`)."""
    if b"StreamBeginCapture" in name:
        return LaunchClass.BEGIN_CAPTURE
    if b"StreamEndCapture" in name:
        return LaunchClass.END_CAPTURE
    if GRAPH_LAUNCH.match(name):
        return LaunchClass.GRAPH
    if KERNEL_LAUNCH.match(name):
        return LaunchClass.KERNEL
    return LaunchClass.COPY if COPY_LAUNCH.match(name) else LaunchClass.NOTHING


def _is_special(name: bytes) -> int:
    return int(name.startswith(SPECIAL_OPERATOR))


def text(name: bytes) -> str:
    """A name of a JSON string."""
    return name.decode("utf-8", "replace")


DEVICE_FIGURES = (*DEVICE_KINDS, *RUNTIME_KINDS, Kind.ANNOTATION, Kind.DEVICE_ANNOTATION)
CPU_FIGURES = (Kind.OPERATOR, Kind.ANNOTATION)
