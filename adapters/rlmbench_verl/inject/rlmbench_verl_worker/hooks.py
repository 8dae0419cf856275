"""verl's patch points (0.9.1): the trainer that drives the loop in a Ray actor, FSDP engines, agent loops, vLLM engines.

``verl/trainer/ppo/v1/trainer_base.py``, ``trainer_sync.py`` and ``trainer_colocate_async.py`` (driver; V0's is in `legacy`),
``verl/workers/engine/fsdp/transformer_impl.py``, ``verl/workers/engine_workers.py`` and ``verl/workers/utils/losses.py``
(training workers), ``verl/experimental/agent_loop`` and ``reward_loop`` (rollout and reward workers),
``verl/utils/tracking.py`` (verl's own figures). This module is read before verl is imported, so it imports nothing of it.
"""

import os
import sys
import time

from rlmbench_plan import prompt_hash
from rlmbench_probe import AsyncHook, Hook, logprobs, recorder, weights
from rlmbench_probe.engines import vllm_engine_hooks
from rlmbench_probe.recorder import FLUSH_S
from rlmbench_shims import vllm_cpu

from rlmbench_verl_worker import legacy, strict
from rlmbench_verl_worker.containers import rows_of_prompts

TRAINER = "verl.trainer.ppo.v1.trainer_base:PPOTrainer."
ENGINE = "verl.workers.engine.fsdp.transformer_impl:FSDPEngine."


def role():
    """Ray starts every process alike; what it turns out to be it says itself (`lead`, `become`)."""
    argv = getattr(sys, "orig_argv", sys.argv)
    return "launcher" if any(word.startswith("verl.") for word in argv) else "worker"


def hooks():
    if os.environ.get("RLMBENCH_DEVICE") == "cpu":
        vllm_cpu.install()
    if os.environ.get("RLMBENCH_VERL_TRAINER") == "v0":
        driver = [log_hook(), *legacy.hooks(facts, batch_rewards, awaits_rollouts, end_steps)]
    else:
        driver = driver_hooks()
        if os.environ.get("RLMBENCH_STRICT_ORDER"):
            strict.install()
    return [*startup_hooks(), *driver, *worker_hooks(), *rollout_hooks(), *vllm_engine_hooks()]


now = time.monotonic_ns


# -- the driver


def startup_hooks():
    return [
        Hook("ray._private.worker:init", "startup", name="ray_init", optional=True),
        Hook("transfer_queue:init", startup_only, name="start_transfer_queue", optional=True),
        Hook("verl.single_controller.ray.base:RayWorkerGroup.__init__", "startup", name="start_workers"),
        Hook("verl.single_controller.ray.base:RayWorkerGroup.execute_all_sync", startup_only, name="initialize_workers", optional=True),
        Hook("verl.workers.rollout.llm_server:LLMServerManager.create", "startup", name="start_rollout_engine", optional=True),
    ]


def startup_only(args, kwargs):
    return "startup" if recorder.step == 0 else None


def driver_hooks():
    modes = (
        "verl.trainer.ppo.v1.trainer_sync:PPOTrainerSync.",
        "verl.trainer.ppo.v1.trainer_colocate_async:PPOTrainerColocateAsync.",
    )
    return [
        Hook(TRAINER + "init", "startup", name="trainer_init", before=lead),
        Hook(TRAINER + "_init_dataloader", "startup", name="dataloader"),
        *(Hook(mode + "on_init_end", "startup", name="first_weight_sync") for mode in modes),
        Hook(TRAINER + "fit", before=facts, after=end_steps),
        Hook(TRAINER + "on_step_begin", before=lambda args, kwargs: recorder.next_step()),
        Hook(TRAINER + "prepare_step", "data"),
        Hook(TRAINER + "_fetch_one_gen_batch", "data", after=name_prompts),
        Hook("verl.trainer.ppo.v1.replay_buffer:ReplayBuffer.sample", "generation", fields=awaits_rollouts),
        Hook("verl.trainer.ppo.v1.replay_buffer:ReplayBufferAsync.sample", "generation", fields=awaits_rollouts),
        *(Hook(mode + "on_sample_end", "offload") for mode in modes),
        *(Hook(mode + "on_step_end", "weight_sync") for mode in modes),
        Hook(TRAINER + "_compute_reward_colocate", "reward"),
        Hook(TRAINER + "_balance_batch", "data"),
        Hook(TRAINER + "_compute_old_log_prob", "old_logprob"),
        Hook(TRAINER + "_compute_ref_log_prob", "reference_logprob"),
        Hook(TRAINER + "_compute_values", "values"),
        Hook(TRAINER + "_compute_advantage", "advantage"),
        Hook("verl.trainer.ppo.v1.trainer_base:compute_advantage_for_multi_trajectories", "advantage", before=rewards),
        Hook(TRAINER + "_update_critic", "critic_update"),
        Hook(TRAINER + "_update_actor", "actor_update"),
        Hook(TRAINER + "_save_checkpoint", "checkpoint"),
        Hook(TRAINER + "_validate", "validation"),
        Hook(TRAINER + "_compute_metrics", "bookkeeping"),
        log_hook(),
        Hook("transfer_queue:kv_clear", clear_stage, name="kv_clear", optional=True),
    ]


