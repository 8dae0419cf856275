"""OpenRLHF itself parses what we write, trains, generates and is audited, and does not hide what went wrong."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rlmbench.environment import ensure
from rlmbench.experiment.load import build_experiment, load_suite, suite_files
from rlmbench.probe import INJECT as PROBE
from rlmbench_openrlhf import adapter
from rlmbench_openrlhf.adapter import INJECT, arguments
from rlmbench_openrlhf.environments import VERSION
from tests.frameworks.conftest import FIRST_RUN_TIMEOUT_S, settings
from tests.unit.adapters.cells import experiment

PARSE = """
import json, runpy, sys
from rlmbench_openrlhf_worker import flash_attention
flash_attention.install()
import ray
class Parsed(Exception): pass
def parsed(): raise Parsed  # the first thing that OpenRLHF's train() asks, once its main has parsed and checked all flags
ray.is_initialized = parsed
for place, words in json.load(sys.stdin):
    sys.argv = ["train_ppo_ray", *words]
    try:
        runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")
    except Parsed:
        print("parsed:", place)
"""
MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "dr_grpo": ("cpu", {"optimization__advantage_scaling": "none"}),
    "reinforce_baseline": ("cpu", {"optimization__advantage_scaling": "batch"}),
    "reinforce": ("cpu", {"optimization__algorithm": "reinforce_pp", "optimization__advantage_scaling": "none"}),
    "gspo": ("cpu", {"optimization__importance_sampling": "sequence", "optimization__loss_aggregation": "sequence_mean"}),
    "no reference": ("cpu", {"optimization__kl": {"coefficient": 0}}),
    "KL in the reward": ("cpu", {"optimization__kl": {"coefficient": 0.1, "placement": "reward", "estimator": "k1"}}),
    "schedules": ("cpu", {"optimization__lr_schedule": "cosine", "optimization__warmup_steps": 3}),
    "natural, overlong": ("cpu", {"workload__replay": None, "optimization__overlong_buffer_tokens": 16}),
    "disaggregated": ("cpu", {"placement": {"mode": "disaggregated", "rollout_devices": 1}}),
    "async": ("cpu", {"placement": {"mode": "async", "rollout_devices": 1, "max_staleness": 2}}),
    "ZeRO-3": ("cpu", {"parallelism": {"data": 2, "sharding": "zero3"}, "optimization__micro_batch_samples": 4}),
    "sleep": ("cuda", {}),
    "packing": ("cuda", {"model__attention": "flash_attention_2"}),
    "ring attention": ("cuda", {"model__attention": "flash_attention_2", "parallelism__context": 2}),
    "AutoTP": ("cuda", {"parallelism": {"tensor": 2, "rollout_tensor": 2}}),
}
BY_HAND = {"partial rollout": ["--train.partial_rollout_enable"]}
"""No field of an experiment asks for it: for ``--native``, on top of the asynchronous mode."""


def python() -> Path:
    (spec,) = [spec for spec in adapter.environments() if spec.device == "cpu"]
    return ensure(spec).python


def in_environment(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{PROBE}:{INJECT}", "DS_ACCELERATOR": "cpu", **options.pop("env", {})}
    return subprocess.run([str(python()), *words], env=env, capture_output=True, text=True, timeout=300, check=False, **options)


def test_openrlhfs_own_parser_takes_every_flag_that_we_write():
    """argparse refuses an unknown flag, and OpenRLHF's main what does not fit together; also for what nobody has run yet."""
    asked = []
    for suite in sorted(suite_files()):
        for scale in load_suite(suite).scales:
            translation = adapter.translate(build_experiment(load_suite(suite), scale), "cpu" if scale == "tiny" else "cuda")
            if not translation.unsupported:
                asked.append((f"{suite} at {scale}", translation.native))
    for name, (device, over) in MODES.items():
        translation = adapter.translate(experiment(**over), device)
        assert translation.unsupported == [], name
        asked.append((name, translation.native))
    # What every launch adds; the critic's model comes with the suites that train one.
    common = ["--actor.model_name_or_path", "model", "--train.agent_func_path", "agent.py"]
    lines = [(place, [*arguments(native), *common]) for place, native in asked]
    lines += [(name, [*dict(lines)["async"], *flags]) for name, flags in BY_HAND.items()]
    done = in_environment("-c", PARSE, input=json.dumps(lines))
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line.removeprefix("parsed: ") for line in done.stdout.splitlines() if line.startswith("parsed: ")] == [
        place for place, _ in lines
    ]
    assert {"gsm8k_ppo at tiny", "gsm8k_grpo at base"} <= {place for place, _ in lines}


