"""What OpenRLHF does by itself, for comparisons with other frameworks (`rlmbench.adapter.Translation.traits`).

Sources: ``openrlhf/models/loss.py`` (clamps), ``openrlhf/models/utils.py`` (KL), ``trainer/ppo_utils/experience_maker.py``
(advantages), ``trainer/ray/ppo_actor.py`` (order), ``trainer/ray/vllm_engine.py`` (dtype) of OpenRLHF 0.11.2.
"""

from __future__ import annotations

from rlmbench.experiment import Algorithm, Experiment


def own_critic_devices(experiment: Experiment) -> bool:
    """Whether the critic shares no device: ``train_ppo_ray.py`` drops the placement group of actor and reference before it makes the critic,
    but for ``--train.colocate_all``, which is what co-located and asynchronous runs have."""
    return experiment.placement.mode == "disaggregated" and experiment.optimization.critic is not None


def traits(experiment: Experiment) -> dict[str, str]:
    """Name -> how."""
    opt = experiment.optimization
    found = {
        "rollout_engine": "vllm",
        "old_logprob": "a forward of their own",
        "reference_logprob": "a forward" if opt.kl.coefficient else "none",
        "rollout_correction": "none",
        "rollout_dtype": "bfloat16",
        "dual_clip": "none",
        "gradient_clipping": "by norm",
        "padding": "none: packed" if experiment.model.attention == "flash_attention_2" else "to the longest of a micro-batch",
        "rollout_poll": "none",
        "sample_order": "plan order" if experiment.measurement.strict_order else "as rollouts end, then shuffled",
        "training_engine": "DeepSpeed ZeRO",
        "process_model": "Ray actors: driver, one for each model and rank, rollout engines",
    }
    if opt.importance_sampling == "token":
        found["log_ratio_clamp"] = "+-20"
    if opt.kl.coefficient:
        found["kl_clamp"] = "+-10"
    if opt.algorithm is Algorithm.GRPO and opt.advantage_scaling == "group":
        found["advantage_epsilon"] = "1e-9"
    elif opt.algorithm in (Algorithm.PPO, Algorithm.REINFORCE_PP):
        found["advantage_epsilon"] = "1e-8, the least variance"
    if opt.critic:
        found["critic_update"] = "separate from the policy"
        found["critic_tokens"] = "as many as the response"
        if own_critic_devices(experiment):
            found["critic_devices"] = "its own, as many as the actor's"
    return found
