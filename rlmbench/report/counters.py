"""What collectors read, as counter tracks of a trace: one process of the trace for each node, and one for each device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from rlmbench.records.frames import plain_rows
from rlmbench.report.numbers import significant

if TYPE_CHECKING:
    import pandas as pd

    from rlmbench.records import Run

MOST_POINTS = 5000
"""Values drawn of one counter; of longer runs each is that of several readings."""

Point = tuple[int, float]


class Track(NamedTuple):
    """One node or device: its name, and its counters, each with its unit and its points in nanoseconds of the driver's clock."""

    name: str
    counters: dict[str, tuple[str, list[Point]]]


class _Counter(NamedTuple):
    name: str
    column: str
    unit: str
    scale: float = 1
    made: str = "mean"


_OF_DEVICE = (
    _Counter("power", "power_w", "W"),
    _Counter("memory in use", "memory_used_bytes", "bytes", made="max"),
    _Counter("SM active", "sm_active", "share"),
    _Counter("tensor active", "tensor_active", "share"),
    _Counter("nvml_kernel_present", "nvml_kernel_present", "share"),
    _Counter("SM clock", "sm_clock_hz", "MHz", 1e-6),
    _Counter("temperature", "temperature_c", "C", made="max"),
)
_OF_TREE = (
    _Counter("CPU of the run", "cpu_s", "cores", made="rate"),
    _Counter("RSS of the run", "rss_bytes", "bytes", made="max"),
    _Counter("PSS of the run", "pss_bytes", "bytes", made="max"),
)
_OF_NODE = (
    _Counter("CPU of the node", "cpu_busy_s", "cores", made="rate"),
    _Counter("memory in use", "memory_used_bytes", "bytes", made="max"),
    _Counter("load", "load_1min", "processes"),
)


def tracks(run: Run, driver: str | None, most_points: int = MOST_POINTS, between_ns: tuple[int, int] | None = None) -> list[Track]:
    """Nodes, then devices, each by name; those whose clock cannot be tied to the driver's are left out.

    `between_ns`: from where to where, by the driver's clock; the default is everything.
    """
    from rlmbench.records.clocks import node_offsets_ns

    if driver is None or run.collectors.empty:
        return []
    shifts = node_offsets_ns(run.collectors, run.processes, driver)
    found = []
    for node, shift in sorted(shifts.items()):
        view = _View(shift, most_points, between_ns)
        counters = _counters(_at(run.tree_samples, node), _OF_TREE, view) | _counters(_at(run.node_samples, node), _OF_NODE, view)
        found.append(Track(f"host {node}", counters))
    for node, device in sorted(plain_rows(run.device_samples[["node", "device"]].drop_duplicates(), "node", "device")):
        if node in shifts:
            samples = _at(run.device_samples, node)
            view = _View(shifts[node], most_points, between_ns)
            counters = _counters(samples[samples["device"] == device], _OF_DEVICE, view)
            found.append(Track(f"device {device} on {node}", counters))
    return [track for track in found if track.counters]


def events(track: Track, pid: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each point as a counter event, with the time at which it stands."""
    for name, (unit, points) in track.counters.items():
        for at_ns, value in points:
            yield at_ns, {"ph": "C", "name": f"{name} ({unit})", "pid": pid, "args": {unit: value}}


def _at(frame: pd.DataFrame, node: str) -> pd.DataFrame:
    return frame[frame["node"] == node]


class _View(NamedTuple):
    """How a node's readings are looked at."""

    shift_ns: int
    most_points: int
    between_ns: tuple[int, int] | None


def _counters(samples: pd.DataFrame, wanted: Iterable[_Counter], view: _View) -> dict[str, tuple[str, list[Point]]]:
    at_ns = samples["t_ns"] + view.shift_ns
    seen = samples.assign(at_ns=at_ns)[at_ns.between(*view.between_ns)] if view.between_ns else samples.assign(at_ns=at_ns)
    found = {}
    for counter in wanted:
        known = seen.dropna(subset=[counter.column]).sort_values("at_ns")
        readings = [(at, value * counter.scale) for at, value in plain_rows(known, "at_ns", counter.column)]
        points = _MADE[counter.made](readings, view.most_points)
        if points:
            found[counter.name] = (counter.unit, [(at, float(significant(value, 5).replace(",", ""))) for at, value in points])
    return found


def _chunks(readings: list[Point], most_points: int) -> Iterator[list[Point]]:
    size = -(-len(readings) // most_points)
    return (readings[first : first + size] for first in range(0, len(readings), size)) if size else iter(())


def _mean(readings: list[Point], most_points: int) -> list[Point]:
    return [(chunk[0][0], sum(value for _, value in chunk) / len(chunk)) for chunk in _chunks(readings, most_points)]


def _max(readings: list[Point], most_points: int) -> list[Point]:
    return [(chunk[0][0], max(value for _, value in chunk)) for chunk in _chunks(readings, most_points)]


def _rate(readings: list[Point], most_points: int) -> list[Point]:
    """What a counter gained per second, from each reading to the next that is drawn; where it fell it is not known."""
    drawn = [chunk[0] for chunk in _chunks(readings, most_points)]
    pairs = pairwise(drawn)
    return [(at, (after - before) * 1e9 / (until - at)) for (at, before), (until, after) in pairs if after >= before and until > at]


_MADE: Mapping[str, Callable[[list[Point], int], list[Point]]] = {"mean": _mean, "max": _max, "rate": _rate}
