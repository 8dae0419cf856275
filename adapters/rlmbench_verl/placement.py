"""Where verl's roles run: which of its trainers an experiment needs, its main module, and the devices of each part.

Sources, verl 0.9.1: ``verl/trainer/main_ppo.py`` (V1 and V0), ``verl/trainer/ppo/v1/trainer_*_async.py``,
``verl/trainer/ppo/v1/replay_buffer.py`` (staleness), ``verl/experimental/one_step_off_policy`` and ``fully_async_policy``.
"""

from __future__ import annotations

from enum import StrEnum

from rlmbench.experiment import Algorithm, Experiment
from rlmbench.ledger import Ledger

ROLLOUT = "actor_rollout_ref.rollout."
GPUS_PER_NODE = 8
"""The experiment counts devices; verl wants nodes. More than this many GPUs are taken to be full nodes of this size."""


class Trainer(StrEnum):
    """verl's trainers, by what its own configuration or package calls them."""

    SYNC = "sync"
    COLOCATE_ASYNC = "colocate_async"
    SEPARATE_ASYNC = "separate_async"
    V0 = "v0"
    ONE_STEP_OFF = "one_step_off"
    FULLY_ASYNC = "fully_async"


V1 = (Trainer.SYNC, Trainer.COLOCATE_ASYNC, Trainer.SEPARATE_ASYNC)
OWN_ROLLOUT_DEVICES = (Trainer.SEPARATE_ASYNC, Trainer.ONE_STEP_OFF, Trainer.FULLY_ASYNC)
BYPASSING = (Trainer.ONE_STEP_OFF, Trainer.FULLY_ASYNC)
"""Trainers whose own configuration takes the rollout engine's log-probs as the old ones (rollout_correction.bypass_mode)."""

MAIN_MODULES = {
    Trainer.ONE_STEP_OFF: "verl.experimental.one_step_off_policy.main_ppo",
    Trainer.FULLY_ASYNC: "verl.experimental.fully_async_policy.fully_async_main",
}
CONFIGURATIONS = {
    Trainer.ONE_STEP_OFF: ("verl.experimental.one_step_off_policy.config", "one_step_off_ppo_trainer"),
    Trainer.FULLY_ASYNC: ("verl.experimental.fully_async_policy.config", "fully_async_ppo_trainer"),
}


def trainer(experiment: Experiment) -> Trainer:
    """The trainer for `experiment`: ReMax exists in V0 only; apart from it, placement and staleness decide.

    With rollout devices of their own, ``separate_async`` waits for each step's samples when nothing is prefetched, the
    one-step-off trainer is always exactly one version behind, and the fully asynchronous one takes any bound.
    """
    place = experiment.placement
    if place.mode == "colocated":
        return Trainer.V0 if experiment.optimization.algorithm is Algorithm.REMAX else Trainer.SYNC
    if not place.rollout_devices:
        return Trainer.COLOCATE_ASYNC
    if place.mode == "disaggregated" or place.max_staleness == 0:
        return Trainer.SEPARATE_ASYNC
    return Trainer.ONE_STEP_OFF if place.max_staleness == 1 else Trainer.FULLY_ASYNC


def main_module(experiment: Experiment) -> str:
    """The module to start with ``python -m``; V1 and V0 share one."""
    return MAIN_MODULES.get(trainer(experiment), "verl.trainer.main_ppo")


def configuration(experiment: Experiment) -> tuple[str, str]:
    """Package and name of the hydra configuration that the main module takes by itself."""
    return CONFIGURATIONS.get(trainer(experiment), ("verl.trainer.config", "ppo_trainer"))


def training_devices(experiment: Experiment) -> int:
    """Training ranks: all model-parallel degrees, without rollout devices of their own."""
    return experiment.devices - experiment.placement.rollout_devices


def translate_placement(ledger: Ledger, experiment: Experiment, device: str) -> None:
    """Fields of `placement`, and the degree of the rollout engine."""
    place, chosen = experiment.placement, trainer(experiment)
    _engine(ledger, experiment, device)
    _mode(ledger, experiment, device, chosen)
    _rollout_devices(ledger, experiment, chosen)
    _staleness(ledger, experiment, chosen)
    if chosen not in V1:
        ledger.exact("placement.fast_rollout_poll", reason="this trainer does not poll: it waits for the rollout's own end")
    elif not place.fast_rollout_poll:
        ledger.exact("placement.fast_rollout_poll", reason="verl's own replay buffer: a poll every 2 s, shown as a wait")
    elif experiment.optimization.dynamic_sampling:
        ledger.unsupported(
            "placement.fast_rollout_poll", "verl does not filter groups in a replay buffer of somebody else's: set it to false"
        )
    else:
        ledger.exact("placement.fast_rollout_poll", reason="a replay buffer of rlmbench's, by verl's custom_sampler: a poll every 10 ms")


def _engine(ledger: Ledger, experiment: Experiment, device: str) -> None:
    asked = experiment.placement.rollout_engine
    if asked == "sglang" and device == "cuda":
        ledger.exact("placement.rollout_engine", ROLLOUT + "name", "sglang", reason="generation by SGLang, in an environment that has it")
    elif asked in ("auto", "vllm"):
        ledger.exact("placement.rollout_engine", ROLLOUT + "name", "vllm", reason="generation by vllm")
    elif asked == "sglang":
        ledger.unsupported("placement.rollout_engine", "SGLang needs a GPU: take vllm on a CPU")
    else:
        ledger.unsupported("placement.rollout_engine", f"verl generates with a server, vLLM or SGLang, not {asked}")


