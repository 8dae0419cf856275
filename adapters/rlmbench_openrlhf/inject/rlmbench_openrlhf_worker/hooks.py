"""OpenRLHF's patch points (0.11.2): the trainer's Ray actor that drives the loop, model actors, rollout actors, vLLM engines.

``openrlhf/trainer/ppo_trainer.py`` and ``ppo_trainer_async.py`` (driver), ``trainer/ppo_utils`` (samples, experience),
``trainer/ray`` (model and rollout actors), ``utils/deepspeed/deepspeed.py`` (updates), ``utils/agent.py`` (samples).

Ray pickles an actor class itself by value, so a worker never sees the module's own: those classes are wrapped in the
worker, where Ray unpickles them (`attach_to_actor`). Everything else is wrapped when it is imported. The launcher, which
pickles the classes, is left as it is: a wrapped base class there would be pickled by value, too, and without its wrapper.
"""

import json
import os
import sys
import time
from types import SimpleNamespace

from rlmbench_plan import job, prompt_hash
from rlmbench_probe import AsyncHook, Hook, logprobs, recorder, weights
from rlmbench_probe.engines import vllm_engine_hooks
from rlmbench_probe.patching import Gap, attach
from rlmbench_probe.recorder import FLUSH_S
from rlmbench_shims import vllm_cpu

from rlmbench_openrlhf_worker import cpu, flash_attention, order

TRAINER = "openrlhf.trainer.ppo_trainer:"
ASYNC_TRAINER = "openrlhf.trainer.ppo_trainer_async:"
BASE = TRAINER + "BasePPOTrainer."
SAMPLES = "openrlhf.trainer.ppo_utils.samples_generator:SamplesGenerator."
EXPERIENCE = "openrlhf.trainer.ppo_utils.experience_maker:RemoteExperienceMaker."
LAUNCHER = "openrlhf.trainer.ray.launcher:"
ACTOR = "openrlhf.trainer.ray.ppo_actor:"
CRITIC = "openrlhf.trainer.ray.ppo_critic:"
ROLLOUT = "openrlhf.trainer.ray.vllm_engine:"
ENGINE_WORKER = "vllm.v1.worker.gpu_worker:Worker."
STRATEGY = "openrlhf.utils.deepspeed.deepspeed:DeepspeedStrategy."


def role():
    """Ray starts every process alike; what it turns out to be it says itself (`lead`, `becomes`)."""
    return "launcher" if is_launcher() else "worker"


def is_launcher():
    return "rlmbench_openrlhf_worker.launch" in getattr(sys, "orig_argv", sys.argv)


def hooks():
    flash_attention.install()
    order.install(strict=bool(os.environ.get("RLMBENCH_STRICT_ORDER")))
    if os.environ.get("RLMBENCH_DEVICE") == "cpu":
        vllm_cpu.install()
        cpu.install()
    if is_launcher():
        return [Hook("ray._private.worker:init", "startup", name="ray_init", optional=True)]
    classes = Hook(
        "ray._private.function_manager:FunctionActorManager._load_actor_class_from_gcs", name="actor_class", after=attach_to_actor
    )
    return [classes, *driver_hooks(), *worker_hooks(), *vllm_engine_hooks()]


now = time.monotonic_ns


def attach_to_actor(args, kwargs, result):
    """`result` is an actor class as this worker will use it; its methods are looked up after this."""
    own = SimpleNamespace(**{result.__name__: result})
    for hook in actor_hooks():
        if hook.module == result.__module__ and hook.path.split(".")[0] == result.__name__:
            attach(hook, own)


