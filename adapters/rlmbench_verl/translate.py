"""An experiment in verl's terms: hydra overrides and the fidelity ledger.

Sources: ``verl/trainer/config/ppo_trainer.yaml`` and what it composes, ``verl/trainer/ppo/core_algos.py`` (advantage
estimators, policy losses, KL), ``verl/trainer/ppo/v1`` (trainer) of verl 0.9.1.
"""

from __future__ import annotations

from typing import Any

from rlmbench.adapter import Translation
from rlmbench.experiment import Algorithm, Experiment
from rlmbench.ledger import Ledger
from rlmbench_verl.engines import ACTOR, REFERENCE, fsdp_sections, translate_engine, weights_dtype
from rlmbench_verl.placement import BYPASSING, ROLLOUT, V1, Trainer, trainer, training_devices, translate_placement
from rlmbench_verl.traits import traits
from rlmbench_verl.untested import untested

ESTIMATORS = {
    Algorithm.GRPO: "grpo",
    Algorithm.RLOO: "rloo",
    Algorithm.PPO: "gae",
    Algorithm.REINFORCE_PP: "reinforce_plus_plus",
    Algorithm.REMAX: "remax",
}
WHITENED = (Algorithm.PPO, Algorithm.REINFORCE_PP)
"""Algorithms whose estimator always whitens advantages over the batch; those of rloo and remax never scale them."""
AGGREGATIONS = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "sequence_sum_constant": "seq-mean-token-sum-norm",
}
LOSSES = {"clip": "vanilla", "cispo": "cispo", "sapo": "sapo"}
KL_FORMS = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
CPU_KV_CACHE_BYTES = 512 << 20
"""vLLM fills all that it is given. At `tiny`, 64 sequences of 224 tokens need 15 MB; of qwen2.5-0.5b they would need 350 MB."""
DUAL_CLIP_OFF = 1e6
"""verl always clips negative advantages a second time, at clip_ratio_c; a bound that no ratio reaches switches it off."""


def translate(experiment: Experiment, device: str) -> Translation:
    """verl's configuration for `experiment` on `device`; keys with a leading + are none of verl's defaults."""
    ledger = Ledger(experiment)
    _algorithm(ledger, experiment)
    _model(ledger, experiment)
    _workload(ledger, experiment)
    _batches(ledger, experiment)
    _critic(ledger, experiment)
    translate_engine(ledger, experiment, device)
    translate_placement(ledger, experiment, device)
    _measurement(ledger, experiment)
    _fixed(ledger, experiment, device)
    facts = expected_facts(experiment)
    return Translation("verl", "verl", ledger.native, tuple(ledger.entries), facts, untested(experiment, device), traits(experiment))


def expected_facts(experiment: Experiment) -> dict[str, object]:
    """What the run must turn out to be (`hooks.engine_facts`)."""
    ranks = training_devices(experiment)
    return {"world_size": ranks, "weights_dtype": weights_dtype(experiment), "training_devices": ranks}


def _algorithm(ledger: Ledger, experiment: Experiment) -> None:
    opt = experiment.optimization
    estimator = ESTIMATORS[opt.algorithm]
    if opt.algorithm is Algorithm.REMAX and experiment.workload.replay:
        why = "each prompt's greedy baseline, a response that is not in the plan, has its first sample's length and the reward 0.5"
        ledger.approximated("optimization.algorithm", why, "algorithm.adv_estimator", estimator)
    else:
        ledger.exact("optimization.algorithm", "algorithm.adv_estimator", estimator)
    _advantage_scaling(ledger, experiment)
    _policy_loss(ledger, experiment)
    if opt.loss_aggregation in AGGREGATIONS:
        ledger.exact("optimization.loss_aggregation", ACTOR + "loss_agg_mode", AGGREGATIONS[opt.loss_aggregation])
    else:
        ledger.unsupported("optimization.loss_aggregation", "verl averages over the mini-batch, never over a micro-batch")
    ledger.exact("optimization.clip_low", ACTOR + "clip_ratio_low", opt.clip_low)
    ledger.exact("optimization.clip_high", ACTOR + "clip_ratio_high", opt.clip_high, reason="and the dual clip is moved out of reach")
    ledger.native[ACTOR + "clip_ratio"] = opt.clip_low
    ledger.native[ACTOR + "clip_ratio_c"] = DUAL_CLIP_OFF
    _kl(ledger, experiment)
    _dapo(ledger, experiment)


