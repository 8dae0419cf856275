"""What TRL does by itself, for comparisons with other frameworks (`rlmbench.adapter.Translation.traits`).

Sources: ``trl/trainer/grpo_trainer.py`` and ``rloo_trainer.py`` of TRL 1.16.0, ``trl/experimental/ppo/ppo_trainer.py`` of TRL 1.12.0.
"""

from __future__ import annotations

from rlmbench.experiment import Algorithm, Experiment


def traits(experiment: Experiment, engine: str) -> dict[str, str]:
    """Name -> how, for generation by `engine` ("hf" or "vllm")."""
    opt = experiment.optimization
    is_ppo = opt.algorithm is Algorithm.PPO
    found = {
        "rollout_engine": engine,
        "old_logprob": "a forward of their own",
        "padding": "to the longest of the step's samples",
        "rollout_correction": "truncated importance weights" if engine == "vllm" else "none",
        "dual_clip": "none",
        "log_ratio_clamp": "none",
        "sample_order": "plan order" if experiment.measurement.strict_order else "shuffled within the step",
        "training_engine": "accelerate",
        "rollout_poll": "none",
        "process_model": "one process a rank, which also generates" if experiment.placement.mode == "colocated" else "ranks, and a server",
    }
    if is_ppo:
        found["old_logprob"] = "from the logits of the generation"
        found["critic_update"] = "joint with the policy: one loss, one optimizer step"
        found["critic_tokens"] = "one more than the response"
        found["gradient_clipping"] = "none"
        found["reference_logprob"] = "a forward"
        found["advantage_epsilon"] = "1e-8, added to the variance"
        return found
    found["gradient_clipping"] = "by norm"
    found["reference_logprob"] = "a forward" if opt.kl.coefficient else "none"
    if opt.kl.coefficient:
        found["kl_clamp"] = "none"
    if opt.advantage_scaling != "none":
        found["advantage_epsilon"] = "1e-4"
    aligned = opt.mini_batch_samples == experiment.samples_per_step and opt.epochs == 1
    if opt.algorithm is Algorithm.GRPO and aligned and engine == "hf":
        found["old_logprob"] = "from the training forward: one update a step needs no other"
    return found
