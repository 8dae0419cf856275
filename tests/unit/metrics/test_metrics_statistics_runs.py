"""Intervals and verdicts over runs, by hand and on simulated runs (docs/comparison.md)."""

from itertools import product
from math import comb

import numpy as np
import pytest

from rlmbench.metrics.statistics import (
    attainable_p,
    difference_of_runs,
    mean_over_runs,
    permutation_p,
    ratio_over_steps,
    runs_needed,
)

SIMULATIONS = 2000


def simulated(runs, mean=1.0, spread=0.04, seed=1):
    """One row per simulated experiment: so many runs that vary by `spread` of their mean."""
    return mean * (1 + spread * np.random.default_rng(seed).standard_normal((SIMULATIONS, runs)))


def test_interval_of_three_runs_by_hand():
    # 10, 11, 15: mean 12, standard deviation sqrt((4 + 1 + 9) / 2) = 2.6458; half width of the mean's logarithm
    # 4.303 x 2.6458 / 12 / sqrt(3) = 0.54775. A resample of 3 runs is 10 10 10 in 1 of 27 cases, more than 2.5%: its percentiles are
    # the smallest and the largest run, ln(10/12) = -0.18232 and ln(15/12) = 0.22314. Stretched from 0.40546 to 2 x 0.54775:
    # 2.7019 times, so 12 exp(-0.49261) = 7.332 to 12 exp(0.60290) = 21.929.
    estimate = mean_over_runs([10, 11, 15])
    assert (estimate.value, estimate.n) == (12, 3)
    assert (estimate.low, estimate.high) == pytest.approx((7.332, 21.929), abs=0.01)


def test_a_rate_is_positive_however_few_its_runs():
    estimate = mean_over_runs([10, 20])
    assert 0 < estimate.low < 10 and estimate.high > 20


def test_one_run_has_no_interval_and_none_has_no_mean():
    assert (mean_over_runs([3.0]).value, mean_over_runs([3.0]).low) == (3.0, None)
    assert mean_over_runs([]) is None


def test_equal_runs_have_an_interval_without_width():
    estimate = mean_over_runs([2.0, 2.0, 2.0])
    assert (estimate.value, estimate.low, estimate.high) == (2.0, 2.0, 2.0)
    difference = difference_of_runs([2.0] * 4, [1.0] * 4)
    assert (difference.ratio, difference.low, difference.high, difference.verdict) == (2.0, 2.0, 2.0, "faster")


def test_ratio_over_steps_is_a_ratio_of_sums():
    # 100 tokens in 1 s and 100 in 3 s are 50 a second, not the mean of 100 and 33.
    assert ratio_over_steps([100, 100], [1, 3]).value == 50
    many = ratio_over_steps([100, 100, 100, 100], [1, 1, 3, 3])
    assert many.value == 50
    assert many.low < 50 < many.high


def test_permutation_by_hand():
    # 1 2 against 3 4: of 6 splits one has as small a sum as 1 + 2: one-sided 1/6, two-sided 1/3, the least that 2 and 2 runs can give.
    assert permutation_p([1, 2], [3, 4]) == pytest.approx(1 / 3)
    assert permutation_p([3, 4], [1, 2]) == pytest.approx(1 / 3)
    # 1 3 against 2 4: sums 3 4 5 5 6 7, two of them (3, 4) not above 4: 2/6, doubled.
    assert permutation_p([1, 3], [2, 4]) == pytest.approx(2 / 3)
    assert permutation_p([1, 1], [1, 1]) == 1.0


@pytest.mark.parametrize(
    ("runs_a", "runs_b", "p"), [(1, 1, 1.0), (2, 2, 1 / 3), (3, 3, 0.1), (4, 4, 2 / 70), (3, 5, 2 / 56), (5, 5, 2 / 252)]
)
def test_attainable_p_is_met_by_groups_that_do_not_overlap(runs_a, runs_b, p):
    assert attainable_p(runs_a, runs_b) == pytest.approx(p)
    apart = permutation_p(range(1, runs_a + 1), range(100, 100 + runs_b))
    assert apart == pytest.approx(p)


def test_four_runs_each_are_the_first_that_can_show_anything():
    assert runs_needed() == 4


