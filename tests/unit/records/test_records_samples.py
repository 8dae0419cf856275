"""The collectors' lines, and the tables that they become."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rlmbench.records import load
from rlmbench.records.tables import SAMPLE_TABLES, read_columns, read_table, read_tables, tables_from_events, write_tables

BEGIN = {
    "ev": "collector",
    "schema": 1,
    "host": "a.example",
    "boot_id": "boot",
    "pid": 7,
    "mono_ns": 1,
    "real_ns": 1_000,
    "interval_s": 0.1,
    "cores": 2,
}
COLUMNS = {
    "ev": "columns",
    "tables": {
        "node_samples": ["cpu_busy_s", "memory_used_bytes", "load_1min"],
        "tree_samples": ["processes", "cpu_s", "rss_bytes", "pss_bytes"],
        "device_samples": ["device", "memory_used_bytes", "power_w", "of_a_later_version"],
    },
}


def rows(t_ns: int, **tables: Any) -> dict[str, Any]:
    return {"ev": "rows", "t_ns": t_ns, "tables": tables}


def write(run: Path, *lines: Any, node: str = "a", end: str = "\n") -> Path:
    (run / "collector").mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (run / "collector" / f"{node}.jsonl").write_text("\n".join(texts) + end)
    return run


def test_lines_become_rows_and_what_was_not_sampled_is_null(tmp_path: Path) -> None:
    write(
        tmp_path,
        BEGIN,
        {"ev": "capability", "device": None, "name": "nvml", "available": False, "reason": "no driver"},
        COLUMNS,
        rows(10, node_samples=[[1.5, 100, 0.5]], tree_samples=[[2, 0.5, 4096, None]]),
        rows(20, tree_samples=[[3, 0.75, 8192, 5000]], device_samples=[["GPU-1", 1 << 40, 71, "ignored"], ["GPU-2", None, 70.5, 0]]),
        {"ev": "end", "t_ns": 30, "cpu_s": 0.02, "ticks": 2, "late_ticks": 1},
    )
    tables = tables_from_events(tmp_path)
    assert tables.node_samples.to_dict("records") == [
        {"node": "a", "t_ns": 10, "cpu_busy_s": 1.5, "memory_used_bytes": 100, "load_1min": 0.5}
    ]
    assert tables.tree_samples["processes"].tolist() == [2, 3]
    assert tables.tree_samples["pss_bytes"].isna().tolist() == [True, False]
    assert tables.tree_samples["read_bytes"].isna().all()
    assert tables.device_samples[["device", "t_ns", "power_w"]].to_numpy().tolist() == [["GPU-1", 20, 71.0], ["GPU-2", 20, 70.5]]
    assert tables.device_samples["memory_used_bytes"].tolist()[0] == 1 << 40
    assert tables.capabilities["reason"].tolist() == ["no driver"]
    [collector] = tables.collectors.to_dict("records")
    assert (collector["end_ns"], collector["cpu_s"], collector["ticks"], collector["late_ticks"]) == (30, 0.02, 2, 1)
    assert (collector["host"], collector["interval_s"], collector["cores"], collector["damaged_lines"]) == ("a.example", 0.1, 2, 0)


def test_a_killed_collector_has_no_end_and_its_last_cost(tmp_path: Path) -> None:
    write(tmp_path, BEGIN, {"ev": "cost", "cpu_s": 0.01, "ticks": 10, "late_ticks": 0}, '{"ev": "rows", "t_', end="")
    collectors = tables_from_events(tmp_path).collectors
    assert collectors["end_ns"].isna().tolist() == [True]
    [collector] = collectors.to_dict("records")
    assert (collector["cpu_s"], collector["ticks"], collector["damaged_lines"]) == (0.01, 10, 0)


def packed(run: Path, *documents: Any) -> Path:
    """What a collector writes, as a gzip stream."""
    folder = run / "collector"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "a.b.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(document) + "\n" for document in documents).encode(), compresslevel=1))
    return path


def test_a_stream_and_what_others_say_of_the_node_are_one_node(tmp_path: Path) -> None:
    path = packed(tmp_path, BEGIN, COLUMNS, rows(10, node_samples=[[1.5, 100, 0.5]]))
    said = {"ev": "capability", "device": None, "name": "collector", "available": False, "reason": "killed"}
    (path.parent / "a.b.jsonl").write_text(json.dumps(said) + "\n")
    tables = tables_from_events(tmp_path)
    assert tables.collectors[["node", "host", "damaged_lines"]].to_numpy().tolist() == [["a.b", "a.example", 0]]
    assert tables.node_samples[["node", "t_ns"]].to_numpy().tolist() == [["a.b", 10]]
    assert tables.capabilities[["node", "reason"]].to_numpy().tolist() == [["a.b", "killed"]]


def test_a_stream_is_read_up_to_where_it_was_cut_off(tmp_path: Path) -> None:
    path = packed(tmp_path, BEGIN, COLUMNS, *(rows(t, node_samples=[[t / 7, t, None]]) for t in range(40)))
    whole = path.read_bytes()
    seen = []
    for length in range(0, len(whole), 23):
        path.write_bytes(whole[:length])
        tables = tables_from_events(tmp_path)
        assert tables.collectors["damaged_lines"].tolist() == [0]
        times = tables.node_samples["t_ns"].tolist()
        assert times == list(range(len(times)))
        seen.append(len(times))
    assert seen == sorted(seen) and seen[0] == 0 and seen[-1] >= 35


def test_a_damaged_stream_is_read_up_to_the_damage_which_is_counted(tmp_path: Path) -> None:
    path = packed(tmp_path, BEGIN, COLUMNS, *(rows(t, node_samples=[[t / 7, t, None]]) for t in range(200)))
    whole = path.read_bytes()
    half = len(whole) // 2
    path.write_bytes(whole[:half])
    intact = tables_from_events(tmp_path).node_samples["t_ns"].tolist()
    assert len(intact) >= 50
    for behind in (bytes(4096), whole[half + 100 :]):  # zeros are what a crashed file system leaves
        path.write_bytes(whole[:half] + behind)
        tables = tables_from_events(tmp_path)
        assert tables.collectors["damaged_lines"].tolist()[0] >= 1
        assert tables.node_samples["t_ns"].tolist()[: len(intact)] == intact
    path.write_bytes(whole + b"behind the stream's end")
    tables = tables_from_events(tmp_path)
    assert (len(tables.node_samples), tables.collectors["damaged_lines"].tolist()) == (200, [1])


@pytest.mark.parametrize(
    "damaged",
    [
        "not json",
        "[1]",
        '{"ev": "rows"}',
        json.dumps(rows(11, node_samples=[[1.0, 2**63, 0.0]])),
        json.dumps(rows(11, node_samples=[[1.0, "much", 0.0]])),
        json.dumps(rows(11, node_samples=[[1.0, True, 0.0]])),
        json.dumps(rows(11, node_samples=[[1.0, 5]])),
        json.dumps(rows(11, node_samples=[["x"]], tree_samples=[[1, 1.0, 1, 1]])),
        json.dumps({**rows(11, node_samples=[[1.0, 5, 0.0]]), "t_ns": None}),
        json.dumps({"ev": "end", "t_ns": "late"}),
        json.dumps({"ev": "capability", "name": "nvml"}),
        json.dumps({"ev": "columns", "tables": ["node_samples"]}),
    ],
)
def test_a_damaged_line_is_counted_and_left_out(tmp_path: Path, damaged: str) -> None:
    good = rows(10, node_samples=[[1.0, 5, 0.0]])
    write(tmp_path, BEGIN, COLUMNS, good, damaged, {**good, "t_ns": 12})
    tables = tables_from_events(tmp_path)
    assert tables.node_samples["t_ns"].tolist() == [10, 12]
    assert len(tables.tree_samples) == len(tables.capabilities) == 0
    assert tables.collectors["damaged_lines"].tolist() == [1]


def test_lines_and_tables_of_a_later_version_are_skipped(tmp_path: Path) -> None:
    columns = {"ev": "columns", "tables": {**COLUMNS["tables"], "fan_samples": ["fan_rpm"]}}
    write(tmp_path, BEGIN, columns, {"ev": "weather", "sky": "blue"}, rows(10, fan_samples=[[1]], node_samples=[[1.0, 5, 0.0]]))
    tables = tables_from_events(tmp_path)
    assert tables.node_samples["t_ns"].tolist() == [10]
    assert tables.collectors["damaged_lines"].tolist() == [0]


def test_tables_are_the_same_from_parquet_and_each_is_read_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, BEGIN, COLUMNS, rows(10, node_samples=[[1.5, 100, 0.5]], device_samples=[["GPU-1", 1, 2.5, None]]))
    write(tmp_path, BEGIN, COLUMNS, rows(10, node_samples=[[2.5, 100, 0.5]]), node="b")
    derived = tables_from_events(tmp_path)
    write_tables(tmp_path, derived)
    for path in (tmp_path / "collector").iterdir():
        path.unlink()
    read = read_tables(tmp_path)
    (tmp_path / "tree_samples.parquet").unlink()
    for name in SAMPLE_TABLES:
        if name != "tree_samples":
            assert getattr(read, name).equals(getattr(derived, name)), name
            assert getattr(read, name).dtypes.equals(getattr(derived, name).dtypes), name
    assert read.node_samples["node"].tolist() == ["a", "b"]
    assert len(read.tree_samples) == 0  # gone meanwhile: it had not been read
    assert read_columns(tmp_path, "node_samples", "node", "cpu_busy_s") == [("a", 1.5), ("b", 2.5)]


def test_a_long_run_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [rows(t, node_samples=[[float(t), t, None]], tree_samples=[[1, None, t, None]] if t % 2 else []) for t in range(10)]
    write(tmp_path, BEGIN, COLUMNS, *lines)
    whole = tables_from_events(tmp_path)
    monkeypatch.setattr("rlmbench.records.samples.BATCH_LINES", 3)
    pieces = tables_from_events(tmp_path)
    assert whole.node_samples["t_ns"].tolist() == list(range(10))
    for name in SAMPLE_TABLES:
        assert getattr(pieces, name).equals(getattr(whole, name)), name
        assert getattr(pieces, name).dtypes.equals(getattr(whole, name).dtypes), name


def test_a_record_without_collector_has_empty_tables(make_run: Any) -> None:
    folder = make_run("gsm8k_grpo", "run-1", status="interrupted")
    run = load(folder)
    for name in SAMPLE_TABLES:
        assert len(getattr(run, name)) == 0
        assert len(read_table(folder, name)) == 0
    assert list(run.device_samples.columns)[:3] == ["node", "device", "t_ns"]
    write_tables(folder, run.tables)
    assert not (folder / "collectors.parquet").exists()