def _advantage_scaling(ledger: Ledger, experiment: Experiment) -> None:
    opt, field = experiment.optimization, "optimization.advantage_scaling"
    estimator = ESTIMATORS[opt.algorithm]
    if opt.algorithm is Algorithm.GRPO and opt.advantage_scaling == "batch":
        ledger.unsupported(field, "verl's grpo divides by the group's deviation or not at all")
    elif opt.algorithm is Algorithm.GRPO:
        by_group = opt.advantage_scaling == "group"
        ledger.exact(field, "algorithm.norm_adv_by_std_in_grpo", by_group, reason="standard deviation + 1e-6")
    elif opt.algorithm not in WHITENED:
        ledger.supported_if(opt.advantage_scaling == "none", field, "not scaled", f"verl's {estimator} does not scale advantages")
    elif opt.advantage_scaling == "batch":
        ledger.exact(field, reason="advantages are whitened over the batch")
    else:
        ledger.approximated(field, f"verl's {estimator} always whitens advantages over the batch")


def _policy_loss(ledger: Ledger, experiment: Experiment) -> None:
    opt = experiment.optimization
    bypasses = trainer(experiment) in BYPASSING
    by_sequence = opt.importance_sampling == "sequence"
    if bypasses and (by_sequence or opt.policy_loss != "clip"):
        why = f"verl's {trainer(experiment)} trainer puts the clipped token-level loss in place of any other (apply_bypass_mode)"
        ledger.unsupported("optimization.policy_loss", why)
        ledger.exact("optimization.importance_sampling", reason="follows the policy loss")
    elif by_sequence and opt.policy_loss == "clip":
        ledger.exact("optimization.policy_loss", reason="the clipped surrogate of gspo")
        ledger.exact("optimization.importance_sampling", ACTOR + "policy_loss.loss_mode", "gspo")
    elif opt.policy_loss in LOSSES:
        ledger.exact("optimization.policy_loss", ACTOR + "policy_loss.loss_mode", LOSSES[opt.policy_loss])
        if bypasses:
            why = "ratios to the log-probs of the rollout engine, which verl's configuration of this trainer takes as the old ones"
            ledger.approximated("optimization.importance_sampling", why)
        else:
            why = f"verl's {opt.policy_loss} has token-level ratios only"
            ledger.supported_if(not by_sequence, "optimization.importance_sampling", "per token", why)
    else:
        ledger.unsupported("optimization.policy_loss", f"verl has no {opt.policy_loss}; it has {', '.join(LOSSES)}")
        ledger.exact("optimization.importance_sampling", reason="follows the policy loss")


def _dapo(ledger: Ledger, experiment: Experiment) -> None:
    """DAPO's own parts: dynamic sampling and the soft overlong penalty act on natural workloads only."""
    opt, work, native = experiment.optimization, experiment.workload, ledger.native
    why = "verl has no mask for truncated samples (its configuration and trainers name none): set it to false"
    ledger.supported_if(not opt.mask_truncated, "optimization.mask_truncated", "off", why)
    if not opt.dynamic_sampling:
        ledger.exact("optimization.dynamic_sampling", "algorithm.filter_groups.enable", False)
    elif work.replay:
        why = "replayed samples are fixed, so groups cannot be sampled again: set it to false"
        ledger.unsupported("optimization.dynamic_sampling", why)
    elif trainer(experiment) not in V1:
        ledger.unsupported("optimization.dynamic_sampling", "verl filters groups in its V1 trainers only")
    else:
        native["algorithm.filter_groups.metric"] = "reward"
        why = "two prompts are sent for each one dropped; surplus groups are discarded" if trainer(experiment) is Trainer.SYNC else ""
        ledger.exact("optimization.dynamic_sampling", "algorithm.filter_groups.enable", True, reason=why)
    buffer, field = opt.overlong_buffer_tokens, "optimization.overlong_buffer_tokens"
    if not buffer:
        ledger.exact(field, reason="off")
    elif work.replay:
        ledger.approximated(field, "rewards are replayed, so no length penalty is added to them")
    elif buffer > work.max_response_tokens:
        ledger.unsupported(field, f"the buffer is longer than a response may be ({work.max_response_tokens})")
    else:
        native["reward.reward_manager.name"] = "dapo"
        overlong = "+reward.reward_kwargs.overlong_buffer_cfg."
        native |= {overlong + "enable": True, overlong + "penalty_factor": 1.0, overlong + "log": False}
        native["+reward.reward_kwargs.max_resp_len"] = work.max_response_tokens
        ledger.exact(field, overlong + "len", buffer, reason="up to -1 at the cap, added by verl's dapo reward manager")


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


