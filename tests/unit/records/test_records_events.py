import json

import pandas as pd
import pytest

from rlmbench.records.schema import COLUMNS
from rlmbench.records.tables import TABLE_NAMES, read_tables, tables_from_events, write_tables

PROCESS = {
    "ev": "process", "schema": 1, "pid": 41, "ppid": 1, "rank": 0, "local_rank": 0, "world_size": 1, "role": "driver",
    "host": "h", "boot_id": "b", "mono_ns": 5, "real_ns": 1005, "argv": ["python", "train.py"],
}  # fmt: skip
SPAN = {
    "ev": "span",
    "id": 1,
    "parent": None,
    "stage": "generation",
    "substage": None,
    "name": "g",
    "step": 1,
    "thread": 7,
    "start_ns": 10,
    "end_ns": 30,
}
LOSS = {"ev": "loss", "step": 1, "update": 0, "t_ns": 40, "computed_tokens": 60, "rows": [[0, 0, "aa", 10, 5], [0, 1, "aa", 10, 7]]}
REWARD = {"ev": "reward", "step": 1, "t_ns": 35, "rows": [[0, 0, 0.25], [0, 1, 0.75]]}
UPDATE = {
    "ev": "update",
    "step": 1,
    "update": 0,
    "t_ns": 50,
    "role": "actor",
    "learning_rate": 1e-6,
    "grad_norm": None,
    "weights_changed": True,
}


def test_every_table_has_its_columns_without_any_event(tmp_path):
    tables = tables_from_events(tmp_path)
    for name in TABLE_NAMES:
        frame = getattr(tables, name)
        assert len(frame) == 0
        assert list(frame.columns) == list(COLUMNS[name])


def test_events_become_rows(write_events):
    step = {"ev": "step", "step": 1, "start_ns": 5, "end_ns": 60, "probe_ns": 2}
    native = {"ev": "native", "step": 1, "t_ns": 55, "values": {"kl": 0.5, "note": "text", "reward": 1}}
    hook = {"ev": "hook", "name": "optimizer", "target": "torch.optim", "attached": False, "reason": "not imported"}
    fact = {"ev": "fact", "name": "world_size", "value": 2}
    end = {"ev": "end", "t_ns": 70, "probe_ns": 3}
    tables = tables_from_events(write_events(PROCESS, hook, SPAN, REWARD, LOSS, UPDATE, native, step, fact, end))

    process = tables.processes.iloc[0]
    assert (process.process, process.role, json.loads(process.argv), process.end_ns) == ("driver-1", "driver", ["python", "train.py"], 70)
    assert tables.spans[["stage", "start_ns", "end_ns"]].values.tolist() == [["generation", 10, 30]]
    assert pd.isna(tables.spans["computed_tokens"].iloc[0]), "what was not recorded stays null"
    assert tables.samples[["row", "sample", "response_tokens", "reward"]].values.tolist() == [[0, 0, 5, 0.25], [0, 1, 7, 0.75]]
    batch = tables.microbatches.iloc[0]
    assert (batch.samples, batch.valid_tokens, batch.computed_tokens) == (2, 32, 60)  # 10 + 5 + 10 + 7 = 32
    assert tables.native[["key", "value"]].values.tolist() == [["kl", 0.5], ["reward", 1.0]]
    assert (tables.hooks["reason"].iloc[0], tables.facts["value"].iloc[0], tables.steps["probe_ns"].iloc[0]) == ("not imported", "2", 2)
    assert tables.processes["damaged_lines"].iloc[0] == 0


def test_a_truncated_last_line_is_ignored(write_events):
    tables = tables_from_events(write_events(PROCESS, SPAN, b'{"ev": "span", "id": 2, "sta', end=b""))
    assert (len(tables.spans), tables.processes["damaged_lines"].iloc[0]) == (1, 0)


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"\xff\xfe\x00",
        b"[1, 2]",
        b'{"ev": "span", "id": 2}',
        json.dumps({**SPAN, "start_ns": "soon"}).encode(),
        json.dumps({**SPAN, "start_ns": 40}).encode(),
        json.dumps({**SPAN, "end_ns": 2**70}).encode(),
        json.dumps({**SPAN, "id": True}).encode(),
        json.dumps({**LOSS, "rows": [[0, 0, "aa", 10, 5], [0, 1]]}).encode(),
        json.dumps({**REWARD, "rows": 3}).encode(),
        b'{"ev": "native", "step": 1, "values": [1]}',
    ],
)
def test_a_damaged_line_is_counted_and_the_rest_is_kept(write_events, line):
    tables = tables_from_events(write_events(PROCESS, line, SPAN))
    assert tables.processes["damaged_lines"].iloc[0] == 1
    assert (len(tables.spans), len(tables.samples), len(tables.rewards)) == (1, 0, 0)


def test_an_unknown_event_is_left_to_later_versions(write_events):
    tables = tables_from_events(write_events(PROCESS, {"ev": "colour", "value": 3}, SPAN))
    assert (len(tables.spans), tables.processes["damaged_lines"].iloc[0]) == (1, 0)


def test_a_file_without_process_event_still_counts_as_one(write_events):
    tables = tables_from_events(write_events(SPAN))
    assert tables.processes["process"].tolist() == ["driver-1"]
    assert pd.isna(tables.processes["role"].iloc[0])


def test_micro_batches_are_counted_per_process_and_step(write_events):
    write_events(LOSS, LOSS, {**LOSS, "step": 2}, process="rank-0")
    tables = tables_from_events(write_events(LOSS, process="rank-1"))
    assert tables.microbatches[["process", "step", "micro_batch"]].values.tolist() == [
        ["rank-0", 1, 0], ["rank-0", 1, 1], ["rank-0", 2, 0], ["rank-1", 1, 0],
    ]  # fmt: skip


def test_a_sample_without_identity_gets_no_reward(write_events):
    anonymous = {**LOSS, "rows": [[None, None, "aa", 10, 5], [0, 1, "aa", 10, 7]]}
    rewards = tables_from_events(write_events(REWARD, anonymous)).samples["reward"]
    assert rewards.isna().tolist() == [True, False]
    assert rewards[1] == 0.75


def test_parquet_holds_the_same_tables(write_events):
    folder = write_events(PROCESS, SPAN, REWARD, LOSS, UPDATE)
    derived = tables_from_events(folder)
    write_tables(folder, derived)
    (folder / "probe" / "driver-1.jsonl").unlink()
    read = read_tables(folder)
    for name in TABLE_NAMES:
        pd.testing.assert_frame_equal(getattr(read, name), getattr(derived, name))


@pytest.mark.parametrize("damage", ["missing", "truncated", "foreign"])
def test_incomplete_parquet_is_derived_again(write_events, damage):
    folder = write_events(PROCESS, SPAN)
    write_tables(folder, tables_from_events(folder))
    path = folder / "steps.parquet"
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:40])
    else:
        pd.DataFrame({"step": [1]}).to_parquet(path)
    write_events(PROCESS, SPAN, {**SPAN, "id": 2})
    assert len(read_tables(folder).spans) == 2
