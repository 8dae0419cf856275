"""The virtual environments TRL needs: one per release, generation engine and device, each from the lock files beside this module.

PPO left TRL after 1.12, so it has an environment of its own. vLLM brings its own transformers, so generation by
transformers does not share an environment with it.
"""

from __future__ import annotations

from pathlib import Path

from rlmbench.adapter import EnvironmentSpec

_HERE = Path(__file__).parent
_COMMON = ("torch", "transformers", "accelerate", "datasets", "transformers.models.qwen3.modeling_qwen3")
_TRL_1_16 = (*_COMMON, "trl.trainer.grpo_trainer", "trl.trainer.rloo_trainer")
# What vLLM imports in its engine process, where it knows the device; without a GPU its CUDA worker cannot be imported.
_VLLM = {
    "cpu": ("vllm.entrypoints.llm", "vllm.v1.engine.core", "vllm.v1.worker.cpu_worker", "vllm.model_executor.models.qwen3"),
    "cuda": ("vllm.entrypoints.llm", "vllm.v1.engine.core"),
}


def _spec(name: str, device: str, summary: str, check_imports: tuple[str, ...], trl: str) -> EnvironmentSpec:
    return EnvironmentSpec(
        name=name,
        device=device,
        lock_dir=_HERE / f"{name}-{device}",
        summary=summary,
        check_imports=check_imports,
        versions={"trl": trl, "torch": "2.13.0"},
    )


ENVIRONMENTS: tuple[EnvironmentSpec, ...] = tuple(
    spec
    for device in ("cpu", "cuda")
    for spec in (
        _spec("trl", device, "TRL 1.16.0: GRPO and RLOO, generation by transformers", _TRL_1_16, "1.16.0"),
        _spec("trl-ppo", device, "TRL 1.12.0: the last release with PPO", (*_COMMON, "trl.experimental.ppo"), "1.12.0"),
        _spec("trl-vllm", device, "TRL 1.16.0: GRPO and RLOO, generation by vLLM", (*_TRL_1_16, *_VLLM[device]), "1.16.0"),
    )
)
