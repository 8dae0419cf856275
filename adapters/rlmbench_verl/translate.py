"""An experiment in verl's terms: hydra overrides and the fidelity ledger.

Sources: ``verl/trainer/config/ppo_trainer.yaml`` and what it composes, ``verl/trainer/ppo/core_algos.py`` (advantage
estimators, policy losses, KL), ``verl/trainer/ppo/v1`` (trainer) of verl 0.9.1.
"""

from __future__ import annotations

from typing import Any

from rlmbench.adapter import Translation
from rlmbench.experiment import Algorithm, Experiment
from rlmbench.ledger import Ledger

ESTIMATORS = {
    Algorithm.GRPO: "grpo",
    Algorithm.RLOO: "rloo",
    Algorithm.PPO: "gae",
    Algorithm.REINFORCE_PP: "reinforce_plus_plus",
}
AGGREGATIONS = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "sequence_sum_constant": "seq-mean-token-sum-norm",
}
LOSSES = {"clip": "vanilla", "cispo": "cispo", "sapo": "sapo"}
KL_FORMS = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
DUAL_CLIP_OFF = 1e6
"""verl always clips negative advantages a second time, at clip_ratio_c; a bound that no ratio reaches switches it off."""

ACTOR, ROLLOUT, REFERENCE, MODEL = (f"actor_rollout_ref.{part}." for part in ("actor", "rollout", "ref", "model"))


def translate(experiment: Experiment, device: str) -> Translation:
    """verl's configuration for `experiment` on `device`; keys with a leading + are none of verl's defaults."""
    ledger = Ledger(experiment)
    _algorithm(ledger, experiment)
    _model(ledger, experiment, device)
    _workload(ledger, experiment)
    _batches(ledger, experiment)
    _optimizer(ledger, experiment)
    _critic(ledger, experiment, device)
    _parallelism(ledger, experiment, device)
    _placement(ledger, experiment, device)
    _measurement(ledger, experiment)
    _fixed(ledger, experiment, device)
    return Translation("verl", "verl", ledger.native, tuple(ledger.entries), expected_facts(experiment))


def expected_facts(experiment: Experiment) -> dict[str, object]:
    """What the run must turn out to be (`hooks.engine_facts`)."""
    return {"world_size": experiment.parallelism.data, "weights_dtype": "float32", "training_devices": experiment.parallelism.data}