def log_hook():
    return Hook("verl.utils.tracking:Tracking.log", "bookkeeping", name="log", before=native_metrics)


def end_steps(args, kwargs, result):
    """Ray kills its workers when the trainer ends: give them the time to write what they recorded last."""
    recorder.end_steps()
    time.sleep(4 * FLUSH_S)


def clear_stage(args, kwargs):
    return "bookkeeping" if recorder.role == "driver" and recorder.step else None


def awaits_rollouts(args, kwargs, result):
    """The driver only waits for samples here; rollout workers generate them, and reward workers score them meanwhile."""
    return {"awaits": "generation reward"}


def lead(args, kwargs):
    recorder.lead()


_rows = {}  # uid of a prompt, which verl draws anew each step -> row of the plan


def name_prompts(args, kwargs, result):
    _rows.update(rows_of_prompts(result))


def rewards(args, kwargs):
    """Rewards as they enter the advantage: one a key of the form uid_session_index."""
    data, keys = args[0], kwargs["batch_keys"]
    values = data.batch["token_level_scores"].sum(-1).tolist()
    rows = []
    for key, value in zip(keys, values):
        uid, session = str(key).split("_")[:2]
        rows.append([_rows.get(uid), int(session), value])
    recorder.event("reward", step=recorder.step, t_ns=now(), rows=rows)
    compare_logprobs(data.batch)


def batch_rewards(args, kwargs):
    """V0's: a whole padded batch, which tells a sample's prompt but not which of the prompt's samples it is."""
    data = args[0]
    values = data.batch["token_level_scores"].sum(-1).tolist()
    rows = [[int(info["row"]), None, value] for info, value in zip(data.non_tensor_batch["extra_info"], values)]
    recorder.event("reward", step=recorder.step, t_ns=now(), rows=rows)
    compare_logprobs(data.batch)


def compare_logprobs(batch):
    """verl hands the rollout engine's log-probs as far as the driver's advantage; V0 only where it recomputes the old ones."""
    if "rollout_log_probs" in batch and "old_log_probs" in batch:
        logprobs.compare(batch["old_log_probs"], batch["rollout_log_probs"], batch["response_mask"], recorder.step)


def native_metrics(args, kwargs):
    data = kwargs.get("data") if "data" in kwargs else args[1]
    values = {key: float(value) for key, value in data.items() if isinstance(value, int | float) or hasattr(value, "item")}
    recorder.event("native", step=recorder.step, t_ns=now(), values=values)


def facts(args, kwargs):
    trainer = args[0]
    recorder.event("fact", name="trainer_class", value=type(trainer).__name__)
    recorder.event("fact", name="training_devices", value=trainer.resource_pool_manager.get_n_gpus())


# -- training workers


def worker_hooks():
    losses = "verl.workers.utils.losses:"
    return [
        Hook(ENGINE + "initialize", "startup", name="engine_initialize", after=engine_facts),
        Hook(ENGINE + "forward_backward_batch", batch_stage, fields=batch_fields),
        Hook(ENGINE + "optimizer_step", optimizer_stage, before=before_update, after=after_update),
        Hook(losses + "ppo_loss", before=loss),
        AsyncHook("verl.workers.rollout.vllm_rollout.vllm_rollout:ServerAdapter.update_weights", "weight_sync", name="send_weights"),
    ]


