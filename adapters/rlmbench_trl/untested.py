"""What of an experiment's translation has never been run by rlmbench's authors, in a user's words."""

from __future__ import annotations

from rlmbench.experiment import Experiment

# What has trained here on a CPU and passed its audit leaves this list (docs/frameworks/trl.md).


def untested(experiment: Experiment, device: str) -> tuple[str, ...]:
    """One line for each part that is translated, accepted by TRL's own configuration classes, and not run."""
    split = experiment.parallelism
    parts = {
        "TRL on a GPU": device == "cuda",
        f"FSDP ({split.sharding})": split.sharding != "none",
        "a rollout engine over several devices": split.rollout_tensor > 1,
    }
    return tuple(f"{part}: translated, not run" for part, present in parts.items() if present)
