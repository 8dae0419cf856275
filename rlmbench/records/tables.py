"""The tables of a run as pandas frames, and as Parquet files."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rlmbench.errors import UserError
from rlmbench.files import write_atomically
from rlmbench.records.clocks import join_steps
from rlmbench.records.events import read_events
from rlmbench.records.frames import plain_rows
from rlmbench.records.integrity import ANOTHER_COPY, has_events
from rlmbench.records.samples import FOLDER, SAMPLE_TABLES, read_samples
from rlmbench.records.schema import COLUMNS, SAMPLE_COLUMNS, TABLES_SCHEMA_VERSION

_VERSION_KEY = b"rlmbench_schema_version"
_EXACT = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


class Sampled:
    """The collectors' tables of one run, each read when it is first asked for: there may be a million rows, and few readers want them."""

    def __init__(self, read: Callable[[str], pd.DataFrame] | None = None) -> None:
        self._read = read or (lambda name: _frame(name, []))
        self._frames: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._frames:
            self._frames[name] = self._read(name)
        return self._frames[name]


@dataclass(frozen=True)
class Tables:
    """Every table of one run; columns and units are in `rlmbench.records.schema` and docs/records.md.

    `samples` holds one row per sample as the loss received it, so a sample trained for two epochs has two;
    `process` is the name of the file the process wrote, without its ending. `sampled` are the collectors' tables, which have
    attributes of their own too.
    """

    processes: pd.DataFrame
    hooks: pd.DataFrame
    spans: pd.DataFrame
    steps: pd.DataFrame
    microbatches: pd.DataFrame
    samples: pd.DataFrame
    rewards: pd.DataFrame
    logprobs: pd.DataFrame
    updates: pd.DataFrame
    native: pd.DataFrame
    facts: pd.DataFrame
    sampled: Sampled = field(default_factory=Sampled)

    @property
    def collectors(self) -> pd.DataFrame:
        return self.sampled["collectors"]

    @property
    def capabilities(self) -> pd.DataFrame:
        return self.sampled["capabilities"]

    @property
    def node_samples(self) -> pd.DataFrame:
        return self.sampled["node_samples"]

    @property
    def tree_samples(self) -> pd.DataFrame:
        return self.sampled["tree_samples"]

    @property
    def process_samples(self) -> pd.DataFrame:
        return self.sampled["process_samples"]

    @property
    def device_samples(self) -> pd.DataFrame:
        return self.sampled["device_samples"]

    @property
    def device_processes(self) -> pd.DataFrame:
        return self.sampled["device_processes"]


EVENT_TABLES = tuple(field.name for field in fields(Tables) if field.name != "sampled")
TABLE_NAMES = (*EVENT_TABLES, *SAMPLE_TABLES)


def tables_from_events(run_dir: Path) -> Tables:
    """The tables from `run_dir`/probe/*.jsonl and `run_dir`/collector/*.jsonl*; all of them empty when there is none."""
    rows = read_events(run_dir / "probe")
    frames = {name: _frame(name, rows[name]) for name in EVENT_TABLES}
    join_steps(frames)
    frames["samples"]["reward"] = _rewards_of(frames["samples"], frames["rewards"])
    frames["steps"] = frames["steps"].sort_values("start_ns", ignore_index=True)
    return Tables(**frames, sampled=Sampled(_samples_from_lines(run_dir)))


def _samples_from_lines(run_dir: Path) -> Callable[[str], pd.DataFrame]:
    """Reads a collectors' table from the lines that they wrote, which are read once for all tables."""
    frames: dict[str, pd.DataFrame] = {}

    def read(name: str) -> pd.DataFrame:
        if not frames:
            batches: dict[str, list[pd.DataFrame]] = {table: [] for table in SAMPLE_TABLES}
            for rows in read_samples(run_dir / FOLDER):
                for table, some in rows.items():
                    batches[table].append(_frame(table, some))
            frames.update({table: pd.concat(found, ignore_index=True) if found else _frame(table, []) for table, found in batches.items()})
        return frames[name]

    return read


def write_tables(run_dir: Path, tables: Tables) -> None:
    """Write each table to `run_dir`/<table>.parquet, atomically one by one; those of collectors only where there was one."""
    for name in TABLE_NAMES if len(tables.collectors) else EVENT_TABLES:
        buffer = io.BytesIO()
        pq.write_table(arrow_table(getattr(tables, name)), buffer, compression="zstd")
        write_atomically(run_dir / f"{name}.parquet", buffer.getvalue())