def actor_hooks():
    """Hooks on classes that Ray pickles by value."""
    return [
        Hook(TRAINER + "PPOTrainer.__init__", "startup", name="trainer_init", before=lead),
        Hook(TRAINER + "PPOTrainer.fit", after=end_of_steps),
        Hook(ASYNC_TRAINER + "TrainingActor.__init__", "startup", name="trainer_init", before=lead),
        Hook(ASYNC_TRAINER + "TrainingActor.fit", after=end_of_steps),
        Hook(ASYNC_TRAINER + "TrainingActor.broadcast_to_vllm", "wait", name="wait_for_engine"),
        Hook(ASYNC_TRAINER + "GenerateSamplesActor.__init__", "startup", name="generator_init", before=becomes("rollout")),
        *model_hooks(ACTOR + "PolicyModelActor.", "old_logprob", "actor_update", actor_facts),
        *model_hooks(CRITIC + "CriticModelActor.", "values", "critic_update", trainer_rank),
        *model_hooks(LAUNCHER + "ReferenceModelActor.", "reference_logprob", None, trainer_rank),
        *model_hooks(LAUNCHER + "RewardModelActor.", "reward", None, trainer_rank),
        Hook(ACTOR + "PolicyModelActor.broadcast_to_vllm", "weight_sync", name="send_weights"),
        Hook(ROLLOUT + "RolloutRayActor._configure_device_env", name="rollout_actor", before=becomes("rollout")),
        AsyncHook(ROLLOUT + "RolloutRayActor.sleep", "offload", name="engine_to_sleep"),
        AsyncHook(ROLLOUT + "RolloutRayActor.wake_up", "onload", name="engine_awake"),
    ]


def model_hooks(owner, forward, update, after_start):
    def stage(args, kwargs):
        method = args[1] if len(args) > 1 else kwargs.get("method_name")
        return {"forward": forward, "append": "data"}.get(method)

    hooks = [
        Hook(owner + "init_model_from_pretrained", "startup", name="load_model", after=after_start),
        Hook(owner + "execute_batch", stage, fields=forward_tokens),
    ]
    if update:
        hooks += [
            Hook(owner + "fit", update),
            Hook(owner + "reload_states", "onload"),
            Hook(owner + "offload_states", "offload"),
        ]
    return hooks


def forward_tokens(args, kwargs, result):
    """`execute_batch` hands the micro-batches [start, end) of a dictionary of lists to the method, one by one."""
    method, data, start, end = args[1:5]
    return count_tokens(data["sequences"][start:end], data["attention_mask"][start:end]) if method == "forward" else {}


def count_tokens(sequences, masks):
    return {
        "samples": sum(len(rows) for rows in sequences),
        "valid_tokens": sum(int(mask.sum()) for mask in masks),
        "computed_tokens": sum(rows.numel() for rows in sequences),
    }


def becomes(part):
    return lambda args, kwargs: recorder.become(part)


# -- the driver


def lead(args, kwargs):
    recorder.lead()


def begin_step(args, kwargs):
    """The request for a step's prompts. The last one, for which there are none, belongs to no step."""
    if recorder.role == "driver":
        if recorder.step < job().steps:
            recorder.next_step()
        else:
            recorder.end_steps()


def end_of_steps(args, kwargs, result):
    """OpenRLHF's main ends soon after this, and Ray kills its workers: give them the time to write what they recorded last."""
    recorder.end_steps()
    time.sleep(4 * FLUSH_S)


def on_driver(stage):
    """`stage` in the process that drives the loop and no stage elsewhere, nor before and after the steps."""
    return lambda args, kwargs: stage if recorder.role == "driver" and recorder.step > 0 else None


def driver_hooks():
    return [
        Hook(SAMPLES + "generate_samples", "generation", before=begin_step, fields=generated_tokens),
        Gap(SAMPLES + "generate_samples", "bookkeeping", name="between_steps"),
        Hook("ray.util.queue:Queue.get", queue_stage, name="next_samples", before=begin_step, fields=awaits_generation, optional=True),
        Hook(ROLLOUT + "batch_vllm_engine_call", engine_call_stage, name="engine_call"),
        Hook(EXPERIENCE + "split_rollout_samples", "data"),
        Hook(EXPERIENCE + "make_experience", "bookkeeping"),
        Hook(EXPERIENCE + "_dispatch_forward", forward_stage, after=remember_forward),
        Hook(EXPERIENCE + "_flatten_results", result_stage),
        Hook(EXPERIENCE + "compute_advantages_and_returns", "advantage", after=rewards),
        Gap(BASE + "ppo_train", "data", name="hand_over_samples"),
        Hook(LAUNCHER + "RayActorGroup.async_run_method", name="group_call", after=follow_group_call),
        Hook(BASE + "broadcast_to_vllm", "weight_sync"),
        Hook(BASE + "save_logs_and_checkpoints", "bookkeeping", before=native_metrics),
        Gap(BASE + "save_logs_and_checkpoints", "bookkeeping", name="log_status"),  # wrapped around it: the gap ends before the span begins
        Hook("ray.util.queue:Queue.put", on_driver("bookkeeping"), name="free_slot", optional=True),
    ]


