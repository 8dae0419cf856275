"""Intervals and verdicts. Within one run steps are not independent of each other; between runs, the run is the unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from math import ceil, comb, exp, log, sqrt
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# Student's t, two-sided 95%, by degrees of freedom 1 to 30 (NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2).
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_T95_BEYOND = 1.96
_RESAMPLES = 2000
_MAX_SPLITS = 10_000
"""Up to here every way to split the runs into two groups is tried; beyond (8 and 8 runs), as many random ones."""

ALPHA = 0.05
MINIMUM_EFFECT = 0.03
"""A difference below this is called none: docs/comparison.md."""

SpeedVerdict = Literal["faster", "slower", "no difference shown", "too few runs"]


@dataclass(frozen=True)
class Estimate:
    """A value with its 95% interval; `n` is the number of steps (or of runs, where a docstring says so) behind it."""

    value: float
    low: float | None
    high: float | None
    n: int


def mean_over_steps(per_step: Sequence[float]) -> Estimate | None:
    """Mean of one value per step, with a percentile interval from a circular block bootstrap (blocks of n^(1/3) steps).

    Blocks keep neighbouring steps together, since they resemble each other. No interval below 3 steps; None without any.
    The resampling is seeded, so that the same record always gives the same interval.
    """
    return ratio_over_steps(per_step, [1.0] * len(per_step))


def ratio_over_steps(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate | None:
    """Ratio of sums over steps, such as tokens over seconds, with an interval like `mean_over_steps`'s."""
    import numpy as np

    n = len(numerators)
    if n == 0:
        return None
    above, below = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    value = float(above.sum() / below.sum())
    if n < 3:
        return Estimate(value, None, None, n)
    block = ceil(n ** (1 / 3))
    starts = np.random.default_rng(0).integers(0, n, size=(_RESAMPLES, ceil(n / block)))
    positions = (starts[:, :, None] + np.arange(block)).reshape(_RESAMPLES, -1)[:, :n] % n
    low, high = np.percentile(above[positions].sum(axis=1) / below[positions].sum(axis=1), [2.5, 97.5])
    return Estimate(value, float(low), float(high), n)


def mean_over_runs(per_run: Sequence[float]) -> Estimate | None:
    """Mean of one positive value per run, with an interval that says how far the mean of other such runs would land.

    A bootstrap over runs gives the interval's shape, Student's t its width (`_widened`), on the scale of the logarithm, so that no
    time or rate of few runs could be negative. No interval for a single run; None without any. `n` counts runs.
    """
    import numpy as np

    n = len(per_run)
    if n == 0:
        return None
    values = np.asarray(per_run, dtype=float)
    mean = float(values.mean())
    if n == 1:
        return Estimate(mean, None, None, n)
    spread = float(values.std(ddof=1))
    if spread == 0:
        return Estimate(mean, mean, mean, n)
    low, high = _widened(log(mean), np.log(values[_resamples(n, 0)].mean(axis=1)), t95(n - 1) * spread / mean / sqrt(n))
    return Estimate(mean, exp(low), exp(high), n)


@dataclass(frozen=True)
class RunDifference:
    """Two groups of runs. `ratio` is mean a / mean b, with its 95% interval (None unless both have two runs).

    `p` is that of an exact permutation test, two-sided; `attainable_p` the smallest that so many runs can give at all.
    `verdict` is about a, for a figure of which more is better.
    """

    ratio: float
    low: float | None
    high: float | None
    p: float
    attainable_p: float
    verdict: SpeedVerdict


def difference_of_runs(a: Sequence[float], b: Sequence[float], minimum_effect: float = MINIMUM_EFFECT) -> RunDifference:
    """Is `a` more than `b`? One positive value per run, at least one run each.

    Faster or slower needs all of: p <= 5%, an interval without 1, and a ratio that differs from 1 by `minimum_effect` or more.
    """
    ratio = (sum(a) / len(a)) / (sum(b) / len(b))
    low, high = _ratio_interval(a, b, ratio)
    found = RunDifference(ratio, low, high, permutation_p(a, b), attainable_p(len(a), len(b)), "no difference shown")
    return replace(found, verdict=verdict_of(found, minimum_effect))


def verdict_of(found: RunDifference, minimum_effect: float) -> SpeedVerdict:
    """What ratio, interval and p say together; whatever verdict `found` has is not looked at."""
    if found.low is None or found.high is None or found.attainable_p > ALPHA:
        return "too few runs"
    if found.p <= ALPHA and found.low > 1 and found.ratio >= 1 + minimum_effect:
        return "faster"
    if found.p <= ALPHA and found.high < 1 and found.ratio <= 1 / (1 + minimum_effect):
        return "slower"
    return "no difference shown"


def attainable_p(runs_a: int, runs_b: int) -> float:
    """The smallest p that a permutation test of so many runs can give: all of one group above all of the other."""
    return min(1.0, 2 / comb(runs_a + runs_b, runs_a))


