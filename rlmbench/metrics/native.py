"""The framework's own figures beside the canonical ones, with their ratio and the reason for it.

Frameworks mean different things by one word, so a native figure is never taken for a canonical one; it is shown under
its own name. Which keys a framework logs, and what they mean, its adapter says (``Adapter.native_metrics``). Source: `native`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from rlmbench.adapter import NativeMetric

if TYPE_CHECKING:
    import pandas as pd


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
    native: pd.DataFrame, steps: Collection[int], canonical: Mapping[str, float | None], known: Mapping[str, NativeMetric]
) -> dict[str, NativeFigure]:
    """Every native key with its figure. `canonical` holds our values by name; `known` is what the adapter says of its framework's keys."""
    figures = {}
    for key, entries in native.dropna(subset=["value"]).groupby("key", sort=True):
        finite = entries[[isfinite(value) for value in entries["value"]]]
        if finite.empty:
            continue
        measured = finite[finite["step"].isin(steps)]
        values = (measured if len(measured) else finite)["value"]
        about = known.get(str(key))
        name = about.canonical if about else None
        ours = canonical.get(name) if name else None
        mean = float(values.mean())
        figures[str(key)] = NativeFigure(
            mean=mean,
            last=float(finite["value"].iloc[-1]),
            n=len(values),
            canonical=name,
            ratio=mean / ours if ours else None,
            reason=about.meaning if about else None,
        )
    return figures
