"""TRL's patch points: which function is which stage, and what is counted there.

TRL 1.16.0: ``trl/trainer/grpo_trainer.py``, ``rloo_trainer.py``, ``trl/generation/vllm_generation.py``;
TRL 1.12.0: ``trl/experimental/ppo/ppo_trainer.py``; ``transformers/trainer.py`` 5.24; accelerate 1.15.
This module is read before the framework is imported, so it imports nothing of it.
"""

import os
import sys

from rlmbench_plan import job, prompt_hash
from rlmbench_probe import Gap, Hook, after_import, logprobs, recorder, weights
from rlmbench_probe.engines import vllm_engine_hooks
from rlmbench_probe.patching import guarded, replace
from rlmbench_shims import vllm_cpu

from rlmbench_trl_worker import server_on_cpu

TRAINERS = {
    "grpo": "trl.trainer.grpo_trainer:GRPOTrainer",
    "rloo": "trl.trainer.rloo_trainer:RLOOTrainer",
}
PPO = "trl.experimental.ppo.ppo_trainer"


def role():
    """What this process is in the run, by how it was started."""
    if not os.environ.get("RLMBENCH_JOB"):
        return "server"
    argv = getattr(sys, "orig_argv", sys.argv)
    if "torch.distributed.run" in argv:
        return "launcher"
    trains = argv[-1].endswith(os.path.join("rlmbench_trl_worker", "train.py"))
    return "driver" if trains and os.environ.get("RANK", "0") == "0" else "worker"


def hooks():
    """All hooks of this process, by the algorithm that the adapter started it for."""
    algorithm = os.environ.get("RLMBENCH_TRL_ALGORITHM")
    if os.environ.get("RLMBENCH_DEVICE") == "cpu":
        vllm_cpu.install()
    if not os.environ.get("RLMBENCH_JOB"):
        return vllm_engine_hooks()  # the rollout server and its engine: nothing of the trainer's runs there
    if os.environ.get("RLMBENCH_DEVICE") == "cpu":
        server_on_cpu.install()
    if algorithm == "ppo":
        after_import("accelerate.data_loader", count_steps_by_batches)
        return [*common_hooks(), *ppo_hooks()]
    return [*common_hooks(), *group_hooks(TRAINERS[algorithm])]


def distributed():
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def wait_if_distributed(args, kwargs):
    """A collective is a wait for the other ranks; alone, it is the arithmetic of whoever calls it."""
    return "wait" if distributed() else None


def tokens(tensor):
    return int(tensor.numel())


# -- what every trainer shares: accelerate and transformers


def common_hooks():
    accelerator = "accelerate.accelerator:Accelerator."
    callbacks = "transformers.trainer_callback:CallbackHandler."
    return [
        Hook(accelerator + "backward", "actor_update", "backward"),
        Hook(accelerator + "clip_grad_norm_", "actor_update", "optimizer"),
        *(Hook(accelerator + name, wait_if_distributed) for name in ("gather", "reduce", "gather_for_metrics", "wait_for_everyone")),
        Hook("accelerate.optimizer:AcceleratedOptimizer.step", "actor_update", "optimizer", before=before_update, after=after_update),
        Hook("accelerate.optimizer:AcceleratedOptimizer.zero_grad", "actor_update", "optimizer"),
        Hook("accelerate.scheduler:AcceleratedScheduler.step", "actor_update", "optimizer"),
        *(
            Hook(callbacks + name, "bookkeeping")
            for name in ("on_step_begin", "on_pre_optimizer_step", "on_optimizer_step", "on_substep_end", "on_step_end", "on_log")
        ),
        Hook(callbacks + "on_train_begin", after=lambda args, kwargs, result: facts(args[0].model)),
        Hook(callbacks + "on_train_end", before=lambda args, kwargs: recorder.end_steps()),
        Hook("transformers.trainer:Trainer.log", "bookkeeping", name="log", before=native_metrics),
        Hook("transformers.trainer:Trainer._save_checkpoint", "checkpoint"),
    ]


def native_metrics(args, kwargs):
    """What the trainer logs, under TRL's own names. `logs` is the argument after self."""
    values = {key: value for key, value in args[1].items() if isinstance(value, int | float)}
    recorder.event("native", step=recorder.step, t_ns=now(), values=values)


def now():
    from time import monotonic_ns

    return monotonic_ns()


