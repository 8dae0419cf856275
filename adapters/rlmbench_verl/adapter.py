"""The adapter object: environments, translation, and the process of a verl run with a Ray cluster of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlmbench.adapter import QUIET, EnvironmentSpec, Launch, NativeMetric, Process, RunInputs, Translation
from rlmbench.experiment import Experiment
from rlmbench.ray_cluster import ray_cluster
from rlmbench.taxonomy import Technique
from rlmbench.workload import verifier
from rlmbench_verl.environments import ENVIRONMENTS
from rlmbench_verl.native import NATIVE_METRICS
from rlmbench_verl.placement import V1, Trainer, main_module, trainer
from rlmbench_verl.techniques import TECHNIQUES
from rlmbench_verl.translate import translate

INJECT = Path(__file__).parent / "inject"
WORKER = INJECT / "rlmbench_verl_worker"
PACKAGE = "rlmbench_verl_worker"

CPU = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",  # the engines are registered for cuda and npu; this is verl's own way round
    "VERL_USE_EXTERNAL_MODULES": f"{PACKAGE}.cpu",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # vLLM compiles two small functions of its sampler with g++: 12 s of the first step, and 0.4 GB, for nothing at this size.
    "TORCH_COMPILE_DISABLE": "1",
    "MALLOC_ARENA_MAX": "2",  # a dozen processes with many threads each: an arena per thread adds up
}
LOGICAL_CPUS = 16
"""verl reserves 3 CPUs per worker whatever it does with them; on a small machine Ray is told of more than there are."""
V0_MODULE = "verl.trainer.main_ppo"
"""V1's too: ``trainer.use_v1`` decides. The patch points follow it (`inject`)."""
RAY_INIT_KEYS = ("num_cpus", "runtime_env")
"""The arguments of ``ray.init`` that verl's configuration has (verl/trainer/config/ppo_trainer.yaml); others are added with a +."""

RESERVED = (
    "actor_rollout_ref.model.path",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path",
    "actor_rollout_ref.rollout.agent.default_agent_loop",
    "critic.model.path",
    "critic.model.tokenizer_path",
    "data.train_files",
    "data.val_files",
    "hydra.",
    "ray_kwargs.ray_init.",
    "reward.custom_reward_function.",
    "trainer.default_local_dir",
    "trainer.experiment_name",
    "trainer.logger",
    "trainer.project_name",
    "trainer.total_training_steps",
)
"""Keys that `launch` sets, or that say what is measured."""


class VerlAdapter:
    """verl 0.9.1: what `rlmbench_verl.translate` gives it; `Translation.untested` says what of that has never been run."""

    name = "verl"
    uses_ray = True

    def environments(self) -> Iterable[EnvironmentSpec]:
        return ENVIRONMENTS

    def translate(self, experiment: Experiment, device: str) -> Translation:
        return translate(experiment, device)

    def reserved_keys(self) -> Iterable[str]:
        return RESERVED

    def probe_path(self) -> Path:
        return INJECT

    def probe_module(self) -> str:
        return f"{PACKAGE}.hooks"

    def native_metrics(self) -> Mapping[str, NativeMetric]:
        return NATIVE_METRICS

    def techniques(self) -> Mapping[str, Technique]:
        return TECHNIQUES

    def launch(self, translation: Translation, experiment: Experiment, inputs: RunInputs) -> Launch:
        native = inputs.run_dir / "native"
        job = {
            "plan": str(inputs.plan_path),
            "verifier": verifier.__file__,
            "replay": experiment.workload.replay is not None,
            "mini_batch_samples": experiment.optimization.mini_batch_samples,
        }
        (inputs.run_dir / "job.json").write_text(json.dumps(job, indent=1))
        data = inputs.run_dir / "train.parquet"
        if inputs.plan_path.is_file():
            write_dataset(json.loads(inputs.plan_path.read_text()), data)
        loop = "PlannedAgentLoop" if job["replay"] else "NaturalAgentLoop"
        agents = inputs.run_dir / "agents.yaml"
        # The fully asynchronous trainer asks for verl's own loop by name (detach_utils.py), so ours takes that name there.
        chosen = trainer(experiment)
        name = "single_turn_agent" if chosen is Trainer.FULLY_ASYNC else "rlmbench_agent"
        agents.write_text(f"- name: {name}\n  _target_: {PACKAGE}.agent.{loop}\n")
        env = {
            **QUIET,
            "WANDB_MODE": "disabled",
            "HYDRA_FULL_ERROR": "1",
            **(CPU if inputs.device == "cpu" else {}),
            "VERL_FILE_LOGGER_PATH": str(native / "metrics.jsonl"),
            "RLMBENCH_JOB": str(inputs.run_dir / "job.json"),
            **({"RLMBENCH_STRICT_ORDER": "1"} if experiment.measurement.strict_order else {}),
            "RLMBENCH_VERL_TRAINER": "v0" if main_module(experiment) == V0_MODULE and not translation.native["trainer.use_v1"] else "v1",
        }
        ray = ray_cluster(inputs, env, logical_cpus=LOGICAL_CPUS, logical_gpus=experiment.parallelism.data)
        settings = {
            **translation.native,
            MODEL_PATH: str(inputs.model_dir),
            "data.train_files": str(data),
            "data.val_files": str(data),
            "trainer.default_local_dir": str(inputs.run_dir / "scratch"),
            "trainer.project_name": "rlmbench",
            "trainer.experiment_name": inputs.run_dir.name,
            "hydra.run.dir": str(native),
            "actor_rollout_ref.rollout.agent.agent_loop_config_path": str(agents),
            "actor_rollout_ref.rollout.agent.default_agent_loop": name,
            **ray_settings(ray.init),
        }
        if experiment.optimization.critic:
            settings |= {"critic.model.path": str(inputs.model_dir), "critic.model.tokenizer_path": str(inputs.model_dir)}
        if not job["replay"]:
            settings |= {"reward.custom_reward_function.path": str(WORKER / "reward.py")}
        if experiment.placement.fast_rollout_poll and chosen in V1:
            settings |= {
                "trainer.v1.sampler.custom_sampler.path": str(WORKER / "sampler.py"),
                "trainer.v1.sampler.custom_sampler.name": "FastReplayBuffer" if chosen is Trainer.SYNC else "FastReplayBufferAsync",
            }
        argv = (str(inputs.python), "-m", main_module(experiment), *(override(key, value) for key, value in settings.items()))
        return Launch((Process("trainer", argv, {**env, **ray.env}),), ray.scratch)


MODEL_PATH = "actor_rollout_ref.model.path"


def ray_settings(init: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ``ray.init`` as verl's own keys."""
    return {f"{'' if key in RAY_INIT_KEYS else '+'}ray_kwargs.ray_init.{key}": value for key, value in init.items()}


def write_dataset(plan: Mapping[str, Any], path: Path) -> None:
    """verl's own format (verl/utils/dataset/rl_dataset.py): one row per step and prompt, in plan order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "data_source": "rlmbench",
            "prompt": [{"role": "user", "content": row["question"]}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": row["answer"]},
            "extra_info": {"index": row["row"], "row": row["row"]},
        }
        for row in plan["rows"]
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


def override(key: str, value: Any) -> str:
    """One hydra override, quoted by hydra's grammar (hydra.cc/docs/advanced/override_grammar/basic)."""
    return f"{key}={_value(value)}"


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(_value, value))}]"
    text = str(value)
    if not isinstance(value, str) or re.fullmatch(r"[\w./:@-]+", text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