def _algorithm(ledger: Ledger, experiment: Experiment) -> None:
    opt = experiment.optimization
    if opt.algorithm in ESTIMATORS:
        ledger.exact("optimization.algorithm", "algorithm.adv_estimator", ESTIMATORS[opt.algorithm])
    else:
        ledger.unsupported(
            "optimization.algorithm", f"{opt.algorithm.value} runs in verl's V0 trainer only, which this adapter does not drive"
        )
    if opt.algorithm is Algorithm.GRPO:
        if opt.advantage_scaling == "batch":
            ledger.unsupported("optimization.advantage_scaling", "verl's grpo divides by the group's deviation or not at all")
        else:
            by_group = opt.advantage_scaling == "group"
            ledger.exact(
                "optimization.advantage_scaling", "algorithm.norm_adv_by_std_in_grpo", by_group, reason="standard deviation + 1e-6"
            )
    elif opt.algorithm is Algorithm.RLOO:
        ledger.supported_if(
            opt.advantage_scaling == "none", "optimization.advantage_scaling", "not scaled", "verl's rloo does not scale advantages"
        )
    elif opt.advantage_scaling == "batch":
        ledger.exact("optimization.advantage_scaling", reason="advantages are whitened over the batch")
    else:
        ledger.approximated(
            "optimization.advantage_scaling", f"verl's {ESTIMATORS.get(opt.algorithm)} always whitens advantages over the batch"
        )
    if opt.importance_sampling == "sequence" and opt.policy_loss == "clip":
        ledger.exact("optimization.policy_loss", reason="the clipped surrogate of gspo")
        ledger.exact("optimization.importance_sampling", ACTOR + "policy_loss.loss_mode", "gspo")
    elif opt.policy_loss in LOSSES:
        ledger.exact("optimization.policy_loss", ACTOR + "policy_loss.loss_mode", LOSSES[opt.policy_loss])
        why = f"verl's {opt.policy_loss} has token-level ratios only"
        ledger.supported_if(opt.importance_sampling == "token", "optimization.importance_sampling", "per token", why)
    else:
        ledger.unsupported("optimization.policy_loss", f"verl has no {opt.policy_loss}; it has {', '.join(LOSSES)}")
        ledger.exact("optimization.importance_sampling", reason="follows the policy loss")
    if opt.loss_aggregation in AGGREGATIONS:
        ledger.exact("optimization.loss_aggregation", ACTOR + "loss_agg_mode", AGGREGATIONS[opt.loss_aggregation])
    else:
        ledger.unsupported("optimization.loss_aggregation", "verl averages over the mini-batch, never over a micro-batch")
    ledger.exact("optimization.clip_low", ACTOR + "clip_ratio_low", opt.clip_low)
    ledger.exact("optimization.clip_high", ACTOR + "clip_ratio_high", opt.clip_high, reason="and the dual clip is moved out of reach")
    ledger.native[ACTOR + "clip_ratio"] = opt.clip_low
    ledger.native[ACTOR + "clip_ratio_c"] = DUAL_CLIP_OFF
    _kl(ledger, experiment)
    off = "off"
    if opt.dynamic_sampling and experiment.workload.replay:
        ledger.unsupported(
            "optimization.dynamic_sampling", "replayed samples are fixed, so groups cannot be sampled again: set it to false"
        )
    else:
        ledger.exact("optimization.dynamic_sampling", "algorithm.filter_groups.enable", opt.dynamic_sampling)
    ledger.supported_if(not opt.mask_truncated, "optimization.mask_truncated", off, "verl does not mask truncated samples by itself")
    if opt.overlong_buffer_tokens and experiment.workload.replay:
        ledger.approximated("optimization.overlong_buffer_tokens", "rewards are replayed, so no length penalty is added to them")
    else:
        ledger.supported_if(
            opt.overlong_buffer_tokens == 0,
            "optimization.overlong_buffer_tokens",
            off,
            "only with verl's dapo reward manager, not driven yet",
        )


def _kl(ledger: Ledger, experiment: Experiment) -> None:
    kl = experiment.optimization.kl
    in_loss, in_reward = kl.coefficient > 0 and kl.placement == "loss", kl.coefficient > 0 and kl.placement == "reward"
    ledger.native[ACTOR + "use_kl_loss"] = in_loss
    ledger.native["algorithm.use_kl_in_reward"] = in_reward
    if in_reward:
        ledger.exact("optimization.kl.coefficient", "algorithm.kl_ctrl.kl_coef", kl.coefficient)
        ledger.exact("optimization.kl.estimator", "algorithm.kl_penalty", KL_FORMS[kl.estimator])
    elif in_loss:
        ledger.exact("optimization.kl.coefficient", ACTOR + "kl_loss_coef", kl.coefficient)
        ledger.exact("optimization.kl.estimator", ACTOR + "kl_loss_type", KL_FORMS[kl.estimator])
    else:
        ledger.exact("optimization.kl.coefficient", reason="no reference model is made")
        ledger.exact("optimization.kl.estimator", reason="no KL term")
    ledger.exact("optimization.kl.placement", reason="use_kl_in_reward" if in_reward else "use_kl_loss" if in_loss else "no KL term")


