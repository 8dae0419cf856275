"""An experiment in OpenRLHF's terms: command-line flags and the fidelity ledger.

Sources: ``openrlhf/cli/train_ppo_ray.py`` (flags and their checks), ``openrlhf/trainer/ppo_utils/experience_maker.py``
(advantages), ``openrlhf/models/loss.py``, ``openrlhf/utils/deepspeed`` and ``openrlhf/trainer/ray`` of OpenRLHF 0.11.2.
"""

from __future__ import annotations

from typing import Any

from rlmbench.adapter import Translation
from rlmbench.experiment import Algorithm, Experiment
from rlmbench.ledger import Ledger
from rlmbench_openrlhf.traits import own_critic_devices, traits
from rlmbench_openrlhf.untested import untested

AGGREGATIONS = {"token_mean": "token-mean", "sequence_mean": "seq-mean-token-mean"}
ZERO_STAGES = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3}
ONE_RANK_STAGE = 2
"""OpenRLHF's default; on one rank every stage holds the whole state."""


def translate(experiment: Experiment, device: str) -> Translation:
    """OpenRLHF's flags for `experiment` on `device`."""
    ledger = Ledger(experiment)
    _algorithm(ledger, experiment)
    _kl(ledger, experiment)
    _model(ledger, experiment, device)
    _workload(ledger, experiment)
    _batches(ledger, experiment)
    _optimizer(ledger, experiment)
    _critic(ledger, experiment)
    _parallelism(ledger, experiment, device)
    _placement(ledger, experiment, device)
    _measurement(ledger, experiment)
    _fixed(ledger, experiment, device)
    facts, parts = expected_facts(experiment), untested(experiment, device)
    return Translation("openrlhf", "openrlhf", ledger.native, tuple(ledger.entries), facts, parts, traits(experiment))


def expected_facts(experiment: Experiment) -> dict[str, object]:
    """What the run must turn out to be (`hooks.engine_facts`)."""
    return {"world_size": training_ranks(experiment), "weights_dtype": "bfloat16", "model_wrapper": "DeepSpeedEngine"}


def training_ranks(experiment: Experiment) -> int:
    """Processes of each trained model: OpenRLHF counts the ranks of ring attention and AutoTP among its devices."""
    split = experiment.parallelism
    return split.data * split.context * split.tensor


def ray_devices(experiment: Experiment) -> int:
    """Devices that OpenRLHF reserves from Ray; with fewer it would wait for ever (``ray.get(pg.ready())`` has no time-out).

    Actor and reference share theirs. A critic shares them too, but for disaggregated placement, where it has its own.
    """
    ranks = training_ranks(experiment)
    return ranks + experiment.placement.rollout_devices + (ranks if own_critic_devices(experiment) else 0)


def _algorithm(ledger: Ledger, experiment: Experiment) -> None:
    opt = experiment.optimization
    _advantage(ledger, experiment)
    if opt.policy_loss == "clip":
        ledger.exact("optimization.policy_loss", reason="the clipped surrogate, without dual clip")
    else:
        ledger.unsupported("optimization.policy_loss", f"OpenRLHF has no {opt.policy_loss}; it has clip")
    sequence_ratios = opt.importance_sampling == "sequence"
    ledger.exact("optimization.importance_sampling", "actor.policy_loss_type", "gspo" if sequence_ratios else "ppo")
    if opt.loss_aggregation not in AGGREGATIONS:
        ledger.unsupported(
            "optimization.loss_aggregation",
            "OpenRLHF divides by the tokens (token_mean) or the samples (sequence_mean) of each optimizer step",
        )
    elif sequence_ratios and opt.loss_aggregation != "sequence_mean":
        ledger.approximated("optimization.loss_aggregation", "OpenRLHF's gspo always averages per sample, then over samples")
    else:
        ledger.exact("optimization.loss_aggregation", "actor.loss_agg_mode", AGGREGATIONS[opt.loss_aggregation])
    low_high = [opt.clip_low, opt.clip_high]
    ledger.exact("optimization.clip_low", "actor.eps_clip_low_high", low_high)
    ledger.exact("optimization.clip_high", "actor.eps_clip_low_high", low_high)
    ledger.supported_if(
        not opt.dynamic_sampling,
        "optimization.dynamic_sampling",
        "off",
        "OpenRLHF puts later prompts in the place of filtered ones, so steps would not hold their planned prompts",
    )
    ledger.supported_if(
        not opt.mask_truncated, "optimization.mask_truncated", "off", "OpenRLHF penalizes truncated samples, but masks none"
    )
    if opt.overlong_buffer_tokens == 0:
        ledger.exact("optimization.overlong_buffer_tokens", reason="off")
    elif experiment.workload.replay:
        ledger.approximated("optimization.overlong_buffer_tokens", "rewards are replayed, so no length penalty is added to them")
    else:
        ledger.exact("optimization.overlong_buffer_tokens", "reward.overlong_buffer_len", opt.overlong_buffer_tokens)


