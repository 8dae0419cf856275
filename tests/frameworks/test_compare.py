"""Two real configurations of TRL compared through the command line, and real records that are altered until they may not be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.conftest import SHORT, settings


def rlmbench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlmbench", *arguments]
    return subprocess.run(command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of each of two losses: equal work, other numbers."""
    folder = tmp_path_factory.mktemp("compare")
    for fields in ([], settings(optimization__loss_aggregation="sequence_mean")):
        done = rlmbench(folder, "run", "gsm8k_grpo", "--framework", "trl", *SHORT, *fields, "--repeats", "2", "--quiet")
        assert done.returncode == 0, done.stderr[-4000:]
    return folder


def compared(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = rlmbench(folder, "compare", "gsm8k_grpo", "--json", *arguments)
    # On standard error stands nothing but why --strict refuses.
    assert all(line.startswith("--strict: A v B is not comparable: ") for line in done.stderr.splitlines()), done.stderr[-4000:]
    assert bool(done.stderr) == (done.returncode == 4)
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_equal_work_with_another_loss(results):
    code, document = compared(results, "--strict")
    (pair,) = document["pairs"]
    assert code == 0
    assert [len(one["runs"]) for one in document["configurations"]] == [2, 2]
    assert {one["version"] for one in document["configurations"]} == {"1.16.0"}
    # Nothing but the loss was asked for differently; 4 runs are few, and what else was running is the machine's business.
    kinds = {reason["kind"] for reason in pair["reasons"]}
    assert {"different_settings", "few_runs"} <= kinds <= {"different_settings", "few_runs", "load", "others_at_work"}
    (difference,) = pair["differences"]
    assert (difference["name"], difference["changes"]) == ("field.optimization.loss_aggregation", "numbers")
    assert {difference["a"], difference["b"]} == {"token_mean", "sequence_mean"}
    assert pair["speed"]["verdict"] == "too few runs"
    # The ratio is that of the runs' own figures, taken from their summaries.
    means = []
    for one in document["configurations"]:
        summaries = [json.loads((results / run["path"] / "summary.json").read_text())["runs"][0] for run in one["runs"]]
        means.append(sum(summary["throughput"]["step_tokens_per_s"] for summary in summaries) / 2)
    assert pair["speed"]["ratio"] == pytest.approx(means[0] / means[1])


def altered(results: Path, folder: Path, change: Any) -> Path:
    """A copy of the results in which `change` was done to each run of the second loss; what is derived is derived again."""
    shutil.copytree(results / "results", folder / "results")
    for manifest in (folder / "results").glob("gsm8k_grpo/*/manifest.json"):
        recorded = json.loads(manifest.read_text())
        if recorded["experiment"]["optimization"]["loss_aggregation"] == "sequence_mean":
            change(manifest.parent, recorded)
            manifest.write_text(json.dumps(recorded))
            for derived in [*manifest.parent.glob("*.parquet"), manifest.parent / "summary.json"]:
                derived.unlink()
    return folder


def other_cpu(run: Path, manifest: dict[str, Any]) -> None:
    manifest["host"]["cpu_model"] = "Another CPU"


def lost_sample(run: Path, manifest: dict[str, Any]) -> None:
    """The loss of the second step never received one sample."""
    for path in (run / "probe").glob("*.jsonl"):
        events = [json.loads(line) for line in path.read_text().splitlines()]
        for event in events:
            if event["ev"] == "loss" and event["step"] == 2:
                del event["rows"][0]
                break
        path.write_text("".join(json.dumps(event) + "\n" for event in events))


def said_inside(event: dict[str, Any]) -> Any:
    def change(run: Path, manifest: dict[str, Any]) -> None:
        for path in (run / "probe").glob("*.jsonl"):
            path.write_text(path.read_text() + json.dumps(event) + "\n")

    return change


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (other_cpu, "different_devices"),
        (lost_sample, "no_good_run"),
        (said_inside({"ev": "fact", "name": "throttled_share", "value": 0.3}), "throttled"),
        (
            said_inside({"ev": "native", "step": 2, "t_ns": 1, "values": {"sampling/sampling_logp_difference/mean": 0.2}}),
            "broken_weight_sync",
        ),
    ],
)
def test_altered_records_may_not_be_compared(results, tmp_path, change, kind):
    code, document = compared(altered(results, tmp_path, change), "--strict")
    (pair,) = document["pairs"]
    assert (code, pair["verdict"], pair["speed"]) == (4, "not comparable", None)
    assert kind in {reason["kind"] for reason in pair["reasons"] if reason["severity"] == "prevents"}
