"""What of an experiment's translation has never been run by rlmbench's authors, in a user's words."""

from __future__ import annotations

from rlmbench.experiment import Experiment
from rlmbench_verl.engines import uses_megatron
from rlmbench_verl.placement import Trainer, trainer

# What has trained here on a CPU and passed its audit leaves this list.
TRAINERS_NOT_RUN = (Trainer.SEPARATE_ASYNC, Trainer.ONE_STEP_OFF, Trainer.FULLY_ASYNC)


def untested(experiment: Experiment, device: str) -> tuple[str, ...]:
    """One line for each part that is translated, checked against verl's own configuration, and not run."""
    place, split, opt = experiment.placement, experiment.parallelism, experiment.optimization
    chosen = trainer(experiment)
    parts = {
        "verl on a GPU": device == "cuda",
        "Megatron (its packages are not in rlmbench's environment)": uses_megatron(experiment),
        "Ulysses sequence parallelism": split.context > 1 and not uses_megatron(experiment),
        "SGLang (not in rlmbench's environment)": place.rollout_engine == "sglang",
        f"verl's {chosen} trainer": chosen in TRAINERS_NOT_RUN,
        f"the {opt.lr_schedule} learning-rate schedule": opt.lr_schedule != "constant",
    }
    return tuple(f"{part}: translated, not run" for part, present in parts.items() if present)