AGENT = """
import asyncio, json, sys
from types import SimpleNamespace
from rlmbench_openrlhf_worker.agent import AgentExecutor
asked = []
class Engine:
    async def generate(self, prompt, params, multi_modal_data=None):
        asked.append(params)
        await asyncio.sleep(0)
        tokens = list(range(params.max_tokens))
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens, logprobs=None, finish_reason="length")])
class Tokenizer:
    def __call__(self, text, **kwargs): return {"input_ids": [SimpleNamespace(tolist=lambda: [7, 8, 9])]}
    def decode(self, ids, **kwargs): return " ".join(map(str, ids))
shared = SimpleNamespace(max_tokens=64, min_tokens=1, ignore_eos=False, top_k=-1, logprobs=None)
agent, label = AgentExecutor(), json.dumps({"row": 0, "answer": "4"})
async def all_of():
    return await asyncio.gather(*(agent.execute("p", label, shared, 224, Tokenizer(), Engine()) for _ in range(3)))
outputs = asyncio.run(all_of())
assert vars(shared) == dict(max_tokens=64, min_tokens=1, ignore_eos=False, top_k=-1, logprobs=None)
print(json.dumps([[json.loads(o["label"])["sample"], o["action_ranges"], o["reward"], p.ignore_eos, p.min_tokens, p.top_k]
                  for o, p in zip(outputs, asked)]))
"""