def _model(ledger: Ledger, experiment: Experiment) -> None:
    for field in ("shape", "hub", "path", "weights_seed"):
        given = getattr(experiment.model, field) is not None
        ledger.exact(f"model.{field}", reason="rlmbench hands verl a model folder" if given else "not given")


def _workload(ledger: Ledger, experiment: Experiment) -> None:
    work = experiment.workload
    ledger.exact("workload.prompts", reason="one row of verl's Parquet file per step and prompt, in plan order")
    if trainer(experiment) is Trainer.FULLY_ASYNC:
        # Prompts stream one by one; a step is what trains between two weight updates.
        reason = "streamed: mini-batches of prompts, times the mini-batches between two weight updates"
        ledger.exact("workload.prompts_per_step", reason=reason)
        ledger.native |= {"data.train_batch_size": 0, "data.gen_batch_size": 1}
    else:
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
    opt = experiment.optimization
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


def _critic(ledger: Ledger, experiment: Experiment) -> None:
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
        }
    )


def _measurement(ledger: Ledger, experiment: Experiment) -> None:
    measure = experiment.measurement
    ledger.exact("measurement.steps", "trainer.total_training_steps", measure.steps)
    if trainer(experiment) is Trainer.FULLY_ASYNC:
        ledger.native["rollout.total_rollout_steps"] = measure.steps * experiment.workload.prompts_per_step
    ledger.exact("measurement.seed", "data.seed", measure.seed)
    ledger.native |= {ROLLOUT + "seed": measure.seed, ACTOR + "data_loader_seed": measure.seed}
    for field in ("warmup_steps", "wall_timeout_s", "stall_timeout_s", "probe", "collector_interval_s", "synchronize_stages"):
        ledger.exact(f"measurement.{field}", reason="seen to by rlmbench")
    ledger.exact("measurement.threads_per_process", reason="OMP_NUM_THREADS")
    if not measure.strict_order:
        ledger.exact("measurement.strict_order", reason="verl sorts a step's samples so that ranks get about as many tokens")
    elif trainer(experiment) is Trainer.SYNC:
        ledger.exact("measurement.strict_order", reason="samples are put back into plan order after verl has balanced them")
    else:
        ledger.unsupported("measurement.strict_order", "plan order is kept in verl's synchronous V1 trainer only")


def _fixed(ledger: Ledger, experiment: Experiment, device: str) -> None:
    """What no experiment changes: no validation, checkpoint or service of others, and one process of each helper."""
    longest = experiment.workload.max_prompt_tokens + experiment.workload.max_response_tokens
    fixed: dict[str, Any] = {
        "trainer.device": device,
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
        "reward.num_workers": 1,
    }
    if device == "cpu":
        fixed |= {
            ACTOR + "use_torch_compile": False,
            **{f"{place}use_torch_compile": False for place in fsdp_sections(experiment)},
            ROLLOUT + "enforce_eager": True,
            ROLLOUT + "free_cache_engine": False,
            f"+{ROLLOUT}enable_sleep_mode": False,
            ROLLOUT + "max_num_batched_tokens": max(512, longest),
            ROLLOUT + "max_num_seqs": 64,
            f"+{ROLLOUT}engine_kwargs.vllm.kv_cache_memory_bytes": CPU_KV_CACHE_BYTES,
            ROLLOUT + "gpu_memory_utilization": 0.1,
            ROLLOUT + "agent.num_workers": 1,
            ROLLOUT + "checkpoint_engine.update_weights_bucket_megabytes": 32,
            "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        }
    ledger.native.update(fixed)
