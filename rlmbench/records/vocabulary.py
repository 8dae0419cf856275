"""The words records use: stages, their groups and substages, and the classes of failure.

One vocabulary for all frameworks. What no span covers is *unattributed*: a figure, not a stage.
"""

from __future__ import annotations

CPU_LABEL = "CPU: orchestration, not GPU throughput"

STAGES = (
    "generation",
    "reward",
    "reference_logprob",
    "old_logprob",
    "values",
    "advantage",
    "actor_update",
    "critic_update",
    "weight_sync",
    "offload",
    "onload",
    "data",
    "checkpoint",
    "validation",
    "wait",
    "bookkeeping",
)
"""Stages of a step, in the order a step runs them."""

STARTUP = "startup"
"""The stage of everything before step 1."""

STAGE_GROUPS: dict[str, tuple[str, ...]] = {
    "generation": ("generation",),
    "assessment": ("reward", "reference_logprob", "old_logprob", "values", "advantage"),
    "training": ("actor_update", "critic_update"),
}
"""Groups of stages that have a throughput of their own."""

SUBSTAGES = ("prefill", "decode", "forward", "backward", "optimizer")

FAILURE_CLASSES = (
    "environment",
    "configuration",
    "out_of_memory_host",
    "out_of_memory_device",
    "hang",
    "timeout",
    "crash",
    "killed",
    "framework_error",
    "audit",
    "interrupted",
)
"""Why a run did not succeed. `audit`: it ended well, but did other work than planned."""

FRAMEWORK_NAMES = {"trl": "TRL", "verl": "verl", "openrlhf": "OpenRLHF", "reference": "reference (simulated)"}
"""Adapters' names -> frameworks as their authors write them."""