def test_beyond_exact_enumeration_the_split_at_hand_is_counted():
    assert comb(24, 12) > 10_000
    p = permutation_p(range(12), range(100, 112))
    assert 0 < p <= 0.001


def test_verdicts():
    base = [100.0, 100.2, 99.8, 100.1, 99.9]
    faster, little = [value * 1.2 for value in base], [value * 1.02 for value in base]
    assert difference_of_runs(faster, base).verdict == "faster"
    assert difference_of_runs(base, faster).verdict == "slower"
    assert difference_of_runs(base, base).verdict == "no difference shown"
    # 2% with next to no spread is a real difference (p 0.008, interval without 1), and below the minimum effect.
    small = difference_of_runs(little, base)
    assert (small.p, small.low > 1, small.verdict) == (pytest.approx(2 / 252), True, "no difference shown")
    assert difference_of_runs(little, base, minimum_effect=0.01).verdict == "faster"
    # However far apart, 3 and 3 runs cannot give p below 0.1, and one run gives no interval at all.
    assert difference_of_runs([2.0, 2.1, 2.2], [1.0, 1.1, 1.2]).verdict == "too few runs"
    single = difference_of_runs([2.0], [1.0])
    assert (single.ratio, single.low, single.verdict) == (2.0, None, "too few runs")


def test_swapping_the_two_gives_the_inverse():
    a, b = [1.0, 1.2, 1.1, 1.3], [0.9, 1.0, 0.8, 1.0]
    there, back = difference_of_runs(a, b), difference_of_runs(b, a)
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.p == pytest.approx(back.p)
    assert (there.low, there.high) == pytest.approx((1 / back.high, 1 / back.low), rel=0.02)  # resamples differ


@pytest.mark.parametrize("runs", [2, 3, 5, 8])
def test_interval_of_a_mean_covers_it_in_95_of_100_simulations(runs):
    estimates = [mean_over_runs(experiment) for experiment in simulated(runs)]
    covered = np.mean([estimate.low <= 1 <= estimate.high for estimate in estimates])
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize(("runs_a", "runs_b", "spread_b"), [(3, 3, 0.04), (4, 8, 0.08)])
def test_interval_of_a_ratio_covers_it_in_95_of_100_simulations(runs_a, runs_b, spread_b):
    a, b = simulated(runs_a, mean=1.2), simulated(runs_b, spread=spread_b, seed=2)
    differences = [difference_of_runs(one, other) for one, other in zip(a, b, strict=True)]
    covered = np.mean([difference.low <= 1.2 <= difference.high for difference in differences])
    assert 0.93 <= covered <= 0.97


def test_plain_percentile_bootstrap_would_not():
    """Why `mean_over_runs` widens: of intervals that claim 95%, few runs give far less."""
    covered = {}
    for runs in (2, 3, 5):
        resamples = np.array(list(product(range(runs), repeat=runs)))  # all of them
        low, high = np.percentile(simulated(runs)[:500, resamples].mean(axis=2), [2.5, 97.5], axis=1)
        covered[runs] = np.mean((low <= 1) & (high >= 1))
    assert covered == {2: pytest.approx(0.48, abs=0.03), 3: pytest.approx(0.68, abs=0.03), 5: pytest.approx(0.85, abs=0.03)}


@pytest.mark.parametrize("runs", [4, 5])
def test_false_alarms_stay_below_5_of_100(runs):
    """Two configurations that do not differ; a minimum effect above 0 can only lower this."""
    a, b = simulated(runs), simulated(runs, seed=2)
    verdicts = [difference_of_runs(one, other, minimum_effect=0).verdict for one, other in zip(a, b, strict=True)]
    assert 0.005 < np.mean([verdict in ("faster", "slower") for verdict in verdicts]) <= 0.05


def test_a_real_difference_is_found():
    """20% with runs that vary by 4%, five runs each: found nearly always, and never with the wrong sign."""
    a, b = simulated(5, mean=1.2), simulated(5, seed=2)
    verdicts = [difference_of_runs(one, other).verdict for one, other in zip(a, b, strict=True)]
    assert np.mean([verdict == "faster" for verdict in verdicts]) > 0.95
    assert "slower" not in verdicts