def _model(ledger: Ledger, experiment: Experiment, device: str) -> None:
    model = experiment.model
    for field in ("shape", "hub", "path", "weights_seed"):
        given = getattr(model, field) is not None
        ledger.exact(f"model.{field}", reason="rlmbench hands verl a model folder" if given else "not given")
    ledger.native[ROLLOUT + "dtype"] = model.dtype
    precision = {"bfloat16": "bf16", "float32": "fp32"}[model.dtype]
    for place in _fsdp_sections(experiment):
        ledger.native[f"+{place}mixed_precision.param_dtype"] = precision
    if model.dtype == "float32":
        ledger.exact("model.dtype", reason="fp32 in FSDP's mixed precision and in the rollout engine")
    else:
        ledger.approximated("model.dtype", "float32 weights with bfloat16 compute in training, bfloat16 in the rollout engine")
    ledger.exact("model.gradient_checkpointing", MODEL + "enable_gradient_checkpointing", model.gradient_checkpointing)
    if model.attention == "flash_attention_2" and device == "cpu":
        ledger.unsupported("model.attention", "there is no flash attention on a CPU")
    else:
        ledger.exact("model.attention", f"+{MODEL}override_config.attn_implementation", model.attention)
    # Packing needs flash attention's variable-length kernels.
    ledger.native[MODEL + "use_remove_padding"] = model.attention == "flash_attention_2"


def _fsdp_sections(experiment: Experiment) -> list[str]:
    sections = [ACTOR + "fsdp_config.", REFERENCE + "fsdp_config."]
    return [*sections, "critic.fsdp."] if experiment.optimization.critic else sections


def _workload(ledger: Ledger, experiment: Experiment) -> None:
    work = experiment.workload
    ledger.exact("workload.prompts", reason="one row of verl's Parquet file per step and prompt, in plan order")
    ledger.exact("workload.prompts_per_step", "data.train_batch_size", work.prompts_per_step, reason="prompts")
    ledger.exact("workload.max_prompt_tokens", "data.max_prompt_length", work.max_prompt_tokens)
    ledger.exact("workload.max_response_tokens", "data.max_response_length", work.max_response_tokens)
    how = "an agent loop with max_tokens and ignore_eos per sample; log-probs are untouched" if work.replay else "natural lengths"
    ledger.exact("workload.replay", reason=how)
    ledger.exact("workload.sampling.temperature", ROLLOUT + "temperature", work.sampling.temperature)
    ledger.exact("workload.sampling.top_p", ROLLOUT + "top_p", work.sampling.top_p)
    ledger.exact(
        "workload.sampling.top_k", ROLLOUT + "top_k", work.sampling.top_k or -1, reason="verl and vLLM write -1 for the whole vocabulary"
    )


def _batches(ledger: Ledger, experiment: Experiment) -> None:
    opt, split = experiment.optimization, experiment.parallelism
    ledger.exact("optimization.group_size", ROLLOUT + "n", opt.group_size)
    if opt.mini_batch_samples % opt.group_size:
        ledger.unsupported(
            "optimization.mini_batch_samples", f"verl counts mini-batches in prompts: give a multiple of group_size ({opt.group_size})"
        )
    else:
        prompts = opt.mini_batch_samples // opt.group_size
        ledger.exact(
            "optimization.mini_batch_samples", ACTOR + "ppo_mini_batch_size", prompts, reason="verl counts prompts: samples / group_size"
        )
    ledger.exact("optimization.micro_batch_samples", ACTOR + "ppo_micro_batch_size_per_gpu", opt.micro_batch_samples)
    ledger.native[ROLLOUT + "log_prob_micro_batch_size_per_gpu"] = opt.micro_batch_samples
    ledger.native[REFERENCE + "log_prob_micro_batch_size_per_gpu"] = opt.micro_batch_samples
    ledger.exact("optimization.epochs", ACTOR + "ppo_epochs", opt.epochs)
    if experiment.samples_per_step % split.data:
        ledger.unsupported("parallelism.data", "verl pads a step with synthetic samples unless its samples divide by the ranks")
    else:
        ledger.exact("parallelism.data", "trainer.n_gpus_per_node", split.data, reason="devices of one node; checked in the run")


