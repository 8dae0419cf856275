"""The adapter object: environments, translation, and the processes of a TRL run."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from rlmbench.adapter import QUIET, EnvironmentSpec, Launch, NativeMetric, Process, RunInputs, Translation
from rlmbench.experiment import Experiment
from rlmbench.taxonomy import Technique
from rlmbench.workload import verifier
from rlmbench_trl.environments import ENVIRONMENTS
from rlmbench_trl.native import NATIVE_METRICS
from rlmbench_trl.techniques import TECHNIQUES
from rlmbench_trl.translate import translate

INJECT = Path(__file__).parent / "inject"
WORKER = INJECT / "rlmbench_trl_worker"

# Nothing may leave the machine during a measurement, and nothing may be fetched in the middle of one.
VLLM_CPU = {"VLLM_CPU_KVCACHE_SPACE": "1"}

RESERVED = ("output_dir", "vllm_server_host", "vllm_server_port", "vllm_group_port", "max_steps", "report_to")
"""Keys of TRL's configuration that `launch` sets, or that say what is measured."""


class TRLAdapter:
    """TRL 1.16 (GRPO, RLOO) and 1.12 (PPO)."""

    name = "trl"
    uses_ray = False

    def environments(self) -> Iterable[EnvironmentSpec]:
        return ENVIRONMENTS

    def translate(self, experiment: Experiment, device: str) -> Translation:
        return translate(experiment, device)

    def reserved_keys(self) -> Iterable[str]:
        return RESERVED

    def probe_path(self) -> Path:
        return INJECT

    def probe_module(self) -> str:
        return "rlmbench_trl_worker.hooks"

    def native_metrics(self) -> Mapping[str, NativeMetric]:
        return NATIVE_METRICS

    def techniques(self) -> Mapping[str, Technique]:
        return TECHNIQUES

    def launch(self, translation: Translation, experiment: Experiment, inputs: RunInputs) -> Launch:
        place = experiment.placement
        vllm = bool(translation.native.get("use_vllm"))
        server = vllm and place.mode == "disaggregated"
        trainer = dict(translation.native)
        env = {**QUIET, "TRL_EXPERIMENTAL_SILENCE": "1", **(VLLM_CPU if vllm and inputs.device == "cpu" else {})}
        processes = []
        if server:
            port = free_port()
            trainer.update(vllm_server_host="127.0.0.1", vllm_server_port=port, vllm_group_port=free_port())
            processes.append(self._server(experiment, inputs, port, env))
        elif vllm:
            env["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # TRL loads weights into the engine of its own process
        job = {
            "algorithm": experiment.optimization.algorithm.value,
            "trainer": trainer | {"output_dir": str(inputs.run_dir / "scratch")},
            "model_dir": str(inputs.model_dir),
            "plan": str(inputs.plan_path),
            "verifier": verifier.__file__,
            "device": inputs.device,
            "attention": experiment.model.attention,
            "rollout_dtype": experiment.model.dtype,
            "replay": experiment.workload.replay is not None,
            "strict_order": experiment.measurement.strict_order,
            "updates_per_step": experiment.updates_per_step,
            "overlong_buffer_tokens": 0 if experiment.workload.replay else experiment.optimization.overlong_buffer_tokens,
            "critic_learning_rate": experiment.optimization.critic.learning_rate if experiment.optimization.critic else None,
        }
        path = inputs.run_dir / "job.json"
        path.write_text(json.dumps(job, indent=1))
        env |= {"RLMBENCH_TRL_ALGORITHM": experiment.optimization.algorithm.value, "RLMBENCH_JOB": str(path)}
        if server and inputs.device == "cuda":
            # The server holds the first devices; the trainer sees only those after it.
            env["CUDA_VISIBLE_DEVICES"] = ",".join(str(i) for i in range(place.rollout_devices, experiment.devices))
        script = str(WORKER / "train.py")
        ranks = experiment.parallelism.data
        if ranks == 1:
            processes.append(Process("trainer", (str(inputs.python), script), env))
        else:
            torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", script)
            processes.append(Process("trainer", (str(inputs.python), *torchrun), env))
        return Launch(tuple(processes))

    def _server(self, experiment: Experiment, inputs: RunInputs, port: int, env: Mapping[str, str]) -> Process:
        """``vllm serve`` as TRL's vLLM integration asks for it (trl/generation/vllm_client.py)."""
        work = experiment.workload
        argv = [
            str(inputs.python), "-m", "vllm.entrypoints.cli.main", "serve", str(inputs.model_dir),
            "--host", "127.0.0.1", "--port", str(port),
            "--max-model-len", str(work.max_prompt_tokens + work.max_response_tokens),
            "--dtype", experiment.model.dtype, "--logprobs-mode", "processed_logprobs",
            "--tensor-parallel-size", str(experiment.parallelism.rollout_tensor),
            "--weight-transfer-config", json.dumps({"backend": "nccl"}),
            *(["--enforce-eager"] if inputs.device == "cpu" else []),
        ]  # fmt: skip
        own = {"VLLM_SERVER_DEV_MODE": "1", "RLMBENCH_JOB": ""}
        if inputs.device == "cuda":
            own["CUDA_VISIBLE_DEVICES"] = ",".join(str(i) for i in range(experiment.placement.rollout_devices))
        return Process("rollout-server", tuple(argv), {**env, **own}, ready_url=f"http://127.0.0.1:{port}/health", ready_timeout_s=600.0)


def free_port() -> int:
    """A port that nothing on this machine listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
