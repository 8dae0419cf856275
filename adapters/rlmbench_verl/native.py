"""What verl logs of itself, and which of rlmbench's figures it belongs beside.

Canonical names are those of `rlmbench.metrics.native`; sources are the framework's own files.
"""

from rlmbench.adapter import NativeMetric

NATIVE_METRICS = {
    "timing_s/step": NativeMetric(
        "driver seconds of a step, without validation and what lies between its timers: metrics, logging", "step_s"
    ),
    "timing_s/gen": NativeMetric(
        "driver seconds until the samples are there: generation and reward, the wait for the replay buffer's next poll, and offloading",
        "rollout_s",
    ),
    "timing_s/old_log_prob": NativeMetric("driver seconds for the policy's log-probs", "old_logprob_s"),
    "timing_s/ref": NativeMetric("driver seconds for the reference's log-probs", "reference_logprob_s"),
    "timing_s/values": NativeMetric("driver seconds for the critic's values", "values_s"),
    "timing_s/adv": NativeMetric("driver seconds for advantages", "advantage_s"),
    "timing_s/update_actor": NativeMetric("driver seconds of the policy's update", "actor_update_s"),
    "timing_s/update_critic": NativeMetric("driver seconds of the critic's update", "critic_update_s"),
    "timing_s/update_weights": NativeMetric("driver seconds until the rollout engine has the new weights", "weight_sync_s"),
    "perf/throughput": NativeMetric(
        "prompt and response tokens per device and second of timing_s/step; mean of the steps' rates", "step_tokens_per_s_per_device"
    ),
    "perf/mfu/actor": NativeMetric(
        "mean over mini-batches; the embedding counts as a product; over the peak of verl's own table: 448 GFLOP/s for any CPU, infinite for a "
        "device that it does not know, where this reads 0",
        "actor_update_mfu",
    ),
    "perf/total_num_tokens": NativeMetric("prompt and response tokens of the step"),
    "perf/time_per_step": NativeMetric("timing_s/step"),
    "critic/rewards/mean": NativeMetric("mean reward after any KL penalty"),
    "critic/score/mean": NativeMetric("mean reward: mean of the steps' means", "reward_mean"),
    "actor/kl_loss": NativeMetric("mean KL to the reference model", sanity="kl"),
    "actor/grad_norm": NativeMetric("gradient norm before clipping", sanity="grad_norm"),
    "actor/pg_clipfrac": NativeMetric("share of clipped ratios", sanity="clip_fraction"),
    "actor/entropy": NativeMetric("mean token entropy", sanity="entropy"),
    "response_length/mean": NativeMetric("mean response length: mean of the steps' means", "response_tokens_mean"),
    "training/rollout_probs_diff_mean": NativeMetric("mean difference of rollout and training probabilities", sanity="logprob_difference"),
    "training/off_policy/trajectory_staleness/mean": NativeMetric(
        "weight updates between a sample's newest weights and the policy that trains on it", sanity="staleness"
    ),
    "training/off_policy/trajectory_staleness/max": NativeMetric("the most of any sample"),
    "training/off_policy/trajectory_staleness_worst/max": NativeMetric("the most of any sample, from its oldest weights"),
}