def _mode(ledger: Ledger, experiment: Experiment, device: str, chosen: Trainer) -> None:
    native, mode = ledger.native, experiment.placement.mode
    native["trainer.use_v1"] = chosen in V1
    if experiment.optimization.algorithm is Algorithm.REMAX and chosen is not Trainer.V0:
        ledger.unsupported("placement.mode", "ReMax is in verl's V0 trainer only, which is co-located and synchronous")
    elif mode == "disaggregated" and chosen is Trainer.COLOCATE_ASYNC:
        ledger.unsupported("placement.mode", "a disaggregated rollout needs devices of its own: set placement.rollout_devices")
    elif chosen in OWN_ROLLOUT_DEVICES and device == "cpu":
        ledger.unsupported("placement.mode", "verl sends weights to rollout devices of their own by NCCL, which needs GPUs")
    elif chosen in BYPASSING and experiment.optimization.critic:
        ledger.unsupported("placement.mode", f"verl's {chosen} trainer calls init_model on the critic's worker, which has none")
    elif chosen in V1:
        ledger.exact("placement.mode", "trainer.v1.trainer_mode", chosen.value, reason=_MODE_REASONS[chosen])
    else:
        ledger.exact("placement.mode", reason=_MODE_REASONS[chosen])


_MODE_REASONS = {
    Trainer.SYNC: "the synchronous V1 trainer",
    Trainer.COLOCATE_ASYNC: "V1: training aborts unfinished responses and resumes them with the new weights",
    Trainer.SEPARATE_ASYNC: "V1, with no rollout engine on the training devices (hybrid_engine=False)",
    Trainer.V0: "the older V0 trainer",
    Trainer.ONE_STEP_OFF: f"{MAIN_MODULES[Trainer.ONE_STEP_OFF]}: the next batch is generated while this one trains",
    Trainer.FULLY_ASYNC: f"{MAIN_MODULES[Trainer.FULLY_ASYNC]}: samples stream from the rollout into the training",
}


def _rollout_devices(ledger: Ledger, experiment: Experiment, chosen: Trainer) -> None:
    count, degree = experiment.placement.rollout_devices, experiment.parallelism.rollout_tensor
    of_rollout = count or training_devices(experiment)
    if of_rollout % degree:
        ledger.unsupported("parallelism.rollout_tensor", f"{of_rollout} rollout devices do not split into groups of {degree}")
    else:
        ledger.exact("parallelism.rollout_tensor", ROLLOUT + "tensor_model_parallel_size", degree)
    if not count:
        ledger.exact("placement.rollout_devices", reason="none of their own")
        return
    place = ROLLOUT if chosen is Trainer.SEPARATE_ASYNC else "rollout."
    nodes, per_node = split_nodes(count)
    ledger.native |= {
        "actor_rollout_ref.hybrid_engine": False,
        place + "nnodes": nodes,
        ROLLOUT + "checkpoint_engine.backend": "nccl",
    }
    if nodes * per_node == count:
        ledger.exact("placement.rollout_devices", place + "n_gpus_per_node", per_node, reason=f"on each of {nodes} nodes")
    else:
        ledger.unsupported("placement.rollout_devices", f"verl counts full nodes; more than {GPUS_PER_NODE} must be a multiple of it")


def split_nodes(devices: int) -> tuple[int, int]:
    """Nodes and devices on each; their product is below `devices` where these do not fill the nodes."""
    per_node = min(devices, GPUS_PER_NODE)
    return devices // per_node, per_node


def _staleness(ledger: Ledger, experiment: Experiment, chosen: Trainer) -> None:
    """A sample's staleness is the number of weight updates between its prompt's dispatch and its training."""
    allowed = experiment.placement.max_staleness
    native = ledger.native
    if chosen in (Trainer.COLOCATE_ASYNC, Trainer.SEPARATE_ASYNC):
        # Dropless: sampling waits for any prompt that would become older. The span counts both ends, so 0 versions behind is 1.
        native["trainer.v1.sampler.max_off_policy_threshold"] = allowed + 1
        native["trainer.v1.sampler.max_off_policy_strategy"] = "wait"
    if chosen is Trainer.SEPARATE_ASYNC:
        native[f"trainer.v1.{chosen}.parameter_sync_step"] = updates(experiment)
    if experiment.placement.mode != "async":
        ledger.supported_if(
            allowed == 0, "placement.max_staleness", "synchronous: 0", f"{experiment.placement.mode} is synchronous: set it to 0"
        )
        if chosen is Trainer.SEPARATE_ASYNC:
            native[f"trainer.v1.{chosen}.num_warmup_batches"] = 0
    elif chosen in V1:
        ledger.exact(
            "placement.max_staleness",
            f"trainer.v1.{chosen}.num_warmup_batches",
            allowed,
            reason="steps of prompts sent ahead; none older, none dropped",
        )
    elif chosen is Trainer.ONE_STEP_OFF:
        native["hydra.searchpath"] = ["pkg://verl.trainer.config"]  # its file names a path relative to verl's source tree
        ledger.exact("placement.max_staleness", reason="one step, by construction")
    elif chosen is Trainer.FULLY_ASYNC:
        ledger.approximated(
            "placement.max_staleness",
            "verl bounds the prompts under way to this many steps' worth ahead, not each sample's versions",
            "async_training.staleness_threshold",
            allowed,
        )
        native |= {"async_training.require_batches": 1, "async_training.trigger_parameter_sync_step": updates(experiment)}


def updates(experiment: Experiment) -> int:
    """Mini-batches of a step: verl's asynchronous trainers take one at a time, and send weights after the last."""
    return experiment.samples_per_step // experiment.optimization.mini_batch_samples