def facts(model):
    """What really runs, since a configuration that was asked for may silently be something else."""
    import torch

    world = torch.distributed.get_world_size() if torch.distributed.is_available() and torch.distributed.is_initialized() else 1
    recorder.event("fact", name="world_size", value=world)
    recorder.event("fact", name="model_class", value=type(model).__name__)
    recorder.event("fact", name="torch_threads", value=torch.get_num_threads())
    parameters = list(model.parameters())
    recorder.event("fact", name="trainable_parameters", value=sum(p.numel() for p in parameters if p.requires_grad))
    recorder.event("fact", name="weights_dtype", value=str(parameters[0].dtype).removeprefix("torch."))
    recorder.event("fact", name="device_type", value=parameters[0].device.type)


# -- optimizer steps


def before_update(args, kwargs):
    if recorder.step:
        weights.look_before(args[0])


def after_update(args, kwargs, result):
    optimizer = args[0]
    if not (recorder.step and optimizer.gradient_state.sync_gradients):
        return  # accelerate skips the step while gradients gather
    recorder.update += 1
    rate = float(optimizer.param_groups[0]["lr"])
    recorder.event(
        "update", step=recorder.step, update=recorder.update, t_ns=now(), role="actor", learning_rate=rate, grad_norm=None,
        weights_changed=weights.changed(optimizer),
    )  # fmt: skip


# -- GRPO and RLOO


def group_hooks(trainer):
    trainer += "."
    base = "transformers.trainer:Trainer."
    return [
        Hook(base + "get_batch_samples", "data", before=begin_step),
        Hook(base + "training_step", "actor_update"),
        Hook(base + "_clip_grad_norm", "actor_update", "optimizer"),
        Hook(base + "_get_grad_norm", "actor_update", "optimizer"),
        Hook(base + "_get_learning_rate", "bookkeeping"),
        Hook(base + "floating_point_ops", "bookkeeping"),
        Hook(base + "_maybe_log_save_evaluate", "bookkeeping"),
        Hook("torch.nn:Module.zero_grad", zero_grad_of_the_loop, "optimizer"),
        Hook(trainer + "_prepare_inputs", "data"),
        Hook(trainer + "_generate_and_score_completions", "advantage"),
        Hook(trainer + "_generate", "generation", name="rollout"),
        Hook(trainer + "_tokenize_prompts", "data"),
        Hook(trainer + "_generate_single_turn", "generation", fields=generation_fields),
        Hook("transformers.generation.utils:GenerationMixin._prefill", "generation", "prefill"),
        Hook("transformers.generation.utils:GenerationMixin._sample", "generation", "decode"),
        Hook(trainer + "_calculate_rewards", "reward", after=rewards),
        Hook(trainer + "_get_per_token_logps_and_entropies", logprob_stage, fields=forward_fields),
        Hook(trainer + "compute_loss", "actor_update", "forward", before=loss),
        Hook("trl.generation.vllm_generation:VLLMGeneration.sync_weights", "weight_sync", optional=True),
        Hook("trl.generation.vllm_generation:VLLMGeneration.generate", "generation", "decode", name="vllm_generate", optional=True),
    ]


def begin_step(args, kwargs):
    """A step begins when its prompts are requested: at the first batch request of each group of updates."""
    seen = recorder.__dict__.setdefault("batches_requested", 0)
    if seen % job().updates_per_step == 0:
        recorder.next_step()
    recorder.batches_requested = seen + 1


def zero_grad_of_the_loop(args, kwargs):
    """transformers clears the gradients through the model after each update; inner modules are no event."""
    return ("actor_update", "optimizer") if recorder.step and not recorder.open_stages() else None


def in_loss():
    return any(name == "compute_loss" for _, name in recorder.open_stages())


def logprob_stage(args, kwargs):
    trainer, model = args[0], args[1] if len(args) > 1 else kwargs["model"]
    if in_loss():
        return ("actor_update", "forward")
    return "reference_logprob" if model is trainer.ref_model else "old_logprob"


def forward_fields(args, kwargs, result):
    ids = args[2] if len(args) > 2 else kwargs["input_ids"]
    mask = args[3] if len(args) > 3 else kwargs["attention_mask"]
    fields = {"samples": len(ids), "computed_tokens": tokens(ids)}
    # The micro-batches of an update are counted by `loss`; here a sum would only cost another wait for the device.
    return fields if in_loss() else {**fields, "valid_tokens": int(mask.sum())}


