"""Single columns without pandas, for readers of a thousand runs."""

from __future__ import annotations

import json
import subprocess
import sys
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


THREADS = """
import os, sys
from pathlib import Path
import pandas, pyarrow.parquet
from rlmbench.records.tables import read_table
before = len(os.listdir("/proc/self/task"))
rows = len(read_table(Path(sys.argv[1]), "facts"))
print(rows, len(os.listdir("/proc/self/task")) - before)
"""


def test_reading_tables_starts_no_thread(tmp_path: Path) -> None:
    """One of Arrow's that is alive at exit may abort the command. In an interpreter of its own, as other tests have started Arrow's threads."""
    (tmp_path / "probe").mkdir()
    events = [
        {"ev": "process", "schema": 1, "pid": 1, "mono_ns": 1, "real_ns": 1, "boot_id": "b", "host": "h"},
        {"ev": "fact", "name": "world_size", "value": 2},
    ]
    (tmp_path / "probe" / "1.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    write_tables(tmp_path, tables_from_events(tmp_path))
    done = subprocess.run([sys.executable, "-c", THREADS, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]
