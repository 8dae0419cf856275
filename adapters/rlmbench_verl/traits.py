"""What verl does by itself, for comparisons with other frameworks (`rlmbench.adapter.Translation.traits`).

Sources: ``verl/trainer/ppo/core_algos.py``, ``verl/trainer/ppo/v1/trainer_base.py`` (old log-probs, order, replay buffer),
``verl/workers/engine/fsdp/transformer_impl.py`` (padding) and ``verl/utils/torch_functional.py`` (whitening) of verl 0.9.1.
"""

from __future__ import annotations

from rlmbench.experiment import Algorithm, Experiment
from rlmbench_verl.engines import is_packed, uses_megatron
from rlmbench_verl.placement import BYPASSING, V1, trainer


def traits(experiment: Experiment) -> dict[str, str]:
    """Name -> how. What is not known of a trainer that was not run is left out."""
    opt, chosen = experiment.optimization, trainer(experiment)
    engine = experiment.placement.rollout_engine
    found = {
        "rollout_engine": "vllm" if engine == "auto" else engine,
        "old_logprob": "the rollout engine's own" if chosen in BYPASSING else "a forward of their own",
        "reference_logprob": "a forward" if opt.kl.coefficient else "none",
        "rollout_correction": "none",
        "dual_clip": "none",  # moved out of reach, see translate.DUAL_CLIP_OFF
        "gradient_clipping": "by norm",
        "training_engine": "Megatron" if uses_megatron(experiment) else "FSDP2",
        "process_model": "Ray actors: driver, workers, rollout servers",
    }
    if not uses_megatron(experiment):
        found["padding"] = "none: packed" if is_packed(experiment) else "to the longest of a micro-batch"
    if opt.policy_loss == "clip":
        found["log_ratio_clamp"] = "+-20" if opt.importance_sampling == "token" else "+10"
    if chosen in V1:
        found["sample_order"] = "plan order" if experiment.measurement.strict_order else "sorted by length"
        found["rollout_poll"] = "every 10 ms" if experiment.placement.fast_rollout_poll else "every 2 s"
    if opt.kl.coefficient and opt.kl.estimator == "k3":
        found["kl_clamp"] = "+-10"
    if opt.algorithm is Algorithm.GRPO and opt.advantage_scaling == "group":
        found["advantage_epsilon"] = "1e-6"
    elif opt.algorithm in (Algorithm.PPO, Algorithm.REINFORCE_PP):
        found["advantage_epsilon"] = "1e-8, added to the variance"
    if opt.critic:
        found["critic_update"] = "separate from the policy"
        found["critic_tokens"] = "as many as the response"
    return found
