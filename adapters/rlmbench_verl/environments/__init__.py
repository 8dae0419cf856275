"""The environments verl needs, each from the lock files beside this module."""

from __future__ import annotations

from pathlib import Path

from rlmbench.adapter import EnvironmentSpec

_HERE = Path(__file__).parent
_IMPORTS = ("torch", "transformers", "ray", "transfer_queue", "vllm", "verl.trainer.main_ppo", "verl.trainer.ppo.v1")

ENVIRONMENTS: tuple[EnvironmentSpec, ...] = (
    EnvironmentSpec(
        name="verl",
        device="cpu",
        lock_dir=_HERE / "verl-cpu",
        summary="verl 0.9.1 with vLLM for CPUs",
        check_imports=_IMPORTS,
        versions={"verl": "0.9.1", "torch": "2.13.0"},
    ),
    EnvironmentSpec(
        name="verl",
        device="cuda",
        lock_dir=_HERE / "verl-cuda",
        summary="verl 0.9.1 with vLLM",
        check_imports=_IMPORTS,
        versions={"verl": "0.9.1"},
    ),
)
