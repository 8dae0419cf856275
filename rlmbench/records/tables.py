"""The tables of a run as pandas frames, and as Parquet files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rlmbench.files import write_atomically
from rlmbench.records.clocks import join_steps
from rlmbench.records.events import read_events
from rlmbench.records.frames import plain_rows
from rlmbench.records.schema import COLUMNS, TABLES_SCHEMA_VERSION

_VERSION_KEY = b"rlmbench_schema_version"


@dataclass(frozen=True)
class Tables:
    """Every table of one run; columns and units are in `rlmbench.records.schema` and docs/records.md.

    `samples` holds one row per sample as the loss received it, so a sample trained for two epochs has two;
    `process` is the name of the file the process wrote, without its ending.
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


TABLE_NAMES = tuple(field.name for field in fields(Tables))


def tables_from_events(run_dir: Path) -> Tables:
    """The tables from `run_dir`/probe/*.jsonl; all of them empty when there is none."""
    rows = read_events(run_dir / "probe")
    frames = {name: _frame(name, rows[name]) for name in TABLE_NAMES}
    join_steps(frames)
    frames["samples"]["reward"] = _rewards_of(frames["samples"], frames["rewards"])
    frames["steps"] = frames["steps"].sort_values("start_ns", ignore_index=True)
    return Tables(**frames)


def write_tables(run_dir: Path, tables: Tables) -> None:
    """Write each table to `run_dir`/<table>.parquet, atomically one by one."""
    for name in TABLE_NAMES:
        table = pa.Table.from_pandas(getattr(tables, name), preserve_index=False)
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), _VERSION_KEY: str(TABLES_SCHEMA_VERSION).encode()})
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd")
        write_atomically(run_dir / f"{name}.parquet", buffer.getvalue())


def read_tables(run_dir: Path) -> Tables:
    """The run's tables: from Parquet when every file is there and readable, else derived again from the events."""
    frames = {}
    for name in TABLE_NAMES:
        frame = _read_parquet(run_dir, name)
        if frame is None:
            return tables_from_events(run_dir)
        frames[name] = frame
    return Tables(**frames)


def read_table(run_dir: Path, name: str) -> pd.DataFrame:
    """One of the run's tables, for readers that need no other: far less work than all of them."""
    frame = _read_parquet(run_dir, name)
    if frame is not None:
        return frame
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
    return table.to_pandas().astype({column: kind.dtype for column, kind in COLUMNS[name].items()})


def _parquet(run_dir: Path, name: str) -> pa.Table | None:
    """The table as it lies on disk, or None when the file is missing, damaged or of another schema."""
    try:
        table = pq.ParquetFile(io.BytesIO((run_dir / f"{name}.parquet").read_bytes())).read()
    except (OSError, pa.ArrowException):
        return None
    same_version = (table.schema.metadata or {}).get(_VERSION_KEY) == str(TABLES_SCHEMA_VERSION).encode()
    return table if same_version and table.column_names == list(COLUMNS[name]) else None


def _frame(name: str, rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    columns = COLUMNS[name]
    values: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(columns)
    typed = {column: _array(cells, kind.dtype) for (column, kind), cells in zip(columns.items(), values, strict=True)}
    return pd.DataFrame(typed, copy=False)


def _array(cells: Sequence[Any], dtype: str) -> Any:
    return pd.array(list(cells), dtype=dtype)  # type: ignore[call-overload]


def _rewards_of(samples: pd.DataFrame, rewards: pd.DataFrame) -> pd.Series:
    """Each sample's reward by (step, row, sample); NaN where none was recorded or the sample is not identified."""
    key = ["step", "row", "sample"]
    known = rewards.dropna(subset=["row", "sample"]).drop_duplicates(key, keep="last")
    return samples[key].merge(known[[*key, "reward"]], on=key, how="left")["reward"]
