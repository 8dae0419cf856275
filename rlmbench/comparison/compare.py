"""The comparison itself: configurations in order of throughput, and pairs of them with verdict, speed and differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from rlmbench.comparison.comparable import reasons, reasons_of_one, refuses_speed, verdict
from rlmbench.comparison.configurations import Group, configuration, group, names_of
from rlmbench.comparison.differences import differences
from rlmbench.comparison.evidence import Evidence
from rlmbench.comparison.figures import Adjustment, Alone, Comparison, Configuration, Pair, Reason, Slope, Speed
from rlmbench.comparison.natural import adjusted
from rlmbench.comparison.waits import waiting, without_waits
from rlmbench.errors import UserError, did_you_mean
from rlmbench.metrics.covariates import AtEqualTokens
from rlmbench.metrics.statistics import ALPHA, MINIMUM_EFFECT, RunDifference, difference_of_runs

MOST_PAIRED = 12
"""Configurations of one suite and scale up to which each is compared with each; of more, each with the fastest alone."""
Member = tuple[Group, Configuration]


def compare(runs: Iterable[Evidence], minimum_effect: float = MINIMUM_EFFECT, baseline: str | None = None) -> Comparison:
    """Group `runs` into configurations and put each beside each.

    Of more than two configurations only those of one suite and scale are paired: others cannot be compared anyway.
    """
    return compare_groups(ordered(runs), minimum_effect, baseline)


def ordered(runs: Iterable[Evidence]) -> list[Group]:
    """`runs` as configurations, the fastest first: each stands for the one at its place in the comparison."""
    return sorted(group(runs), key=_throughput, reverse=True)


def compare_groups(groups: Sequence[Group], minimum_effect: float = MINIMUM_EFFECT, baseline: str | None = None) -> Comparison:
    """The same for runs that are grouped already (`ordered`).

    `baseline` is a configuration's key, its framework, or the beginning of its name: each of its suite and scale is then compared with it alone.

    Raises:
        UserError: `baseline` names none, or several of one suite and scale.
    """
    members = _members(groups, names_of(groups))
    if baseline is not None:
        chosen = _chosen(members, baseline)
        pairs = [(one, of) for of in chosen for one in members if one is not of and _same_suite(one[1], of[1])]
        told = [one[1].model_copy(update={"name": f"{one[1].name}, baseline"}) if one in chosen else one[1] for one in members]
        alone = [
            Alone(
                key=one.key, sentence=f"{one.key} ({one.name}) stands beside nothing: {baseline} has no run of {one.suite} at {one.scale}"
            )
            for _, one in members
            if not any(_same_suite(one, of[1]) for of in chosen)
        ]
        return _comparison(told, pairs, minimum_effect, baseline=[of[1].key for of in chosen], alone=alone)
    if len(members) == 2:
        return _comparison([one[1] for one in members], [(members[0], members[1])], minimum_effect)
    pairs, left_out = [], 0
    for of_suite in _by_suite(members):
        every = len(of_suite) * (len(of_suite) - 1) // 2
        told_pairs = list(combinations(of_suite, 2)) if len(of_suite) <= MOST_PAIRED else [(of_suite[0], other) for other in of_suite[1:]]
        pairs += told_pairs
        left_out += every - len(told_pairs)
    return _comparison([one[1] for one in members], pairs, minimum_effect, left_out=left_out)


def compare_against(baseline: Iterable[Evidence], new: Iterable[Evidence], minimum_effect: float = MINIMUM_EFFECT) -> Comparison:
    """Each configuration of `new` beside its counterpart in `baseline`: of the same suite, scale, framework and division, asked for alike where
    there are several. A pair's `a` is the new one, so that "slower" says that the new one is. What only one side has is told (`alone`).

    Raises:
        UserError: one of `new` has several counterparts.
    """
    sides = [ordered(baseline), ordered(new)]
    groups = [*sides[0], *sides[1]]
    names = [f"{name}, {which}" for side, which in zip(sides, ("baseline", "new"), strict=True) for name in names_of(side)]
    members = _members(groups, names)
    before, after = members[: len(sides[0])], members[len(sides[0]) :]
    found = [(one, _counterpart(one, before)) for one in after]
    pairs = [(one, other) for one, other in found if other is not None]
    alone = [_vanished(one, after) for one in before if not any(other is one for _, other in pairs)]
    alone += [_only_new(one) for one, other in found if other is None]
    return _comparison([one[1] for one in members], pairs, minimum_effect, baseline=[one[1].key for one in before], alone=alone)


def _vanished(one: Member, after: Sequence[Member]) -> Alone:
    like = "was asked for with its settings" if any(_kind(other) == _kind(one) for other in after) else f"is of {_what(one)}"
    return Alone(key=one[1].key, sentence=f"{one[1].key} ({one[1].name}) has vanished: no new run {like}")


def _only_new(one: Member) -> Alone:
    return Alone(key=one[1].key, sentence=f"{one[1].key} ({one[1].name}) has no counterpart: no run of the baseline is of {_what(one)}")


def _what(one: Member) -> str:
    manifest = one[0].any.manifest
    marks = [mark for mark in (manifest.variant, manifest.division) if mark not in ("", "matched")]
    return ", ".join([f"{manifest.framework} with {manifest.suite} at {manifest.scale}", *marks])


def _counterpart(one: Member, before: Sequence[Member]) -> Member | None:
    alike = [other for other in before if _kind(other) == _kind(one)]
    found = [other for other in alike if other[0].fields == one[0].fields] or alike
    if len(found) == 1:
        return found[0]
    if not found:
        return None
    raise UserError(
        f"--against: {_what(one)} has {len(found)} counterparts in the baseline ({', '.join(other[1].name for other in found)}); name the runs of one"
    )


def _kind(one: Member) -> tuple[str, ...]:
    manifest = one[0].any.manifest
    return manifest.framework, manifest.suite, manifest.scale, manifest.variant, manifest.division


def _chosen(members: Sequence[Member], baseline: str) -> list[Member]:
    wanted = baseline.casefold()
    found = (
        [one for one in members if one[1].key.casefold() == wanted]
        or [one for one in members if one[1].framework.casefold() == wanted]
        or [one for one in members if one[1].name.casefold().startswith(wanted)]
    )
    if not found:
        known = [name for _, one in members for name in (one.framework, one.name)]
        there = ", ".join(f"{one.key} ({one.name})" for _, one in members[:MOST_PAIRED])
        more = f" and {len(members) - MOST_PAIRED} more" if len(members) > MOST_PAIRED else ""
        raise UserError(
            f"--baseline {baseline}: no such configuration{did_you_mean(baseline, known)}; there are {there}{more}; give a letter, a framework, "
            "or a name or its beginning"
        )
    for of_suite in _by_suite(found):
        if len(of_suite) > 1:
            several = ", ".join(f"{one.key} ({one.name})" for _, one in of_suite[:4])
            raise UserError(
                f"--baseline {baseline}: {len(of_suite)} configurations of one suite are called so: {several}; give more of the name, or the letter"
            )
    return found


def _by_suite(members: Sequence[Member]) -> list[list[Member]]:
    suites: dict[tuple[str, str], list[Member]] = {}
    for one in members:
        suites.setdefault((one[1].suite, one[1].scale), []).append(one)
    return list(suites.values())


def _members(groups: Sequence[Group], names: Sequence[str]) -> list[Member]:
    return [_member(_key(place), one, name) for place, (one, name) in enumerate(zip(groups, names, strict=True))]


def _member(key: str, one: Group, name: str) -> Member:
    return one, configuration(key, one, name).model_copy(update={"reasons": reasons_of_one(one, key)})


def _comparison(
    told: list[Configuration],
    pairs: Iterable[tuple[Member, Member]],
    minimum_effect: float,
    baseline: Sequence[str] = (),
    left_out: int = 0,
    alone: Sequence[Alone] = (),
) -> Comparison:
    return Comparison(
        minimum_effect=minimum_effect,
        alpha=ALPHA,
        configurations=told,
        baseline=list(baseline),
        pairs=[_pair(a, b, minimum_effect) for a, b in pairs],
        pairs_left_out=left_out,
        alone=list(alone),
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


def _pair(a: Member, b: Member, minimum_effect: float) -> Pair:
    differing = differences(a[0], b[0], a[1], b[1]) if a[0].ok and b[0].ok else []
    found = reasons(a[0], b[0], a[1], b[1], differing)
    speed = _speed(a[0], b[0], found, minimum_effect)
    if speed is not None:
        speed = speed.model_copy(update={"without_waits": without_waits(speed, a[1], b[1])})
    prevents = [reason for reason in found if reason.severity == "prevents"]
    # of what only weakens the ratio, first what says how much of it
    found = [*prevents, *waiting(a, b, speed), *found[len(prevents) :]]
    return Pair(a=a[1].key, b=b[1].key, verdict=verdict(found), reasons=found, speed=speed, differences=differing)


def _speed(a: Group, b: Group, found: Sequence[Reason], minimum_effect: float) -> Speed | None:
    """None where a reason forbids to name a ratio. At equal tokens where lengths were left to the model."""
    mine, other = ([run.summary.throughput.step_tokens_per_s for run in one.ok if run.summary.throughput] for one in (a, b))
    if refuses_speed(found) or not mine or not other:
        return None
    difference = difference_of_runs(mine, other, minimum_effect)
    at_equal = adjusted(a, b, minimum_effect)
    return _told(at_equal.difference if at_equal else difference, len(mine), len(other), minimum_effect, _adjustment(at_equal, difference))


def _told(difference: RunDifference, runs_a: int, runs_b: int, minimum_effect: float, adjustment: Adjustment | None) -> Speed:
    bound = 1 + minimum_effect
    within = difference.low is not None and difference.high is not None and difference.low > 1 / bound and difference.high < bound
    return Speed(
        ratio=difference.ratio,
        low=difference.low,
        high=difference.high,
        p=difference.p,
        attainable_p=difference.attainable_p,
        runs_a=runs_a,
        runs_b=runs_b,
        verdict=difference.verdict,
        within_minimum_effect=within,
        adjustment=adjustment,
    )


def _adjustment(at_equal: AtEqualTokens | None, plain: RunDifference) -> Adjustment | None:
    if at_equal is None:
        return None
    return Adjustment(
        slopes={name: Slope(value=slope.value, low=slope.low, high=slope.high) for name, slope in at_equal.slopes.items()},
        at_tokens=at_equal.tokens,
        tokens_a=at_equal.tokens_a,
        tokens_b=at_equal.tokens_b,
        unadjusted_ratio=plain.ratio,
    )
