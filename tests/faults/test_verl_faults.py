"""Faults that verl itself does not end: an error it swallows, and an error that leaves it waiting for ever."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from command import MARK, living

import rlmbench
from rlmbench.cli.main import main
from rlmbench.records import Run
from rlmbench.runner.shared_memory import leftovers, segments
from rlmbench_verl.adapter import INJECT, VerlAdapter

BREAKING_HOOKS = """
import sys
sys.path.append({inject!r})
from rlmbench_probe import after_import, replace
from rlmbench_verl_worker.hooks import hooks, role
"""

FAILING_LOOP = """
def break_it(module):
    def make(original):
        async def run(self, sampling_params, **kwargs):
            if int(kwargs["extra_info"]["row"]) == 3 and kwargs["session_id"] == 1:
                raise RuntimeError("the tool of this agent loop is down")
            return await original(self, sampling_params, **kwargs)
        return run
    replace(module.SingleTurnAgentLoop, "run", make)

after_import("verl.experimental.agent_loop.single_turn_agent_loop", break_it)
"""

FAILING_WEIGHT_SYNC = """
calls = []

def break_it(module):
    def make(original):
        def _update_weights(self, *args, **kwargs):
            calls.append(1)
            if len(calls) == 2:  # the first is the sync before step 1
                raise RuntimeError("this engine does not take the new weights")
            return original(self, *args, **kwargs)
        return _update_weights
    replace(module.vLLMColocateWorkerExtension, "_update_weights", make)

after_import("verl.workers.rollout.vllm_rollout.utils", break_it)
"""

SMALL = ("workload.prompts_per_step=4", "optimization.mini_batch_samples=16", "measurement.steps=2")


@pytest.fixture
def broken_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Run]]:
    """`rlmbench run` with verl and something of verl's replaced: the exit code and the record. No trace of it is left."""

    def run(breaking: str, *settings: str) -> tuple[int, Run]:
        hooks = tmp_path / "breaking"
        hooks.mkdir()
        (hooks / "breaking_hooks.py").write_text(BREAKING_HOOKS.format(inject=str(INJECT)) + breaking)

        class Broken(VerlAdapter):
            def probe_path(self) -> Path:
                return hooks

            def probe_module(self) -> str:
                return "breaking_hooks"

        monkeypatch.setattr("rlmbench.runner.cells.find_adapter", lambda name: Broken())
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv(MARK, tmp_path.name)
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # a cluster of somebody else's, which is not to be joined
        shared = segments()
        words = [word for setting in (*SMALL, *settings) for word in ("--set", setting)]
        code = main(["run", "gsm8k_grpo", "--framework", "verl", "--scale", "tiny", *words])
        (folder,) = (path.parent for path in tmp_path.glob("results/gsm8k_grpo/*/manifest.json"))
        record = rlmbench.load(folder)
        assert [pid for pid in living(tmp_path.name, tmp_path) if pid != os.getpid()] == []
        assert leftovers(shared) == []
        assert not Path(record.manifest.launch[0].env["RAY_TMPDIR"]).exists()
        return code, record

    return run


def test_an_exception_in_an_agent_loop_fails_the_run(
    broken_run: Callable[..., tuple[int, Run]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, run = broken_run(FAILING_LOOP)
    failure = run.manifest.failure
    assert run.manifest.outcome and run.manifest.outcome["exit_code"] == 0  # verl went on without the sample, and ended well
    assert (code, run.manifest.status) == (1, "failed") and failure
    assert failure.failure_class == "audit", failure
    assert "mismatches with the plan; first: step 1: " in failure.message, failure.message
    assert failure.first_cause == "RuntimeError: the tool of this agent loop is down"
    assert "cause:  RuntimeError: the tool of this agent loop is down" in capsys.readouterr().out
    assert run.manifest.outcome["peak_pss_bytes"] < 8e9


def test_a_failed_weight_sync_is_ended_by_the_stall_timeout(broken_run: Callable[..., tuple[int, Run]]) -> None:
    """The sender waits in a socket's recv() for ever, and Ray's processes go on polling."""
    code, run = broken_run(FAILING_WEIGHT_SYNC, "measurement.stall_timeout_s=40")
    failure = run.manifest.failure
    assert (code, run.manifest.status) == (1, "failed") and failure
    assert (failure.failure_class, failure.phase, failure.step, failure.stage) == ("hang", "training", 1, "weight_sync"), failure
    assert failure.first_cause == "RuntimeError: this engine does not take the new weights"
