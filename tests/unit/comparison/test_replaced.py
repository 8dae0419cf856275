"""SYNTHETIC: interrupted runs that a resumed campaign made again. Every record is a published run of TRL under another name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rlmbench.cli.main import main
from rlmbench.comparison import without_replaced
from rlmbench.records import load
from rlmbench.report import vega

PUBLISHED = sorted((Path(__file__).parents[3] / "results" / "reference" / "gsm8k_grpo").glob("*-trl-*"))
CAMPAIGN = "20261201-000000-000"
INTERRUPTED = {
    "failure_class": "interrupted",
    "message": "interrupted by SIGINT in step 3, stage generation",
    "phase": "training",
    "step": 3,
}
FAILED = {"failure_class": "crash", "message": "ended by SIGSEGV in step 2", "phase": "training", "step": 2}
FAILURES = {"interrupted": INTERRUPTED, "failed": FAILED}


@pytest.fixture
def record(tmp_path):
    def made(run_id: str, begun: float, status: str = "ok", repeat: int = 0, **manifest):
        folder = Path(shutil.copytree(PUBLISHED[0], tmp_path / "results" / "gsm8k_grpo" / run_id))
        changes = {"run_id": run_id, "status": status, "repeat": repeat, "campaign_id": CAMPAIGN, "failure": FAILURES.get(status)}
        path = folder / "manifest.json"
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, **changes, "times": {"created_unix_s": begun}, **manifest}))
        (folder / "summary.json").unlink()
        return load(folder)

    return made


def counted(*runs):
    kept, replaced = without_replaced(runs)
    return [run.id for run in kept], {path.name: ids for path, ids in replaced.items()}


def test_an_interrupted_attempt_that_was_made_again_is_no_run(record):
    first, second, third = record("a", 1.0, "interrupted"), record("b", 2.0, "interrupted"), record("c", 3.0)
    assert counted(third, second, first) == (["c"], {"c": ("a", "b")})
    assert counted(first, second) == (["a", "b"], {})  # nobody finished it


def test_a_failed_attempt_stays_and_one_that_failed_after_an_interruption_counts_in_its_place(record):
    assert counted(record("a", 1.0, "failed"), record("b", 2.0)) == (["a", "b"], {})
    assert counted(record("c", 1.0, "interrupted"), record("d", 2.0, "failed")) == (["d"], {"d": ("c",)})


@pytest.mark.parametrize(
    "other",
    [
        {"repeat": 1},
        {"campaign_id": "20261202-000000-000"},
        {"campaign_id": None},
        {"framework": "verl"},
        {"variant": "large"},
        {"pass": "profile"},
    ],
    ids=str,
)
def test_another_cell_replaces_nothing(record, other):
    assert counted(record("a", 1.0, "interrupted"), record("b", 2.0, **other)) == (["a", "b"], {})


def test_an_interruption_after_a_good_run_is_told_as_one(record):
    assert counted(record("a", 1.0), record("b", 2.0, "interrupted")) == (["a", "b"], {})


def test_every_format_tells_it_in_one_line_and_counts_the_cell_once(record, tmp_path, capsys, monkeypatch):
    """Four cells, of which the last was interrupted once and one failed before."""
    for place in range(4):
        record(f"run-{place}", 10.0 + place, repeat=place)
    record("cut-off", 5.0, "interrupted", repeat=3)
    record("crashed", 4.0, "failed", repeat=2)
    monkeypatch.setattr(vega, "runtime", lambda: "window.vegaEmbed=null;")  # the real one takes seconds to bundle
    results = str(tmp_path / "results" / "gsm8k_grpo")
    told = "nterrupted, then made again by --resume and counted once: cut-off by run-3"

    assert main(["compare", results]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "4 of 5 runs ended well" in printed and "4/5" in printed  # what failed is listed as before
    assert printed.count("cut-off") == 1 and told in printed and "crashed: failed: crash: ended by SIGSEGV in step 2" in printed

    assert main(["compare", results, "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("cut-off") == 1 and told in printed.replace("\\", "")

    assert main(["compare", results, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out.splitlines()[-1])["configurations"]
    assert {run["id"]: run["replaced"] for run in one["runs"]} == {
        "crashed": [], "run-0": [], "run-1": [], "run-2": [], "run-3": ["cut-off"]
    }  # fmt: skip

    assert main(["report", results, "-o", str(tmp_path / "page.html")]) == 0
    assert told in (tmp_path / "page.html").read_text()


def test_how_an_interrupted_run_ended_is_said_once(record, tmp_path, capsys):
    """Nobody made it again: it is listed, without its status before a message that begins with the same word, and without a blank before it."""
    record("cut-off", 5.0, "interrupted", repeat=3)
    record("run-0", 10.0)
    assert main(["compare", str(tmp_path / "results" / "gsm8k_grpo")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "cut-off: interrupted by SIGINT in step 3, stage generation" in printed and "interrupted: interrupted" not in printed
    assert main(["show", str(tmp_path / "results" / "gsm8k_grpo" / "cut-off")]) == 0
    assert "interrupted by SIGINT in step 3, stage generation" in capsys.readouterr().out.splitlines()