def arrow_table(frame: pd.DataFrame) -> pa.Table:
    """A table as it is written, with the version of its schema."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _VERSION_KEY: str(TABLES_SCHEMA_VERSION).encode()})


def read_tables(run_dir: Path) -> Tables:
    """The run's tables: from Parquet when every file is there and readable, else derived again from the events.

    A published run has no events: there a table that its version of rlmbench did not write is empty.
    """
    frames = {}
    for name in EVENT_TABLES:
        frame = _read_parquet(run_dir, name)
        if frame is None and has_events(run_dir):
            return tables_from_events(run_dir)
        frames[name] = _frame(name, []) if frame is None else frame
    return Tables(**frames, sampled=Sampled(_samples(run_dir)))


def _samples(run_dir: Path) -> Callable[[str], pd.DataFrame]:
    """Reads a collectors' table from its Parquet file, or from the lines where there is none that can be read."""
    from_lines = _samples_from_lines(run_dir)

    def read(name: str) -> pd.DataFrame:
        frame = _read_parquet(run_dir, name)
        return from_lines(name) if frame is None else frame

    return read


def read_table(run_dir: Path, name: str) -> pd.DataFrame:
    """One of the run's tables, for readers that need no other: far less work than all of them."""
    frame = _read_parquet(run_dir, name)
    if frame is not None:
        return frame
    if name in SAMPLE_COLUMNS:
        return _samples_from_lines(run_dir)(name)
    derived: pd.DataFrame = getattr(tables_from_events(run_dir), name)
    return derived


def read_columns(run_dir: Path, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of some columns of one table as plain values, null as None: without pandas, for readers of a thousand runs."""
    table = _parquet(run_dir, name)
    if table is None:
        return list(plain_rows(read_table(run_dir, name), *columns))
    return list(zip(*(table.column(column).to_pylist() for column in columns), strict=True))


def _read_parquet(run_dir: Path, name: str) -> pd.DataFrame | None:
    table = _parquet(run_dir, name)
    if table is None:
        return None
    exact = None if b"pandas" in (table.schema.metadata or {}) else _EXACT.get  # else integers beside nulls would become floats
    return table.to_pandas(types_mapper=exact, use_threads=False).astype({column: kind.dtype for column, kind in COLUMNS[name].items()})


def _parquet(run_dir: Path, name: str) -> pa.Table | None:
    """The table as it lies on disk, or None when the file is missing, or when it is damaged or of another schema and can be derived again.

    It is read without Arrow's threads: a command that ended soon after was now and then aborted by one of them ("terminate called without an
    active exception", exit code 134; apache/arrow#34314), and tables are too small for them to save time.

    Raises:
        UserError: it cannot be used, and there are no events to derive it from: taken for empty, it would change what the run says.
    """
    path = run_dir / f"{name}.parquet"
    try:
        table = pq.ParquetFile(pa.BufferReader(path.read_bytes())).read(use_threads=False)
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException):
        if has_events(run_dir):
            return None
        raise UserError(f"{path}: damaged, and there are no raw events to derive it from; {ANOTHER_COPY}") from None
    same_version = (table.schema.metadata or {}).get(_VERSION_KEY) == str(TABLES_SCHEMA_VERSION).encode()
    if same_version and table.column_names == list(COLUMNS[name]):
        return table
    if has_events(run_dir):
        return None
    older = _of_another_version(table, name)
    if older is None:
        raise UserError(
            f"{path}: of another schema, and there are no raw events to derive it from; read it with the rlmbench that wrote it"
        )
    return older


def _of_another_version(table: pa.Table, name: str) -> pa.Table | None:
    """The columns of now, null where it has none; None where that cannot be. For published runs, whose tables cannot be derived again."""
    columns = {}
    for column, kind in COLUMNS[name].items():
        if column not in table.column_names and type(None) not in kind.types:
            return None
        columns[column] = table.column(column) if column in table.column_names else pa.nulls(table.num_rows)
    return pa.table(columns)


def _frame(name: str, rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    if not rows:
        return _empty(name).copy(deep=False)
    cells = dict(zip(COLUMNS[name], zip(*rows, strict=True), strict=True))
    return pd.DataFrame({column: _array(cells[column], kind.dtype) for column, kind in COLUMNS[name].items()}, copy=False)


@cache
def _empty(name: str) -> pd.DataFrame:
    """Most runs leave most tables empty. A frame without rows has nothing that its copies could change for each other."""
    return pd.DataFrame({column: _array((), kind.dtype) for column, kind in COLUMNS[name].items()}, copy=False)


def _array(cells: Sequence[Any], dtype: str) -> Any:
    return pd.array(list(cells), dtype=dtype)  # type: ignore[call-overload]


def _rewards_of(samples: pd.DataFrame, rewards: pd.DataFrame) -> pd.Series:
    """Each sample's reward by (step, row, sample); NaN where none was recorded or the sample is not identified."""
    key = ["step", "row", "sample"]
    known = rewards.dropna(subset=["row", "sample"]).drop_duplicates(key, keep="last")
    return samples[key].merge(known[[*key, "reward"]], on=key, how="left")["reward"]
