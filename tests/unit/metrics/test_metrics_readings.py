"""Readings attributed to stretches of time, by hand. Times in the helpers are milliseconds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmbench.metrics.readings import Gains, Readings, changes, gained, gains_of, growth, integral_of, level, within
from rlmbench.metrics.stages import Window, gaps, merged

MS = 1_000_000


def readings(times_ms, values):
    return Readings(np.array([round(time * MS) for time in times_ms], dtype="int64"), np.array(values, dtype="float64"))


def stretches(*parts):
    return [(round(start * MS), round(end * MS)) for start, end in parts]


EVERY_100 = range(0, 5001, 100)
JOULES = readings(EVERY_100, [time / 10 for time in EVERY_100])
"""A device at 100 W, read at 10 Hz for 5 s."""


def test_a_counter_is_interpolated_at_the_boundaries_and_bounded_by_its_readings():
    """1230 to 2470 ms at 100 J/s: 124 J. Between whole readings, 1300 to 2400, lie 110 J; between those around it, 1200 to 2500, 130 J."""
    found = gained(gains_of(JOULES), stretches((1230, 2470)))
    assert (found.value, found.low, found.high, found.resolved) == (pytest.approx(124), pytest.approx(110), pytest.approx(130), True)


def test_a_stage_shorter_than_the_resolution_says_so():
    found = gained(gains_of(JOULES), stretches((1220, 1280)))
    assert (found.value, found.low, found.high, found.resolved) == (pytest.approx(6), 0, pytest.approx(10), False)


def test_a_stage_of_many_short_parts_is_bounded_by_every_reading_that_it_touches():
    """Ten times 50 of 100 ms: 50 J of the 100 J that the counter gained meanwhile, of which it is sure of none."""
    found = gained(gains_of(JOULES), stretches(*[(start, start + 50) for start in range(1000, 2000, 100)]), steps=2)
    assert (found.value, found.low, found.high, found.resolved) == (pytest.approx(25), 0, pytest.approx(50), False)


def test_a_gap_in_the_readings_of_a_counter_widens_the_bounds_and_loses_nothing():
    times = [*range(0, 2001, 100), *range(4000, 5001, 100)]
    counter = gains_of(readings(times, [time / 10 for time in times]))
    over = gained(counter, stretches((1000, 5000)))
    assert (over.value, over.low, over.high) == pytest.approx((400, 400, 400))
    inside = gained(counter, stretches((2500, 3500)))
    assert (inside.value, inside.low, inside.high, inside.resolved) == (pytest.approx(100), 0, pytest.approx(200), False)


def test_a_counter_that_falls_began_anew_and_its_gain_there_is_not_known():
    """After 1000 ms it begins at 0: of 4000 ms 100 are unknown, of 500 to 1500 a tenth, which is too much."""
    counter = gains_of(readings(EVERY_100, [time / 10 if time < 1000 else (time - 1000) / 10 for time in EVERY_100]))
    assert gained(counter, stretches((0, 4000))).value == pytest.approx(390)
    assert gained(counter, stretches((500, 1500))) is None


def test_a_counter_says_nothing_of_time_outside_its_readings():
    assert gained(gains_of(JOULES), stretches((4900, 5200))) is None
    assert gained(gains_of(JOULES), stretches((6000, 7000))) is None
    assert gained(gains_of(JOULES), []) is None
    assert gained(gains_of(readings([100], [1])), stretches((0, 200))) is None


def test_a_counter_that_is_read_more_often_than_it_is_renewed_has_the_resolution_of_its_changes():
    """Renewed every 300 ms: readings in between repeat. Without them 100 J/s is 100 J/s again."""
    counter = changes(readings(EVERY_100, [time // 300 * 30 for time in EVERY_100]))
    assert counter.resolution_s == pytest.approx(0.3)
    found = gained(gains_of(counter), stretches((1000, 2000)))
    assert (found.value, found.low, found.high) == pytest.approx((100, 60, 120))  # 1200-1800 and 900-2100


def test_power_integrates_to_energy_but_not_over_a_gap():
    """100 W until 1000 ms, then 300 W from 1100 ms on: between 950 and 1150 ms 5 + 20 + 15 J."""
    watts = readings(range(0, 2001, 100), [100] * 11 + [300] * 10)
    assert gained(integral_of(watts), stretches((950, 1150))).value == pytest.approx(40)
    holed = readings([*range(0, 1001, 100), *range(2000, 3001, 100)], [100] * 22)
    assert gained(integral_of(holed), stretches((500, 2500))) is None
    assert gained(integral_of(holed), stretches((2000, 2500))).value == pytest.approx(50)


def test_a_gauge_is_weighted_by_time():
    """100 bytes until 1000 ms, 200 from 1100 ms on. 950 to 1150: 50 ms of 100, 100 ms of 150, 50 ms of 200."""
    memory = readings(range(0, 2001, 100), [100] * 11 + [200] * 10)
    found = level(memory, stretches((950, 1150)))
    assert (found.mean, found.peak, found.readings) == (pytest.approx(150), 200, 2)


def test_a_mean_since_the_reading_before_counts_for_the_time_before_it():
    """SM active read as 1 at 1100 ms is that of 1000 to 1100: of 950 to 1150 it has a half, the others 0."""
    active = readings(range(0, 2001, 100), [1.0 if time == 1100 else 0.0 for time in range(0, 2001, 100)])
    assert level(active, stretches((950, 1150)), backward=True).mean == pytest.approx(0.5)


def test_a_stage_without_a_reading_has_no_level_and_not_0():
    assert level(readings(EVERY_100, [7] * 51), stretches((1010, 1090))) is None
    assert level(readings([], []), stretches((0, 1000))) is None
    assert level(readings(EVERY_100, [7] * 51), []) is None


def test_a_gap_has_no_weight_in_a_gauges_mean():
    """100 W until 1000 ms, 300 W from 3000 ms on, nothing between: over 500 to 3500 ms both have 500 ms."""
    watts = readings([*range(0, 1001, 100), *range(3000, 4001, 100)], [100] * 11 + [300] * 11)
    assert level(watts, stretches((500, 3500))).mean == pytest.approx(200)


def test_a_single_reading_is_its_own_mean():
    assert level(readings([500], [7]), stretches((0, 1000))).mean == 7


def test_stretches_begin_with_their_start_and_end_before_their_end():
    assert list(within(readings(EVERY_100, EVERY_100), stretches((1000, 1200), (1300, 1301)))) == [1000, 1100, 1300]


def test_growth_is_the_slope_of_each_steps_last_reading():
    """100 ms steps, 50 bytes a step, and a peak within each that does not count."""
    times = [time for step in range(5) for time in (step * 100 + 20, step * 100 + 80)]
    values = [value for step in range(5) for value in (9999, 1000 + 50 * step)]
    windows = [Window(step + 1, step * 100 * MS, (step + 1) * 100 * MS) for step in range(5)]
    found = growth(readings(times, values), windows)
    assert (found.value, found.low, found.high, found.n) == (pytest.approx(50), pytest.approx(50), pytest.approx(50), 5)
    assert growth(readings(times, values), windows[:2]) is None


@settings(max_examples=60, deadline=None)
@given(
    gains=st.lists(st.floats(0, 1000), min_size=2, max_size=30),
    cuts=st.lists(st.integers(0, 3000), min_size=1, max_size=12, unique=True),
    owners=st.lists(st.sampled_from("abc"), min_size=12, max_size=12),
)
def test_whatever_a_counter_does_its_stages_and_the_rest_add_up_to_the_whole(gains, cuts, owners):
    times = np.linspace(0, 3000, len(gains) + 1).round().astype("int64")
    counter = Gains(times, np.array(gains))
    edges = sorted({0, *cuts, 3000})
    parts = {owner: [] for owner in "abc"}
    for owner, start, end in zip(owners, edges[::2], edges[1::2], strict=False):
        parts[owner].append((start, end))
    busy = [part for of_owner in parts.values() for part in of_owner]
    rest = gaps(merged(busy, 0, 3000), 0, 3000)
    found = [amount for owned in (*parts.values(), rest) if (amount := gained(counter, merged(owned, 0, 3000))) is not None]
    assert sum(amount.value for amount in found) == pytest.approx(sum(gains))
    assert sum(amount.low for amount in found) <= sum(gains) * (1 + 1e-9) + 1e-9
    assert all(amount.low <= amount.value * (1 + 1e-9) + 1e-9 and amount.value <= amount.high * (1 + 1e-9) + 1e-9 for amount in found)
