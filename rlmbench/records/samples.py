"""Reading `collector/`: for each node `<node>.jsonl.gz`, written by the collector that ran beside the run (rlmbench.collectors), and
`<node>.jsonl`, what others say of the node (in older records: all of it).

The rules are those of probe events: a last line without its end is ignored, any other line that is none of ours is counted
as damaged and skipped, an unknown `ev`, table or column is left to later versions. A stream that was cut off is read up to there.
There may be a million rows, so they are written as lists whose columns an earlier line names, and a row's types are looked up as a whole.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlmbench.records.schema import HIGHEST, LOWEST, SAMPLE_COLUMNS

FOLDER = "collector"
PACKED, PLAIN = ".jsonl.gz", ".jsonl"
GZIP_BITS = 31
BLOCK_BYTES = 1 << 16
SAMPLE_TABLES = tuple(SAMPLE_COLUMNS)
Rows = dict[str, list[tuple[Any, ...]]]
_GIVEN = {"node", "t_ns"}
"""Columns that a row takes from its file and its line."""


BATCH_LINES = 5_000
"""So many lines are held as Python values at a time, which take ten times the room of a frame."""


def read_samples(folder: Path) -> Iterator[Rows]:
    """For tables of `SAMPLE_COLUMNS` the rows that the collectors' files in `folder` hold, batch after batch in the order they were written."""
    for node, parts in sorted(_parts(folder).items()):
        yield from _NodeFile(node).read(line for part in parts for line in lines_of(part))


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a part, the last one perhaps without its end. Behind damage in a stream nothing can be read: it stands as one line."""
    if not path.name.endswith(PACKED):
        with path.open("rb") as lines:
            yield from lines
        return
    rest = b""
    for block in _unpacked(path):
        *whole, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def _parts(folder: Path) -> dict[str, list[Path]]:
    """Node -> its files, the collector's own first."""
    parts: dict[str, list[Path]] = defaultdict(list)
    for ending in (PACKED, PLAIN):
        for path in folder.glob(f"*{ending}"):
            parts[path.name.removesuffix(ending)].append(path)
    return parts


def _unpacked(path: Path) -> Iterator[bytes]:
    """The text of a gzip stream, or of several one behind the other, as far as it can be read."""
    unpacker = zlib.decompressobj(wbits=GZIP_BITS)
    with path.open("rb") as file:
        while data := file.read(BLOCK_BYTES):
            while data:
                before = unpacker.copy()
                try:
                    yield unpacker.decompress(data)
                except zlib.error:
                    yield from _until_damage(before, data)
                    return
                data = unpacker.unused_data
                if unpacker.eof:
                    unpacker = zlib.decompressobj(wbits=GZIP_BITS)


def _until_damage(unpacker: Any, data: bytes) -> Iterator[bytes]:
    """What `data` holds before it cannot be read: zlib gives nothing of a piece that holds damage, so byte after byte."""
    for place in range(len(data)):
        try:
            yield unpacker.decompress(data[place : place + 1])
        except zlib.error:
            break
    yield b"damaged\n"


class _NodeFile:
    """The lines of one node on their way into the tables."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._rows: Rows = defaultdict(list)
        self._about: dict[str, Any] = {}
        self._damaged = 0
        self._take_rows: dict[str, Callable[[int, Sequence[Any]], tuple[Any, ...]]] = {}

    def read(self, lines: Iterable[bytes]) -> Iterator[Rows]:
        for number, line in enumerate(lines, start=1):
            try:
                self._take(json.loads(line))
            except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
                self._damaged += line.endswith(b"\n")
            if number % BATCH_LINES == 0:
                yield self._rows
                self._rows = defaultdict(list)
        self._rows["collectors"].append(_row("collectors", {**self._about, "node": self._node, "damaged_lines": self._damaged}))
        yield self._rows

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["ev"]:
            case "rows":
                self._take_sampled(event)
            case "collector" | "cost" | "end":
                about = {name: value for name, value in event.items() if name in SAMPLE_COLUMNS["collectors"]}
                if event["ev"] == "end":
                    about["end_ns"] = event["t_ns"]
                _row("collectors", {**about, "node": self._node, "damaged_lines": 0})
                self._about.update(about)
            case "capability":
                self._rows["capabilities"].append(_row("capabilities", {**event, "node": self._node}))
            case "columns":
                self._take_rows.update(
                    {table: _reader(table, self._node, names) for table, names in event["tables"].items() if table in SAMPLE_COLUMNS}
                )

    def _take_sampled(self, event: Mapping[str, Any]) -> None:
        """All rows of one moment or, when any of them is damaged, none."""
        t_ns = event["t_ns"]
        found = {
            table: [take(t_ns, values) for values in event["tables"][table]]
            for table, take in self._take_rows.items()
            if table in event["tables"]
        }
        for table, rows in found.items():
            self._rows[table].extend(rows)


def _row(table: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    row = tuple(values.get(column) for column in SAMPLE_COLUMNS[table])
    _check(table, row)
    return row


def _check(table: str, row: tuple[Any, ...]) -> None:
    for (column, kind), value in zip(SAMPLE_COLUMNS[table].items(), row, strict=True):
        if not kind.accepts(value):
            raise ValueError(f"{table}.{column}: {value!r}")


def _reader(table: str, node: str, names: Sequence[str]) -> Callable[[int, Sequence[Any]], tuple[Any, ...]]:
    """What makes a row of `table` of a line's time and of values in the order of `names`; it raises ValueError for a damaged row."""
    columns = SAMPLE_COLUMNS[table]
    if len(set(names)) != len(names):
        raise ValueError("a column named twice")
    # node, time, the values as they come, and a null for every column that is not there
    position = {"node": 0, "t_ns": 1, **{name: 2 + number for number, name in enumerate(names) if name not in _GIVEN}}
    null = 2 + len(names)
    picked = [position.get(column, null) for column in columns]
    whole = [place for place, kind in enumerate(columns.values()) if int in kind.types]
    accepted: set[tuple[type, ...]] = set()

    def take(t_ns: int, values: Sequence[Any]) -> tuple[Any, ...]:
        if type(values) is not list or len(values) != len(names):
            raise ValueError(f"{table}: {values!r}")
        given = (node, t_ns, *values, None)
        row = tuple([given[place] for place in picked])
        types = tuple(map(type, row))
        if types not in accepted:
            _check(table, row)
            accepted.add(types)
        for place in whole:
            value = row[place]
            if value is not None and not LOWEST <= value <= HIGHEST:
                raise ValueError(f"{table}: {value!r}")
        return row

    return take
