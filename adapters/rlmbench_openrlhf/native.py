"""What OpenRLHF logs of itself, and which of rlmbench's figures it belongs beside.

Canonical names are those of `rlmbench.metrics.native`; sources are the framework's own files.
"""

from rlmbench.adapter import NativeMetric

NATIVE_METRICS = {
    "timing/step_total": NativeMetric(
        "synchronous: the sum of the other timers, without hand-over and logging; asynchronous: driver seconds from step to step", "step_s"
    ),
    "timing/generation": NativeMetric(
        "driver seconds from the request for prompts until all samples are there, rewards included; asynchronous: beside training",
        "generation_s",
    ),
    "timing/make_experience": NativeMetric("driver seconds for log-probs, values and advantages"),
    "timing/ppo_train": NativeMetric(
        "driver seconds until the updates of actor and critic are done, sleeping and waking included", "training_s"
    ),
    "timing/broadcast": NativeMetric(
        "driver seconds until the rollout engine has the new weights; asynchronous: waiting for generation included", "weight_sync_s"
    ),
    "rollout/reward_mean": NativeMetric("mean reward after length penalties: mean of the steps' means", "reward_mean"),
    "rollout/response_length_mean": NativeMetric("mean response length: mean of the steps' means", "response_tokens_mean"),
    "rollout/num_samples": NativeMetric("samples of the step"),
    "actor_grad_norm": NativeMetric("gradient norm of the last update, before clipping", sanity="grad_norm"),
    "policy_loss": NativeMetric("policy loss, weighted by tokens over the step's micro-batches"),
    "kl": NativeMetric("KL to the reference model", sanity="kl"),
    "ppo_clip_ratio": NativeMetric("share of clipped ratios", sanity="clip_fraction"),
    "actor_lr": NativeMetric("learning rate after the step's last update"),
}
