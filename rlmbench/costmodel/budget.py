"""Device hours and cost of a planned run: at least, and as far above that as a published run on GPUs was.

The published run: verl, Qwen2-7B co-located on 8 devices, 210 steps logged; a step without validation or checkpoint took 3.1 to 5.3 times its
least time (`tests/unit/costmodel/test_costmodel_work.py`, docs/plan.md). Nothing is known of how far above other kinds of run are, so for them
no range is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlmbench.costmodel.prediction import PROCESSES, Prediction
from rlmbench.workload.shapes import SHAPES

PUBLISHED: Final = (3.1, 5.3)
"""Seconds of a step over the least seconds, from the nearest step to the farthest."""
PUBLISHED_RUN: Final = "a published run of verl (Qwen2-7B, co-located on 8 GPUs; docs/plan.md)"
PUBLISHED_DEVICES: Final = 8
PUBLISHED_SHAPE: Final = "qwen2.5-7b"
"""Qwen2-7B's own shape."""
AS_LARGE: Final = 2.0
"""A model is like that one within this factor of its parameters, and dense as it is."""

Range = tuple[float, float]


@dataclass(frozen=True)
class Likely:
    """If a run were as far above its least time as the published one (`like`). `cost` in the currency of the price, None without one."""

    times_least: Range
    step_s: Range
    device_hours: Range
    cost: Range | None
    like: str = PUBLISHED_RUN


@dataclass(frozen=True)
class Budget:
    """Of all steps, start-up aside. What is None has its reason in `why_not`, or the price was not given. `likely` None: the published run is not like
    this one."""

    device_hours: float | None
    cost: float | None
    likely: Likely | None
    why_not: str | None


def budget(found: Prediction, price_per_hour: float | None = None) -> Budget:
    """Hours and cost of `found`. None where it does not fit its devices: nothing would run, so nothing would be paid."""
    if found.verdict == "does not fit":
        return Budget(None, None, None, "it does not fit its devices' memory")
    if found.device_hours is None or found.least_step_s is None:
        return Budget(None, None, None, "no least time is known")
    hours = found.device_hours
    likely = None
    if is_like_published(found):
        spent = _times(hours)
        likely = Likely(PUBLISHED, _times(found.least_step_s), spent, None if price_per_hour is None else _scaled(spent, price_per_hour))
    return Budget(hours, None if price_per_hour is None else hours * price_per_hour, likely, None)


def is_like_published(found: Prediction) -> bool:
    """A dense model of about 7B, co-located on 8 GPUs."""
    shape, published = SHAPES.get(found.shape), SHAPES[PUBLISHED_SHAPE].parameters
    return (
        shape is not None
        and not shape.experts
        and published / AS_LARGE <= shape.parameters <= published * AS_LARGE
        and found.mode == "colocated"
        and found.devices == PUBLISHED_DEVICES
        and not on_cpu(found)
    )


def on_cpu(found: Prediction) -> bool:
    """Whether the device is a machine without GPUs."""
    return any(PROCESSES in of.terms for of in found.memory.values())


def _times(least: float) -> Range:
    return _scaled(PUBLISHED, least)


def _scaled(of: Range, by: float) -> Range:
    return of[0] * by, of[1] * by
