"""An experiment in TRL's terms: trainer arguments and the fidelity ledger.

Sources: ``trl/trainer/grpo_config.py``, ``rloo_config.py`` and ``grpo_trainer.py`` of TRL 1.16.0;
``trl/experimental/ppo/ppo_config.py`` and ``ppo_trainer.py`` of TRL 1.12.0; ``transformers/training_args.py`` 5.24.
"""

from __future__ import annotations

from rlmbench.adapter import Translation
from rlmbench.experiment import Algorithm, Experiment
from rlmbench.ledger import Ledger
from rlmbench_trl.traits import traits
from rlmbench_trl.untested import untested

LOSS_TYPES = {
    "token_mean": "dapo",
    "sequence_mean": "grpo",
    "sequence_sum_constant": "dr_grpo",
    "micro_batch_token_mean": "bnpo",
}
# What each loss of its own divides by (grpo_trainer.py, `_compute_loss`): aggregation is not free for these.
OWN_AGGREGATION = {"cispo": "token_mean", "vespo": "token_mean", "sapo": "sequence_mean", "luspo": None}
ALGORITHMS = (Algorithm.GRPO, Algorithm.RLOO, Algorithm.PPO)


def translate(experiment: Experiment, device: str) -> Translation:
    """TRL's configuration for `experiment` on `device` ("cpu" or "cuda"); never raises, see `rlmbench.adapter.Adapter`."""
    ledger = Ledger(experiment)
    algorithm = experiment.optimization.algorithm
    if algorithm in ALGORITHMS:
        ledger.exact("optimization.algorithm", reason=f"TRL's {algorithm.value.upper()}Trainer")
    else:
        ledger.unsupported("optimization.algorithm", f"TRL has no {algorithm.value} trainer; it has grpo, rloo and ppo")
    _model(ledger, experiment)
    _workload(ledger, experiment)
    _optimizer(ledger, experiment)
    _parallelism(ledger, experiment, device)
    _measurement(ledger, experiment)
    _fixed(ledger, device)
    if algorithm is Algorithm.PPO:
        _ppo(ledger, experiment)
    else:
        _group_trainers(ledger, experiment)
        _placement(ledger, experiment, device)
        _grpo(ledger, experiment, device) if algorithm is Algorithm.GRPO else _rloo(ledger, experiment)
    environment = environment_name(experiment, device)
    facts, own = expected_facts(experiment, device), traits(experiment, rollout_engine(experiment, device))
    return Translation("trl", environment, ledger.native, tuple(ledger.entries), facts, untested(experiment, device), own)


def expected_facts(experiment: Experiment, device: str) -> dict[str, object]:
    """What the run must turn out to be (`hooks.facts`): asked for two ranks, accelerate may run one without a word."""
    ranks = experiment.parallelism.data
    facts: dict[str, object] = {"world_size": ranks, "device_type": device, "weights_dtype": "float32"}
    if experiment.optimization.algorithm is not Algorithm.PPO and ranks > 1:
        facts["model_wrapper"] = "DistributedDataParallel" if experiment.parallelism.sharding == "none" else "FullyShardedDataParallel"
    if rollout_engine(experiment, device) == "vllm" and experiment.placement.mode == "colocated":
        facts["rollout_dtype"] = experiment.model.dtype
    return facts


def environment_name(experiment: Experiment, device: str) -> str:
    """The environment (see `environments`) that runs this experiment."""
    if experiment.optimization.algorithm is Algorithm.PPO:
        return "trl-ppo"
    return "trl-vllm" if rollout_engine(experiment, device) == "vllm" else "trl"


def rollout_engine(experiment: Experiment, device: str) -> str:
    """The engine that generates. Left to us, it is HF generate on a CPU and for PPO, which has nothing else, and vLLM on GPUs."""
    asked = experiment.placement.rollout_engine
    if asked != "auto":
        return asked
    return "hf" if device == "cpu" or experiment.optimization.algorithm is Algorithm.PPO else "vllm"


def _model(ledger: Ledger, experiment: Experiment) -> None:
    model = experiment.model
    for field in ("shape", "hub", "path", "weights_seed"):
        given = getattr(model, field) is not None
        ledger.exact(f"model.{field}", reason="rlmbench hands the trainer a model folder" if given else "not given")
    half = model.dtype == "bfloat16"
    if half:
        ledger.approximated("model.dtype", "float32 weights with bfloat16 autocast in training", "bf16", True)
    else:
        ledger.exact("model.dtype", "bf16", False)
    ledger.exact("model.gradient_checkpointing", "gradient_checkpointing", model.gradient_checkpointing)
    ledger.exact("model.attention", reason="attn_implementation of the models that rlmbench loads for the trainer")


