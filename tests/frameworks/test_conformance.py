"""The conformance kit with real runs, and the one promise that only a broken framework shows: the rollout engine follows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rlmbench
from rlmbench.adapter import find_adapter
from rlmbench.cli.main import main
from rlmbench.conformance.runs import LEARNING_RATE, weights_follow
from rlmbench.report.trust import checks
from tests.frameworks.conftest import FIRST_RUN_TIMEOUT_S

HOOKS = """
import sys
sys.path.append({inject!r})
from rlmbench_probe import after_import, replace
from {package}_worker.hooks import hooks, role
"""

WITHOUT_SYNC = """
def break_it(module):
    replace(module.VLLMGeneration, "sync_weights", lambda original: lambda self, *args, **kwargs: None)

after_import("trl.generation.vllm_generation", break_it)
"""

WITHOUT_LOADING = """
loads = []

def break_it(module):
    def make(original):
        def load_weights(self, weights, *args, **kwargs):
            loads.append(1)
            if len(loads) == 1:  # from the model's folder, when the engine starts
                return original(self, weights, *args, **kwargs)
            return {name for name, _ in weights}  # received, and thrown away
        return load_weights
    replace(module.Qwen2ForCausalLM, "load_weights", make)

after_import("vllm.model_executor.models.qwen2", break_it)
"""


def test_trl_keeps_its_promises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["adapter", "check", "rlmbench_trl", "--set", "placement.rollout_engine=vllm", "--keep", str(tmp_path), "--json"])
    found = {check["check"]: check for check in json.loads(capsys.readouterr().out.splitlines()[-1])["checks"]}
    assert [check for check in found.values() if not check["ok"]] == []
    assert code == 0
    assert "160 samples" in found["gsm8k_grpo: replay is exact"]["evidence"]  # 5 steps of 8 prompts and 4 samples
    assert found["kill -9 in training is told as such"]["evidence"].startswith("killed: ended by SIGKILL")
    assert found["running out of time is told as such"]["evidence"].startswith("timeout: ")


@pytest.mark.parametrize(
    ("name", "breaking", "settings"),
    [
        ("trl", WITHOUT_SYNC, ("placement.rollout_engine=vllm",)),
        ("verl", WITHOUT_LOADING, ()),
        ("openrlhf", WITHOUT_LOADING, ()),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalnum() else "",
)
def test_a_rollout_engine_left_behind_is_seen(
    name: str, breaking: str, settings: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The framework trains as planned while vLLM stays on the first weights: the audit passes, the log-probs tell."""
    sound = find_adapter(name)
    hooks = HOOKS.format(inject=str(sound.probe_path()), package=f"rlmbench_{name}")
    (tmp_path / "breaking_hooks.py").write_text(hooks + breaking)

    class Broken(type(sound)):  # type: ignore[misc]
        def probe_path(self) -> Path:
            return tmp_path

        def probe_module(self) -> str:
            return "breaking_hooks"

    monkeypatch.setattr("rlmbench.runner.cells.find_adapter", lambda _: Broken())
    monkeypatch.chdir(tmp_path)
    fields = (
        *settings,
        f"optimization.learning_rate={LEARNING_RATE}",
        "measurement.steps=3",
        f"measurement.wall_timeout_s={FIRST_RUN_TIMEOUT_S}",
    )
    assert main(["run", "gsm8k_grpo", "-f", name, "--scale", "tiny", *(word for one in fields for word in ("--set", one))]) == 0
    (folder,) = (path.parent for path in tmp_path.glob("results/gsm8k_grpo/*/manifest.json"))
    run = rlmbench.load(folder)
    summary = rlmbench.summarize(run)
    assert summary.audit is not None and summary.audit.ok
    assert {check.name: check.state for check in checks(summary, run.manifest)}["Weight sync"] == "bad"
    seen = weights_follow("gsm8k_grpo", summary.model_dump(mode="json"))
    assert not seen.ok
    assert "off the trainer's, where rounding in" in seen.evidence
