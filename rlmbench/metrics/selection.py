"""Which steps the figures are taken from, and why the others are left out.

The first steps allocate, compile and fill caches; a step that saves or validates does work of another kind. They are
recorded and shown, and left out of every mean and median.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlmbench.metrics.stages import StepStages

LEFT_OUT_STAGES = {"checkpoint": "saved a checkpoint", "validation": "validated"}


def excluded_steps(breakdown: Sequence[StepStages], warmup_steps: int, updates: Mapping[int, int], updates_per_step: int) -> dict[int, str]:
    """Step -> the reason it is left out.

    The first `warmup_steps` steps by number; steps with checkpoint or validation time; and the last step when it has
    fewer than `updates_per_step` optimizer steps, as the one in which a run was ended has.
    """
    reasons = {}
    for index, step in enumerate(breakdown):
        other_work = [reason for stage, reason in LEFT_OUT_STAGES.items() if step.stages_ns.get(stage)]
        done = updates.get(step.step, 0)
        if step.step <= warmup_steps:
            reasons[step.step] = "warm-up"
        elif other_work:
            reasons[step.step] = " and ".join(other_work)
        elif index == len(breakdown) - 1 and done < updates_per_step:
            reasons[step.step] = f"ended early ({done} of {updates_per_step} optimizer steps)"
    return reasons
