"""Memory of one device by role, for a mode and layout that did not run: by the cost model, term by term."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlmbench.costmodel.memory import stage_memory
from rlmbench.costmodel.prediction import sharding_of
from rlmbench.costmodel.stages import setup_of
from rlmbench.costmodel.work import Sequences
from rlmbench.whatif.modes import MODES, Layout
from rlmbench.workload.shapes import SHAPES

if TYPE_CHECKING:
    from rlmbench.records import Run
    from rlmbench.whatif.inputs import Inputs


def device_memory(run: Run, inputs: Inputs, mode: str, layout: Layout) -> dict[str, int]:
    """Role -> bytes that a device of it holds at least (`rlmbench.costmodel.memory`, KV cache of one sample).

    Empty where the cost model cannot tell: on a CPU, for a model whose shape is not known, and where only some roles share devices.
    """
    shape = SHAPES.get(run.experiment.model.shape or "")
    if shape is None or not run.manifest.devices or mode == "partially_colocated":
        return {}
    is_split = MODES[mode].is_split
    split, place = run.experiment.parallelism, run.experiment.placement
    groups = 2 if is_split and "critic_devices" in run.manifest.traits else 1  # actor's and critic's
    ranks = max(layout.training // (groups * split.tensor * split.pipeline * split.context), 1)
    experiment = run.experiment.model_copy(
        update={
            "parallelism": split.model_copy(update={"data": ranks, "rollout_tensor": layout.tensor}),
            "placement": place.model_copy(
                update={"mode": "disaggregated" if is_split else "colocated", "rollout_devices": layout.rollout if is_split else 0}
            ),
        }
    )
    weights_dtype = run.manifest.expected_facts.get("weights_dtype")
    setup = setup_of(experiment, run.manifest.traits, weights_dtype)
    prompt = round(inputs.prompt_tokens / inputs.samples)
    lengths = Sequences.of((prompt, int(tokens)) for of_step in inputs.lengths for tokens in of_step)
    longest = round(sum(int(of_step.max()) for of_step in inputs.lengths) / len(inputs.lengths))
    stages = stage_memory(
        shape,
        experiment,
        setup,
        lengths.per_step(len(inputs.lengths), longest),
        weights_dtype or experiment.model.dtype,
        sharding_of(experiment, run.manifest.ledger),
    )
    held = {stage: round(of.total) for stage, of in stages.items()}
    if not is_split:
        return {"all": max(held.values())}
    return {"rollout": held["generation"], "training": max(held["assessment"], held["training"])}