def _workload(ledger: Ledger, experiment: Experiment) -> None:
    work = experiment.workload
    ledger.exact("workload.prompts", reason="one dataset row per step and prompt, in plan order")
    ledger.exact("workload.max_prompt_tokens", reason="longer prompts are left out of the plan; TRL has no key for it")
    ledger.exact(
        "workload.replay",
        reason="stopping criteria (HF) or ignore_eos with max_tokens per sample (vLLM); log-probs are untouched"
        if work.replay
        else "natural lengths",
    )


def _optimizer(ledger: Ledger, experiment: Experiment) -> None:
    opt = experiment.optimization
    ledger.exact("optimization.learning_rate", "learning_rate", opt.learning_rate)
    ledger.exact("optimization.lr_schedule", "lr_scheduler_type", opt.lr_schedule)
    ledger.exact("optimization.warmup_steps", "warmup_steps", opt.warmup_steps)
    ledger.exact("optimization.weight_decay", "weight_decay", opt.weight_decay)
    ledger.exact("optimization.adam_beta1", "adam_beta1", opt.adam_beta1)
    ledger.exact("optimization.adam_beta2", "adam_beta2", opt.adam_beta2)
    per_update = experiment.parallelism.data * opt.micro_batch_samples
    ledger.exact("optimization.micro_batch_samples", "per_device_train_batch_size", opt.micro_batch_samples)
    if opt.algorithm is not Algorithm.PPO:
        ledger.exact(
            "optimization.mini_batch_samples",
            "gradient_accumulation_steps",
            opt.mini_batch_samples // per_update,
            reason="mini_batch_samples / (micro_batch_samples x data)",
        )
    ledger.supported_if(
        not opt.dynamic_sampling, "optimization.dynamic_sampling", "off", "TRL does not resample groups whose rewards are all equal"
    )


def _parallelism(ledger: Ledger, experiment: Experiment, device: str) -> None:
    split = experiment.parallelism
    how = "one process" if split.data == 1 else "ranks started by torchrun"
    ledger.exact("parallelism.data", reason=f"{how}; checked in the run")
    for field in ("tensor", "pipeline", "context", "expert"):
        ledger.supported_if(getattr(split, field) == 1, f"parallelism.{field}", "not split", f"TRL trains without {field} parallelism")
    if split.sharding == "none":
        ledger.exact("parallelism.sharding", reason="DistributedDataParallel" if split.data > 1 else "one rank")
    elif split.sharding == "zero1" or device == "cpu":
        why = "FSDP has no optimizer-only sharding" if split.sharding == "zero1" else "TRL silently stays with DDP on a CPU"
        ledger.unsupported("parallelism.sharding", why)
    else:
        mode = {"zero2": "shard_grad_op", "zero3": "full_shard"}[split.sharding]
        ledger.exact("parallelism.sharding", "fsdp", f"{mode} auto_wrap", reason="FSDP in place of DeepSpeed")


def _measurement(ledger: Ledger, experiment: Experiment) -> None:
    measure = experiment.measurement
    ledger.exact("measurement.seed", "seed", measure.seed)
    ledger.exact("placement.fast_rollout_poll", reason="TRL does not poll: generation returns when it is done")
    for field in ("warmup_steps", "wall_timeout_s", "stall_timeout_s", "probe", "collector_interval_s", "synchronize_stages"):
        ledger.exact(f"measurement.{field}", reason="seen to by rlmbench")
    ledger.exact("measurement.threads_per_process", reason="OMP_NUM_THREADS")


def _fixed(ledger: Ledger, device: str) -> None:
    """Arguments that no experiment changes: no reporting service, no checkpoint, every step logged."""
    ledger.native.update(report_to="none", save_strategy="no", logging_steps=1, disable_tqdm=True, use_cpu=device == "cpu")


