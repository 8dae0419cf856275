"""The environments OpenRLHF needs, each from the lock files beside this module."""

from __future__ import annotations

from pathlib import Path

from rlmbench.adapter import EnvironmentSpec

VERSION = "0.11.2"
"""The release that this adapter translates for: OpenRLHF renames flags from one release to the next."""

_HERE = Path(__file__).parent
# Its trainer's modules cannot be imported before flash_attn is there or stubbed, which is the adapter's work in the run.
_IMPORTS = ("torch", "transformers", "ray", "deepspeed", "vllm", "openrlhf.utils.agent", "openrlhf.datasets")

ENVIRONMENTS: tuple[EnvironmentSpec, ...] = (
    EnvironmentSpec(
        name="openrlhf",
        device="cpu",
        lock_dir=_HERE / "openrlhf-cpu",
        summary=f"OpenRLHF {VERSION} with vLLM for CPUs",
        check_imports=_IMPORTS,
        versions={"openrlhf": VERSION, "torch": "2.13.0"},
    ),
    EnvironmentSpec(
        name="openrlhf",
        device="cuda",
        lock_dir=_HERE / "openrlhf-cuda",
        summary=f"OpenRLHF {VERSION} with vLLM",
        check_imports=_IMPORTS,
        versions={"openrlhf": VERSION},
    ),
)