def _advantage(ledger: Ledger, experiment: Experiment) -> None:
    """The estimator and what advantages are divided by: one flag in OpenRLHF (`compute_advantages_and_returns`)."""
    opt = experiment.optimization
    field, key, scaling = "optimization.algorithm", "algo.advantage.estimator", opt.advantage_scaling
    scaled = "optimization.advantage_scaling"
    if opt.algorithm is Algorithm.GRPO:
        estimator = {"group": "group_norm", "none": "dr_grpo", "batch": "reinforce_baseline"}[scaling]
        ledger.exact(field, key, estimator)
        if scaling == "batch":
            ledger.approximated(scaled, "advantages less the group's mean are whitened over the batch's tokens, not its samples")
        else:
            ledger.exact(scaled, reason="standard deviation + 1e-9" if scaling == "group" else "dr_grpo: the group's mean only")
    elif opt.algorithm is Algorithm.RLOO:
        ledger.exact(field, key, "rloo")
        ledger.supported_if(scaling == "none", scaled, "not scaled", "OpenRLHF's rloo does not scale advantages")
    elif opt.algorithm in (Algorithm.PPO, Algorithm.REINFORCE_PP):
        ledger.exact(field, key, "gae" if opt.algorithm is Algorithm.PPO else "reinforce")
        if scaling == "batch":
            ledger.exact(scaled, reason="advantages are whitened over the batch's tokens")
        elif scaling == "none":
            ledger.approximated(scaled, "the mean over the batch's tokens is still subtracted", "algo.advantage.no_std_norm", True)
        else:
            ledger.approximated(scaled, "OpenRLHF whitens advantages over the batch's tokens, not by group")
    else:
        ledger.unsupported(field, f"OpenRLHF has no {opt.algorithm.value}")
        ledger.exact(scaled, reason="follows the algorithm")


def _kl(ledger: Ledger, experiment: Experiment) -> None:
    kl = experiment.optimization.kl
    ledger.exact(
        "optimization.kl.coefficient", "algo.kl.init_coef", kl.coefficient, reason="" if kl.coefficient else "no reference model is made"
    )
    if kl.coefficient:
        ledger.exact("optimization.kl.placement", "algo.kl.use_loss", kl.placement == "loss")
        ledger.exact("optimization.kl.estimator", "algo.kl.estimator", kl.estimator, reason="each token's value is clamped to +-10")
    else:
        ledger.exact("optimization.kl.placement", reason="no KL term")
        ledger.exact("optimization.kl.estimator", reason="no KL term")


def _model(ledger: Ledger, experiment: Experiment, device: str) -> None:
    model = experiment.model
    for field in ("shape", "hub", "path", "weights_seed"):
        given = getattr(model, field) is not None
        ledger.exact(f"model.{field}", reason="rlmbench hands OpenRLHF a model folder" if given else "not given")
    if model.dtype == "bfloat16":
        ledger.exact("model.dtype", "ds.param_dtype", "bf16", reason="DeepSpeed's optimizer keeps float32 copies of the weights")
    else:
        ledger.approximated(
            "model.dtype",
            "OpenRLHF trains and generates in 16 bits only: bfloat16 weights, of which DeepSpeed's optimizer keeps float32 copies",
            "ds.param_dtype",
            "bf16",
        )
    ledger.exact("model.gradient_checkpointing", "actor.gradient_checkpointing_enable", model.gradient_checkpointing)
    if model.attention == "flash_attention_2" and device == "cpu":
        ledger.unsupported("model.attention", "there is no flash attention on a CPU")
    elif model.attention == "flash_attention_2":
        why = "the environment that rlmbench builds has no flash-attn: give one of your own with --python"
        ledger.exact("model.attention", "ds.attn_implementation", model.attention, reason=why)
    else:
        ledger.exact("model.attention", "ds.attn_implementation", model.attention)
    # Packing needs flash attention's variable-length kernels.
    ledger.native["ds.packing_samples"] = model.attention == "flash_attention_2"


def _workload(ledger: Ledger, experiment: Experiment) -> None:
    work = experiment.workload
    ledger.exact(
        "workload.prompts", reason="one line of OpenRLHF's JSON Lines file per step and prompt; rlmbench switches its shuffling off"
    )
    ledger.exact("workload.prompts_per_step", "rollout.batch_size", work.prompts_per_step, reason="prompts")
    longest = work.max_prompt_tokens + work.max_response_tokens
    ledger.exact("workload.max_prompt_tokens", "data.max_len", longest, reason="prompt and response; rlmbench leaves longer prompts out")
    ledger.exact("workload.max_response_tokens", "rollout.max_new_tokens", work.max_response_tokens)
    if work.replay:
        how = "an agent with max_tokens and ignore_eos per sample; log-probs are untouched"
    else:
        how = "natural lengths; OpenRLHF asks vLLM not to end a response with its first token"
    ledger.exact("workload.replay", reason=how)
    ledger.exact("workload.sampling.temperature", "rollout.temperature", work.sampling.temperature)
    ledger.exact("workload.sampling.top_p", "rollout.top_p", work.sampling.top_p)
    ledger.exact("workload.sampling.top_k", reason="OpenRLHF has no flag: rlmbench's agent sets it")


