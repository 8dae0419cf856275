"""An experiment in the schedule's terms, with an entry of the ledger for every field."""

from __future__ import annotations

from rlmbench.adapter import Translation
from rlmbench.experiment import Algorithm, Experiment
from rlmbench.ledger import Ledger, missing
from rlmbench_reference.schedule import STAGES

SIMULATED = "simulated: a scripted schedule, no training"
NO_MODEL = "simulated: there is no model, and every duration is the script's"
KEYS = {
    "workload.prompts_per_step": "prompts_per_step",
    "optimization.group_size": "samples_per_prompt",
    "optimization.mini_batch_samples": "mini_batch",
    "optimization.micro_batch_samples": "micro_batch",
    "optimization.epochs": "epochs",
    "optimization.learning_rate": "lr",
    "measurement.steps": "steps",
    "parallelism.data": "ranks",
    "placement.mode": "layout",
    "placement.rollout_devices": "rollouts",
    "placement.max_staleness": "max_staleness",
}
OURS = {
    "workload.prompts": "one row per step and prompt, in plan order; a token for each word",
    "workload.max_prompt_tokens": "longer prompts are left out of the plan",
    "workload.max_response_tokens": "planned lengths are below the cap",
    "measurement": "rlmbench's own; samples stay in plan order (strict_order)",
    "placement.fast_rollout_poll": "nothing is polled for",
}
ONLY = {
    "optimization.mask_truncated": False,
    "optimization.dynamic_sampling": False,
    "parallelism.tensor": 1,
    "parallelism.pipeline": 1,
    "parallelism.context": 1,
    "parallelism.expert": 1,
    "parallelism.rollout_tensor": 1,
    "placement.rollout_engine": "auto",
}
NOTHING_REAL = ("model", "workload.sampling", "optimization", "parallelism.sharding")
"""Sections speak for what lies below them and has no entry of its own."""


def translate(experiment: Experiment, device: str) -> Translation:
    """Never raises: what the script has no part for is an UNSUPPORTED entry."""
    ledger, place = Ledger(experiment), experiment.placement
    apart = place.mode != "colocated"
    unsupported = {} if device == "cpu" else {"parallelism.data": "its processes know no GPU; take --device cpu"}
    if apart and not place.rollout_devices:
        unsupported["placement.rollout_devices"] = "rollouts of their own need processes; --set placement.rollout_devices=1 or more"
    if place.max_staleness and place.mode != "async":
        unsupported["placement.max_staleness"] = "only with placement.mode=async"
    if place.mode == "async" and not place.max_staleness:
        unsupported["placement.max_staleness"] = "async with no staleness is disaggregated; --set placement.max_staleness=1 or more"
    for field, key in KEYS.items():
        if field in unsupported:
            ledger.unsupported(field, unsupported[field])
        else:
            ledger.exact(field, key, ledger.value(field))
    for field, how in OURS.items():
        ledger.exact(field, reason=how)
    for field, value in ONLY.items():
        ledger.supported_if(ledger.value(field) == value, field, "all it does", f"the script has only {value!r}")
    for field in NOTHING_REAL:
        ledger.approximated(field, NO_MODEL)
    ledger.supported_if(experiment.workload.replay is not None, "workload.replay", "each sample's length and reward", "it has no end token")
    for field in missing(experiment, ledger.entries):  # a field of a later rlmbench is refused, never ignored
        ledger.unsupported(field, "unknown to this version of the adapter")
    return Translation(
        framework="reference",
        environment="reference",
        native={**ledger.native, "schedule": _schedule(experiment), "stages": {}, "failure": None, "runs": _stages(experiment)},
        ledger=tuple(ledger.entries),
        expected_facts={"world_size": experiment.parallelism.data},
        traits={
            "rollout_engine": "simulated",
            "training_engine": "simulated",
            "padding": "to the longest of the micro-batch",
            "sample_order": "plan order",
            "rollout_poll": "none",
            "process_model": "ranks, and rollouts" if apart else "one process a rank, which also generates",
            **({"critic_update": "separate from the policy"} if experiment.optimization.critic else {}),
        },
        simulated=SIMULATED,
    )


def _schedule(experiment: Experiment) -> str:
    place = experiment.placement
    if place.mode == "async":
        return "one_step_off" if place.max_staleness == 1 else "asynchronous"
    return place.mode


def _stages(experiment: Experiment) -> list[str]:
    """The stages that the algorithm has."""
    opt = experiment.optimization
    left_out = set() if opt.kl.coefficient else {"reference_logprob"}
    if opt.algorithm is not Algorithm.PPO:
        left_out |= {"values", "critic_update"}
    return [stage for stage in STAGES if stage not in left_out]