def agent_says(tmp_path, verifier: str, **job: Any) -> subprocess.CompletedProcess[str]:
    plan = {"group_size": 3, "rows": [{"step": 1, "prompt_hash": "h", "response_tokens": [5, 2, 9], "rewards": [0.5, 0.25, 1.0]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "verifier.py").write_text(verifier)
    content = {"plan": str(tmp_path / "plan.json"), "verifier": str(tmp_path / "verifier.py"), "top_k": 0, "rollout_logprobs": False, **job}
    (tmp_path / "job.json").write_text(json.dumps(content))
    return in_environment("-c", AGENT, env={"RLMBENCH_JOB": str(tmp_path / "job.json")})


def test_the_agent_gives_each_sample_its_planned_length_and_reward(tmp_path):
    done = agent_says(tmp_path, "", replay=True)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said == [
        [0, [[3, 8]], 0.5, True, 0, -1],
        [1, [[3, 5]], 0.25, True, 0, -1],
        [2, [[3, 12]], 1.0, True, 0, -1],
    ]


def test_a_reward_that_raises_is_not_swallowed(tmp_path):
    """OpenRLHF's own reward functions are called inside an except that logs; ours is not among them."""
    done = agent_says(tmp_path, "def score(text, answer):\n    raise ValueError('no such answer')\n", replay=False, top_k=5)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ValueError: no such answer"


def launch_says(tmp_path, **job: Any) -> subprocess.CompletedProcess[str]:
    (tmp_path / "plan.json").write_text(json.dumps({"group_size": 1, "rows": []}))
    init = {"address": "local", "include_dashboard": False, "num_cpus": 2, "num_gpus": 1, "object_store_memory": 10**8}
    with tempfile.TemporaryDirectory(prefix="rlmbench-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:  # short: it holds sockets
        content = {"plan": str(tmp_path / "plan.json"), "version": VERSION, "devices": 1, "ray_init": {**init, "_temp_dir": folder}, **job}
        (tmp_path / "job.json").write_text(json.dumps(content))
        env = {"RLMBENCH_JOB": str(tmp_path / "job.json"), "CUDA_VISIBLE_DEVICES": "0", "RAY_ADDRESS": "local", "RAY_TMPDIR": folder}
        return in_environment("-m", "rlmbench_openrlhf_worker.launch", env=env, cwd=tmp_path)


def test_too_few_devices_are_an_error_instead_of_a_wait(tmp_path):
    done = launch_says(tmp_path, devices=2)
    assert done.returncode == 1
    assert "this experiment needs 2 devices, but Ray has 1" in done.stderr


def test_another_version_is_refused(tmp_path):
    done = launch_says(tmp_path, version="0.11.0")
    assert done.returncode == 1
    assert f"OpenRLHF {VERSION} is installed, but flags and hooks are those of 0.11.0" in done.stderr


@pytest.fixture(scope="module")
def planned():
    """What a plan says of one step, for comparison with what the loss received."""

    def of_step(plan: dict[str, Any], step: int) -> tuple[list[Any], list[float]]:
        rows = [row for row in plan["rows"] if row["step"] == step]
        samples = [(row["row"], index, row["prompt_tokens"], tokens) for row in rows for index, tokens in enumerate(row["response_tokens"])]
        return sorted(samples), sorted(reward for row in rows for reward in row["rewards"])

    return of_step


def test_ppo_does_exactly_the_planned_work_with_both_updates_beside_each_other(rlmbench_run, planned):
    result = rlmbench_run(
        "gsm8k_ppo", "--framework", "openrlhf", *settings(measurement__steps=3, measurement__wall_timeout_s=FIRST_RUN_TIMEOUT_S)
    ).ok()
    run, record = result.run, result.record
    plan = json.loads((result.folder / run["path"] / "plan.json").read_text())
    for step in (1, 2, 3):
        samples, rewards = planned(plan, step)
        trained = record.samples[record.samples["step"] == step]
        assert sorted(zip(trained["row"], trained["sample"], trained["prompt_tokens"], trained["response_tokens"], strict=True)) == samples
        assert sorted(record.rewards[record.rewards["step"] == step]["reward"]) == rewards
    updates = record.updates.groupby("role").size().to_dict()
    assert updates == {"actor": 3, "critic": 3}  # 32 samples in mini-batches of 32
    assert set(record.updates[record.updates["role"] == "critic"]["learning_rate"]) == {1e-5}
    assert run["coverage"]["median"] >= 0.98
    # vLLM's engine, a process of its own, counted the tokens it made: the planned ones.
    engine = record.spans[record.spans["name"].isin(["engine_step", "engine_step_queued"])]
    assert engine["response_tokens"].sum() == sum(tokens for row in plan["rows"] for tokens in row["response_tokens"])
    # Actor and critic train at the same time: OpenRLHF's own timer says how long both took together.
    stages = run["stages_s"]
    driver = record.processes.set_index("process")["role"].eq("driver")
    fits = record.spans[(record.spans["name"] == "fit") & record.spans["process"].map(driver)].pivot(
        index="step", columns="stage", values=["start_ns", "end_ns"]
    )
    beside_s = (fits["end_ns"].min(axis=1) - fits["start_ns"].max(axis=1)) / 1e9
    for step in run["steps"]:  # counted once; rewards inside generation, and the beginning of a weight sync, overlap a little, too
        also_s = sum(step["stages_s"].get(stage, 0.0) for stage in ("reward", "weight_sync"))
        assert 0 < beside_s[step["step"]] <= step["overlap_s"] <= beside_s[step["step"]] + also_s
    native = record.native
    both = native[(native["key"] == "timing/ppo_train") & (native["step"] > 1)]["value"].mean()
    assert abs(stages["actor_update"] + stages["critic_update"] - run["overlap_s"] - both) < 0.1 * both


def test_asynchronous_grpo_generates_beside_training(rlmbench_run, planned):
    changes = settings(
        measurement__steps=3,
        measurement__wall_timeout_s=FIRST_RUN_TIMEOUT_S,
        optimization__advantage_scaling="none",
        placement={"mode": "async", "rollout_devices": 1, "max_staleness": 1},
    )
    result = rlmbench_run("gsm8k_grpo", "--framework", "openrlhf", *changes).ok()
    run, record = result.run, result.record
    assert record.manifest.native["algo.advantage.estimator"] == "dr_grpo"
    plan = json.loads((result.folder / run["path"] / "plan.json").read_text())
    for step in (1, 2, 3):
        samples, rewards = planned(plan, step)
        trained = record.samples[record.samples["step"] == step]
        assert sorted(zip(trained["row"], trained["sample"], trained["prompt_tokens"], trained["response_tokens"], strict=True)) == samples
        assert sorted(record.rewards[record.rewards["step"] == step]["reward"]) == rewards
    assert record.updates.groupby("role").size().to_dict() == {"actor": 6}  # 32 samples in mini-batches of 16
    assert run["coverage"]["median"] >= 0.98
    # Some rollout process generates while another updates the policy: what the mode is for.
    spans = record.spans
    generating = spans[(spans["name"] == "generate_samples")][["start_ns", "end_ns"]]
    training = spans[(spans["name"] == "fit") & (spans["stage"] == "actor_update") & (spans["thread"] > 0)][["start_ns", "end_ns"]]
    assert any(
        begun < end and start < ended
        for begun, ended in generating.itertuples(index=False)
        for start, end in training.itertuples(index=False)
    )
    # vLLM's log-probs and the trainer's are those of one policy, up to bfloat16 and one update.
    assert 0 < run["learning"]["logprob_difference"]["mean"] < 0.01
