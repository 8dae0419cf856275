"""Whether the run learned as it should, so that speed is not bought with wrong training.

Source: `samples` (rewards as they entered the advantage), `updates`, and the framework's own log for what only it knows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from rlmbench.adapter import NativeMetric
from rlmbench.metrics.statistics import Estimate, mean_over_steps
from rlmbench.records.frames import by_step

if TYPE_CHECKING:
    import pandas as pd

NATIVE_SANITY = ("kl", "grad_norm", "clip_fraction", "entropy", "staleness", "logprob_difference")
"""The sanity figures that only the framework's own log gives; an adapter says under which keys (``NativeMetric.sanity``)."""


SYNC_TOLERANCE: dict[str, float] = {"float32": 1e-3, "bfloat16": 2e-2}
"""Mean |trainer's - rollout engine's log-prob| that rounding explains, by the model's dtype.

Two engines with different kernels were seen 0.0007 to 0.0011 apart in bfloat16 and 2e-7 in float32 on equal weights, at tiny scale on a CPU;
larger models accumulate more rounding, hence more than ten times that.
"""


def sync_tolerance(dtypes: Iterable[str]) -> tuple[str, float]:
    """The coarsest of the types that were at work, and what its rounding explains (`SYNC_TOLERANCE`).

    A framework without float32 works in bfloat16 when it is asked for float32, so the types that a run states count too.
    Unknown types are left out; with none known it is bfloat16.
    """
    known = [dtype for dtype in dtypes if dtype in SYNC_TOLERANCE] or ["bfloat16"]
    coarsest = max(known, key=lambda dtype: SYNC_TOLERANCE[dtype])
    return coarsest, SYNC_TOLERANCE[coarsest]


@dataclass(frozen=True)
class NativeMean:
    """A figure of the framework's own: its mean over the measured steps, and the key it came from."""

    value: float
    key: str


def step_rewards(samples: pd.DataFrame, rewards: pd.DataFrame) -> dict[int, float]:
    """Step -> mean reward of its samples.

    Where samples are not identified at the loss, the rewards as they entered the advantage stand for them; one that
    several ranks report counts once, and a row that dynamic sampling took twice counts twice.
    """
    known = samples.dropna(subset=["reward"])
    if known.empty:
        identified = rewards["row"].notna() & rewards["sample"].notna()
        key = ["step", "row", "sample"]
        visit = rewards.groupby(["process", *key], dropna=False).cumcount()
        known = rewards[~(identified & rewards.assign(visit=visit).duplicated([*key, "visit"]))].dropna(subset=["reward"])
    return by_step(known.groupby("step")["reward"].mean())


def reward_mean(rewards: Mapping[int, float], steps: Collection[int]) -> Estimate | None:
    """Mean reward over `steps`: the mean of the steps' means (`step_rewards`), with a block-bootstrap interval over steps."""
    return mean_over_steps([rewards[step] for step in steps if step in rewards])


def grad_norm_mean(updates: pd.DataFrame, steps: Collection[int]) -> float | None:
    """Mean gradient norm of the actor's optimizer steps in `steps`, before clipping, as the probe saw it."""
    norms = updates[updates["step"].isin(steps) & (updates["role"] == "actor")]["grad_norm"]
    finite = [value for value in norms.tolist() if isfinite(value)]
    return sum(finite) / len(finite) if finite else None


@dataclass(frozen=True)
class LogprobDifference:
    """|trainer's log-prob - rollout engine's| over response tokens, and the mean that rounding in `dtype` explains."""

    mean: float
    maximum: float
    tokens: int
    dtype: str
    tolerance: float

    @property
    def is_rounding(self) -> bool:
        """Whether rounding alone explains the mean; if not, the engine did not have the trainer's weights."""
        return self.mean <= self.tolerance


def logprob_difference(logprobs: pd.DataFrame, steps: Collection[int], dtypes: Iterable[str]) -> LogprobDifference | None:
    """The difference over `steps`; None where no rollout engine's log-probs reached the loss.

    Both are of the policy before the step's updates, so it holds rounding alone as long as weights are synced.
    """
    seen = logprobs[logprobs["step"].isin(steps)].dropna(subset=["difference_sum"])
    tokens = int(seen["tokens"].sum())
    if not tokens:
        return None
    mean, largest = float(seen["difference_sum"].sum()) / tokens, float(seen["difference_max"].max())
    return LogprobDifference(mean, largest, tokens, *sync_tolerance(dtypes))


def dtypes_at_work(asked: str, facts: pd.DataFrame) -> list[str]:
    """The model's type as asked for, and those that processes of the run stated of weights and rollout engine."""
    stated = facts[facts["name"].isin(["weights_dtype", "rollout_dtype"])]["value"]
    return [asked, *(str(json.loads(text)) for text in stated)]


def native_sanity(native: pd.DataFrame, steps: Collection[int], known: Mapping[str, NativeMetric]) -> dict[str, NativeMean]:
    """The figures of `NATIVE_SANITY` that the framework logged in `steps`; the others are left out."""
    measured = native[native["step"].isin(steps)].dropna(subset=["value"])
    means = measured.groupby("key")["value"].mean().to_dict()
    found = {}
    for figure in NATIVE_SANITY:
        keys = (key for key, about in known.items() if about.sanity == figure)
        key = next((key for key in keys if key in means and isfinite(means[key])), None)
        if key is not None:
            found[figure] = NativeMean(float(means[key]), key)
    return found


def weights_changed(updates: pd.DataFrame) -> bool | None:
    """Whether any optimizer step changed the weights; None when no step was checked."""
    checked = updates["weights_changed"].dropna()
    return bool(checked.any()) if len(checked) else None
