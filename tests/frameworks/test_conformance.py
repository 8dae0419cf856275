"""The conformance kit with real runs, and the one promise that only a broken framework shows: the rollout engine follows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rlmbench
from rlmbench.cli.main import main
from rlmbench.conformance.runs import LEARNING_RATE, weights_follow
from rlmbench.report.trust import checks
from rlmbench_trl.adapter import INJECT, TRLAdapter

WITHOUT_SYNC = """
import sys
sys.path.append({inject!r})
from rlmbench_probe import after_import, replace
from rlmbench_trl_worker.hooks import hooks, role

def break_it(module):
    replace(module.VLLMGeneration, "sync_weights", lambda original: lambda self, *args, **kwargs: None)

after_import("trl.generation.vllm_generation", break_it)
"""


def test_trl_keeps_its_promises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["adapter", "check", "rlmbench_trl", "--set", "placement.rollout_engine=vllm", "--keep", str(tmp_path), "--json"])
    found = {check["check"]: check for check in json.loads(capsys.readouterr().out.splitlines()[-1])["checks"]}
    assert [check for check in found.values() if not check["ok"]] == []
    assert code == 0
    assert "160 samples" in found["gsm8k_grpo: replay is exact"]["evidence"]  # 5 steps of 8 prompts and 4 samples
    assert found["kill -9 in training is told as such"]["evidence"].startswith("killed: ended by SIGKILL")
    assert found["running out of time is told as such"]["evidence"].startswith("timeout: ")


def test_a_rollout_engine_left_behind_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL trains as planned while vLLM stays on the first weights: the audit passes, the log-probs tell."""
    (tmp_path / "breaking_hooks.py").write_text(WITHOUT_SYNC.format(inject=str(INJECT)))

    class Broken(TRLAdapter):
        def probe_path(self) -> Path:
            return tmp_path

        def probe_module(self) -> str:
            return "breaking_hooks"

    monkeypatch.setattr("rlmbench.runner.cells.find_adapter", lambda name: Broken())
    monkeypatch.chdir(tmp_path)
    settings = ("placement.rollout_engine=vllm", f"optimization.learning_rate={LEARNING_RATE}", "measurement.steps=3")
    assert main(["run", "gsm8k_grpo", "-f", "trl", "--scale", "tiny", *(word for one in settings for word in ("--set", one))]) == 0
    (folder,) = (path.parent for path in tmp_path.glob("results/gsm8k_grpo/*/manifest.json"))
    run = rlmbench.load(folder)
    summary = rlmbench.summarize(run)
    assert summary.audit is not None and summary.audit.ok
    assert {check.name: check.state for check in checks(summary, run.manifest)}["Weight sync"] == "bad"
    seen = weights_follow("gsm8k_grpo", summary.model_dump(mode="json"))
    assert not seen.ok
    assert "off the trainer's, where rounding in float32 explains 0.001" in seen.evidence