def generated_tokens(args, kwargs, result):
    """vLLM pads nothing: one sample each."""
    samples = result[0]
    return count_tokens([sample.sequences for sample in samples], [sample.attention_mask for sample in samples])


def queue_stage(args, kwargs):
    """Asynchronous training: the driver takes samples from a queue, the generator's process takes permissions to go on."""
    if recorder.role == "driver":
        return "generation" if recorder.step else None
    return "wait"


def awaits_generation(args, kwargs, result):
    return {"awaits": "generation"} if recorder.role == "driver" else {}


def engine_call_stage(args, kwargs):
    method = args[1] if len(args) > 1 else kwargs.get("method_name")
    stage = {"sleep": "offload", "wake_up": "onload"}.get(method)
    return stage if stage is None or recorder.step or recorder.role != "driver" else "startup"


def group_of(maker, group):
    """The stage of a forward pass of one of the experience maker's model groups."""
    if group is maker.actor_model_group:
        return "old_logprob"
    if group is maker.critic_model_group:
        return "values"
    return "reference_logprob" if group is maker.initial_model_group else "reward"


_forwards = {}  # id of a forward pass's list of results -> its stage


def forward_stage(args, kwargs):
    return group_of(args[0], args[1])


def remember_forward(args, kwargs, result):
    """Where models do not share devices the call returns at once, and `_flatten_results` waits for the results."""
    _forwards[id(result)] = group_of(args[0], args[1])


def result_stage(args, kwargs):
    return _forwards.pop(id(args[1]), None)


def rewards(args, kwargs, result):
    """Rewards as they entered the advantage, length penalties included; each sample's label names its row and sample."""
    rows = []
    for experience in args[1]:
        for label, value in zip(experience.labels, experience.rewards.tolist()):
            named = json.loads(label)
            rows.append([named["row"], named.get("sample"), value])
    recorder.event("reward", step=recorder.step, t_ns=now(), rows=rows)


_moves = {"reload_states": "onload", "offload_states": "offload"}


def follow_group_call(args, kwargs, result):
    """An interval from the call until the last process of the group is done.

    `ppo_train` starts the updates of actor and critic, which run beside each other unless they sleep in turns, and waits
    for both: only what was started and when it was done tells how long each took.
    """
    method = kwargs.get("method_name") or (args[1] if len(args) > 1 else None)
    stage = _moves.get(method)
    if method == "fit":  # only the actor is told the KL coefficient (`BasePPOTrainer.ppo_train`)
        stage = "actor_update" if "kl_ctl" in kwargs else "critic_update"
    if stage is None or recorder.role != "driver" or not recorder.step:
        return
    interval = recorder.start_interval(stage, method)
    if interval is None:
        return
    recorder.event("begin", stage=stage, name=interval.name, step=recorder.step, t_ns=now())
    waiting = set(range(len(result)))

    def done(index):
        waiting.discard(index)
        if not waiting:
            recorder.finish_interval(interval)

    for index, reference in enumerate(result):
        reference.future().add_done_callback(lambda _, index=index: done(index))


def native_metrics(args, kwargs):
    logs = kwargs.get("logs_dict") or (args[2] if len(args) > 2 else {})
    values = {key: float(value) for key, value in logs.items() if isinstance(value, int | float)}
    recorder.event("native", step=recorder.step, t_ns=now(), values=values)


# -- model actors, rollout actors and engines


def worker_hooks():
    return [
        Hook(ACTOR + "ActorPPOTrainer.training_step", "actor_update", "forward", name="actor_micro_batch", before=loss),
        Hook(
            CRITIC + "CriticPPOTrainer.training_step",
            "critic_update",
            "forward",
            name="critic_micro_batch",
            fields=critic_tokens,
            optional=True,
        ),
        Hook(STRATEGY + "backward", within_update("backward")),
        Hook(STRATEGY + "optimizer_step", within_update("optimizer"), before=before_update, after=after_update),
        AsyncHook("openrlhf.utils.agent:SingleTurnAgentExecutor.execute", "generation", name="sample"),
        Hook("vllm.v1.engine.core:EngineCore.__init__", name="engine_core", before=becomes("engine")),
        Hook(ENGINE_WORKER + "load_model", name="engine_worker", before=lambda args, kwargs: recorder.become("engine rank", args[0].rank)),
        Hook(ENGINE_WORKER + "execute_model", "generation", "decode", name="engine_forward"),
        Hook(ENGINE_WORKER + "sample_tokens", "generation", "decode", name="engine_sample", optional=True),
        Hook("openrlhf.trainer.ray.vllm_worker_wrap:WorkerWrap.update_weight", "weight_sync", name="engine_receive_weight"),
        Hook("openrlhf.trainer.ray.vllm_worker_wrap:WorkerWrap.update_weight_cuda_ipc", "weight_sync", name="engine_receive_weight_ipc"),
    ]