def _optimizer(ledger: Ledger, experiment: Experiment) -> None:
    opt = experiment.optimization
    optim = ACTOR + "optim."
    ledger.exact("optimization.learning_rate", optim + "lr", opt.learning_rate)
    if opt.lr_schedule == "linear":
        ledger.unsupported("optimization.lr_schedule", "verl has constant and cosine schedules")
    else:
        ledger.exact("optimization.lr_schedule", optim + "lr_scheduler_type", opt.lr_schedule)
    ledger.exact("optimization.warmup_steps", optim + "lr_warmup_steps", opt.warmup_steps)
    ledger.exact("optimization.weight_decay", optim + "weight_decay", opt.weight_decay)
    betas = [opt.adam_beta1, opt.adam_beta2]
    ledger.exact("optimization.adam_beta1", optim + "betas", betas)
    ledger.exact("optimization.adam_beta2", optim + "betas", betas)
    ledger.exact("optimization.max_grad_norm", ACTOR + "grad_clip", opt.max_grad_norm)


def _critic(ledger: Ledger, experiment: Experiment, device: str) -> None:
    opt, critic = experiment.optimization, experiment.optimization.critic
    if critic is None:
        ledger.exact("optimization.critic", reason="no critic")
        return
    ledger.exact("optimization.critic.learning_rate", "critic.optim.lr", critic.learning_rate)
    ledger.exact("optimization.critic.gamma", "algorithm.gamma", critic.gamma)
    ledger.exact("optimization.critic.gae_lambda", "algorithm.lam", critic.gae_lambda)
    ledger.exact("optimization.critic.value_clip", "critic.cliprange_value", critic.value_clip)
    ledger.exact("optimization.critic.value_loss_coefficient", reason="a separate update: no weight between the two losses is needed")
    ledger.native.update(
        {
            "critic.ppo_mini_batch_size": opt.mini_batch_samples // opt.group_size,
            "critic.ppo_micro_batch_size_per_gpu": opt.micro_batch_samples,
            "critic.ppo_epochs": opt.epochs,
            "critic.optim.weight_decay": opt.weight_decay,
            "critic.optim.betas": [opt.adam_beta1, opt.adam_beta2],
            "critic.grad_clip": opt.max_grad_norm,
            "critic.model.enable_gradient_checkpointing": experiment.model.gradient_checkpointing,
            "critic.model.use_remove_padding": experiment.model.attention == "flash_attention_2",
            "+critic.model.override_config.attn_implementation": experiment.model.attention,
        }
    )


def _parallelism(ledger: Ledger, experiment: Experiment, device: str) -> None:
    split = experiment.parallelism
    for field in ("tensor", "pipeline", "expert"):
        why = f"{field} parallelism needs verl's Megatron engine, which this adapter does not drive yet"
        ledger.supported_if(getattr(split, field) == 1, f"parallelism.{field}", "not split", why)
    if split.context == 1:
        ledger.exact("parallelism.context", reason="not split")
    elif experiment.model.attention != "flash_attention_2":
        ledger.unsupported("parallelism.context", "verl's Ulysses needs packed sequences: set model.attention=flash_attention_2")
    else:
        ledger.exact("parallelism.context", ACTOR + "ulysses_sequence_parallel_size", split.context)
    if split.data == 1:
        ledger.exact("parallelism.sharding", reason="one rank")
    elif split.sharding == "zero3":
        ledger.exact("parallelism.sharding", ACTOR + "fsdp_config.reshard_after_forward", True, reason="FSDP2 over all ranks")
    elif split.sharding == "zero2":
        ledger.exact("parallelism.sharding", ACTOR + "fsdp_config.reshard_after_forward", False, reason="FSDP2 keeps parameters gathered")
    else:
        ledger.approximated("parallelism.sharding", f"verl shards with FSDP2 (zero3) where {split.sharding} was asked for")
    ledger.exact("parallelism.rollout_tensor", ROLLOUT + "tensor_model_parallel_size", split.rollout_tensor)


