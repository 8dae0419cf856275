"""Patch points of verl's V0 trainer (0.9.1): ``verl/trainer/ppo/ray_trainer.py``, `RayPPOTrainer.fit`.

V0 runs one long loop body. Its methods are spans, and `Gap` names the inline code between them: from the last span's end.
A step begins at `_start_profiling`, the loop body's first call.
"""

from rlmbench_probe import Gap, Hook, recorder

MODULE = "verl.trainer.ppo.ray_trainer:"
TRAINER = MODULE + "RayPPOTrainer."
MANAGER = "verl.checkpoint_engine.base:CheckpointEngineManager."
GENERATE = "verl.experimental.agent_loop.agent_loop:AgentLoopManager.generate_sequences"


def lead(args, kwargs):
    recorder.lead()


def from_first_step(stage):
    """What comes before the first step is part of the start."""
    return lambda args, kwargs: stage if recorder.step else "startup"


def hooks(facts, rewards, awaits_rollouts, end_steps):
    """The hooks, with what V1's driver uses as well."""
    return [
        Hook(TRAINER + "init_workers", "startup", name="trainer_init", before=lead),
        Hook(TRAINER + "fit", before=facts, after=end_steps),
        Hook(TRAINER + "_start_profiling", "bookkeeping", before=lambda args, kwargs: recorder.next_step()),
        Gap(TRAINER + "_start_profiling", "data", name="next_batch"),  # outside the hook above, so it ends the step before
        Hook(GENERATE, "generation", fields=awaits_rollouts),
        Gap(GENERATE, "data", name="make_batch"),
        Hook(MANAGER + "sleep_replicas", from_first_step("offload")),
        Hook(MANAGER + "update_weights", from_first_step("weight_sync")),
        Hook(TRAINER + "_balance_batch", "data"),
        Gap(TRAINER + "_balance_batch", "data", name="join_batch"),
        Hook(MODULE + "extract_reward", "reward"),
        Gap(MODULE + "extract_reward", "data", name="count_tokens"),
        Hook(TRAINER + "_compute_old_log_prob", "old_logprob"),
        Hook(TRAINER + "_compute_ref_log_prob", "reference_logprob"),
        Gap(TRAINER + "_compute_ref_log_prob", "bookkeeping", name="entropy"),
        Hook(TRAINER + "_compute_values", "values"),
        Hook(MODULE + "compute_advantage", "advantage", before=rewards),
        Gap(MODULE + "compute_advantage", "advantage", name="scores"),
        Hook(TRAINER + "_update_critic", "critic_update"),
        Hook(TRAINER + "_update_actor", "actor_update"),
        Hook(TRAINER + "_save_checkpoint", "checkpoint"),
        Hook(TRAINER + "_validate", "validation"),
        Gap("verl.utils.tracking:Tracking.log", "bookkeeping", name="metrics"),
    ]
