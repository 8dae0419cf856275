"""An experiment in the made-up trainer's terms, with an entry of the ledger for every field."""

from __future__ import annotations

from rlmbench.adapter import Translation
from rlmbench.experiment import Experiment
from rlmbench.ledger import Ledger, missing

KEYS = {  # one to one: the trainer has such a key
    "workload.prompts_per_step": "prompts_per_step",
    "optimization.group_size": "samples_per_prompt",
    "optimization.mini_batch_samples": "mini_batch",
    "optimization.micro_batch_samples": "micro_batch",
    "optimization.learning_rate": "lr",
    "measurement.steps": "steps",
    "measurement.seed": "seed",
}
OURS = {  # rlmbench itself sees to it
    "workload.prompts": "one row per step and prompt, in plan order",
    "workload.max_prompt_tokens": "longer prompts are left out of the plan",
    "workload.max_response_tokens": "planned lengths are below the cap",
    "measurement": "rlmbench's own; the trainer keeps plan order by itself (strict_order)",
}
ONLY = {  # the trainer can do this, and nothing else
    "optimization.algorithm": "grpo",
    "optimization.epochs": 1,
    "optimization.policy_loss": "clip",
    "optimization.loss_aggregation": "token_mean",
    "optimization.importance_sampling": "token",
    "optimization.advantage_scaling": "group",
    "optimization.critic": None,
    "optimization.mask_truncated": False,
    "optimization.dynamic_sampling": False,
    "optimization.overlong_buffer_tokens": 0,
    "parallelism.sharding": "none",
    "parallelism.tensor": 1,
    "parallelism.pipeline": 1,
    "parallelism.context": 1,
    "parallelism.expert": 1,
    "parallelism.rollout_tensor": 1,
    "placement.rollout_engine": "auto",
    "placement.mode": "colocated",
    "placement.rollout_devices": 0,
    "placement.max_staleness": 0,
    "placement.fast_rollout_poll": False,
}
NOTHING_REAL = ("model", "workload.sampling", "optimization.kl", "optimization.clip_low", "optimization.clip_high",
                "optimization.lr_schedule", "optimization.warmup_steps", "optimization.weight_decay", "optimization.adam_beta1",
                "optimization.adam_beta2", "optimization.max_grad_norm")  # fmt: skip


def translate(experiment: Experiment, device: str) -> Translation:
    """Never raises: what the trainer cannot do is an UNSUPPORTED entry, and rlmbench refuses before anything starts."""
    ledger = Ledger(experiment)
    for field, key in KEYS.items():
        ledger.exact(field, key, ledger.value(field))
    for field, how in OURS.items():
        ledger.exact(field, reason=how)
    for field, value in ONLY.items():
        ledger.supported_if(ledger.value(field) == value, field, "all it does", f"the made-up trainer has only {value!r}")
    for field in NOTHING_REAL:
        ledger.approximated(field, "the made-up trainer has no model, and moves one number")
    ledger.supported_if(experiment.workload.replay is not None, "workload.replay", "max_tokens of each sample", "it has no end token")
    one_process = device == "cpu" and experiment.parallelism.data == 1
    ledger.supported_if(one_process, "parallelism.data", "one process", "it has one process, on a CPU")
    for field in missing(experiment, ledger.entries):  # a field of a later rlmbench is refused, never ignored
        ledger.unsupported(field, "unknown to this version of the adapter")
    return Translation(
        framework="pretend",
        environment="pretend",
        native=ledger.native,
        ledger=tuple(ledger.entries),
        expected_facts={"world_size": 1},
        untested=("the trainer is made up, and trains nothing",),
        traits={"rollout_engine": "made up", "padding": "none", "sample_order": "plan order"},
    )