def critic_tokens(args, kwargs, result):
    return count_tokens([args[1].sequences], [args[1].attention_mask])


def within_update(substage):
    def stage(args, kwargs):
        inner = recorder.open_stages()
        return (inner[-1][0], substage) if inner else None

    return stage


def trainer_rank(args, kwargs, result):
    import torch

    recorder.become("trainer", torch.distributed.get_rank())


def actor_facts(args, kwargs, result):
    import torch

    trainer_rank(args, kwargs, result)
    engine = args[0].actor.model
    recorder.event("fact", name="world_size", value=torch.distributed.get_world_size())
    recorder.event("fact", name="weights_dtype", value=str(next(engine.parameters()).dtype).removeprefix("torch."))
    recorder.event("fact", name="model_wrapper", value=type(engine).__name__)
    recorder.event("fact", name="zero_stage", value=engine.zero_optimization_stage())


def engine_of(args):
    """DeepSpeed's engine: OpenRLHF's own Actor holds it, a critic is it (`DeepspeedStrategy.optimizer_step`)."""
    model = args[2]
    return model if hasattr(model, "is_gradient_accumulation_boundary") else model.model


class MasterWeights:
    """What the optimizer updates, in the form of an optimizer: DeepSpeed's own has empty groups between updates of ZeRO-3."""

    def __init__(self, engine):
        self.engine = engine

    @property
    def param_groups(self):
        wrapper = self.engine.optimizer
        for name in ("fp32_partitioned_groups_flat", "single_partition_of_fp32_groups", "fp32_groups_flat_partition"):
            if found := getattr(wrapper, name, None):
                return [{"params": list(found)}]
        return [{"params": list(self.engine.parameters())}]


_masters = {}  # id of an engine -> its master weights
_rates = {}  # id of an engine -> the learning rate of the update under way


def before_update(args, kwargs):
    engine = engine_of(args)
    if engine.is_gradient_accumulation_boundary():
        master = _masters.setdefault(id(engine), MasterWeights(engine))
        weights.look_before(master)
        _rates[id(engine)] = float(engine.get_lr()[0])


def after_update(args, kwargs, result):
    """DeepSpeed counts micro-batches and steps at the last one of an update."""
    engine = engine_of(args)
    rate = _rates.pop(id(engine), None)
    if rate is None:
        return
    recorder.update += 1
    norm = engine.get_global_grad_norm()
    recorder.event(
        "update", step=0, update=recorder.update, t_ns=now(), role=kwargs.get("name", "actor"), learning_rate=rate,
        grad_norm=None if norm is None else float(norm), weights_changed=weights.changed(_masters[id(engine)]),
    )  # fmt: skip


def loss(args, kwargs):
    """One micro-batch as the policy's loss receives it; which step it belongs to follows from the time."""
    experience = args[1]
    kept = experience.action_mask
    event = {"ev": "loss", "step": 0, "update": recorder.update + 1, "t_ns": now(), "computed_tokens": int(experience.sequences.numel())}
    logprobs.compare(experience.action_log_probs, experience.rollout_log_probs, kept)
    ids = [row[mask.bool()].tolist() for row, mask in zip(experience.sequences, experience.attention_mask)]
    batch = list(zip(experience.labels, ids, kept.sum(1).tolist()))
    recorder.later(lambda: {**event, "rows": [loss_row(*sample) for sample in batch]})


def loss_row(label, ids, response_tokens):
    """`ids` are prompt and response; `label` is the agent's, which names the sample."""
    named, prompt = json.loads(label), ids[: len(ids) - response_tokens]
    return [named["row"], named.get("sample"), prompt_hash(prompt), len(prompt), response_tokens]