def generation_fields(args, kwargs, result):
    """HF generate pads: every sample computes the longest prompt and the longest response of its batch.

    Under replay finished rows are still padded here; `replay.planned_turn` cuts them after this.
    """
    trainer, prompts = args[0], args[1]
    responses = result[0] if isinstance(result, tuple) else result
    prompt_tokens, response_tokens = sum(map(len, prompts)), sum(job().lengths if job().replay else map(len, responses))
    fields = {"samples": len(responses), "prompt_tokens": prompt_tokens, "response_tokens": response_tokens}
    fields["valid_tokens"] = prompt_tokens + response_tokens
    if not trainer.use_vllm:
        fields["computed_tokens"] = len(prompts) * (max(map(len, prompts)) + max(map(len, responses)))
    return fields


def rewards(args, kwargs, result):
    """Rewards as they enter the advantage. The tensor is gathered over ranks; each rank reports its own slice."""
    trainer, size = args[0], len(job().samples)
    start = trainer.accelerator.process_index * size
    values = result[start : start + size].nansum(dim=1).tolist()
    rows = [[row, sample, value] for (row, sample), value in zip(job().samples, values)]
    recorder.event("reward", step=recorder.step, t_ns=now(), rows=rows)


def loss(args, kwargs):
    """One micro-batch as the loss receives it."""
    model, inputs = args[1], args[2] if len(args) > 2 else kwargs["inputs"]
    if not recorder.__dict__.setdefault("told_wrapper", False):
        recorder.told_wrapper = True
        recorder.event("fact", name="model_wrapper", value=type(model).__name__)
    prompts, prompt_mask, mask = inputs["prompt_ids"], inputs["prompt_mask"], inputs["completion_mask"]
    names = inputs.get("rlmbench_sample")
    names = names.tolist() if names is not None else [None] * len(prompts)
    event = {
        "ev": "loss", "step": recorder.step, "update": recorder.update + 1, "t_ns": now(),
        "computed_tokens": len(prompts) * (prompts.shape[1] + mask.shape[1]),
    }  # fmt: skip
    batch = (prompts.tolist(), prompt_mask.tolist(), mask.sum(1).tolist(), names)
    logprobs.compare(inputs.get("old_per_token_logps"), inputs.get("sampling_per_token_logps"), mask, recorder.step)
    recorder.later(lambda: {**event, "rows": [loss_row(*sample) for sample in zip(*batch)]})


def loss_row(ids, keep, response_tokens, name):
    """[row, sample, prompt_hash, prompt_tokens, response_tokens] of one padded sample of a micro-batch."""
    row, sample = divmod(name, job().plan.group_size) if name is not None else (None, None)
    prompt = [token for token, kept in zip(ids, keep) if kept]
    return [row, sample, prompt_hash(prompt), len(prompt), response_tokens]


# -- PPO (TRL 1.12)


def ppo_hooks():
    """PPO's loop does much of its work inline; gaps name that code, between the functions it calls.

    A gap is listed after the hook of the same function, so that it lies outside that function's span.
    """
    module = PPO + ":"
    return [
        Hook(module + "PPOTrainer.train", before=remember_trainer),
        Hook(module + "batch_generation", "generation", fields=ppo_generation_fields),
        Gap(module + "batch_generation", "generation", name="prepare_generation", when=in_step),
        Hook("transformers.generation.utils:GenerationMixin._prefill", "generation", "prefill"),
        Hook("transformers.generation.utils:GenerationMixin._sample", "generation", "decode"),
        Hook(module + "forward", ppo_forward_stage, before=ppo_forward, fields=ppo_forward_fields),
        Hook(module + "get_reward", ppo_reward_stage, after=ppo_rewards),
        Hook(module + "selective_log_softmax", ppo_logprob_stage),
        Hook(module + "masked_mean", before=ppo_masked_mean),
        Hook(module + "truncate_response", "bookkeeping"),
        Hook(module + "masked_whiten", "advantage"),
        Gap(module + "masked_whiten", "advantage", name="advantages", when=in_step),
        Hook(module + "empty_cache", "bookkeeping"),
        Gap(module + "empty_cache", "actor_update", "forward", name="update_statistics", when=updating),
        Hook(module + "gc.collect", "bookkeeping", name="gc_collect"),
        Gap("accelerate.accelerator:Accelerator.backward", "actor_update", "forward", name="loss_arithmetic", when=in_step),
        Gap("accelerate.accelerator:Accelerator.accumulate", "actor_update", "forward", name="update_statistics", when=in_step),
        Gap("transformers.trainer:Trainer.log", "bookkeeping", name="metrics", when=in_step),
    ]


