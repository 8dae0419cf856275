"""A run as one trace that ui.perfetto.dev and chrome://tracing open: JSON in the Trace Event Format.

Times are whole microseconds since the first event, on the driver's clock. Both ends of a span are cut to the microsecond, never
rounded: then what nests in nanoseconds nests in the trace too, and a duration is less than 1 us off.
Processes and threads are numbered anew, since pids of two nodes may agree and a thread's own number exceeds 32 bits; a process's
name carries its pid.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlmbench.files import write_atomically
from rlmbench.metrics.summary import driver_of
from rlmbench.records.clocks import clock_offsets_ns
from rlmbench.records.frames import plain_rows
from rlmbench.records.vocabulary import STAGE_GROUPS, STAGES
from rlmbench.report import counters

if TYPE_CHECKING:
    import pandas as pd

    from rlmbench.records import Run

Event = dict[str, Any]

ROLES = ("driver", "trainer", "rollout", "reward", "engine", "engine rank", "server", "worker", "launcher")
"""Processes from top to bottom; a role that is not here comes last."""
_RANKED = ("trainer", "engine rank", "worker")
STEPS_TRACK = "steps"
POINTS_TRACK = "updates and losses"
_ARGS = (
    "step", "name", "samples", "prompt_tokens", "response_tokens", "valid_tokens", "computed_tokens", "rss_peak_bytes",
    "torch_allocated_peak_bytes", "torch_reserved_peak_bytes", "awaits", "error",
)  # fmt: skip


class _Span(NamedTuple):
    thread: int
    start_ns: int
    end_ns: int
    stage: str
    substage: str | None
    rss_bytes: int | None
    args: Event


class _Tracks:
    """Numbers and names of one process's threads."""

    def __init__(self, pid: int, numbers: Iterator[int]) -> None:
        self.pid = pid
        self._numbers = numbers
        self._known: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The thread's number in the trace."""
        if name not in self._known:
            self._known[name] = next(self._numbers)
        return self._known[name]

    def metadata(self) -> Iterator[Event]:
        for name, tid in self._known.items():
            yield {"ph": "M", "name": "thread_name", "pid": self.pid, "tid": tid, "args": {"name": name}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": self.pid, "tid": tid, "args": {"sort_index": tid}}


def trace(run: Run, left_out: Mapping[int, str] | None = None) -> Event:
    """The whole trace of `run` as a JSON object. `left_out` are the steps outside the means, with the reason.

    Processes that recorded neither span, step, micro-batch nor update are left out and counted.
    Spans of a thread become complete events; those that cut across another one of their thread become asynchronous ones. What
    collectors read of nodes and devices follows as counters.
    """
    driver = driver_of(run.processes, run.steps, run.spans)
    offsets = clock_offsets_ns(run.processes, driver) if driver else {}
    shown = _shown(run, driver)
    sampled = counters.tracks(run, driver)
    numbers = count(len(shown) + len(sampled) + 1)
    ids = count(1)
    metadata: list[Event] = []
    timed: list[tuple[int, Event]] = []
    for place, (process, name) in enumerate(shown.items(), start=1):
        tracks = _Tracks(place, numbers)
        shift = offsets.get(process, 0)
        steps = _steps(_of(run.steps, process), tracks, left_out or {})
        points = chain(_updates(_of(run.updates, process), tracks), _losses(_of(run.microbatches, process), tracks))
        spans = _spans(_of(run.spans, process), tracks, ids)
        timed += [(at_ns + shift, event) for at_ns, event in chain(steps, spans, points)]
        metadata.append({"ph": "M", "name": "process_name", "pid": place, "tid": 0, "args": {"name": name}})
        metadata.append({"ph": "M", "name": "process_sort_index", "pid": place, "tid": 0, "args": {"sort_index": place}})
        stages = ", ".join(stage for stage in STAGES if stage in set(_of(run.spans, process)["stage"]))
        metadata.append({"ph": "M", "name": "process_labels", "pid": place, "tid": 0, "args": {"labels": stages}})
        metadata += tracks.metadata()
    for place, track in enumerate(sampled, start=len(shown) + 1):
        timed += counters.events(track, place)
        metadata.append({"ph": "M", "name": "process_name", "pid": place, "tid": 0, "args": {"name": track.name}})
        metadata.append({"ph": "M", "name": "process_sort_index", "pid": place, "tid": 0, "args": {"sort_index": place}})
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "run": run.id, "suite": run.manifest.suite, "scale": run.manifest.scale, "framework": run.manifest.framework,
            "status": run.manifest.status, "processes_without_events": len(run.processes) - len(shown),
        },
        "traceEvents": [*metadata, *_placed(timed)],
    }  # fmt: skip