def _group_trainers(ledger: Ledger, experiment: Experiment) -> None:
    """What GRPO and RLOO share."""
    work, opt, measure = experiment.workload, experiment.optimization, experiment.measurement
    samples = experiment.samples_per_step
    ledger.exact("workload.prompts_per_step", "generation_batch_size", samples, reason="TRL counts completions: prompts x group_size")
    ledger.exact("workload.max_response_tokens", "max_completion_length", work.max_response_tokens)
    ledger.exact("workload.sampling.temperature", "temperature", work.sampling.temperature)
    ledger.exact("workload.sampling.top_p", "top_p", work.sampling.top_p)
    ledger.exact("workload.sampling.top_k", "top_k", work.sampling.top_k)
    ledger.exact("optimization.group_size", "num_generations", opt.group_size)
    ledger.exact("optimization.epochs", "num_iterations", opt.epochs)
    ledger.exact("measurement.steps", "max_steps", measure.steps * experiment.updates_per_step, reason="TRL counts optimizer steps")
    ledger.exact("optimization.clip_low", "epsilon", opt.clip_low)
    ledger.exact("optimization.max_grad_norm", "max_grad_norm", opt.max_grad_norm)
    ledger.exact("optimization.critic", reason="no critic")
    if opt.mask_truncated and work.replay:
        ledger.unsupported("optimization.mask_truncated", "every replayed sample ends at its length and would be masked: set it to false")
    else:
        ledger.exact("optimization.mask_truncated", "mask_truncated_completions", opt.mask_truncated)
    if opt.overlong_buffer_tokens and work.replay:
        ledger.approximated("optimization.overlong_buffer_tokens", "rewards are replayed, so no length penalty is added to them")
    else:
        how = "trl.rewards.get_soft_overlong_punishment as a second reward" if opt.overlong_buffer_tokens else "off"
        ledger.exact("optimization.overlong_buffer_tokens", reason=how)
    ledger.exact(
        "measurement.strict_order",
        reason="samples stay in plan order" if measure.strict_order else "TRL shuffles a step's samples over its micro-batches",
    )
    ledger.native.update(shuffle_dataset=False, remove_unused_columns=False)


def _grpo(ledger: Ledger, experiment: Experiment, device: str) -> None:
    opt = experiment.optimization
    if opt.policy_loss == "clip":
        ledger.exact("optimization.policy_loss", reason="the clipped surrogate of every loss_type below")
        ledger.exact("optimization.loss_aggregation", "loss_type", LOSS_TYPES[opt.loss_aggregation])
        ledger.exact("optimization.clip_high", "epsilon_high", opt.clip_high)
    else:
        ledger.exact("optimization.policy_loss", "loss_type", opt.policy_loss)
        own = OWN_AGGREGATION[opt.policy_loss]
        if own == opt.loss_aggregation:
            ledger.exact("optimization.loss_aggregation", reason=f"{opt.policy_loss} aggregates so in TRL")
        else:
            how = own or "the sum over a sample's tokens, averaged over samples"
            ledger.approximated("optimization.loss_aggregation", f"TRL's {opt.policy_loss} always uses {how}")
        if opt.policy_loss == "cispo":
            ledger.exact(
                "optimization.clip_high", "epsilon_high", 1 + opt.clip_high, reason="TRL's cispo takes the bound of the ratio itself"
            )
        else:
            ledger.exact("optimization.clip_high", "epsilon_high", opt.clip_high)
    ledger.exact("optimization.importance_sampling", "importance_sampling_level", opt.importance_sampling)
    ledger.exact("optimization.advantage_scaling", "scale_rewards", opt.advantage_scaling, reason="standard deviation + 1e-4")
    _kl(ledger, experiment, placement="loss", estimator="k3")
    aligned = opt.mini_batch_samples == experiment.samples_per_step and opt.epochs == 1
    if aligned and rollout_engine(experiment, device) == "hf":
        _note(ledger, "old log-probs", "one update per step: TRL takes them from the training forward and runs no old_logprob stage")
    ledger.native["use_bias_correction_kl"] = False


def _rloo(ledger: Ledger, experiment: Experiment) -> None:
    opt = experiment.optimization
    ledger.supported_if(opt.policy_loss == "clip", "optimization.policy_loss", "clipped surrogate", "TRL's RLOO has the clipped loss only")
    if opt.importance_sampling == "sequence":
        ledger.exact("optimization.importance_sampling", reason="RLOO's ratio is one per sequence (sum of log-probs)")
    else:
        ledger.approximated("optimization.importance_sampling", "TRL's RLOO always uses one ratio per sequence (sum of log-probs)")
    if opt.loss_aggregation == "sequence_mean":
        ledger.exact("optimization.loss_aggregation", reason="mean over samples of one loss per sample")
    else:
        ledger.approximated("optimization.loss_aggregation", "TRL's RLOO averages one loss per sample over the samples")
    ledger.exact("optimization.clip_high", "epsilon_high", opt.clip_high)
    if opt.advantage_scaling == "group":
        ledger.unsupported("optimization.advantage_scaling", "TRL's RLOO divides by the batch's standard deviation or not at all")
    else:
        ledger.exact("optimization.advantage_scaling", "normalize_advantages", opt.advantage_scaling == "batch")
    _kl(ledger, experiment, placement="reward", estimator="k1")


