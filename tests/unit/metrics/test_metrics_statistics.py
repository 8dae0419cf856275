from statistics import NormalDist

import pytest

from rlmbench.metrics.statistics import mean_over_steps, median_of, slope, t95


def test_slope_and_interval_by_hand():
    # x 0 1 2 3, y 1 3 2 6: mean x 1.5, mean y 3, Sxy 7, Sxx 5, slope 1.4; residuals 0.1 0.7 -1.7 0.9, sum of squares 4.2
    estimate = slope([0, 1, 2, 3], [1, 3, 2, 6])
    assert estimate.value == pytest.approx(1.4)
    half = 4.303 * (4.2 / 2 / 5) ** 0.5
    assert (estimate.low, estimate.high) == pytest.approx((1.4 - half, 1.4 + half))
    assert estimate.n == 4


def test_slope_of_a_line_is_exact_and_of_too_little_absent():
    line = slope([2, 3, 4], [20, 30, 40])
    assert (line.value, line.low, line.high) == pytest.approx((10, 10, 10))
    assert slope([1, 2], [5, 6]) is None
    assert slope([1, 1, 1], [5, 6, 7]) is None


def test_a_median_lies_between_order_statistics():
    # By tables of the sign test: 6 values, lowest to highest covers 1 - 2/64 = 96.9%; 9 values, 2nd to 8th covers 1 - 2 x 10/512 = 96.1%.
    six = median_of([1.02, 0.98, 1.01, 1.04, 0.99, 1.00])
    assert (six.value, six.low, six.high, six.n) == (pytest.approx(1.005), 0.98, 1.04, 6)
    nine = median_of([9, 8, 7, 6, 5, 4, 3, 2, 1])
    assert (nine.value, nine.low, nine.high) == (5, 2, 8)
    five = median_of([5, 4, 3, 2, 1])  # 1 - 2/32 = 93.75%
    assert (five.value, five.low, five.high) == (3, None, None)
    assert median_of([]) is None


def test_t_meets_its_known_values():
    assert (t95(1), t95(10), t95(30)) == (12.706, 2.228, 2.042)
    assert t95(1000) == pytest.approx(NormalDist().inv_cdf(0.975), abs=0.001)


def test_bootstrap_interval_of_equal_steps_is_the_value():
    estimate = mean_over_steps([0.5] * 10)
    assert (estimate.value, estimate.low, estimate.high, estimate.n) == (0.5, 0.5, 0.5, 10)


def test_bootstrap_interval_is_near_the_normal_one_for_independent_steps():
    # 0 and 1 in an order without correlation of neighbours (binary de Bruijn sequence, repeated): sd 0.5, n 128.
    values = [0, 0, 0, 1, 0, 1, 1, 1] * 16
    estimate = mean_over_steps(values)
    assert estimate.value == 0.5
    assert estimate.low < 0.5 < estimate.high
    assert estimate.high - estimate.low < 2 * 1.96 * 0.5 / 128**0.5


def test_bootstrap_is_wider_when_neighbours_resemble_each_other():
    runs, alternating = [0] * 32 + [1] * 32, [0, 1] * 32
    wide, narrow = mean_over_steps(runs), mean_over_steps(alternating)
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_bootstrap_says_the_same_every_time_and_nothing_on_two_steps():
    assert mean_over_steps([1.0, 2.0, 4.0, 3.0]) == mean_over_steps([1.0, 2.0, 4.0, 3.0])
    two = mean_over_steps([1.0, 2.0])
    assert (two.value, two.low, two.high) == (1.5, None, None)
    assert mean_over_steps([]) is None
