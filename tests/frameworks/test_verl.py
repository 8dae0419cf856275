"""verl itself trains, generates and is audited, with vLLM's own token count as a second witness."""

from __future__ import annotations

import json
import subprocess

from rlmbench.environment import ensure
from rlmbench.experiment.load import build_experiment, load_suite, suite_files
from rlmbench_verl import adapter
from rlmbench_verl.adapter import override
from tests.frameworks.conftest import settings

COMPOSE = """
import json, sys
from hydra import compose, initialize_config_module
with initialize_config_module("verl.trainer.config", version_base=None):
    for place, overrides in json.load(sys.stdin):
        compose("ppo_trainer", overrides=overrides)
        print(place)
"""


def test_verls_own_configuration_has_every_key_that_we_write():
    """hydra refuses a key that is none of verl's; only keys with a leading + are allowed to be new."""
    asked = []
    for suite in sorted(suite_files()):
        for scale in load_suite(suite).scales:
            translation = adapter.translate(build_experiment(load_suite(suite), scale), "cpu" if scale == "tiny" else "cuda")
            if not translation.unsupported:
                asked.append((f"{suite} at {scale}", [override(key, value) for key, value in translation.native.items()]))
    (spec,) = [spec for spec in adapter.environments() if spec.device == "cpu"]
    command = [str(ensure(spec).python), "-c", COMPOSE]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line for line in done.stdout.splitlines() if " at " in line] == [place for place, _ in asked]
    assert "gsm8k_ppo at base" in done.stdout


def test_grpo_does_exactly_the_planned_work(rlmbench_run):
    result = rlmbench_run("gsm8k_grpo", "--framework", "verl", *settings(measurement__steps=3)).ok()
    run, record = result.run, result.record
    plan = json.loads((result.folder / run["path"] / "plan.json").read_text())
    for step in (1, 2, 3):
        rows = [row for row in plan["rows"] if row["step"] == step]
        trained = record.samples[record.samples["step"] == step]
        planned = sorted((row["prompt_hash"], row["prompt_tokens"], tokens) for row in rows for tokens in row["response_tokens"])
        assert sorted(zip(trained["prompt_hash"], trained["prompt_tokens"], trained["response_tokens"], strict=True)) == planned
        received = record.rewards[record.rewards["step"] == step]["reward"]
        assert sorted(received) == sorted(reward for row in rows for reward in row["rewards"])
    assert run["audit"]["optimizer_steps"] == 6  # 32 samples in mini-batches of 16
    assert run["coverage"]["min"] >= 0.98
    # vLLM's engine, a process of its own, counted the tokens it made: the planned ones.
    engine = record.spans[record.spans["name"] == "engine_step"]
    assert engine["response_tokens"].sum() == sum(tokens for row in plan["rows"] for tokens in row["response_tokens"])
    # verl polls for finished rollouts every 2 s: its own timer says at least that, and ours tells work from waiting.
    native = record.native
    gen = native[(native["key"] == "timing_s/gen") & (native["step"] > 1)]["value"].mean()
    waited, generated = run["stages_s"]["wait"], run["stages_s"]["generation"]
    assert gen >= 2.0
    assert waited > 0
    assert abs(waited + generated - gen) < 0.25 * gen
    assert {"start_workers", "start_rollout_engine", "first_weight_sync"} <= set(run["startup"]["stages_s"])
