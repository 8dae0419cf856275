"""Each translation is a configuration that verl itself takes: composed by hydra and validated in verl's environment, as its mains do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rlmbench.adapter import RunInputs
from rlmbench.environment import ensure
from rlmbench_verl import adapter
from rlmbench_verl.placement import configuration
from rlmbench_verl.translate import translate
from tests.unit.adapters import verl_golden
from tests.unit.adapters.cells import CELLS, experiment

ACTOR, REFERENCE = "actor_rollout_ref.actor.", "actor_rollout_ref.ref."
RESOLVED = {
    "megatron_tp2_pp2_ep2": {
        REFERENCE + "megatron.tensor_model_parallel_size": 2,
        REFERENCE + "megatron.pipeline_model_parallel_size": 2,
        REFERENCE + "megatron.expert_model_parallel_size": 2,
        REFERENCE + "strategy": "megatron",
    },
    "ulysses": {REFERENCE + "ulysses_sequence_parallel_size": 2},
    "fully_async": {"algorithm.rollout_correction.bypass_mode": True, ACTOR + "use_rollout_log_probs": True},
    "one_step_off": {"algorithm.rollout_correction.bypass_mode": True, "actor_rollout_ref.rollout.free_cache_engine": False},
    "separate_async": {"algorithm.rollout_correction.bypass_mode": False},
    "ppo_8_gpus": {"critic.ppo_mini_batch_size": 256, "critic.enable": None},
}
"""What verl's own files make of keys that we leave to them: the reference model follows the actor, some trainers bypass old log-probs."""


@pytest.fixture(scope="module")
def composed(tmp_path_factory):
    """The command lines of every golden case and of every suite's cell, composed and validated by verl; and two that must fail."""
    folder = tmp_path_factory.mktemp("launch")
    cells = {path.stem: verl_golden.cell(verl_golden.read(path)["asked"]) for path in verl_golden.golden_files()}
    cells |= {f"{suite} at {scale}": (experiment(suite, scale), "cpu" if scale == "tiny" else "cuda") for suite, scale in CELLS}
    asked = [_asked(name, cell, device, folder) for name, (cell, device) in cells.items() if not translate(cell, device).unsupported]
    ppo = _asked("", *cells["ppo_8_gpus"], folder)
    asked.append({**ppo, "case": "wrong key", "overrides": [*ppo["overrides"], f"{ACTOR}optim.learning_rate=1e-6"]})
    asked.append({**ppo, "case": "wrong value", "overrides": [*ppo["overrides"], f"{ACTOR}loss_agg_mode=token_mean"]})
    (spec,) = [spec for spec in adapter.environments() if spec.device == "cpu"]
    command = [str(ensure(spec).python), str(Path(__file__).with_name("compose_verl.py"))]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {result["case"]: result for result in json.loads(done.stdout.splitlines()[-1])}


def _asked(name, cell, device, folder):
    """What verl's main module would be told: everything behind ``python -m MODULE``."""
    inputs = RunInputs(folder, folder / "model", folder / "plan.json", folder / "python", device)
    (process,) = adapter.launch(translate(cell, device), cell, inputs).processes
    where, overrides = list(configuration(cell)), process.argv[3:]
    return {"case": name, "configuration": where, "overrides": overrides, "read": list(RESOLVED.get(name, ()))}


def test_verl_takes_every_key_and_value_that_we_write(composed):
    """hydra refuses a key that is none of verl's (only those with a leading + may be new), verl's dataclasses a wrong value."""
    wrong = {case: result["error"] for case, result in composed.items() if result["error"]}
    assert set(wrong) == {"wrong key", "wrong value"}, wrong
    assert "learning_rate" in wrong["wrong key"]
    assert "token_mean" in wrong["wrong value"]
    assert {path.stem for path in verl_golden.golden_files()} | {"gsm8k_ppo at base"} <= set(composed)


@pytest.mark.parametrize("case", RESOLVED)
def test_what_verl_makes_of_the_keys_that_are_left_to_it(composed, case):
    assert composed[case]["values"] == RESOLVED[case]
