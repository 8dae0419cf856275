"""Speed at equal tokens, on simulated runs whose truth is known. Step seconds are a fixed part, a part for each token, and a part for the longest."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlmbench.metrics.covariates import Steps, at_equal_tokens
from rlmbench.metrics.statistics import difference_of_runs

TOKENS, LONGEST = "tokens of a step", "longest response of a step"


def simulated(draw, longer=1.0, slower=1.0, runs=4, steps=8, by_longest=0.0):
    """Runs of one configuration: 32 responses a step, lognormal, to 8 prompts; runs vary by 1.5%, single steps by 3%."""
    made = []
    for _ in range(runs):
        lengths = longer * np.exp(draw.normal(3.2, 0.45, (steps, 32)))
        prompts = 4 * draw.normal(60, 10, (steps, 8)).clip(20).sum(axis=1)
        tokens, longest = lengths.sum(axis=1) + prompts, lengths.max(axis=1)
        seconds = slower * (1.0 + by_longest * longest / 80 + (1 - by_longest) * tokens / 2800)
        noise = np.exp(draw.normal(0, 0.015) + draw.normal(0, 0.03, steps))
        made.append(Steps(list(seconds * noise), list(tokens), list(longest)))
    return made


def rates(runs):
    return [sum(run.tokens) / sum(run.seconds) for run in runs]


def named(found):
    return np.mean([one.verdict in ("faster", "slower") for one in found])


def test_by_hand():
    """Seconds grow as the square root of tokens, without noise; b takes twice the seconds for the same tokens, and made four times as many."""
    a = [Steps([10.0, 20.0, 40.0], [100.0, 400.0, 1600.0], [64.0] * 3)] * 2
    b = [Steps([40.0, 80.0, 160.0], [400.0, 1600.0, 6400.0], [64.0] * 3)] * 2
    found = at_equal_tokens(a, b)
    assert list(found.slopes) == [TOKENS]  # all ran to the same cap, so the longest says nothing
    assert found.slopes[TOKENS].value == pytest.approx(0.5)
    assert (found.tokens_a, found.tokens_b, found.tokens) == pytest.approx((400.0, 1600.0, 800.0))
    assert found.difference.ratio == pytest.approx(2.0)
    assert sum(rates(a)) / sum(rates(b)) == pytest.approx(1.0)  # as they are, one sees nothing


def test_both_slopes_are_found():
    """seconds = tokens^0.3 x longest^0.6, exactly."""
    draw = np.random.default_rng(0)
    runs = []
    for speed in (1.0, 1.1, 2.0, 2.2):
        tokens, longest = np.exp(draw.normal(7, 0.2, 6)), np.exp(draw.normal(4, 0.3, 6))
        runs.append(Steps(list(speed * tokens**0.3 * longest**0.6), list(tokens), list(longest)))
    found = at_equal_tokens(runs[:2], runs[2:])
    assert (found.slopes[TOKENS].value, found.slopes[LONGEST].value) == pytest.approx((0.3, 0.6))
    assert found.difference.ratio == pytest.approx((1 / 1.0 + 1 / 1.1) / (1 / 2.0 + 1 / 2.2))


def test_no_slope_no_adjustment():
    assert at_equal_tokens([Steps([1.0], [10.0], [5.0])] * 4, [Steps([1.0], [10.0], [5.0])] * 4) is None
    alike = Steps([1.0, 2.0, 3.0], [10.0] * 3, [5.0] * 3)
    assert at_equal_tokens([alike] * 4, [alike] * 4) is None
    assert at_equal_tokens([Steps([1.0, 2.0], [10.0, 20.0], [5.0, 6.0])], []) is None


def test_no_adjustment_for_what_differs_between_the_two_alone():
    """Tokens vary and are alike; each step of a has its longest response at 512, of b at 1,024: no step tells what that costs."""
    a, b = ([Steps([1.0, 2.0, 3.0], [100.0, 200.0, 300.0], [longest] * 3)] * 4 for longest in (512.0, 1024.0))
    assert at_equal_tokens(a, a) is not None
    assert at_equal_tokens(a, b) is None


def test_next_to_no_spread_is_none_and_little_of_it_shows_nothing():
    """Steps of 1 and 3 s, of which now these and now those had 0.4% more tokens: a slope of 275 in one run and of -275 in the next. At twice the
    tokens anything may be then, and the interval says so. With 0.01% more the tokens are as good as alike."""

    def pair(more):
        seconds = ([1.0, 3.0, 1.0, 3.0], [3.0, 1.0, 3.0, 1.0]) * 2
        return ([Steps(of, [base, base * more] * 2, [64.0] * 4) for of in seconds] for base in (10_000.0, 20_000.0))

    assert at_equal_tokens(*pair(1.0001)) is None
    found = at_equal_tokens(*pair(1.004))
    assert found.slopes[TOKENS].value == pytest.approx(0, abs=1e-6) and found.slopes[TOKENS].high > 200
    assert (found.difference.ratio, found.difference.verdict) == (pytest.approx(1), "no difference shown")
    assert 0 < found.difference.low < 1e-3 and 1e3 < found.difference.high < math.inf


def test_too_few_runs_stay_too_few():
    draw = np.random.default_rng(1)
    assert at_equal_tokens(simulated(draw, runs=2), simulated(draw, runs=2)).difference.verdict == "too few runs"


@pytest.mark.parametrize("by_longest", [0.0, 0.5, 1.0])
def test_lengths_alone_are_no_difference(by_longest):
    """b's responses are 30% longer, and nothing else differs: at most 5 in 100 are called faster or slower, whatever seconds follow."""
    draw = np.random.default_rng(2)
    pairs = [(simulated(draw, by_longest=by_longest), simulated(draw, longer=1.3, by_longest=by_longest)) for _ in range(200)]
    assert named([at_equal_tokens(a, b).difference for a, b in pairs]) <= 0.05
    if by_longest == 0:  # as they are, b seems faster, since its fixed part is spread over more tokens
        assert named([difference_of_runs(rates(a), rates(b)) for a, b in pairs]) > 0.3


def test_a_real_difference_is_found_beside_other_lengths():
    """b takes 15% longer for the same work, and its responses are 15% longer."""
    draw = np.random.default_rng(3)
    found = [
        at_equal_tokens(simulated(draw, by_longest=0.5), simulated(draw, longer=1.15, slower=1.15, by_longest=0.5)).difference
        for _ in range(200)
    ]
    assert np.mean([one.verdict == "faster" for one in found]) > 0.9
    assert np.mean([math.log(one.ratio) for one in found]) == pytest.approx(math.log(1.15), abs=0.005)
    assert np.mean([one.low <= 1.15 <= one.high for one in found]) >= 0.93
