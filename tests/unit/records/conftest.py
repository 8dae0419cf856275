"""Synthetic records: nothing here was measured."""

import json

import pytest

MANIFEST = {
    "schema_version": 1,
    "run_id": "gsm8k_grpo-tiny-trl-0001",
    "suite": "gsm8k_grpo",
    "scale": "tiny",
    "framework": "trl",
    "status": "ok",
    "experiment": {},
    "times": {"created_unix_s": 1000.0},
    "versions": {"rlmbench": "0.1.0"},
}


@pytest.fixture
def manifest_fields():
    return json.loads(json.dumps(MANIFEST))


@pytest.fixture
def make_run(tmp_path):
    """Write a run folder with a synthetic manifest: make_run("gsm8k_grpo", "run-1", status="failed")."""

    def make(suite, run_id, created_unix_s=1000.0, **fields):
        folder = tmp_path / "results" / suite / run_id
        folder.mkdir(parents=True)
        content = {**MANIFEST, "run_id": run_id, "suite": suite, "times": {"created_unix_s": created_unix_s}, **fields}
        (folder / "manifest.json").write_text(json.dumps(content))
        return folder

    return make


@pytest.fixture
def write_events(tmp_path):
    """Write lines (dicts as JSON, bytes as they are) to probe/<process>.jsonl of a run folder, and return the folder."""

    def write(*lines, process="driver-1", end=b"\n"):
        folder = tmp_path / "run"
        (folder / "probe").mkdir(parents=True, exist_ok=True)
        raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        (folder / "probe" / f"{process}.jsonl").write_bytes(b"\n".join(raw) + end)
        return folder

    return write
