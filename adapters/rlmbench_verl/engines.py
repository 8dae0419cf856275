"""verl's training engines: FSDP2, and Megatron where a model is split by tensor, pipeline or expert.

Sources, verl 0.9.1: ``verl/trainer/config/engine/{fsdp,megatron}.yaml``, ``optim/{fsdp,megatron}.yaml``,
``verl/workers/engine/{fsdp,megatron}/transformer_impl.py``, ``verl/workers/config/{engine,actor,critic}.py``.
"""

from __future__ import annotations

from typing import Any

from rlmbench.experiment import Experiment
from rlmbench.ledger import Ledger
from rlmbench_verl.placement import GPUS_PER_NODE, ROLLOUT, split_nodes, training_devices

ACTOR, REFERENCE, MODEL = (f"actor_rollout_ref.{part}." for part in ("actor", "ref", "model"))
MEGATRON_SPLITS = ("tensor", "pipeline", "expert")
MEGATRON_ATTENTION = {"flash_attention_2": "flash", "sdpa": "fused", "eager": "unfused"}


def uses_megatron(experiment: Experiment) -> bool:
    """FSDP splits by data and context alone."""
    return any(getattr(experiment.parallelism, split) > 1 for split in MEGATRON_SPLITS)


def is_packed(experiment: Experiment) -> bool:
    """Whether samples are packed without padding, for which verl needs flash attention's variable-length kernels (Megatron: or fused ones)."""
    attention = experiment.model.attention
    return attention == "flash_attention_2" or (uses_megatron(experiment) and attention == "sdpa")


def fsdp_sections(experiment: Experiment) -> list[str]:
    """The FSDP configuration of every role; none under Megatron."""
    if uses_megatron(experiment):
        return []
    sections = [ACTOR + "fsdp_config.", REFERENCE + "fsdp_config."]
    return [*sections, "critic.fsdp."] if experiment.optimization.critic else sections


def megatron_sections(experiment: Experiment) -> list[str]:
    """The Megatron configuration of actor and critic; the reference model's is read off the actor's by verl's own files."""
    return [ACTOR + "megatron.", *(["critic.megatron."] if experiment.optimization.critic else [])]


def weights_dtype(experiment: Experiment) -> str:
    """Of the trained weights: FSDP keeps float32; Megatron bfloat16, with float32 copies in its optimizer."""
    return "bfloat16" if uses_megatron(experiment) else "float32"


def translate_engine(ledger: Ledger, experiment: Experiment, device: str) -> None:
    """Number format, attention and recomputation, the split over devices, and the optimizer."""
    model = experiment.model
    ledger.native[ROLLOUT + "dtype"] = model.dtype
    ledger.native[MODEL + "use_remove_padding"] = is_packed(experiment)
    if experiment.optimization.critic:
        ledger.native["critic.model.use_remove_padding"] = is_packed(experiment)
    _devices(ledger, experiment, device)
    if uses_megatron(experiment):
        ledger.native["model_engine"] = "megatron"
        _megatron_model(ledger, experiment)
        _megatron_splits(ledger, experiment, device)
    else:
        _fsdp_model(ledger, experiment, device)
        _fsdp_splits(ledger, experiment)
    _optimizer(ledger, experiment)


def _devices(ledger: Ledger, experiment: Experiment, device: str) -> None:
    devices = training_devices(experiment)
    nodes, per_node = split_nodes(devices) if device == "cuda" else (1, devices)
    ledger.native["trainer.nnodes"] = nodes
    if experiment.samples_per_step % experiment.parallelism.data:
        ledger.unsupported("parallelism.data", "verl pads a step with synthetic samples unless its samples divide by the ranks")
    elif nodes * per_node != devices:
        ledger.unsupported("parallelism.data", f"verl counts full nodes: {devices} GPUs are no multiple of {GPUS_PER_NODE}")
    else:
        reason = f"on {nodes} {'nodes' if nodes > 1 else 'node'}; ranks in all: {devices}, checked in the run"
        ledger.exact("parallelism.data", "trainer.n_gpus_per_node", per_node, reason=reason)


# -- FSDP2