def _batches(ledger: Ledger, experiment: Experiment) -> None:
    opt = experiment.optimization
    ledger.exact("optimization.group_size", "rollout.n_samples_per_prompt", opt.group_size)
    ledger.exact("optimization.mini_batch_samples", "train.batch_size", opt.mini_batch_samples, reason="samples, over all devices")
    ledger.exact("optimization.micro_batch_samples", "train.micro_batch_size", opt.micro_batch_samples, reason="samples per device")
    ledger.native["rollout.micro_batch_size"] = opt.micro_batch_samples
    ledger.exact("optimization.epochs", "train.max_epochs", opt.epochs)


def _optimizer(ledger: Ledger, experiment: Experiment) -> None:
    opt = experiment.optimization
    updates = experiment.measurement.steps * experiment.updates_per_step
    schedule = "constant_with_warmup" if opt.lr_schedule == "constant" and opt.warmup_steps else opt.lr_schedule
    # OpenRLHF rounds ratio x updates up: half an update less gives the whole number back, whatever floating point does to it.
    ratio = max(0.0, opt.warmup_steps - 0.5) / updates
    ledger.exact("optimization.learning_rate", "actor.adam.lr", opt.learning_rate)
    ledger.exact("optimization.lr_schedule", "actor.lr_scheduler", schedule)
    ledger.exact("optimization.warmup_steps", "actor.lr_warmup_ratio", ratio, reason=f"of {updates} updates, rounded up")
    ledger.exact(
        "optimization.weight_decay", "actor.adam.weight_decay", opt.weight_decay, reason="OpenRLHF leaves biases and norms out of it"
    )
    betas = [opt.adam_beta1, opt.adam_beta2]
    ledger.exact("optimization.adam_beta1", "actor.adam.betas", betas)
    ledger.exact("optimization.adam_beta2", "actor.adam.betas", betas)
    ledger.exact("optimization.max_grad_norm", "actor.max_norm", opt.max_grad_norm)


def _critic(ledger: Ledger, experiment: Experiment) -> None:
    critic = experiment.optimization.critic
    if critic is None:
        ledger.exact("optimization.critic", reason="no critic")
        return
    ledger.exact("optimization.critic.learning_rate", "critic.adam.lr", critic.learning_rate)
    ledger.exact("optimization.critic.gamma", "algo.advantage.gamma", critic.gamma)
    ledger.exact("optimization.critic.gae_lambda", "algo.advantage.lambd", critic.gae_lambda)
    ledger.exact("optimization.critic.value_clip", "critic.value_clip", critic.value_clip)
    ledger.exact("optimization.critic.value_loss_coefficient", reason="a separate update: no weight between the two losses is needed")
    for flag in ("lr_scheduler", "lr_warmup_ratio", "adam.weight_decay", "adam.betas", "max_norm"):
        ledger.native[f"critic.{flag}"] = ledger.native[f"actor.{flag}"]
    devices = training_ranks(experiment)
    ledger.native |= {"critic.num_nodes": 1, "critic.num_gpus_per_node": devices}


def _parallelism(ledger: Ledger, experiment: Experiment, device: str) -> None:
    split, ranks = experiment.parallelism, training_ranks(experiment)
    ledger.exact(
        "parallelism.data",
        "actor.num_gpus_per_node",
        ranks,
        reason="devices of one node, those of other splits included; checked in the run",
    )
    ledger.native |= {"actor.num_nodes": 1, "ref.num_nodes": 1, "ref.num_gpus_per_node": ranks}
    for field in ("pipeline", "expert"):
        ledger.supported_if(getattr(split, field) == 1, f"parallelism.{field}", "not split", f"OpenRLHF has no {field} parallelism")
    stage = ONE_RANK_STAGE if split.data == 1 else ZERO_STAGES[split.sharding]
    if split.tensor == 1:
        ledger.exact("parallelism.tensor", reason="not split")
    elif device == "cpu":
        ledger.unsupported("parallelism.tensor", "DeepSpeed's AutoTP is not driven on a CPU")
    elif stage == 3:
        ledger.unsupported("parallelism.tensor", "DeepSpeed's AutoTP needs sharding zero2 or less")
    else:
        ledger.exact("parallelism.tensor", "ds.tensor_parallel_size", split.tensor, reason="DeepSpeed's AutoTP")
    if split.context == 1:
        ledger.exact("parallelism.context", reason="not split")
    elif experiment.model.attention != "flash_attention_2":
        ledger.unsupported("parallelism.context", "OpenRLHF's ring attention needs packed sequences: set model.attention=flash_attention_2")
    else:
        ledger.exact("parallelism.context", "ds.ring_attn_size", split.context, reason="ring attention")
    reason = "one rank: every stage holds the whole state" if split.data == 1 else ""
    ledger.exact("parallelism.sharding", "ds.zero_stage", stage, reason=reason)
    ledger.exact("parallelism.rollout_tensor", "vllm.tensor_parallel_size", split.rollout_tensor)