def _kl(ledger: Ledger, experiment: Experiment, *, placement: str, estimator: str) -> None:
    kl = experiment.optimization.kl
    ledger.exact("optimization.kl.coefficient", "beta", kl.coefficient, reason="" if kl.coefficient else "no reference model is loaded")
    for field, own in (("placement", placement), ("estimator", estimator)):
        ledger.supported_if(
            kl.coefficient == 0 or getattr(kl, field) == own,
            f"optimization.kl.{field}",
            f"TRL's {experiment.optimization.algorithm.value} has {own}" if kl.coefficient else "no KL term",
            f"TRL's {experiment.optimization.algorithm.value} can only use {own}",
        )


def _placement(ledger: Ledger, experiment: Experiment, device: str) -> None:
    place, split = experiment.placement, experiment.parallelism
    longest = experiment.workload.max_prompt_tokens + experiment.workload.max_response_tokens
    engine = rollout_engine(experiment, device)
    vllm = engine == "vllm"
    if engine == "sglang":
        ledger.unsupported("placement.rollout_engine", "TRL generates with hf or vllm")
    else:
        ledger.exact("placement.rollout_engine", "use_vllm", vllm, reason=f"generation by {engine}")
    if place.mode == "async":
        ledger.unsupported("placement.mode", "TRL's experimental AsyncGRPO is not driven by this adapter")
    elif place.mode == "disaggregated" and not vllm:
        ledger.unsupported("placement.mode", "rollout devices of their own need rollout_engine vllm")
    elif vllm and place.mode == "disaggregated" and device == "cpu":
        why = "on a CPU weights reach the server through a folder, since TRL's communicator needs a GPU"
        ledger.approximated("placement.mode", why, "vllm_mode", "server")
    elif vllm:
        ledger.exact("placement.mode", "vllm_mode", "colocate" if place.mode == "colocated" else "server")
    else:
        ledger.exact("placement.mode", reason="generation in the training process")
    ledger.exact("placement.max_staleness", reason="synchronous: 0")
    if place.mode == "disaggregated":
        ledger.supported_if(
            place.rollout_devices == split.rollout_tensor,
            "placement.rollout_devices",
            "one vLLM server",
            "this adapter starts one vLLM server: rollout_devices must equal parallelism.rollout_tensor",
        )
    else:
        ledger.exact("placement.rollout_devices", reason="none of their own")
    if vllm and place.mode == "colocated":
        ledger.exact("parallelism.rollout_tensor", "vllm_tensor_parallel_size", split.rollout_tensor)
    elif vllm:
        ledger.exact("parallelism.rollout_tensor", reason="--tensor-parallel-size of the server")
    else:
        ledger.supported_if(split.rollout_tensor == 1, "parallelism.rollout_tensor", "not split", "HF generate is not split over devices")
    if vllm:
        ledger.native["vllm_max_model_length"] = longest
        _note(
            ledger, "importance correction", "TRL's default for vLLM: truncated train/rollout correction, old log-probs are always computed"
        )