def runs_needed() -> int:
    """Runs of each of two configurations from which a permutation test can show anything at all at 5%."""
    return next(n for n in range(1, 100) if attainable_p(n, n) <= ALPHA)


def permutation_p(a: Sequence[float], b: Sequence[float]) -> float:
    """How often the runs, dealt into two groups at random, would differ in their mean as much as they do.

    Two-sided: twice the smaller tail. Exact up to 10,000 splits; beyond, 10,000 seeded random ones, the one at hand counted in.
    """
    import numpy as np

    values = np.asarray([*a, *b], dtype=float)
    splits = _splits(len(a), len(b))
    sums = values[splits].sum(axis=1)
    own = float(values[: len(a)].sum())
    tolerance = 1e-9 * float(np.abs(values).sum())  # equal sums that were added up in another order
    tail = min(float((sums >= own - tolerance).mean()), float((sums <= own + tolerance).mean()))
    return min(1.0, 2 * tail)


@cache
def _splits(runs_a: int, runs_b: int) -> NDArray[Any]:
    """Each row: which runs are dealt to the first group. The first row is the split at hand."""
    import numpy as np

    n = runs_a + runs_b
    if comb(n, runs_a) <= _MAX_SPLITS:
        return np.array(list(combinations(range(n), runs_a)))
    dealt = np.random.default_rng(0).permuted(np.tile(np.arange(n), (_MAX_SPLITS, 1)), axis=1)[:, :runs_a]
    dealt[0] = np.arange(runs_a)
    return dealt


def _ratio_interval(a: Sequence[float], b: Sequence[float], ratio: float) -> tuple[float | None, float | None]:
    """Interval of the ratio of means, on the scale of its logarithm, with the degrees of freedom of Welch and Satterthwaite."""
    import numpy as np

    if len(a) < 2 or len(b) < 2:
        return None, None
    resampled, variances = [], []
    for seed, runs in enumerate((a, b)):
        values = np.asarray(runs, dtype=float)
        resampled.append(np.log(values[_resamples(len(values), seed)].mean(axis=1)))
        variances.append(float(values.var(ddof=1)) / len(values) / float(values.mean()) ** 2)
    total = sum(variances)
    if total == 0:
        return ratio, ratio
    freedom = total**2 / sum(variance**2 / (len(runs) - 1) for variance, runs in zip(variances, (a, b), strict=True))
    low, high = _widened(log(ratio), resampled[0] - resampled[1], _t95_between(freedom) * sqrt(total))
    return exp(low), exp(high)


def _widened(value: float, resampled: Floats, half: float) -> tuple[float, float]:
    """A bootstrap's percentile interval around `value`, stretched to a total width of 2 x `half`.

    The percentile interval of few runs is far too narrow: of 95% it covers 48% with 2 runs, 68% with 3, 85% with 5
    (tests/unit/metrics/test_metrics_statistics_runs.py), since no resample reaches beyond the runs at hand.
    """
    import numpy as np

    low, high = (float(bound) for bound in np.percentile(resampled, [2.5, 97.5]))
    if high <= low:
        return value - half, value + half
    stretch = 2 * half / (high - low)
    return value + (low - value) * stretch, value + (high - value) * stretch


@cache
def _resamples(n: int, seed: int) -> NDArray[Any]:
    """Seeded resamples of `n` runs, so that the same record always gives the same interval."""
    import numpy as np

    return np.random.default_rng(seed).integers(0, n, size=(_RESAMPLES, n))


def median_of(values: Sequence[float]) -> Estimate | None:
    """Median with the distribution-free interval between two of the values themselves (from the sign test). None without any.

    The interval is the narrowest symmetric pair of order statistics that covers the median with at least 95%; below 6 values even
    the lowest and the highest do not, and there is none.
    """
    n = len(values)
    if n == 0:
        return None
    ordered = sorted(values)
    outside, below = 0.0, 0
    while below < n // 2 and 2 * (outside + comb(n, below) / 2**n) <= ALPHA:
        outside += comb(n, below) / 2**n
        below += 1
    low, high = (ordered[below - 1], ordered[n - below]) if below else (None, None)
    return Estimate(median(ordered), low, high, n)


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


def _t95_between(degrees: float) -> float:
    """`t95` for degrees of freedom that are not whole: linear in their inverse."""
    below = max(1, int(degrees))
    part = (1 / below - 1 / degrees) / (1 / below - 1 / (below + 1))
    return t95(below) + part * (t95(below + 1) - t95(below))


def t95(degrees: int) -> float:
    """The 97.5% point of Student's t with `degrees` degrees of freedom; the normal one beyond 30, at most 4% too small."""
    return _T95[degrees - 1] if degrees <= len(_T95) else _T95_BEYOND