def count_steps_by_batches(module):
    """PPO requests one batch a step, from a generator: each request begins a step and is its data stage."""

    def make(original):
        def iterate(self):
            batches = original(self)
            while True:
                guarded("next batch", recorder.next_step)
                span = guarded("next batch", recorder.start, "data", None, "next_batch")
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                finally:
                    if span is not None:
                        guarded("next batch", recorder.finish, span)
                yield batch

        return iterate

    replace(module.DataLoaderShard, "__iter__", make)


def in_step():
    return recorder.step > 0


def updating():
    return recorder.step > 0 and torch_grad()


class _PPO:
    """The trainer of this process, the micro-batch whose loss is being computed, and whose log-probs come next."""

    trainer = None
    batch = None
    means = 0
    reference = False


def remember_trainer(args, kwargs):
    _PPO.trainer = args[0]


def torch_grad():
    return sys.modules["torch"].is_grad_enabled()


def ppo_forward_stage(args, kwargs):
    return ("actor_update", "forward") if torch_grad() else "reference_logprob"


def ppo_forward(args, kwargs):
    if torch_grad():
        _PPO.batch, _PPO.means = args[1], 0
    else:
        _PPO.reference = True


def ppo_forward_fields(args, kwargs, result):
    ids, pad = args[1], args[2]
    return {"samples": len(ids), "computed_tokens": tokens(ids), "valid_tokens": int((ids != pad).sum())}


def ppo_reward_stage(args, kwargs):
    return "reward" if args[0] is _PPO.trainer.reward_model else "values"


def ppo_logprob_stage(args, kwargs):
    """Called on the logits of generation, then on those of the reference's forward, later under grad."""
    if torch_grad():
        return ("actor_update", "forward")
    reference, _PPO.reference = _PPO.reference, False
    return "reference_logprob" if reference else "old_logprob"


def ppo_generation_fields(args, kwargs, result):
    queries, pad = args[1], args[3]
    responses = result[0][:, queries.shape[1] :]
    prompt_tokens, response_tokens = int((queries != pad).sum()), int((responses != pad).sum())
    return {
        "samples": len(queries), "prompt_tokens": prompt_tokens, "response_tokens": response_tokens,
        "valid_tokens": prompt_tokens + response_tokens, "computed_tokens": tokens(result[0]),
    }  # fmt: skip


def ppo_rewards(args, kwargs, result):
    if args[0] is _PPO.trainer.reward_model:
        sequences, scores, context, step, t_ns = args[1].tolist(), result[1].tolist(), args[3], recorder.step, now()
        recorder.later(lambda: {
            "ev": "reward", "step": step, "t_ns": t_ns,
            "rows": [[*ppo_sample(ids[:context], step)[:2], score] for ids, score in zip(sequences, scores)],
        })  # fmt: skip


def ppo_sample(padded_prompt, step):
    """(row, sample, prompt_hash, prompt_tokens) of a sequence, by its prompt: PPO has one sample per prompt."""
    pad = _PPO.trainer.processing_class.pad_token_id
    prompt = [token for token in padded_prompt if token != pad]
    name = prompt_hash(prompt)
    row = job().plan.by_step_and_hash.get((step, name))
    return (row["row"], 0, name, len(prompt)) if row else (None, None, name, len(prompt))


def ppo_masked_mean(args, kwargs):
    """Under grad the trainer averages the value loss, then the policy loss: the second mask is what the policy trains on."""
    if not (torch_grad() and args[0].requires_grad):
        return
    _PPO.means += 1
    if _PPO.means != 2:
        return
    mask, batch = args[1], _PPO.batch
    event = {"ev": "loss", "step": recorder.step, "update": recorder.update + 1, "t_ns": now(), "computed_tokens": tokens(batch)}
    prompts, trained = batch[:, : batch.shape[1] - mask.shape[1]].tolist(), mask.sum(1).tolist()
    recorder.later(lambda: {**event, "rows": [[*ppo_sample(ids, event["step"]), kept] for ids, kept in zip(prompts, trained)]})