def _placement(ledger: Ledger, experiment: Experiment, device: str) -> None:
    place = experiment.placement
    if place.rollout_engine in ("auto", "vllm"):
        ledger.exact("placement.rollout_engine", ROLLOUT + "name", "vllm", reason="generation by vllm")
    else:
        ledger.unsupported("placement.rollout_engine", f"this adapter drives verl with vLLM, not {place.rollout_engine}")
    ledger.supported_if(
        place.mode == "colocated", "placement.mode", "trainer_mode sync", "only verl's co-located synchronous trainer is driven yet"
    )
    ledger.native["trainer.v1.trainer_mode"] = "sync"
    ledger.exact("placement.rollout_devices", reason="none of their own")
    ledger.exact("placement.max_staleness", reason="synchronous: 0")
    if place.fast_rollout_poll:
        ledger.exact("placement.fast_rollout_poll", reason="a replay buffer of rlmbench's, by verl's custom_sampler: a poll every 10 ms")
    else:
        ledger.exact("placement.fast_rollout_poll", reason="verl's own replay buffer: a poll every 2 s, shown as a wait")


def _measurement(ledger: Ledger, experiment: Experiment) -> None:
    measure = experiment.measurement
    ledger.exact("measurement.steps", "trainer.total_training_steps", measure.steps)
    ledger.exact("measurement.seed", "data.seed", measure.seed)
    ledger.native.update(
        {ROLLOUT + "seed": measure.seed, ACTOR + "data_loader_seed": measure.seed, ACTOR + "fsdp_config.seed": measure.seed}
    )
    for field in ("warmup_steps", "wall_timeout_s", "stall_timeout_s", "probe", "synchronize_stages"):
        ledger.exact(f"measurement.{field}", reason="seen to by rlmbench")
    ledger.exact("measurement.threads_per_process", reason="OMP_NUM_THREADS")
    ledger.supported_if(
        not measure.strict_order, "measurement.strict_order", "off", "verl sorts a step by length; plan order is not driven yet"
    )


def _fixed(ledger: Ledger, experiment: Experiment, device: str) -> None:
    """What no experiment changes: no validation, checkpoint or service of others, and one process of each helper."""
    longest = experiment.workload.max_prompt_tokens + experiment.workload.max_response_tokens
    fixed: dict[str, Any] = {
        "trainer.device": device,
        "trainer.nnodes": 1,
        "trainer.logger": ["console", "file"],
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": -1,
        "trainer.resume_mode": "disable",
        "trainer.total_epochs": 1,
        "data.shuffle": False,
        "data.dataloader_num_workers": 0,
        "data.filter_overlong_prompts": False,
        ACTOR + "shuffle": False,
        ROLLOUT + "max_model_len": longest,
        ROLLOUT + "calculate_log_probs": True,
        ACTOR + "strategy": "fsdp2",
        REFERENCE + "strategy": "fsdp2",
        "critic.strategy": "fsdp2",
        "reward.num_workers": 1,
    }
    if device == "cpu":
        fixed |= {
            ACTOR + "use_torch_compile": False,
            **{f"{place}use_torch_compile": False for place in _fsdp_sections(experiment)},
            ROLLOUT + "enforce_eager": True,
            ROLLOUT + "free_cache_engine": False,
            f"+{ROLLOUT}enable_sleep_mode": False,
            ROLLOUT + "max_num_batched_tokens": max(512, longest),
            ROLLOUT + "max_num_seqs": 64,
            ROLLOUT + "gpu_memory_utilization": 0.1,
            ROLLOUT + "agent.num_workers": 1,
            ROLLOUT + "checkpoint_engine.update_weights_bucket_megabytes": 32,
            "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        }
    ledger.native.update(fixed)
