"""The adapter object: environments, translation, and the process of an OpenRLHF run with a Ray cluster of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlmbench.adapter import QUIET, EnvironmentSpec, Launch, NativeMetric, Process, RunInputs, Translation
from rlmbench.experiment import Experiment
from rlmbench.ray_cluster import ray_cluster
from rlmbench.taxonomy import Technique
from rlmbench.workload import verifier
from rlmbench_openrlhf.environments import ENVIRONMENTS, VERSION
from rlmbench_openrlhf.native import NATIVE_METRICS
from rlmbench_openrlhf.techniques import TECHNIQUES
from rlmbench_openrlhf.translate import ray_devices, translate

INJECT = Path(__file__).parent / "inject"
PACKAGE = "rlmbench_openrlhf_worker"

CPU = {
    "DS_ACCELERATOR": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
CPU_CACHES = {"VLLM_CACHE_ROOT": "vllm", "TRITON_CACHE_DIR": "triton"}
LOGICAL_CPUS = 16
"""OpenRLHF reserves a CPU per process whatever it does with it; on a small machine Ray is told of more than there are."""

RESERVED = (
    "actor.model_name_or_path",
    "ckpt.",
    "critic.model_name_or_path",
    "data.",
    "eval.",
    "logger.",
    "reward.remote_url",
    "train.agent_func_path",
    "train.num_episodes",
)
"""Flags that `launch` sets, or that say what is measured."""


class OpenRLHFAdapter:
    """OpenRLHF: DeepSpeed training, vLLM rollouts, the synchronous and the asynchronous Ray trainer."""

    name = "openrlhf"
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
        scratch = inputs.run_dir / "scratch"
        data = inputs.run_dir / "train.jsonl"
        if inputs.plan_path.is_file():
            write_dataset(json.loads(inputs.plan_path.read_text()), data)
        env = {
            **QUIET,
            **(CPU if inputs.device == "cpu" else {}),
            # On a GPU compiled kernels are worth keeping; here vLLM and Triton would only leave empty folders in the user's home.
            **({name: str(scratch / folder) for name, folder in CPU_CACHES.items()} if inputs.device == "cpu" else {}),
            "HF_DATASETS_CACHE": str(scratch / "datasets"),
            "RLMBENCH_JOB": str(inputs.run_dir / "job.json"),
            **extensions(inputs.python),
            **({"RLMBENCH_STRICT_ORDER": "1"} if experiment.measurement.strict_order else {}),
        }
        devices = ray_devices(experiment)
        ray = ray_cluster(inputs, env, logical_cpus=LOGICAL_CPUS, logical_gpus=devices)
        job = {
            "plan": str(inputs.plan_path),
            "verifier": verifier.__file__,
            "replay": experiment.workload.replay is not None,
            "top_k": experiment.workload.sampling.top_k,
            "rollout_logprobs": comparable_logprobs(experiment),
            "steps": experiment.measurement.steps,
            "version": VERSION,
            "devices": devices,
            "ray_init": dict(ray.init),
        }
        (inputs.run_dir / "job.json").write_text(json.dumps(job, indent=1))
        flags = {
            **translation.native,
            "actor.model_name_or_path": str(inputs.model_dir),
            "data.prompt_dataset": str(data),
            "data.input_key": "question",
            "data.label_key": "label",
            "data.apply_chat_template": True,
            "train.agent_func_path": str(INJECT / PACKAGE / "agent.py"),
            "ckpt.output_dir": str(scratch / "model"),
            "ckpt.path": str(scratch / "checkpoints"),
        }
        if experiment.optimization.critic:
            flags |= {"critic.model_name_or_path": str(inputs.model_dir)}
        argv = (str(inputs.python), "-m", f"{PACKAGE}.launch", *arguments(flags))
        return Launch((Process("trainer", argv, {**env, **ray.env}),), ray.scratch)


def comparable_logprobs(experiment: Experiment) -> bool:
    """Whether vLLM's log-probs are those of the policy: it gives them before temperature, top-p and top-k."""
    sampling = experiment.workload.sampling
    return (sampling.temperature, sampling.top_p, sampling.top_k) == (1.0, 1.0, 0)


def extensions(python: Path) -> dict[str, str]:
    """DeepSpeed compiles its operators at first use, for minutes: kept in the environment that rlmbench built, so only the first run does.

    An environment of the user's own keeps them where torch puts them by default.
    """
    home = python.parent.parent
    built_here = (home / "rlmbench-environment.json").is_file()
    return {"TORCH_EXTENSIONS_DIR": str(home / "torch_extensions")} if built_here else {}


def write_dataset(plan: Mapping[str, Any], path: Path) -> None:
    """OpenRLHF's own format (openrlhf/datasets/prompts_dataset.py): one row per step and prompt, in plan order. The label is a text."""
    rows = ({"question": row["question"], "label": json.dumps({"row": row["row"], "answer": row["answer"]})} for row in plan["rows"])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def arguments(flags: Mapping[str, Any]) -> list[str]:
    """Flags for argparse: True is a flag without value, False and None are left out, a list is several values."""
    words: list[str] = []
    for key, value in flags.items():
        if value is None or value is False:
            continue
        words.append(f"--{key}")
        if value is not True:
            words += [str(each) for each in (value if isinstance(value, list | tuple) else [value])]
    return words
