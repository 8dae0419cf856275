"""TRL's own argument classes accept every configuration that we write, also for the scales that need GPUs."""

from __future__ import annotations

import json
import subprocess

import pytest

from rlmbench.environment import ensure
from rlmbench.experiment.load import build_experiment, load_suite, suite_files
from rlmbench_trl import adapter

PARSE = """
import json, sys
from dataclasses import fields
import trl
for place, algorithm, native in json.load(sys.stdin):
    if algorithm == "ppo":
        from trl.experimental.ppo import PPOConfig as Config
    else:
        Config = {"grpo": trl.GRPOConfig, "rloo": trl.RLOOConfig}[algorithm]
    unknown = sorted(set(native) - {field.name for field in fields(Config)})
    assert not unknown, f"{place}: unknown keys {unknown}"
    # bf16 and FSDP ask for a GPU when they are validated; everything else is checked by the class itself.
    checked = {key: value for key, value in native.items() if key not in ("bf16", "fsdp")}
    Config(**checked, bf16=False, output_dir="unused")
    print(place)
"""


def cells(environment: str) -> list[tuple[str, str, dict]]:
    """Every suite and scale that the ledger does not refuse, of the TRL release in `environment`."""
    found = []
    for suite in sorted(suite_files()):
        for scale in load_suite(suite).scales:
            experiment = build_experiment(load_suite(suite), scale)
            translation = adapter.translate(experiment, "cpu" if scale == "tiny" else "cuda")
            # trl-vllm holds the same TRL as trl, and vLLM beside it.
            if not translation.unsupported and translation.environment.removesuffix("-vllm") == environment:
                found.append((f"{suite} at {scale}", experiment.optimization.algorithm.value, dict(translation.native)))
    return found


@pytest.mark.parametrize(("environment", "some_of"), [("trl", "gsm8k_grpo at base"), ("trl-ppo", "gsm8k_ppo at tiny")])
def test_trl_accepts_what_we_write(environment, some_of):
    (spec,) = [spec for spec in adapter.environments() if (spec.name, spec.device) == (environment, "cpu")]
    asked = cells(environment)
    command = [str(ensure(spec).python), "-c", PARSE]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [place for place, _, _ in asked]
    assert some_of in done.stdout
