"""The adapter object of the simulated framework."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from rlmbench.adapter import EnvironmentSpec, Launch, NativeMetric, Process, RunInputs, Translation
from rlmbench.experiment import Experiment
from rlmbench_reference.schedule import schedule_of
from rlmbench_reference.translate import translate

HERE = Path(__file__).parent


class ReferenceAdapter:
    """`inject/reference_framework` behind rlmbench's interface: a scripted schedule, no training."""

    name = "reference"
    uses_ray = False

    def environments(self) -> Iterable[EnvironmentSpec]:
        locks = HERE / "environments" / "reference-cpu"
        return (
            EnvironmentSpec("reference", "cpu", locks, "simulated: nothing but Python", check_imports=("asyncio", "mmap"), versions={}),
        )

    def translate(self, experiment: Experiment, device: str) -> Translation:
        return translate(experiment, device)

    def launch(self, translation: Translation, experiment: Experiment, inputs: RunInputs) -> Launch:
        native = dict(translation.native)
        job = {
            "plan": str(inputs.plan_path),
            "truth": str(inputs.run_dir / "native"),
            "config": {key: native[key] for key in ("lr", "mini_batch", "micro_batch", "epochs")},
            "schedule": schedule_of(native).document(),
        }
        path = inputs.run_dir / "job.json"
        path.write_text(json.dumps(job, indent=1))
        env = {"RLMBENCH_JOB": str(path), "PYTHONUNBUFFERED": "1"}
        return Launch((Process("trainer", (str(inputs.python), "-m", "rlmbench_reference_worker.run"), env),))

    def reserved_keys(self) -> Iterable[str]:
        return ("steps", "runs", "layout", "ranks", "rollouts", "max_staleness")

    def probe_path(self) -> Path:
        return HERE / "inject"

    def probe_module(self) -> str:
        return "rlmbench_reference_worker.hooks"

    def native_metrics(self) -> Mapping[str, NativeMetric]:
        return {
            "step_seconds": NativeMetric("by the script, up to weight_sync: lateness of the machine is not in it", canonical="step_s"),
            "mean_reward": NativeMetric("mean reward of the step's samples", canonical="reward_mean"),
            "staleness": NativeMetric("versions published between a batch's weights and its training", sanity="staleness"),
        }