def _ppo(ledger: Ledger, experiment: Experiment) -> None:
    """TRL 1.12's PPOTrainer: one joint loss and optimizer step for policy and critic."""
    work, opt, split, measure = experiment.workload, experiment.optimization, experiment.parallelism, experiment.measurement
    critic = opt.critic
    assert critic is not None  # Optimization's validator sees to it
    ledger.exact(
        "workload.prompts_per_step",
        "gradient_accumulation_steps",
        work.prompts_per_step // (opt.micro_batch_samples * split.data),
        reason="TRL's batch is micro-batch x accumulation x ranks",
    )
    ledger.supported_if(
        opt.mini_batch_samples == experiment.samples_per_step,
        "optimization.mini_batch_samples",
        "one optimizer step per epoch",
        "TRL's PPO makes one optimizer step per epoch whatever num_mini_batches says: mini_batch_samples must equal the step's samples",
    )
    ledger.supported_if(opt.group_size == 1, "optimization.group_size", "one", "TRL's PPO draws one sample per prompt")
    ledger.exact("workload.max_response_tokens", "response_length", work.max_response_tokens)
    ledger.exact("workload.sampling.temperature", "temperature", work.sampling.temperature)
    ledger.supported_if(work.sampling.top_p == 1, "workload.sampling.top_p", "fixed at 1", "TRL's PPO always samples with top_p 1")
    ledger.supported_if(work.sampling.top_k == 0, "workload.sampling.top_k", "fixed at 0", "TRL's PPO always samples without top_k")
    ledger.exact("optimization.epochs", "num_ppo_epochs", opt.epochs)
    ledger.exact("measurement.steps", "total_episodes", measure.steps * experiment.samples_per_step, reason="TRL counts episodes")
    ledger.supported_if(opt.policy_loss == "clip", "optimization.policy_loss", "clipped surrogate", "TRL's PPO has the clipped loss only")
    if opt.loss_aggregation == "micro_batch_token_mean":
        ledger.exact("optimization.loss_aggregation", reason="token mean of each micro-batch")
    else:
        ledger.approximated(
            "optimization.loss_aggregation", "TRL's PPO averages over the tokens of each micro-batch, then over micro-batches"
        )
    ledger.supported_if(
        opt.importance_sampling == "token", "optimization.importance_sampling", "per token", "TRL's PPO has token-level ratios only"
    )
    if opt.advantage_scaling == "batch":
        ledger.exact("optimization.advantage_scaling", reason="advantages are whitened over the batch")
    else:
        ledger.approximated("optimization.advantage_scaling", "TRL's PPO always whitens advantages over the batch")
    if opt.clip_low == opt.clip_high:
        ledger.exact("optimization.clip_low", "cliprange", opt.clip_low)
        ledger.exact("optimization.clip_high", "cliprange", opt.clip_high)
    else:
        ledger.unsupported("optimization.clip_high", "TRL's PPO clips symmetrically: clip_high must equal clip_low")
        ledger.exact("optimization.clip_low", "cliprange", opt.clip_low)
    ledger.exact("optimization.kl.coefficient", "kl_coef", opt.kl.coefficient, reason="the reference model is loaded at 0 too")
    ledger.supported_if(
        opt.kl.coefficient == 0 or opt.kl.placement == "reward",
        "optimization.kl.placement",
        "in the reward",
        "TRL's PPO puts the KL in the reward",
    )
    if opt.kl.estimator == "k2":
        ledger.unsupported("optimization.kl.estimator", "TRL's PPO has k1 and k3")
    else:
        ledger.exact("optimization.kl.estimator", "kl_estimator", opt.kl.estimator)
    ledger.approximated("optimization.max_grad_norm", "not applied: TRL's PPO loop does not clip gradients")
    ledger.exact("optimization.critic.learning_rate", reason="a parameter group of its own in the joint optimizer that rlmbench passes in")
    ledger.exact("optimization.critic.gamma", "gamma", critic.gamma)
    ledger.exact("optimization.critic.gae_lambda", "lam", critic.gae_lambda)
    ledger.exact("optimization.critic.value_clip", "cliprange_value", critic.value_clip)
    ledger.exact(
        "optimization.critic.value_loss_coefficient",
        "vf_coef",
        critic.value_loss_coefficient,
        reason="weight in the joint loss: policy and critic share one backward, so critic_update is not a stage of its own",
    )
    ledger.supported_if(not opt.mask_truncated, "optimization.mask_truncated", "off", "TRL's PPO does not mask truncated samples")
    ledger.supported_if(
        opt.overlong_buffer_tokens == 0, "optimization.overlong_buffer_tokens", "off", "TRL's PPO takes one reward: set it to 0"
    )
    place = experiment.placement
    ledger.supported_if(
        place.rollout_engine in ("auto", "hf"), "placement.rollout_engine", "generation by hf", "TRL's PPO generates with hf only"
    )
    ledger.supported_if(place.mode == "colocated", "placement.mode", "in the training process", "TRL's PPO is co-located only")
    ledger.exact("placement.rollout_devices", reason="none of their own")
    ledger.exact("placement.max_staleness", reason="synchronous: 0")
    ledger.supported_if(split.rollout_tensor == 1, "parallelism.rollout_tensor", "not split", "HF generate is not split over devices")
    how = "samples stay in plan order" if measure.strict_order else "TRL's PPO permutes a step's samples in each epoch"
    ledger.exact("measurement.strict_order", reason=how)
    ledger.native.update(num_mini_batches=1, num_sample_generations=0, local_rollout_forward_batch_size=64)


def _note(ledger: Ledger, subject: str, text: str) -> None:
    """Behaviour of TRL that no field of the experiment names but a reader must know."""
    ledger.approximated(f"(framework) {subject}", text)