def _placement(ledger: Ledger, experiment: Experiment, device: str) -> None:
    place, ranks = experiment.placement, training_ranks(experiment)
    if place.rollout_engine in ("auto", "vllm"):
        ledger.exact("placement.rollout_engine", reason="generation by vllm")
    else:
        ledger.unsupported("placement.rollout_engine", f"OpenRLHF generates with vLLM, not {place.rollout_engine}")
    rollout = ranks if place.mode == "colocated" else place.rollout_devices
    engines, left = divmod(rollout, experiment.parallelism.rollout_tensor)
    if engines == 0 or left:
        ledger.unsupported(
            "placement.rollout_devices",
            f"{rollout} rollout devices are no multiple of rollout_tensor {experiment.parallelism.rollout_tensor}",
        )
    else:
        shared = "shared with training: " if place.mode == "colocated" else ""
        ledger.exact("placement.rollout_devices", "vllm.num_engines", engines, reason=f"{shared}devices / rollout_tensor")
    ledger.exact("placement.fast_rollout_poll", reason="OpenRLHF waits for each rollout; it does not poll")
    if place.mode == "colocated":
        asleep = "; engine and optimizer take turns in device memory" if device == "cuda" else ""
        ledger.exact("placement.mode", "train.colocate_all", True, reason=f"all models and the engine on the same devices{asleep}")
        ledger.native |= {"vllm.enable_sleep": device == "cuda", "ds.enable_sleep": device == "cuda"}
    elif place.mode == "async":
        ledger.exact("placement.mode", "train.async_enable", True, reason="all trained models share the training devices")
        ledger.native["train.colocate_all"] = True
    elif experiment.optimization.critic:
        ledger.approximated(
            "placement.mode", f"OpenRLHF gives the critic {ranks} devices of its own beside the actor's", "train.colocate_actor_ref", True
        )
    else:
        ledger.exact("placement.mode", "train.colocate_actor_ref", True, reason="actor and reference share the training devices")
    if place.mode != "async":
        ledger.exact("placement.max_staleness", reason="synchronous: 0")
    elif place.max_staleness == 0:
        ledger.unsupported("placement.max_staleness", "OpenRLHF's asynchronous trainer runs at least one step ahead: set it to 1 or more")
    else:
        ledger.exact("placement.max_staleness", "train.async_queue_size", place.max_staleness, reason="steps that may be generated ahead")


def _measurement(ledger: Ledger, experiment: Experiment) -> None:
    measure = experiment.measurement
    ledger.exact("measurement.steps", "train.num_episodes", 1, reason="the file holds as many steps as are asked for")
    ledger.exact("measurement.seed", "train.seed", measure.seed)
    for field in ("warmup_steps", "wall_timeout_s", "stall_timeout_s", "probe", "collector_interval_s", "synchronize_stages"):
        ledger.exact(f"measurement.{field}", reason="seen to by rlmbench")
    ledger.exact("measurement.threads_per_process", reason="OMP_NUM_THREADS")
    if not measure.strict_order:
        ledger.exact("measurement.strict_order", reason="OpenRLHF trains a step in the order in which samples arrive, shuffled")
    elif experiment.placement.mode == "async" or training_ranks(experiment) > 1 or experiment.workload.replay is None:
        ledger.unsupported(
            "measurement.strict_order", "plan order is kept for one training rank, replay, and OpenRLHF's synchronous trainer only"
        )
    else:
        ledger.exact("measurement.strict_order", reason="samples are sorted into plan order, and are not shuffled for training")


def _fixed(ledger: Ledger, experiment: Experiment, device: str) -> None:
    """What no experiment changes: no correction between rollout and training, and what the device asks for."""
    colocated = experiment.placement.mode == "colocated"
    fixed: dict[str, Any] = {
        "algo.advantage.is_correction_level": "off",
        "vllm.sync_backend": "gloo" if device == "cpu" else "nccl",
        "vllm.enforce_eager": device == "cpu",
        "vllm.gpu_memory_utilization": 0.5 if colocated else 0.9,
    }
    ledger.native.update(fixed)
