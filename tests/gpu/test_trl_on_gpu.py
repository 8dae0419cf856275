"""The published single-GPU scale, for real: run it with ``scripts/test -m gpu`` on a machine with an NVIDIA GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rlmbench
from rlmbench.environment.host import gpus

TIMEOUT_S = 3600


@pytest.mark.timeout(TIMEOUT_S)
def test_gsm8k_grpo_at_small_with_trl(tmp_path: Path) -> None:
    answer = gpus()
    if not answer.devices:
        pytest.skip(f"no GPU: {answer.reason}")
    command = [sys.executable, "-m", "rlmbench", "run", "gsm8k_grpo", "--framework", "trl", "--scale", "small", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S - 60, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    (run,) = json.loads(done.stdout.splitlines()[-1])["runs"]
    assert (run["status"], run["violations"], run["measured_steps"]) == ("ok", [], 8)
    # The suite at small: 10 steps of 256 prompts with 5 samples each, 320 samples per optimizer step.
    assert (run["audit"]["ok"], run["audit"]["prompts"], run["audit"]["samples"], run["audit"]["optimizer_steps"]) == (
        True,
        2560,
        12800,
        40,
    )
    assert run["audit"]["weights_changed"] is True
    assert run["coverage"]["min"] >= 0.99
    assert run["probe_overhead"] <= 0.005
    # Memory of the device, as torch saw it, in the stages that use it; never more than the device has.
    memory = answer.devices[0].memory_bytes
    for stage in ("generation", "actor_update"):
        assert 0 < run["memory"]["peak_bytes"][stage]["torch_allocated_peak_bytes"] < memory
    manifest = rlmbench.load(tmp_path / run["path"]).manifest
    assert manifest.environment is not None
    assert manifest.environment.device == "cuda"
    assert manifest.devices[0]["name"] == answer.devices[0]["name"]
