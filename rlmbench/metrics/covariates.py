"""Speed at equal tokens, where response lengths were left to the model and the runs did not do equal work.

Analysis of covariance on the scale of the logarithm, with two covariates: the tokens of a step, and its longest response, which generation
waits for. Their slopes (a step with 1% more of it takes so many % more seconds) are fitted by least squares over the steps of all runs of
both configurations, each run with an intercept of its own, so that neither how fast a configuration is nor how fast one run was can pass
for them. Each run is then moved along the slopes to what both have on average, which gives one rate a run, and those are compared as any
other rates are (`statistics.difference_of_runs`). How uncertain the slopes are, judged over runs, widens the interval by as much as the two
configurations lie apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import TYPE_CHECKING

from rlmbench.metrics.statistics import MINIMUM_EFFECT, Estimate, RunDifference, difference_of_runs, t95, verdict_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

COVARIATES = ("tokens of a step", "longest response of a step")
FEWEST_FREE = 2
"""Steps beyond one a run and one a slope, below which slopes are not fitted."""
_NO_SPREAD = 1e-6
"""Variance of logarithms within runs (0.1% squared), below which a covariate says nothing: it is left out."""
_ALIKE = 0.01
"""By how much, as a logarithm, two configurations may differ in a covariate that is left out: less than any effect that counts."""
_FARTHEST = 20.0
"""As a logarithm: no run is moved farther, and no interval widened by more. Slopes of next to no spread may be any number."""


@dataclass(frozen=True)
class Steps:
    """The measured steps of one run: seconds, tokens and longest response of each, all positive."""

    seconds: Sequence[float]
    tokens: Sequence[float]
    longest: Sequence[float]


@dataclass(frozen=True)
class AtEqualTokens:
    """Rates of a and b, were both steps of `tokens` tokens and equally long: `difference` of them, and what it was made from.

    `slopes` are the shares by which seconds grow with each covariate that varies (0: not at all, 1: in proportion); their `n` counts steps.
    `tokens_a` and `tokens_b` are geometric means over steps, then over runs.
    """

    difference: RunDifference
    slopes: Mapping[str, Estimate]
    tokens: float
    tokens_a: float
    tokens_b: float


@dataclass(frozen=True)
class _Fit:
    """Slopes, their covariance over runs, and which covariates (columns) they belong to."""

    columns: list[int]
    slopes: Floats
    covariance: Floats
    steps: int
    runs: int


def at_equal_tokens(a: Sequence[Steps], b: Sequence[Steps], minimum_effect: float = MINIMUM_EFFECT) -> AtEqualTokens | None:
    """None where no slope can be fitted: too few steps, or all of a run's alike, or alike in something in which a and b are not."""
    import numpy as np

    if not a or not b:
        return None
    logs = [_logs(run) for run in (*a, *b)]
    fit = _fit(logs)
    if fit is None:
        return None
    centres = np.array([covariates.mean(axis=0) for covariates, _ in logs])
    seconds = np.array([of.mean() for _, of in logs])
    means = centres[: len(a)].mean(axis=0), centres[len(a) :].mean(axis=0)
    common = (means[0] + means[1]) / 2
    apart = means[0] - means[1]
    if any(abs(apart[column]) > _ALIKE for column in range(len(apart)) if column not in fit.columns):
        return None
    moved = seconds - np.clip((centres - common)[:, fit.columns] @ fit.slopes, -_FARTHEST, _FARTHEST)
    rates = np.exp(common[0] - moved).tolist()
    plain = difference_of_runs(rates[: len(a)], rates[len(a) :], minimum_effect)
    moved_apart = apart[fit.columns]
    half = min(t95(fit.runs - 1) * sqrt(max(0.0, float(moved_apart @ fit.covariance @ moved_apart))), _FARTHEST)
    tokens_a, tokens_b = (exp(float(mean[0])) for mean in means)
    return AtEqualTokens(_widened(plain, half, minimum_effect), _slopes(fit), exp(float(common[0])), tokens_a, tokens_b)


def _logs(run: Steps) -> tuple[Floats, Floats]:
    """Covariates (a column each) and seconds, as logarithms."""
    import numpy as np

    return np.log(np.array([run.tokens, run.longest], dtype=float).T), np.log(np.asarray(run.seconds, dtype=float))


def _fit(logs: Sequence[tuple[Floats, Floats]]) -> _Fit | None:
    """Slopes within runs; their covariance from residuals summed over each run, since steps of one resemble each other."""
    import numpy as np

    centred = [(covariates - covariates.mean(axis=0), seconds - seconds.mean()) for covariates, seconds in logs]
    all_x, all_y = np.vstack([x for x, _ in centred]), np.concatenate([y for _, y in centred])
    steps, runs = len(all_y), len(logs)
    columns = [column for column in range(all_x.shape[1]) if float((all_x[:, column] ** 2).sum()) > _NO_SPREAD * steps]
    if not columns or runs < 2 or steps - runs - len(columns) < FEWEST_FREE:
        return None
    inverse = np.linalg.pinv(all_x[:, columns].T @ all_x[:, columns])
    slopes = inverse @ all_x[:, columns].T @ all_y
    scores = [x[:, columns].T @ (y - x[:, columns] @ slopes) for x, y in centred]
    middle = runs / (runs - 1) * sum(np.outer(score, score) for score in scores)
    return _Fit(columns, slopes, inverse @ middle @ inverse, steps, runs)


def _slopes(fit: _Fit) -> dict[str, Estimate]:
    made = {}
    for place, column in enumerate(fit.columns):
        value = float(fit.slopes[place])
        half = t95(fit.runs - 1) * sqrt(max(0.0, float(fit.covariance[place, place])))
        made[COVARIATES[column]] = Estimate(value, value - half, value + half, fit.steps)
    return made


def _widened(plain: RunDifference, half: float, minimum_effect: float) -> RunDifference:
    """`plain` with an interval wider by a further, independent uncertainty of `half` on the logarithm, and the verdict of that."""
    if plain.low is None or plain.high is None:
        return plain
    centre = log(plain.ratio)
    low = exp(centre - sqrt((centre - log(plain.low)) ** 2 + half**2))
    high = exp(centre + sqrt((log(plain.high) - centre) ** 2 + half**2))
    wider = replace(plain, low=low, high=high)
    return replace(wider, verdict=verdict_of(wider, minimum_effect))