def write_trace(run: Run, path: Path, left_out: Mapping[int, str] | None = None) -> None:
    """Write the trace atomically, compressed where the file's name ends in .gz."""
    data = json.dumps(trace(run, left_out), separators=(",", ":"), allow_nan=False).encode()
    write_atomically(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def _placed(timed: list[tuple[int, Event]]) -> list[Event]:
    """The events in order of time, with nanoseconds turned into microseconds since the first; of equal times, longer spans first."""
    origin = min((at_ns for at_ns, _ in timed), default=0)
    events = []
    for at_ns, event in sorted(timed, key=lambda item: (item[0], -item[1].get("dur", 0))):
        ts = (at_ns - origin) // 1000
        placed = {**event, "ts": ts}
        if "dur" in event:
            placed["dur"] = (at_ns + event["dur"] - origin) // 1000 - ts
        events.append(placed)
    return events


# -- processes


def _shown(run: Run, driver: str | None) -> dict[str, str]:
    """Process -> its name in the trace, from top to bottom."""
    active = set(chain.from_iterable(frame["process"] for frame in (run.spans, run.steps, run.updates, run.microbatches)))
    trains = {*run.updates["process"], *run.spans.loc[run.spans["stage"].isin(STAGE_GROUPS["training"]), "process"]}
    rows = [row for row in plain_rows(run.processes, "process", "role", "rank", "pid", "host") if row[0] in active]
    home = next((host for process, *_, host in rows if process == driver), None)
    named = []
    for process, given, rank, pid, host in rows:
        role = "driver" if process == driver else given or "worker"
        role = "trainer" if role == "worker" and process in trains else role
        place = ROLES.index(role) if role in ROLES else len(ROLES)
        title = "engine" if role == "engine rank" else role
        ranked = f"{title} rank {rank}" if role in _RANKED and rank is not None else role
        elsewhere = f" on {host}" if host and host != home else ""
        named.append((place, rank or 0, process, f"{ranked} (pid {pid}){elsewhere}" if pid is not None else f"{ranked}{elsewhere}"))
    return {process: name for *_, process, name in sorted(named)}


def _of(frame: pd.DataFrame, process: str) -> pd.DataFrame:
    return frame[frame["process"] == process]


# -- events, each with the nanosecond of its process's clock at which it begins; `dur` is in nanoseconds still


def _steps(steps: pd.DataFrame, tracks: _Tracks, left_out: Mapping[int, str]) -> Iterator[tuple[int, Event]]:
    for step, start, end, probe in plain_rows(steps, "step", "start_ns", "end_ns", "probe_ns"):
        args = _known({"step": step, "left_out": left_out.get(step), "probe_ns": probe})
        yield start, _complete(tracks, STEPS_TRACK, f"step {step}", "step", end - start, args)


def _spans(frame: pd.DataFrame, tracks: _Tracks, ids: Iterator[int]) -> Iterator[tuple[int, Event]]:
    columns = ("thread", "start_ns", "end_ns", "stage", "substage", "rss_bytes", *_ARGS)
    spans = [
        _Span(thread, start, end, stage, substage, rss, _known(dict(zip(_ARGS, values, strict=True))))
        for thread, start, end, stage, substage, rss, *values in plain_rows(frame, *columns)
    ]
    spans.sort(key=lambda span: (span.start_ns, -span.end_ns))
    names = _thread_names(spans)
    nested = _nested(spans)
    for span, nests in zip(spans, nested, strict=True):
        name = f"{span.stage}.{span.substage}" if span.substage else span.stage
        track, length = names[span.thread], span.end_ns - span.start_ns
        if nests:
            yield span.start_ns, _complete(tracks, track, name, span.stage, length, span.args)
        else:
            one = {"cat": span.stage, "name": name, "id": hex(next(ids)), "pid": tracks.pid, "tid": tracks.number(track)}
            yield span.start_ns, {"ph": "b", **one, "args": span.args}
            yield span.end_ns, {"ph": "e", **one, "args": {}}
        if span.rss_bytes is not None:
            yield span.end_ns, {"ph": "C", "name": "resident set", "pid": tracks.pid, "args": {"bytes": span.rss_bytes}}


def _thread_names(spans: Iterable[_Span]) -> dict[int, str]:
    """Threads in the order in which they first recorded something; the probe's lanes of calls that run at once are negative."""
    threads = dict.fromkeys(span.thread for span in spans)
    real = [thread for thread in threads if thread >= 0]
    lanes = sorted((thread for thread in threads if thread < 0), reverse=True)
    return {
        **{thread: f"thread {place}" for place, thread in enumerate(real, start=1)},
        **{lane: f"in flight {-lane}" for lane in lanes},
    }


def _nested(spans: Sequence[_Span]) -> list[bool]:
    """For each span, by start and longest first, whether it lies within every earlier span of its thread that it overlaps."""
    open_ends: dict[int, list[int]] = {}
    fits = []
    for span in spans:
        ends = open_ends.setdefault(span.thread, [])
        while ends and ends[-1] <= span.start_ns:
            ends.pop()
        fits.append(not ends or span.end_ns <= ends[-1])
        if fits[-1]:
            ends.append(span.end_ns)
    return fits


def _updates(updates: pd.DataFrame, tracks: _Tracks) -> Iterator[tuple[int, Event]]:
    names = ("t_ns", "role", "step", "update", "learning_rate", "grad_norm", "weights_changed")
    for at_ns, role, *values in plain_rows(updates.dropna(subset=["t_ns"]), *names):
        args = _known(dict(zip(names[2:], values, strict=True)))
        yield at_ns, _point(tracks, f"optimizer step ({role})", "update", args)


def _losses(batches: pd.DataFrame, tracks: _Tracks) -> Iterator[tuple[int, Event]]:
    names = ("t_ns", "step", "update", "micro_batch", "samples", "valid_tokens", "computed_tokens")
    for at_ns, *values in plain_rows(batches.dropna(subset=["t_ns"]), *names):
        yield at_ns, _point(tracks, "loss", "loss", _known(dict(zip(names[1:], values, strict=True))))


def _complete(tracks: _Tracks, track: str, name: str, category: str, length_ns: int, args: Event) -> Event:
    return {"ph": "X", "name": name, "cat": category, "pid": tracks.pid, "tid": tracks.number(track), "dur": length_ns, "args": args}


def _point(tracks: _Tracks, name: str, category: str, args: Event) -> Event:
    return {"ph": "i", "s": "t", "name": name, "cat": category, "pid": tracks.pid, "tid": tracks.number(POINTS_TRACK), "args": args}


def _known(values: Mapping[str, Any]) -> Event:
    """What was recorded; JSON has no infinity."""
    return {
        name: value for name, value in values.items() if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }
