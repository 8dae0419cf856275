"""What a trace says: result types of `rlmbench.traces`.

All times are integer nanoseconds. Instants (`start_ns`, `end_ns`) are the trace's own ``ts`` in ns; ``Trace.base_ns`` added to
them gives the time since 1970 where the trace states it. Shares lie in 0..1 and are None where there is no window to divide by.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STAGE_PREFIX = "rlmbench:"
"""rlmbench's profile pass annotates a stage as ``record_function("rlmbench:<stage>")``."""


@dataclass(frozen=True)
class Usage:
    """What one device did in one window.

    A *compute* event is a kernel that does not communicate; *communication* is a kernel of a collective library; *copy* is a
    memcpy or a memset. Each ``*_ns`` without "only" is the union of its events' intervals, so the three may overlap;
    ``only_*`` is the time in which no other class ran, and only_compute + only_communication + only_copy + mixed = busy.
    """

    window_ns: int | None
    """Length of the window. None for what a stage launched: that may run when the stage is over."""
    busy_ns: int
    """Union of all kernels, memcpys and memsets."""
    compute_ns: int
    communication_ns: int
    copy_ns: int
    exposed_communication_ns: int
    """Communication that no compute kernel covers (a copy at the same time does not cover it)."""
    only_compute_ns: int
    only_communication_ns: int
    only_copy_ns: int
    events: int
    """Device events that lie at least partly in the window."""

    @property
    def mixed_ns(self) -> int:
        """Time in which two or three classes ran at once."""
        return self.busy_ns - self.only_compute_ns - self.only_communication_ns - self.only_copy_ns

    @property
    def no_kernel_ns(self) -> int | None:
        """Window minus busy: gaps at its beginning and its end included."""
        return None if self.window_ns is None else self.window_ns - self.busy_ns

    @property
    def no_kernel(self) -> float | None:
        """Share of the window in which the device ran nothing (docs/metrics.md: no_kernel)."""
        return self.share(self.no_kernel_ns)

    @property
    def exposed_communication(self) -> float | None:
        """Share of the window in communication that no compute covers."""
        return self.share(self.exposed_communication_ns)

    def share(self, part_ns: int | None) -> float | None:
        """`part_ns` over the window; None without one."""
        return part_ns / self.window_ns if self.window_ns and part_ns is not None else None


@dataclass(frozen=True)
class Step:
    """One ``ProfilerStep#N`` of the trace."""

    number: int
    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class StageUsage:
    """One stage on one device. A moment inside two annotations of a thread belongs to the inner one.

    `during` is what the device did while the stage's annotation was open (window: the annotations' time, so that
    ``during.no_kernel`` is the device's idle share of the stage). `launched` is what the stage caused, whenever it ran:
    device events found as `attribution` says.
    """

    stage: str
    count: int
    """How many annotations."""
    during: Usage
    launched: Usage
    attribution: str
    """``launch``: by the call that launched the event (same correlation id, made while the annotation was open).
    ``gpu annotation``: the trace lacks the launches; by the interval the profiler drew on the device's own timeline.
    ``none``: it has neither, and `launched` is empty."""


@dataclass(frozen=True)
class DeviceUsage:
    """One device of the trace."""

    device: str
    """The device's index as the profiler counts it (``args.device``), as text."""
    name: str
    """The product's name where the trace states it, else empty."""
    streams: int
    usage: Usage
    """Over `Trace.window`."""
    steps: tuple[Usage, ...]
    """Per step of `Trace.steps`."""
    stages: tuple[StageUsage, ...]
    reliable: bool
    """False when device events are missing from the trace: no_kernel is then an upper bound."""
    reason: str
    """Why not, in one line; empty when reliable."""


@dataclass(frozen=True)
class CpuUsage:
    """CPU operators (``cpu_op``) in one window. An operator inside another of its thread is not counted again."""

    window_ns: int
    operator_ns: int
    """Union of operators per thread, summed over threads: may exceed the window."""
    any_operator_ns: int
    """Union over all threads: time in which at least one thread ran an operator."""

    @property
    def no_operator(self) -> float | None:
        """Share of the window in which no thread ran an operator."""
        return 1 - self.any_operator_ns / self.window_ns if self.window_ns else None


@dataclass(frozen=True)
class CpuStage:
    """One stage of a trace without a device."""

    stage: str
    count: int
    usage: CpuUsage


@dataclass(frozen=True)
class CpuOnly:
    """What a trace says that has no device events at all."""

    reason: str
    """``no device in this trace: ...``, one line."""
    threads: int
    usage: CpuUsage
    """Over `Trace.window`."""
    steps: tuple[CpuUsage, ...]
    stages: tuple[CpuStage, ...]


@dataclass(frozen=True)
class Trace:
    """One file of torch.profiler (kineto), read.

    Either `devices` has an entry per device and `cpu` is None, or the trace has no device events and `cpu` says so.
    """

    path: Path
    rank: int | None
    world_size: int | None
    base_ns: int
    """``baseTimeNanoseconds``: added to an instant it gives ns since 1970. 0 in old traces, whose ``ts`` are that already."""
    start_ns: int
    end_ns: int
    """The window: the profiled steps' span; without steps, first to last event of devices (or operators, without devices)."""
    window_source: str
    """``steps`` or ``events``."""
    steps: tuple[Step, ...]
    devices: tuple[DeviceUsage, ...]
    cpu: CpuOnly | None
    launches: int
    """Calls on the CPU that launched a kernel or a copy and left a correlation id."""
    lost_launches: int
    """Of these, calls for a kernel without any event on a device."""
    graph_launches: int
    """``cudaGraphLaunch`` and its like."""
    empty_graph_launches: int
    """Of these, calls without any event on a device: the graph's nodes are missing from the trace."""
    layout: str
    """``kineto``: read by layout throughout. ``json``: at least partly read by the slower general way."""

    @property
    def window_ns(self) -> int:
        return self.end_ns - self.start_ns
