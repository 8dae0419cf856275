"""Spans of single steps laid out on lines: one block of lines per process and thread, nested spans below their parents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rlmbench.metrics.stages import Window, awaited

if TYPE_CHECKING:
    import pandas as pd

MOST_SPANS = 1200
"""Spans drawn per step; the shortest ones are left out, and the page says so."""
MOST_THREADS = 12
"""Threads drawn: the driver's, and of the others those that do something in most of the steps."""

Thread = tuple[str, int]


class Bar(NamedTuple):
    """One span of the picture; milliseconds count from the beginning of its step."""

    lane: int
    depth: int
    stage: str
    substage: str | None
    name: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class Timeline:
    """Steps laid out on common lines. `lanes` labels each line: empty for nested ones."""

    lanes: tuple[str, ...]
    steps: Mapping[int, list[Bar]]
    left_out: Mapping[int, int]
    threads_left_out: int


def lay_out(
    spans: pd.DataFrame, processes: pd.DataFrame, windows: Sequence[Window], offsets_ns: Mapping[str, int], driver: str | None
) -> Timeline:
    """The spans that touch `windows`, cut at their boundaries. `offsets_ns` moves each process to the driver's clock."""
    found = {window.step: _by_thread(spans, window, offsets_ns, driver) for window in windows}
    threads = sorted({thread for of_step in found.values() for thread in of_step}, key=lambda thread: _order(thread, driver))
    steps_of = {thread: sum(thread in of_step for of_step in found.values()) for thread in threads}
    first_choice = sorted(threads, key=lambda thread: (thread[0] != driver, -steps_of[thread]))
    shown = [thread for thread in threads if thread in first_choice[:MOST_THREADS]]
    nested = {step: {thread: list(_nested(of_step[thread])) for thread in shown if thread in of_step} for step, of_step in found.items()}
    depths = {
        thread: 1 + max((depth for of_step in nested.values() for depth, _ in of_step.get(thread, ())), default=0) for thread in shown
    }
    first: dict[Thread, int] = {}
    lanes: list[str] = []
    for thread in shown:
        first[thread] = len(lanes)
        lanes += [_label(thread, processes, shown), *[""] * (depths[thread] - 1)]
    steps, left_out = {}, {}
    for window in windows:
        bars = [
            Bar(first[thread] + depth, depth, span.stage, span.substage, span.name, *_milliseconds(span, window))
            for thread, rows in nested[window.step].items()
            for depth, span in rows
        ]
        bars.sort(key=lambda bar: bar.start_ms - bar.end_ms)
        steps[window.step] = sorted(bars[:MOST_SPANS], key=lambda bar: (bar.lane, bar.start_ms))
        left_out[window.step] = max(0, len(bars) - MOST_SPANS)
    return Timeline(tuple(lanes), steps, left_out, len(threads) - len(shown))


def _order(thread: Thread, driver: str | None) -> tuple[bool, str, bool, int]:
    """The driver first; of each process its threads before its lanes, whose numbers are negative."""
    process, number = thread
    return process != driver, process, number < 0, abs(number)


class _Span(NamedTuple):
    start_ns: int
    end_ns: int
    stage: str
    substage: str | None
    name: str


def _by_thread(spans: pd.DataFrame, window: Window, offsets_ns: Mapping[str, int], driver: str | None) -> dict[Thread, list[_Span]]:
    """Spans that touch the step, and below a span of the driver that awaits others what really went on in it: a wait, say."""
    shift = spans["process"].map(lambda process: offsets_ns.get(process, 0)).astype("int64")
    start, end = spans["start_ns"] + shift, spans["end_ns"] + shift
    inside = (start < window.end_ns) & (end > window.start_ns)
    columns = [spans.loc[inside, name].tolist() for name in ("process", "thread", "stage", "substage", "name")]
    threads: dict[Thread, list[_Span]] = {}
    for process, thread, stage, substage, name, begin, stop in zip(*columns, start[inside].tolist(), end[inside].tolist(), strict=True):
        text = substage if isinstance(substage, str) else None
        called = name if isinstance(name, str) else stage
        threads.setdefault((process, thread), []).append(_Span(max(begin, window.start_ns), min(stop, window.end_ns), stage, text, called))
    mine = inside & (spans["process"] == driver)
    for overlay in awaited(spans[mine], spans[inside & ~mine], offsets_ns)[0]:
        begin, stop = max(overlay.start_ns, window.start_ns), min(overlay.end_ns, window.end_ns)
        if driver is not None and begin < stop:
            threads.setdefault((driver, overlay.thread), []).append(
                _Span(begin, stop, overlay.stage, None, "wait: none works on it" if overlay.stage == "wait" else "in another process")
            )
    return threads


def _nested(spans: Iterable[_Span]) -> Iterable[tuple[int, _Span]]:
    """Each span with how many others of its thread it lies in."""
    open_until: list[int] = []
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        while open_until and open_until[-1] <= span.start_ns:
            open_until.pop()
        yield len(open_until), span
        open_until.append(span.end_ns)


def _milliseconds(span: _Span, window: Window) -> tuple[float, float]:
    return (span.start_ns - window.start_ns) / 1e6, (span.end_ns - window.start_ns) / 1e6


def _label(thread: Thread, processes: pd.DataFrame, shown: Sequence[Thread]) -> str:
    """`rank 0 · driver`; threads of one process are numbered where there are several."""
    import pandas as pd

    rows = processes.loc[processes["process"] == thread[0]]
    rank = rows["rank"].iloc[0] if len(rows) else pd.NA
    role = rows["role"].iloc[0] if len(rows) else pd.NA
    words = [f"process {thread[0]}" if pd.isna(rank) else f"rank {rank}"] + ([] if pd.isna(role) else [str(role)])
    siblings = [other for other in shown if other[0] == thread[0]]
    if len(siblings) > 1:
        words[-1] += f" #{siblings.index(thread) + 1}"
    return " · ".join(words)
