"""What of an experiment's translation has never been run by rlmbench's authors, in a user's words."""

from __future__ import annotations

from rlmbench.experiment import Experiment

# What has trained here on a CPU and passed its audit leaves this list (docs/frameworks/openrlhf.md).


def untested(experiment: Experiment, device: str) -> tuple[str, ...]:
    """One line for each part that is translated, checked against OpenRLHF's own argument parser, and not run."""
    place, split, opt = experiment.placement, experiment.parallelism, experiment.optimization
    parts = {
        "OpenRLHF on a GPU (NCCL and CUDA-IPC weight sync, sleep that frees memory)": device == "cuda",
        "packed samples (flash-attn is not in rlmbench's environment)": experiment.model.attention == "flash_attention_2",
        "ring attention": split.context > 1,
        "AutoTP": split.tensor > 1,
        "a rollout engine over several devices": split.rollout_tensor > 1,
        f"several ranks with sharding {split.sharding}": split.data > 1 and split.sharding not in ("zero2", "zero3"),
        "asynchronous training of a critic": opt.critic is not None and place.mode == "async",
        "REINFORCE++ without scaling": opt.algorithm == "reinforce_pp" and opt.advantage_scaling == "none",
    }
    return tuple(f"{part}: translated, not run" for part, present in parts.items() if present)
