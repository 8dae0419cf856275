"""The adapter object: it runs in rlmbench's own process, and never imports the framework."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from rlmbench.adapter import EnvironmentSpec, Launch, NativeMetric, Process, RunInputs, Translation
from rlmbench.experiment import Experiment
from rlmbench_pretend.translate import translate

HERE = Path(__file__).parent


class PretendAdapter:
    """`inject/pretend_trainer.py` behind rlmbench's interface."""

    name = "pretend"
    uses_ray = False

    def environments(self) -> Iterable[EnvironmentSpec]:
        locks = HERE / "environments" / "pretend-cpu"
        versions = {"transformers": "5.24.0"}  # a framework's own version, and torch's
        return (EnvironmentSpec("pretend", "cpu", locks, "the made-up trainer", check_imports=("transformers",), versions=versions),)

    def translate(self, experiment: Experiment, device: str) -> Translation:
        return translate(experiment, device)

    def launch(self, translation: Translation, experiment: Experiment, inputs: RunInputs) -> Launch:
        job = {"plan": str(inputs.plan_path), "trainer": dict(translation.native)}
        path = inputs.run_dir / "job.json"
        path.write_text(json.dumps(job, indent=1))
        argv = (str(inputs.python), "-m", "rlmbench_pretend_worker.train")
        return Launch((Process("trainer", argv, {"RLMBENCH_JOB": str(path), "PYTHONUNBUFFERED": "1"}),))

    def reserved_keys(self) -> Iterable[str]:
        return ("steps",)

    def probe_path(self) -> Path:
        return HERE / "inject"

    def probe_module(self) -> str:
        return "rlmbench_pretend_worker.hooks"

    def native_metrics(self) -> Mapping[str, NativeMetric]:
        return {"mean_reward": NativeMetric("mean reward of the step's samples, before any scaling", canonical="reward_mean")}