def engine_facts(args, kwargs, result):
    import torch

    engine = args[0]
    rank, world = 0, 1
    if torch.distributed.is_initialized():
        rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    recorder.become("trainer", rank)
    if engine.engine_config.forward_only:
        return
    parameter = next(engine.module.parameters())
    recorder.event("fact", name="world_size", value=world)
    recorder.event("fact", name="weights_dtype", value=str(parameter.dtype).removeprefix("torch."))
    recorder.event("fact", name="model_wrapper", value=type(engine.module).__name__)


def is_critic(engine):
    return "ValueHead" in type(engine).__name__


def batch_stage(args, kwargs):
    engine = args[0]
    forward_only = kwargs["forward_only"] if "forward_only" in kwargs else (args[3] if len(args) > 3 else False)
    if forward_only:
        if is_critic(engine):
            return "values"
        return "reference_logprob" if engine.engine_config.forward_only else "old_logprob"
    return "critic_update" if is_critic(engine) else "actor_update"


def batch_fields(args, kwargs, result):
    """`data` is a batch of nested tensors: what is valid, and what it computes if every sample is padded to the longest."""
    ids = args[1]["input_ids"]
    lengths = [int(row.numel()) for row in (ids.unbind() if ids.is_nested else ids)]
    return {"samples": len(lengths), "valid_tokens": sum(lengths)}


def optimizer_stage(args, kwargs):
    return ("critic_update" if is_critic(args[0]) else "actor_update"), "optimizer"


def before_update(args, kwargs):
    weights.look_before(args[0].optimizer)


def after_update(args, kwargs, result):
    engine, optimizer = args[0], args[0].optimizer
    recorder.update += 1
    recorder.event(
        "update", step=0, update=recorder.update, t_ns=now(), role="critic" if is_critic(engine) else "actor",
        learning_rate=float(optimizer.param_groups[0]["lr"]), grad_norm=float(result) if result is not None else None,
        weights_changed=weights.changed(optimizer),
    )  # fmt: skip


def loss(args, kwargs):
    """One micro-batch as the policy's loss receives it; which step it belongs to follows from the time."""
    data = kwargs["data"] if "data" in kwargs else args[2]
    masks, ids = rows_of(data["response_mask"]), rows_of(data["input_ids"])
    kept = [int(mask.sum()) for mask in masks]
    batch = [(prompt.tolist(), response) for prompt, response in zip(prompts_of(data["prompts"], ids, kept), kept)]
    widest = max(int(row.numel()) for row in ids)
    event = {"ev": "loss", "step": 0, "update": recorder.update + 1, "t_ns": now(), "computed_tokens": len(batch) * widest}
    recorder.later(lambda: {**event, "rows": [[None, None, prompt_hash(prompt), len(prompt), response] for prompt, response in batch]})


def prompts_of(prompts, ids, responses):
    """V0 pads them on the left; its ids hold no padding, and end with the response."""
    return rows_of(prompts) if prompts.is_nested else [row[: row.numel() - length] for row, length in zip(ids, responses)]


def rows_of(tensor):
    return list(tensor.unbind()) if tensor.is_nested else list(tensor)


# -- rollout: agent loops, rewards, and vLLM's processes


def rollout_hooks():
    # Never a method of a class that is made a Ray actor: Ray would have to pickle our wrapper.
    engine_worker = "vllm.v1.worker.gpu_worker:Worker."
    reward_loop = "verl.experimental.reward_loop."
    return [
        AsyncHook("verl.experimental.agent_loop.single_turn_agent_loop:SingleTurnAgentLoop.run", "generation", name="sample"),
        Hook(reward_loop + "reward_loop:load_reward_manager", name="reward_worker", before=lambda *_: recorder.become("reward")),
        AsyncHook(reward_loop + "reward_manager.naive:NaiveRewardManager.run_single", "reward", name="score"),
        AsyncHook(reward_loop + "reward_manager.dapo:DAPORewardManager.run_single", "reward", name="score"),
        Hook("vllm.v1.engine.core:EngineCore.__init__", name="engine_core", before=lambda *_: recorder.become("engine")),
        Hook(engine_worker + "load_model", name="engine_worker", before=lambda args, kwargs: recorder.become("engine rank", args[0].rank)),
        Hook(engine_worker + "execute_model", "generation", "decode", name="engine_forward"),
        Hook(engine_worker + "sample_tokens", "generation", "decode", name="engine_sample", optional=True),
        Hook(
            "verl.workers.rollout.vllm_rollout.utils:vLLMColocateWorkerExtension.update_weights_from_ipc",
            "weight_sync", name="engine_receive_weights",
        ),
    ]  # fmt: skip
