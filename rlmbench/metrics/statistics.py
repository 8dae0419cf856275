"""Intervals for the figures of one run, whose steps are not independent of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt

# Student's t, two-sided 95%, by degrees of freedom 1 to 30 (NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2).
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_T95_BEYOND = 1.96
_RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A value with its 95% interval; `n` is the number of steps behind it."""

    value: float
    low: float | None
    high: float | None
    n: int


def mean_over_steps(per_step: Sequence[float]) -> Estimate | None:
    """Mean of one value per step, with a percentile interval from a circular block bootstrap (blocks of n^(1/3) steps).

    Blocks keep neighbouring steps together, since they resemble each other. No interval below 3 steps; None without any.
    The resampling is seeded, so that the same record always gives the same interval.
    """
    import numpy as np

    n = len(per_step)
    if n == 0:
        return None
    values = np.asarray(per_step, dtype=float)
    mean = float(values.mean())
    if n < 3:
        return Estimate(mean, None, None, n)
    block = ceil(n ** (1 / 3))
    starts = np.random.default_rng(0).integers(0, n, size=(_RESAMPLES, ceil(n / block)))
    positions = (starts[:, :, None] + np.arange(block)).reshape(_RESAMPLES, -1)[:, :n] % n
    low, high = np.percentile(values[positions].mean(axis=1), [2.5, 97.5])
    return Estimate(mean, float(low), float(high), n)


def slope(x: Sequence[float], y: Sequence[float]) -> Estimate | None:
    """Least-squares slope of `y` over `x` with Student's t interval. None below 3 points or when all `x` are equal.

    Errors are taken as independent; neighbouring steps resemble each other, so the interval is rather too narrow.
    """
    n = len(x)
    if n < 3:
        return None
    mean_x, mean_y = sum(x) / n, sum(y) / n
    spread = sum((value - mean_x) ** 2 for value in x)
    if spread == 0:
        return None
    value = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    residual = sum((b - mean_y - value * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    half = t95(n - 2) * sqrt(residual / (n - 2) / spread)
    return Estimate(value, value - half, value + half, n)


def t95(degrees: int) -> float:
    """The 97.5% point of Student's t with `degrees` degrees of freedom; the normal one beyond 30, at most 4% too small."""
    return _T95[degrees - 1] if degrees <= len(_T95) else _T95_BEYOND
