"""The comparison itself: configurations in order of throughput, and every pair of them with verdict, speed and differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from rlmbench.comparison.comparable import reasons, refuses_speed, verdict
from rlmbench.comparison.configurations import Group, configuration, group, name_of
from rlmbench.comparison.differences import differences
from rlmbench.comparison.evidence import Evidence
from rlmbench.comparison.figures import Comparison, Configuration, Pair, Reason, Speed
from rlmbench.metrics.statistics import ALPHA, MINIMUM_EFFECT, difference_of_runs


def compare(runs: Iterable[Evidence], minimum_effect: float = MINIMUM_EFFECT) -> Comparison:
    """Group `runs` into configurations and put each beside each.

    Of more than two configurations only those of one suite and scale are paired: others cannot be compared anyway.
    """
    return compare_groups(ordered(runs), minimum_effect)


def ordered(runs: Iterable[Evidence]) -> list[Group]:
    """`runs` as configurations, the fastest first: each stands for the one at its place in the comparison."""
    return sorted(group(runs), key=_throughput, reverse=True)


def compare_groups(groups: Sequence[Group], minimum_effect: float = MINIMUM_EFFECT) -> Comparison:
    """The same for runs that are grouped already (`ordered`)."""
    figures = [configuration(_key(place), one, name_of(one, groups)) for place, one in enumerate(groups)]
    members = list(zip(groups, figures, strict=True))
    paired = [(a, b) for a, b in combinations(members, 2) if len(members) == 2 or _same_suite(a[1], b[1])]
    return Comparison(
        minimum_effect=minimum_effect,
        alpha=ALPHA,
        configurations=figures,
        pairs=[_pair(a, b, minimum_effect) for a, b in paired],
    )


def _throughput(one: Group) -> float:
    rates = [run.summary.throughput.step_tokens_per_s for run in one.ok if run.summary.throughput]
    return sum(rates) / len(rates) if rates else 0.0


def _key(place: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    rest, letter = divmod(place, 26)
    return (_key(rest - 1) if rest else "") + chr(ord("A") + letter)


def _same_suite(a: Configuration, b: Configuration) -> bool:
    return (a.suite, a.scale) == (b.suite, b.scale)


def _pair(a: tuple[Group, Configuration], b: tuple[Group, Configuration], minimum_effect: float) -> Pair:
    differing = differences(a[0], b[0], a[1], b[1]) if a[0].ok and b[0].ok else []
    found = reasons(a[0], b[0], a[1], b[1], differing)
    return Pair(
        a=a[1].key,
        b=b[1].key,
        verdict=verdict(found),
        reasons=found,
        speed=_speed(a[0], b[0], found, minimum_effect),
        differences=differing,
    )


def _speed(a: Group, b: Group, found: Sequence[Reason], minimum_effect: float) -> Speed | None:
    """None where a reason forbids to name a ratio."""
    mine, other = ([run.summary.throughput.step_tokens_per_s for run in one.ok if run.summary.throughput] for one in (a, b))
    if refuses_speed(found) or not mine or not other:
        return None
    difference = difference_of_runs(mine, other, minimum_effect)
    bound = 1 + minimum_effect
    within = difference.low is not None and difference.high is not None and difference.low > 1 / bound and difference.high < bound
    return Speed(
        ratio=difference.ratio,
        low=difference.low,
        high=difference.high,
        p=difference.p,
        attainable_p=difference.attainable_p,
        runs_a=len(mine),
        runs_b=len(other),
        verdict=difference.verdict,
        within_minimum_effect=within,
    )