def _fsdp_model(ledger: Ledger, experiment: Experiment, device: str) -> None:
    model, native = experiment.model, ledger.native
    precision = {"bfloat16": "bf16", "float32": "fp32"}[model.dtype]
    for place in fsdp_sections(experiment):
        native[f"+{place}mixed_precision.param_dtype"] = precision
    native |= {ACTOR + "strategy": "fsdp2", REFERENCE + "strategy": "fsdp2", "critic.strategy": "fsdp2"}
    native[ACTOR + "fsdp_config.seed"] = experiment.measurement.seed
    if model.dtype == "float32":
        ledger.exact("model.dtype", reason="fp32 in FSDP's mixed precision and in the rollout engine")
    else:
        ledger.approximated("model.dtype", "float32 weights with bfloat16 compute in training, bfloat16 in the rollout engine")
    ledger.exact("model.gradient_checkpointing", MODEL + "enable_gradient_checkpointing", model.gradient_checkpointing)
    if model.attention == "flash_attention_2" and device == "cpu":
        ledger.unsupported("model.attention", "there is no flash attention on a CPU")
    else:
        ledger.exact("model.attention", f"+{MODEL}override_config.attn_implementation", model.attention)
    if experiment.optimization.critic:
        native["critic.model.enable_gradient_checkpointing"] = model.gradient_checkpointing
        native["+critic.model.override_config.attn_implementation"] = model.attention


def _fsdp_splits(ledger: Ledger, experiment: Experiment) -> None:
    split, native = experiment.parallelism, ledger.native
    for field in MEGATRON_SPLITS:
        ledger.exact(f"parallelism.{field}", reason="not split")
    ranks = training_devices(experiment)
    if split.context == 1:
        ledger.exact("parallelism.context", reason="not split")
    elif not is_packed(experiment):
        ledger.unsupported("parallelism.context", "verl's Ulysses needs packed sequences: set model.attention=flash_attention_2")
    elif experiment.samples_per_step % ranks:
        ledger.unsupported("parallelism.context", f"verl wants the step's samples to divide by all {ranks} ranks")
    else:
        ledger.exact("parallelism.context", ACTOR + "ulysses_sequence_parallel_size", split.context, reason="Ulysses")
        if experiment.optimization.critic:
            native["critic.ulysses_sequence_parallel_size"] = split.context
            native["critic.fsdp.ulysses_sequence_parallel_size"] = split.context  # the engine reads this one
    reshard = split.sharding == "zero3"
    if ranks == 1:
        ledger.exact("parallelism.sharding", reason="one rank")
    elif split.sharding in ("zero2", "zero3"):
        reason = "FSDP2 over all ranks" if reshard else "FSDP2 keeps parameters gathered"
        ledger.exact("parallelism.sharding", ACTOR + "fsdp_config.reshard_after_forward", reshard, reason=reason)
        if experiment.optimization.critic:
            native["critic.fsdp.reshard_after_forward"] = reshard
    else:
        ledger.approximated("parallelism.sharding", f"verl shards with FSDP2 (zero3) where {split.sharding} was asked for")


# -- Megatron


def _megatron_model(ledger: Ledger, experiment: Experiment) -> None:
    model, native = experiment.model, ledger.native
    if model.dtype == "bfloat16":
        ledger.exact("model.dtype", ACTOR + "megatron.dtype", "bfloat16", reason="bfloat16 weights, and float32 ones in the optimizer")
    else:
        ledger.unsupported("model.dtype", "verl's Megatron engine has bfloat16 and float16: set model.dtype=bfloat16")
    backend = MEGATRON_ATTENTION[model.attention]
    override = "override_transformer_config."
    if model.attention == "flash_attention_2":
        ledger.exact("model.attention", f"{ACTOR}megatron.{override}attention_backend", backend)
    else:
        reason = f"Transformer Engine's {backend} attention in place of transformers' {model.attention}"
        ledger.approximated("model.attention", reason, f"{ACTOR}megatron.{override}attention_backend", backend)
    checkpointing = model.gradient_checkpointing
    reason = "every layer" if checkpointing else "off"
    granularity = "full" if checkpointing else None
    ledger.exact("model.gradient_checkpointing", f"{ACTOR}megatron.{override}recompute_granularity", granularity, reason=reason)
    for place in megatron_sections(experiment):
        native[place + "dtype"] = "bfloat16"
        native[place + "use_remove_padding"] = is_packed(experiment)
        native[place + "seed"] = experiment.measurement.seed
        native[place + override + "attention_backend"] = backend
        native[place + override + "recompute_granularity"] = granularity
        if checkpointing:
            native[place + override + "recompute_method"] = "uniform"
            native[place + override + "recompute_num_layers"] = 1


