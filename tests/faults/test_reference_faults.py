"""Scripted failures, so that it is known what, when and where: is it told so? The failing stage fails in its middle.

A process that dies at once takes what its probe has not written with it: a quarter of a second, or more where its thread waits for a core.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reference import Reference, run_reference

SCRIPT = """
stages:
  {stage}: {{seconds: {seconds}}}
failure: {{process: {process}, step: 2, stage: {stage}, kind: {kind}}}
"""
APART = {"placement__mode": "disaggregated", "placement__rollout_devices": 1}


def failed(folder: Path, kind: str, stage: str = "old_logprob", process: str = "trainer-0", **settings: object) -> Reference:
    seconds = 2.4 if kind in ("kill", "exit") else 0.8
    script = SCRIPT.format(stage=stage, seconds=seconds, process=process, kind=kind)
    one = run_reference(folder, native=script, measurement__steps=3, **settings)
    assert one.summary.status == "failed"
    assert one.summary.completed_steps == 1
    return one


@pytest.mark.parametrize(
    ("kind", "failure_class", "exit_code", "signal", "first_cause"),
    [
        ("exception", "framework_error", 1, None, "RuntimeError: scripted failure"),
        ("exit", "framework_error", 3, None, None),
        ("kill", "killed", None, "SIGKILL", None),
        ("out_of_memory", "out_of_memory_host", 1, None, "MemoryError"),
    ],
)
def test_the_driver_fails(tmp_path, kind, failure_class, exit_code, signal, first_cause):
    failure = failed(tmp_path, kind).summary.failure
    assert (failure.failure_class, failure.phase, failure.step, failure.stage) == (failure_class, "training", 2, "old_logprob")
    assert (failure.exit_code, failure.signal, failure.first_cause) == (exit_code, signal, first_cause)


def test_the_driver_hangs(tmp_path):
    failure = failed(tmp_path, "hang", measurement__stall_timeout_s=3).summary.failure
    assert (failure.failure_class, failure.step, failure.stage) == ("hang", 2, "old_logprob")


@pytest.mark.parametrize(("kind", "failure_class"), [("exception", "framework_error"), ("kill", "killed")])
def test_a_rollout_fails_while_the_driver_awaits_it(tmp_path, kind, failure_class):
    failure = failed(tmp_path, kind, "generation", "rollout-0", **APART).summary.failure
    assert (failure.failure_class, failure.step, failure.stage) == (failure_class, 2, "generation")
    assert failure.first_cause == ("RuntimeError: scripted failure" if kind == "exception" else None)
    assert any("rollout-0" in line for line in failure.tail)


def test_another_rank_fails_while_the_driver_waits_at_the_barrier(tmp_path):
    two = {"parallelism__data": 2, "optimization__micro_batch_samples": 4}
    failure = failed(tmp_path, "kill", "actor_update", "trainer-1", **two).summary.failure
    assert (failure.failure_class, failure.signal, failure.step) == ("killed", "SIGKILL", 2)
    assert any("trainer-1" in line for line in failure.tail)
