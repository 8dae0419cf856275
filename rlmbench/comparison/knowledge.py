"""What it means when two runs differ in a thing: data, each with its reason. Nothing here looks at a run.

A difference changes the **work** (what is computed, so the time of equal frameworks), the **numbers** (what the
optimizer sees, not how much is computed), or **neither** (how the same work is done, which is what is compared).
Sources: the frameworks' own code as named in the adapters' `translate.py`, and measurements named in docs/comparison.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Effect = Literal["work", "numbers", "neither", "unknown"]
EFFECTS: tuple[Effect, ...] = ("work", "unknown", "numbers", "neither")
"""Gravest first."""


@dataclass(frozen=True)
class Meaning:
    """What a difference in one thing means. `label` names it for a person; `unify` says how both get the same, "" if nothing can."""

    label: str
    effect: Effect
    why: str
    unify: str = ""


NOT_KNOWN = Meaning("", "unknown", "rlmbench does not know what this changes")

TRAITS: Mapping[str, Meaning] = {
    "old_logprob": Meaning(
        "old log-probs",
        "work",
        "one forward pass over the step's samples more or less",
        "several updates a step: optimization.mini_batch_samples below the step's samples makes every framework run it",
    ),
    "reference_logprob": Meaning("reference log-probs", "work", "one forward pass of the reference model over the step's samples"),
    "padding": Meaning("padding in training", "work", "padded tokens are computed like others, and count for nothing"),
    "critic_update": Meaning(
        "critic update", "work", "a joint update shares one backward and one optimizer step between policy and critic"
    ),
    "rollout_engine": Meaning(
        "rollout engine",
        "work",
        "as many tokens, but other ones; HF generate computes every sample until the longest has ended, vLLM drops it at its end",
        "placement.rollout_engine, where both frameworks have the engine",
    ),
    "rollout_correction": Meaning(
        "train/rollout correction", "numbers", "the loss is weighted by how far rollout and training log-probs differ"
    ),
    "weights_dtype": Meaning("type of the trained weights", "numbers", "rounding of each update, and memory"),
    "rollout_dtype": Meaning(
        "type in the rollout engine", "numbers", "log-probs of the rollout differ from training's", "model.dtype=float32"
    ),
    "advantage_epsilon": Meaning(
        "constant added to the deviation of rewards", "numbers", "scales advantages of groups whose rewards nearly agree"
    ),
    "dual_clip": Meaning("dual clip", "numbers", "bounds the loss of samples with negative advantage"),
    "log_ratio_clamp": Meaning("clamp of the log ratio", "numbers", "only acts where the policy moved by more than its bound in log-prob"),
    "kl_clamp": Meaning("clamp of the KL term", "numbers", "only acts on tokens whose KL lies beyond its bound"),
    "sample_order": Meaning(
        "order of samples within a step",
        "numbers",
        "which samples share a micro-batch, and with several updates which update a sample meets",
        "measurement.strict_order=true, where both frameworks have it",
    ),
    "critic_tokens": Meaning("tokens in the value loss", "numbers", "one more position per response in the value loss"),
    "gradient_clipping": Meaning("gradient clipping", "numbers", "bounds the size of an update"),
    "critic_devices": Meaning(
        "critic's devices", "neither", "a critic beside the actor trains at the same time, on as many devices more, which count as held"
    ),
    "training_engine": Meaning("training engine", "neither", "who shards, reduces and steps: what is compared"),
    "rollout_poll": Meaning(
        "poll for finished rollouts", "neither", "a wait of up to one period in every step", "placement.fast_rollout_poll=true"
    ),
    "process_model": Meaning("processes", "neither", "how many processes do the work, and how they talk: what is compared"),
}
"""What a framework does by itself, that no field of the experiment names: `Translation.traits`, by name."""

FIELDS: Mapping[str, Meaning] = {
    "model": Meaning("model", "work", "another model is another amount of work"),
    "model.weights_seed": Meaning("seed of the weights", "numbers", "other weights of the same shape"),
    "model.dtype": Meaning("compute type", "numbers", "rounding, and how fast a device multiplies"),
    "model.attention": Meaning("attention kernel", "neither", "the same attention by another kernel, which may also allow packing"),
    "model.gradient_checkpointing": Meaning("recomputation", "work", "activations are computed twice"),
    "workload": Meaning("workload", "work", "other prompts, samples or lengths"),
    "workload.sampling": Meaning("sampling", "numbers", "other tokens; under replay not more or fewer of them"),
    "optimization.algorithm": Meaning("algorithm", "work", "another algorithm runs other stages"),
    "optimization.group_size": Meaning("samples per prompt", "work", "other samples"),
    "optimization.mini_batch_samples": Meaning("mini-batch", "work", "another number of optimizer steps"),
    "optimization.epochs": Meaning("epochs", "work", "another number of passes over each sample"),
    "optimization.dynamic_sampling": Meaning("dynamic sampling", "work", "groups are generated and thrown away"),
    "optimization.critic": Meaning("critic", "numbers", "what the critic learns"),
    "optimization.kl.coefficient": Meaning("KL coefficient", "work", "at 0 no reference model runs"),
    "optimization.micro_batch_samples": Meaning("micro-batch", "neither", "how the same samples are cut for the device, so padding too"),
    "optimization": Meaning("optimization", "numbers", "what the optimizer does with the same samples"),
    "parallelism": Meaning("parallelism", "neither", "how the same work is spread over devices"),
    "placement": Meaning("placement", "neither", "where and by which engine the same work is done"),
    "measurement": Meaning("measurement", "neither", "how it is measured"),
    "measurement.steps": Meaning("steps", "work", "other steps are in the figures"),
    "measurement.warmup_steps": Meaning("warm-up", "work", "other steps are in the figures"),
    "measurement.seed": Meaning("seed", "numbers", "other random numbers"),
    "measurement.strict_order": Meaning("strict order", "numbers", "which samples share a micro-batch"),
}
"""Fields of the experiment; an entry speaks for what lies below it, and the longest that fits counts."""

FACTS: Mapping[str, Meaning] = {
    "world_size": Meaning("ranks", "neither", "how the same work is spread"),
    "weights_dtype": TRAITS["weights_dtype"],
    "rollout_dtype": TRAITS["rollout_dtype"],
    "model_wrapper": Meaning("model wrapper", "neither", "who shards and reduces: what is compared"),
    "trainable_parameters": Meaning("trainable parameters", "work", "another model is trained"),
    "torch_threads": Meaning("threads of torch", "neither", "how many cores an operation may use"),
}
"""What processes state from inside a run (docs/records.md, `facts`); the others identify classes, and are not compared."""

STAGES: Mapping[str, Meaning] = {
    "old_logprob": TRAITS["old_logprob"],
    "reference_logprob": TRAITS["reference_logprob"],
    "values": Meaning("values", "work", "a forward pass of the critic of its own"),
    "critic_update": TRAITS["critic_update"],
    "weight_sync": Meaning("weight sync", "neither", "a rollout engine of its own must be given the new weights"),
    "wait": Meaning("wait", "neither", "the driving process waits while nobody works for it"),
    "offload": Meaning("offload", "neither", "memory is made free for the other half of the step"),
    "onload": Meaning("onload", "neither", "memory is filled again for the other half of the step"),
}
"""Stages that one of two runs has and the other has not."""

NOTES: Mapping[str, str] = {
    "(framework) old log-probs": "old_logprob",
    "(framework) importance correction": "rollout_correction",
}
"""Ledger entries that say in words what a trait says as data."""

DECIDES: Mapping[str, str] = {
    "placement.rollout_engine": "rollout_engine",
    "placement.fast_rollout_poll": "rollout_poll",
    "measurement.strict_order": "sample_order",
}
"""Fields of which a trait says what really became: asked for differently may still be done alike (auto), and the other way round."""

WAITS: Mapping[str, str] = {"rollout_poll": "placement.fast_rollout_poll"}
"""Traits that make a driver wait, and the field of the experiment that shortens the wait when it is set."""
NO_WAIT = "none"
"""Such a trait's value where the framework does not have the habit."""

VERSIONS = Meaning("package versions", "neither", "other versions of what the frameworks stand on, which may be faster or slower")
COMPUTED = Meaning("computed tokens", "work", "padding, or samples that were processed more than once")


def field_meaning(field: str) -> Meaning:
    """What a difference in a field of the experiment changes."""
    parts = field.split(".")
    for length in range(len(parts), 0, -1):
        if (found := FIELDS.get(".".join(parts[:length]))) is not None:
            return found
    return NOT_KNOWN
