"""Single columns without pandas, for readers of a thousand runs."""

from __future__ import annotations

import json
from pathlib import Path

from rlmbench.records.tables import read_columns, tables_from_events, write_tables


def test_columns_are_the_same_from_parquet_and_from_events(tmp_path: Path) -> None:
    events = [
        {"ev": "process", "schema": 1, "pid": 1, "mono_ns": 1, "real_ns": 1, "boot_id": "b", "host": "h"},
        {"ev": "fact", "name": "world_size", "value": 2},
        {"ev": "fact", "name": "dtype", "value": "float32"},
        {"ev": "hook", "name": "sync", "target": None, "attached": False, "reason": None},
    ]
    (tmp_path / "probe").mkdir()
    (tmp_path / "probe" / "1.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    expected = [("world_size", "2"), ("dtype", '"float32"')]
    assert read_columns(tmp_path, "facts", "name", "value") == expected
    assert read_columns(tmp_path, "hooks", "name", "reason") == [("sync", None)]
    write_tables(tmp_path, tables_from_events(tmp_path))
    (tmp_path / "probe" / "1.jsonl").unlink()
    assert read_columns(tmp_path, "facts", "name", "value") == expected
    assert read_columns(tmp_path, "hooks", "name", "reason") == [("sync", None)]
