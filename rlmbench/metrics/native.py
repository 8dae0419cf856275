"""The framework's own figures beside the canonical ones, with their ratio and the reason for it.

Frameworks mean different things by one word, so a native figure is never taken for a canonical one; it is shown under
its own name. Source: `native`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

VERL_TIMERS = {
    "old_log_prob": "old_logprob",
    "ref": "reference_logprob",
    "values": "values",
    "adv": "advantage",
    "update_critic": "critic_update",
    "update_actor": "actor_update",
    "update_weights": "weight_sync",
}
"""verl's timer around the calls of one stage -> the stage."""

CANONICAL: dict[str, tuple[str, str]] = {
    "step_time": (
        "update_s",
        "one optimizer step's training_step calls: no optimizer, no data loading, no logging; generation falls into the first",
    ),
    "train_samples_per_second": (
        "samples_per_s",
        "over the whole training loop, warm-up and checkpoints included; a sample counts once per epoch",
    ),
    "train_steps_per_second": ("updates_per_s", "optimizer steps over the whole training loop, warm-up and checkpoints included"),
    "completions/mean_length": ("response_tokens_mean", "mean of the framework's means per logged batch"),
    "reward": ("reward_mean", "mean of the framework's means per logged batch"),
    "timing_s/step": ("step_s", "without what verl does between its timers: metrics, logging"),
    "timing_s/gen": ("rollout_s", "until the samples are there: generation and reward, the wait for the next poll, and offloading"),
    **{f"timing_s/{timer}": (f"{stage}_s", f"verl's own timer around {stage}") for timer, stage in VERL_TIMERS.items()},
    "perf/throughput": ("step_tokens_per_s_per_device", "mean of the steps' rates, over timing_s/step"),
    "response_length/mean": ("response_tokens_mean", "mean of the steps' means"),
    "critic/score/mean": ("reward_mean", "mean of the steps' means"),
    "timing/step_total": ("step_s", "OpenRLHF's sum of its other timers: without hand-over and logging; asynchronous: from step to step"),
    "timing/generation": ("generation_s", "until the samples are there, rewards included; asynchronous: beside training"),
    "timing/ppo_train": ("training_s", "until the updates of actor and critic are done, sleeping and waking included"),
    "timing/broadcast": ("weight_sync_s", "until the rollout engine has the weights; asynchronous: the wait for it included"),
    "rollout/response_length_mean": ("response_tokens_mean", "mean of the steps' means"),
    "rollout/reward_mean": ("reward_mean", "mean of the steps' means"),
}
"""Native key -> the canonical figure it comes nearest to, and why the two differ."""


@dataclass(frozen=True)
class NativeFigure:
    """One figure the framework logged.

    `mean` is over the measured steps (over all, if it logged none of them), `last` the latest value. `ratio` is
    mean / the canonical figure named by `canonical`; null where there is none or it is 0. `reason` says why they differ.
    """

    mean: float
    last: float
    n: int
    canonical: str | None
    ratio: float | None
    reason: str | None


def native_figures(
    native: pd.DataFrame, steps: Collection[int], canonical: Mapping[str, float | None], reasons: Mapping[str, str]
) -> dict[str, NativeFigure]:
    """Every native key with its figure. `canonical` holds our values by name; `reasons` an adapter's texts, which take precedence."""
    figures = {}
    for key, entries in native.dropna(subset=["value"]).groupby("key", sort=True):
        finite = entries[[isfinite(value) for value in entries["value"]]]
        if finite.empty:
            continue
        measured = finite[finite["step"].isin(steps)]
        values = (measured if len(measured) else finite)["value"]
        name, reason = CANONICAL.get(str(key), (None, None))
        ours = canonical.get(name) if name else None
        mean = float(values.mean())
        figures[str(key)] = NativeFigure(
            mean=mean,
            last=float(finite["value"].iloc[-1]),
            n=len(values),
            canonical=name,
            ratio=mean / ours if ours else None,
            reason=reasons.get(str(key), reason),
        )
    return figures
