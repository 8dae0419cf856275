"""Whether the run learned as it should, so that speed is not bought with wrong training.

Source: `samples` (rewards as they entered the advantage), `updates`, and the framework's own log for what only it knows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from rlmbench.metrics.statistics import Estimate, mean_over_steps

if TYPE_CHECKING:
    import pandas as pd

NATIVE_KEYS: dict[str, tuple[str, ...]] = {
    "kl": ("kl", "objective/kl", "actor/kl_loss"),
    "grad_norm": ("grad_norm", "actor/grad_norm"),
    "clip_fraction": ("clip_ratio/region_mean", "policy/clipfrac_avg", "actor/pg_clipfrac", "clip_ratio"),
    "entropy": ("entropy", "policy/entropy_avg", "actor/entropy"),
    "logprob_difference": ("sampling/sampling_logp_difference/mean", "training/rollout_probs_diff_mean"),
}
"""Sanity figure -> the keys under which TRL, verl or OpenRLHF logs it; the first one present is taken."""


@dataclass(frozen=True)
class NativeMean:
    """A figure of the framework's own: its mean over the measured steps, and the key it came from."""

    value: float
    key: str


def reward_mean(samples: pd.DataFrame, steps: Collection[int]) -> Estimate | None:
    """Mean reward over `steps`: the mean of the steps' means, with a block-bootstrap interval over steps."""
    measured = samples[samples["step"].isin(steps)].dropna(subset=["reward"])
    return mean_over_steps([float(value) for value in measured.groupby("step")["reward"].mean()])


def grad_norm_mean(updates: pd.DataFrame, steps: Collection[int]) -> float | None:
    """Mean gradient norm of the actor's optimizer steps in `steps`, before clipping, as the probe saw it."""
    norms = updates[updates["step"].isin(steps) & (updates["role"] == "actor")]["grad_norm"]
    finite = [value for value in norms.tolist() if isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def native_sanity(native: pd.DataFrame, steps: Collection[int]) -> dict[str, NativeMean]:
    """The figures of `NATIVE_KEYS` that the framework logged in `steps`; the others are left out."""
    measured = native[native["step"].isin(steps)].dropna(subset=["value"])
    means = measured.groupby("key")["value"].mean().to_dict()
    found = {}
    for figure, keys in NATIVE_KEYS.items():
        key = next((key for key in keys if key in means and isfinite(means[key])), None)
        if key is not None:
            found[figure] = NativeMean(float(means[key]), key)
    return found


def weights_changed(updates: pd.DataFrame) -> bool | None:
    """Whether any optimizer step changed the weights; None when no step was checked."""
    checked = updates["weights_changed"].dropna()
    return bool(checked.any()) if len(checked) else None
