"""What of an experiment's translation has never been run by rlmbench's authors, in a user's words."""

from __future__ import annotations

from rlmbench.experiment import Algorithm, Experiment

# What has trained here on a CPU and passed its audit leaves these lists.
ALGORITHMS_NOT_RUN = (Algorithm.RLOO, Algorithm.REINFORCE_PP)
MODES_NOT_RUN = ("disaggregated", "async")


def untested(experiment: Experiment, device: str) -> tuple[str, ...]:
    """One line for each part that is translated, checked against OpenRLHF's own argument parser, and not run."""
    place, split, opt = experiment.placement, experiment.parallelism, experiment.optimization
    parts = {
        "OpenRLHF on a GPU (NCCL and CUDA-IPC weight sync, sleep that frees memory)": device == "cuda",
        "packed samples (flash-attn is not in rlmbench's environment)": experiment.model.attention == "flash_attention_2",
        "ring attention": split.context > 1,
        "AutoTP": split.tensor > 1,
        "a rollout engine over several devices": split.rollout_tensor > 1,
        "several ranks": split.data > 1,
        f"the algorithm {opt.algorithm}": opt.algorithm in ALGORITHMS_NOT_RUN,
        f"advantages scaled by {opt.advantage_scaling}": opt.algorithm is Algorithm.GRPO and opt.advantage_scaling != "group",
        f"the placement {place.mode}": place.mode in MODES_NOT_RUN,
        "sequence-level importance sampling (gspo)": opt.importance_sampling == "sequence",
        "a natural workload": experiment.workload.replay is None,
        "the overlong penalty": bool(opt.overlong_buffer_tokens) and experiment.workload.replay is None,
        "a KL term in the reward": opt.critic is None and bool(opt.kl.coefficient) and opt.kl.placement == "reward",
        f"the {opt.lr_schedule} learning-rate schedule": opt.lr_schedule != "constant",
        "warm-up of the learning rate": bool(opt.warmup_steps),
    }
    return tuple(f"{part}: translated, not run" for part, present in parts.items() if present)