def _megatron_splits(ledger: Ledger, experiment: Experiment, device: str) -> None:
    split = experiment.parallelism
    sizes = {"tensor": "tensor_model_parallel_size", "pipeline": "pipeline_model_parallel_size"}
    sizes |= {"context": "context_parallel_size", "expert": "expert_model_parallel_size"}
    for field, key in sizes.items():
        degree = getattr(split, field)
        if degree > 1 and device == "cpu":
            ledger.unsupported(f"parallelism.{field}", "verl's Megatron engine needs GPUs: set it to 1 on a CPU")
        elif field == "expert" and (training_devices(experiment) // split.pipeline) % degree:
            ledger.unsupported("parallelism.expert", f"experts are spread over a pipeline stage's ranks, which {degree} must divide")
        elif field == "context" and degree > 1 and not is_packed(experiment):
            ledger.unsupported("parallelism.context", "Megatron's unfused attention does not split sequences: set model.attention=sdpa")
        else:
            ledger.exact(f"parallelism.{field}", f"{ACTOR}megatron.{key}", degree, reason="Megatron" if degree > 1 else "not split")
        for place in megatron_sections(experiment):
            ledger.native[place + key] = degree
    distributed = split.sharding != "none"
    for place in megatron_sections(experiment):
        ledger.native[place + "expert_tensor_parallel_size"] = 1 if split.expert > 1 else None
        ledger.native[place + "use_distributed_optimizer"] = distributed
    key = ACTOR + "megatron.use_distributed_optimizer"
    if split.data == 1:
        ledger.exact("parallelism.sharding", key, distributed, reason="one data-parallel rank")
    elif split.sharding in ("none", "zero1"):
        ledger.exact("parallelism.sharding", key, distributed, reason="optimizer state over data-parallel ranks" if distributed else "")
    else:
        ledger.approximated(
            "parallelism.sharding", f"Megatron shards the optimizer's state (zero1), not {split.sharding}", key, distributed
        )


# -- the optimizer


def _optimizer(ledger: Ledger, experiment: Experiment) -> None:
    opt = experiment.optimization
    optim = ACTOR + "optim."
    ledger.exact("optimization.learning_rate", optim + "lr", opt.learning_rate)
    schedule = "lr_decay_style" if uses_megatron(experiment) else "lr_scheduler_type"
    if opt.lr_schedule == "linear" and not uses_megatron(experiment):
        ledger.unsupported("optimization.lr_schedule", "verl's FSDP engine has constant and cosine schedules")
    else:
        ledger.exact("optimization.lr_schedule", optim + schedule, opt.lr_schedule)
    betas = [opt.adam_beta1, opt.adam_beta2]
    ledger.exact("optimization.warmup_steps", optim + "lr_warmup_steps", opt.warmup_steps)
    ledger.exact("optimization.weight_decay", optim + "weight_decay", opt.weight_decay)
    ledger.exact("optimization.adam_beta1", optim + "betas", betas)
    ledger.exact("optimization.adam_beta2", optim + "betas", betas)
    # actor.grad_clip is read by nothing in 0.9.1: both engines take the optimizer's.
    ledger.exact("optimization.max_grad_norm", optim + "clip_grad", opt.max_grad_norm)
    if opt.critic:
        same: dict[str, Any] = {
            schedule: opt.lr_schedule,
            "lr_warmup_steps": opt.warmup_steps,
            "weight_decay": opt.weight_decay,
            "betas": betas,
            "clip_grad": opt.max_grad_norm,
        }
        ledger.native |= {f"critic.optim.{key}": value for key, value in same.items()}
