"""Reading `probe/*.jsonl`: one file per process, appended as things happen, cut off anywhere by kill -9.

A last line without its end is what a killed process leaves: it is ignored. Any other line that is no event of ours is
counted as damaged and skipped. An unknown `ev` is left to later versions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlmbench.records.schema import EVENT_COLUMNS, FLOAT_OR_NULL, HIGHEST, LOWEST

Rows = dict[str, list[tuple[Any, ...]]]
_TYPES = {table: [(column, kind.types) for column, kind in columns.items()] for table, columns in EVENT_COLUMNS.items()}


def read_events(folder: Path) -> Rows:
    """For every table of `EVENT_COLUMNS` the rows that the event files in `folder` hold, in the order they were written."""
    rows: Rows = {name: [] for name in EVENT_COLUMNS}
    for path in sorted(folder.glob("*.jsonl")):
        _ProcessFile(path.stem, rows).read(path.read_bytes())
    return rows


class _ProcessFile:
    """The events of one process on their way into the tables."""

    def __init__(self, process: str, rows: Rows) -> None:
        self._process = process
        self._rows = rows
        self._about: dict[str, Any] = {}
        self._damaged = 0
        self._micro_batches: Counter[int] = Counter()

    def read(self, data: bytes) -> None:
        for event in self._parsed(data):
            take = _TAKE.get(str(event.get("ev")))
            if take is not None:
                try:
                    take(self, event)
                except (KeyError, TypeError, ValueError):
                    self._damaged += 1
        self._add("processes", {**self._about, "damaged_lines": self._damaged})

    def _parsed(self, data: bytes) -> Iterator[Mapping[str, Any]]:
        lines = data.split(b"\n")
        last = len(lines) - 1
        for number, line in enumerate(lines):
            if not line:
                continue
            try:
                event = json.loads(line.decode())
                if not isinstance(event, dict):
                    raise TypeError("not an object")
            except (TypeError, ValueError, RecursionError):
                self._damaged += number != last
                continue
            yield event

    def _add(self, table: str, values: Mapping[str, Any]) -> None:
        self._rows[table].append(self._row(table, values))

    def _row(self, table: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
        row = []
        for column, types in _TYPES[table]:  # runs once per value of a run, so `Kind.accepts` is spelled out here
            value: Any = self._process if column == "process" else values.get(column)
            kind = type(value)
            if kind not in types or (kind is int and not LOWEST <= value <= HIGHEST):
                raise ValueError(f"{table}.{column}: {value!r}")
            row.append(value)
        return tuple(row)

    def _take_process(self, event: Mapping[str, Any]) -> None:
        about = {**event, "argv": json.dumps(event.get("argv"))}
        self._row("processes", {**about, "damaged_lines": 0})
        self._about.update(about)

    def _take_role(self, event: Mapping[str, Any]) -> None:
        role = {name: event[name] for name in ("role", "rank") if name in event}
        self._row("processes", {**role, "damaged_lines": 0})
        self._about.update(role)

    def _take_end(self, event: Mapping[str, Any]) -> None:
        end = {"end_ns": event["t_ns"], "probe_ns": event.get("probe_ns")}
        self._row("processes", {**end, "damaged_lines": 0})
        self._about.update(end)

    def _take_loss(self, event: Mapping[str, Any]) -> None:
        """One micro-batch; all of it or, when any of its rows is damaged, nothing."""
        place = {"step": event["step"], "update": event.get("update"), "micro_batch": self._micro_batches[event["step"]]}
        names = ("row", "sample", "prompt_hash", "prompt_tokens", "response_tokens")
        samples = [self._row("samples", {**place, **dict(zip(names, row, strict=True))}) for row in event["rows"]]
        valid = sum(row[3] + row[4] for row in event["rows"])
        optional = {name: event.get(name) for name in ("t_ns", "computed_tokens")}
        self._add("microbatches", {**place, **optional, "samples": len(samples), "valid_tokens": valid})
        self._rows["samples"].extend(samples)
        self._micro_batches[event["step"]] += 1

    def _take_reward(self, event: Mapping[str, Any]) -> None:
        place = {"step": event["step"], "t_ns": event.get("t_ns")}
        names = ("row", "sample", "reward")
        rows = [self._row("rewards", {**place, **dict(zip(names, row, strict=True))}) for row in event["rows"]]
        self._rows["rewards"].extend(rows)

    def _take_native(self, event: Mapping[str, Any]) -> None:
        place = {"step": event["step"], "t_ns": event.get("t_ns")}
        numbers = {key: value for key, value in dict(event["values"]).items() if FLOAT_OR_NULL.accepts(value)}  # a log may hold texts too
        rows = [self._row("native", {**place, "key": key, "value": value}) for key, value in numbers.items()]
        self._rows["native"].extend(rows)

    def _take_fact(self, event: Mapping[str, Any]) -> None:
        self._add("facts", {"name": event["name"], "value": json.dumps(event["value"])})

    def _take_span(self, event: Mapping[str, Any]) -> None:
        if event["end_ns"] < event["start_ns"]:
            raise ValueError("a span that ends before it starts")
        self._add("spans", event)

    def _take_step(self, event: Mapping[str, Any]) -> None:
        if event["end_ns"] < event["start_ns"]:
            raise ValueError("a step that ends before it starts")
        self._add("steps", event)

    def _take_hook(self, event: Mapping[str, Any]) -> None:
        self._add("hooks", event)

    def _take_logprobs(self, event: Mapping[str, Any]) -> None:
        self._add("logprobs", event)

    def _take_update(self, event: Mapping[str, Any]) -> None:
        self._add("updates", event)


_TAKE = {
    "process": _ProcessFile._take_process,
    "role": _ProcessFile._take_role,
    "end": _ProcessFile._take_end,
    "hook": _ProcessFile._take_hook,
    "span": _ProcessFile._take_span,
    "step": _ProcessFile._take_step,
    "loss": _ProcessFile._take_loss,
    "reward": _ProcessFile._take_reward,
    "logprobs": _ProcessFile._take_logprobs,
    "update": _ProcessFile._take_update,
    "native": _ProcessFile._take_native,
    "fact": _ProcessFile._take_fact,
}
