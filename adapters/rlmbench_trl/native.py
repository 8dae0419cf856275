"""What TRL logs of itself, and which of rlmbench's figures it belongs beside.

Canonical names are those of `rlmbench.metrics.native`; sources are the framework's own files.
"""

from rlmbench.adapter import NativeMetric

NATIVE_METRICS = {
    "step_time": NativeMetric(
        "seconds in the training_step calls of one optimizer step: generation falls into the first; no optimizer, no data, no logging",
        "update_s",
    ),
    "train_samples_per_second": NativeMetric(
        "over the whole training loop, warm-up and checkpoints included; a sample counts once per epoch", "samples_per_s"
    ),
    "train_steps_per_second": NativeMetric(
        "optimizer steps over the whole training loop, warm-up and checkpoints included", "updates_per_s"
    ),
    "num_tokens": NativeMetric("prompt and response tokens generated so far (cumulative)"),
    "reward": NativeMetric("mean reward: mean of the means per logged batch", "reward_mean"),
    "kl": NativeMetric("mean KL to the reference model", sanity="kl"),
    "objective/kl": NativeMetric("mean KL to the reference model (PPO)", sanity="kl"),
    "grad_norm": NativeMetric("gradient norm before clipping", sanity="grad_norm"),
    "clip_ratio/region_mean": NativeMetric("share of clipped ratios", sanity="clip_fraction"),
    "policy/clipfrac_avg": NativeMetric("share of clipped ratios (PPO)", sanity="clip_fraction"),
    "clip_ratio": NativeMetric("share of clipped ratios (older versions)", sanity="clip_fraction"),
    "entropy": NativeMetric("mean token entropy", sanity="entropy"),
    "policy/entropy_avg": NativeMetric("mean token entropy (PPO)", sanity="entropy"),
    "completions/mean_length": NativeMetric(
        "mean response length, before masks: mean of the means per logged batch", "response_tokens_mean"
    ),
    "sampling/sampling_logp_difference/mean": NativeMetric(
        "mean difference of rollout and training log-probs (vLLM)", sanity="logprob_difference"
    ),
    "eps": NativeMetric("episodes per second since the start of training (PPO)"),
    "objective/scores": NativeMetric("mean reward (PPO)"),
}
