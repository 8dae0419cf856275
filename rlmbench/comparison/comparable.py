"""May two configurations be compared? Every check, each reason a sentence with its evidence. The worst reason decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rlmbench.comparison.configurations import Group, device_of
from rlmbench.comparison.differences import COMPUTED_TOKENS, asked_differently
from rlmbench.comparison.evidence import Evidence, is_natural
from rlmbench.comparison.figures import Configuration, Difference, Reason, Severity, Verdict
from rlmbench.comparison.natural import adjusted
from rlmbench.metrics.host import BUSY_SHARE
from rlmbench.metrics.learning import sync_tolerance
from rlmbench.metrics.statistics import ALPHA, MINIMUM_EFFECT, attainable_p, runs_needed

LOAD_PER_CORE = 0.75
"""One-minute load per core when a run began, above which others were at work too."""
COVERAGE_ENOUGH = 0.95
SHORT = 40
NO_TOKENS = {-1}
"""Stands for a step that a run does not have: equal to no count."""

Pair = tuple[Group, Group]
Names = tuple[str, str]


def reasons(a: Group, b: Group, figures_a: Configuration, figures_b: Configuration, differences: Sequence[Difference]) -> list[Reason]:
    """All that speaks against comparing `a` and `b`, what prevents it first."""
    pair, names = (a, b), (figures_a.key, figures_b.key)
    if nothing := list(_no_good_run(pair, names)):
        return nothing
    found = [
        *_simulated(pair, names),
        *_hardware(pair, names),
        *_workload(pair, names),
        *_of_either(pair, names, _audits, _weights, _throttling),
        *_few_runs(pair, names),
        *_of_either(pair, names, _failed_runs),
        *_division(pair, names),
        *_devices_held(pair, figures_a, figures_b),
        *_hosts(pair),
        *_of_either(pair, names, _load, _others, _coverage),
        *_measured_by(pair),
        *_natural(pair, names),
        *_work_in_effect(differences),
        *_precision(differences),
    ]
    return sorted(found, key=lambda reason: reason.severity != "prevents")


def reasons_of_one(one: Group, name: str) -> list[Reason]:
    """What the runs of one configuration say against its figures, whatever stands beside it."""
    if not one.ok:
        return []  # there are no figures
    checks = (_audits, _weights, _throttling, _failed_runs, _load, _others, _coverage)
    found = [*(reason for check in checks for reason in check(one, name)), *_hosts((one,)), *_measured_by((one,))]
    return sorted(found, key=lambda reason: reason.severity != "prevents")


def verdict(found: Sequence[Reason]) -> Verdict:
    """The worst of them."""
    if any(reason.severity == "prevents" for reason in found):
        return "not comparable"
    return "comparable with reservations" if found else "comparable"


def refuses_speed(found: Sequence[Reason]) -> bool:
    """Whether no ratio may be named at all: of too few runs it may, but no verdict follows from it."""
    return any(reason.severity == "prevents" and reason.kind != "too_few_runs" for reason in found)


def _prevents(kind: str, sentence: str) -> Reason:
    return Reason(kind=kind, severity="prevents", sentence=sentence)


def _reserves(kind: str, sentence: str) -> Reason:
    return Reason(kind=kind, severity="reservation", sentence=sentence)


def _each(pair: Pair, names: Names) -> Iterable[tuple[str, Group]]:
    return zip(names, pair, strict=True)


def _of_either(pair: Pair, names: Names, *checks: Callable[[Group, str], Iterable[Reason]]) -> Iterable[Reason]:
    """Checks that look at one configuration's runs alone, of both."""
    for check in checks:
        for name, one in _each(pair, names):
            yield from check(one, name)


def _no_good_run(pair: Pair, names: Names) -> Iterable[Reason]:
    for name, one in _each(pair, names):
        if not one.ok:
            yield _prevents("no_good_run", f"{name} has no run that ended well ({_ends(one.runs)})")


def _ends(runs: Sequence[Evidence]) -> str:
    """How runs ended, counted: ``2 failed: out_of_memory_host, 1 interrupted``."""
    counted = Counter(_end(run) for run in runs if not run.ok)
    return ", ".join(f"{count} {end}" for end, count in sorted(counted.items()))


def _end(run: Evidence) -> str:
    status, kind = run.summary.status, run.summary.failure_class
    if status == "ok":
        return "without throughput"
    return f"{status}: {kind}" if kind and kind != status else status


def _simulated(pair: Pair, names: Names) -> Iterable[Reason]:
    """What only simulates a framework may be compared with itself."""
    said = [one.any.manifest.simulated for one in pair]
    if bool(said[0]) != bool(said[1]):
        yield _prevents("simulated", f"{names[0] if said[0] else names[1]} is {said[0] or said[1]}")


def _failed_runs(one: Group, name: str) -> Iterable[Reason]:
    lost = len(one.runs) - len(one.ok)
    if one.ok and lost:
        yield _reserves("failed_runs", f"{lost} of {len(one.runs)} runs of {name} did not end well and are left out ({_ends(one.runs)})")


def _hardware(pair: Pair, names: Names) -> Iterable[Reason]:
    mine, other = (device_of(one.any) for one in pair)
    if mine != other:
        yield _prevents("different_devices", f"{names[0]} ran on {mine}, {names[1]} on {other}")


def _devices_held(pair: Pair, figures_a: Configuration, figures_b: Configuration) -> Iterable[Reason]:
    """More devices are faster: the ratio is that of whole configurations, so the sentence gives the rates of each device."""
    held = [{run.summary.throughput.devices for run in one.ok if run.summary.throughput} for one in pair]
    if held[0] != held[1]:
        each = [
            f"{figures.key} holds {' or '.join(map(str, sorted(devices)))} and makes {figures.tokens_per_s_per_device:,.0f} tokens/s with each"
            for devices, figures in zip(held, (figures_a, figures_b), strict=True)
        ]
        yield _reserves("devices_held", f"another number of devices (ranks, on a CPU): {', '.join(each)}")


def _hosts(groups: Sequence[Group]) -> Iterable[Reason]:
    hosts = sorted({str(run.manifest.host.get("hostname")) for one in groups for run in one.runs if run.manifest.host.get("hostname")})
    if len(hosts) > 1:
        yield _reserves("different_hosts", f"the runs were made on {len(hosts)} hosts of the same kind: {', '.join(hosts)}")


def _workload(pair: Pair, names: Names) -> Iterable[Reason]:
    """Whether the same work was asked for, planned and done. Other work asked for has another plan and other tokens: told once."""
    asked = list(_asked(pair, names))
    yield from asked
    if not any(reason.kind == "different_work_asked" for reason in asked):
        yield from _plans(pair, names)
        yield from _tokens(pair, names)


def _asked(pair: Pair, names: Names) -> Iterable[Reason]:
    """Experiments that were not asked for alike. What changes the work cannot be compared."""
    asked = asked_differently(*pair)
    for is_work, kind in ((True, "different_work_asked"), (False, "different_settings")):
        fields = [difference for difference in asked if (difference.changes in ("work", "unknown")) == is_work]
        if fields:
            shown = ", ".join(f"{one.subject} ({one.a} v {one.b})" for one in fields[:4])
            more = f" and {len(fields) - 4} more" if len(fields) > 4 else ""
            meaning = "which changes the work" if is_work else "which leaves the amount of work alone"
            severity: Severity = "prevents" if is_work else "reservation"
            sentence = f"{names[0]} and {names[1]} were asked for different {shown}{more}, {meaning}"
            yield Reason(kind=kind, severity=severity, sentence=sentence)


def _plans(pair: Pair, names: Names) -> Iterable[Reason]:
    mine, other = ({run.plan_hash for run in one.runs if run.plan_hash} for one in pair)
    if mine and other and (mine != other or len(mine) > 1):
        shown = [", ".join(sorted(hashes)) for hashes in (mine, other)]
        yield _prevents("different_plans", f"the workload plans differ: {names[0]} has {shown[0]}, {names[1]} {shown[1]}")


def _tokens(pair: Pair, names: Names) -> Iterable[Reason]:
    """Tokens that reached the loss, step by step, over all runs that ended well. Under replay they must be equal."""
    if any(is_natural(run.summary) for one in pair for run in one.ok):
        return
    counts = [_tokens_by_step(one) for one in pair]
    steps = sorted(set(counts[0]) | set(counts[1])) if all(counts) else []
    unequal = [step for step in steps if len(counts[0].get(step, NO_TOKENS) | counts[1].get(step, NO_TOKENS)) > 1]
    if unequal:
        step = unequal[0]
        shown = [" or ".join(f"{count:,}" for count in sorted(of.get(step, set()))) or "none" for of in counts]
        sentence = (
            f"the tokens that reached the loss differ in {len(unequal)} of {len(steps)} steps: in step {step} {shown[0]} in {names[0]}, "
        )
        yield _prevents("different_tokens", f"{sentence}{shown[1]} in {names[1]}")


def _tokens_by_step(one: Group) -> dict[int, set[int]]:
    counts: dict[int, set[int]] = {}
    for run in one.ok:
        for step, tokens in run.step_tokens.items():
            counts.setdefault(step, set()).add(tokens)
    return counts


def _natural(pair: Pair, names: Names) -> Iterable[Reason]:
    if not any(is_natural(run.summary) for one in pair for run in one.ok):
        return
    means = []
    for name, one in _each(pair, names):
        lengths = [run.summary.lengths.mean for run in one.ok if run.summary.lengths]
        if lengths:
            means.append(f"{sum(lengths) / len(lengths):,.1f} tokens in {name}")
    sentence = "response lengths were left to the model, so the work is not equal and the audit could not compare it: a mean of "
    at_equal = adjusted(*pair, MINIMUM_EFFECT) is not None
    then = (
        "speeds are compared at equal tokens"
        if at_equal
        else "speeds are compared as they were, since their steps do not tell what a token costs"
    )
    yield _reserves("natural_lengths", f"{sentence}{' and '.join(means)}; {then}")


def _audits(one: Group, name: str) -> Iterable[Reason]:
    bad = [run for run in one.ok if run.summary.audit is None or not run.summary.audit.ok]
    if bad:
        audit = bad[0].summary.audit
        why = f"{audit.mismatch_count} mismatches, first: {audit.mismatches[0]}" if audit and audit.mismatches else "there is none"
        yield _prevents("audit", f"the work of {len(bad)} runs of {name} was not proven by an audit ({bad[0].id}: {why})")


def _weights(one: Group, name: str) -> Iterable[Reason]:
    """Speed is not bought with wrong training: weights must change, and reach the rollout engine."""
    still = [run for run in one.ok if run.summary.learning.weights_changed is False]
    if still:
        yield _prevents("weights_unchanged", f"no optimizer step changed the weights in {len(still)} runs of {name} ({still[0].id})")
    for run in one.ok:
        sentence = _broken_sync(run)
        if sentence:
            yield _prevents("broken_weight_sync", f"new weights did not reach the rollout engine of {name}: {sentence} ({run.id})")
            break


def _broken_sync(run: Evidence) -> str | None:
    """What shows that the rollout engine kept old weights; None where nothing does, or nothing was recorded.

    Our own count of what the loss received goes before what the framework logs.
    """
    counted, logged = run.summary.learning.logprob_difference, run.summary.learning.native.get("logprob_difference")
    apart = counted.mean if counted else logged.value if logged else None
    asked = str(run.experiment["model"]["dtype"])
    dtype, limit = sync_tolerance([asked, *run.facts.get("weights_dtype", ()), *run.facts.get("rollout_dtype", ())])
    if apart is not None and apart > limit:
        return f"rollout and training log-probs differ by {apart:.3g} on average, rounding in {dtype} explains {limit:g}"
    if False in run.facts.get("weights_synced", ()):
        return "a weight sync was checked inside the run and failed"
    return None


def _throttling(one: Group, name: str) -> Iterable[Reason]:
    slowed = {run.id: share for run in one.ok if (share := _throttled_share(run)) > 0}
    if slowed:
        worst = max(slowed, key=lambda run: slowed[run])
        sentence = (
            f"a device of {name} was throttled in {len(slowed)} of {len(one.ok)} runs, up to {slowed[worst]:.1%} of the time ({worst})"
        )
        yield _prevents("throttled", sentence)


def _throttled_share(run: Evidence) -> float:
    """Of its devices the one that was slowed down longest: by the collectors' readings, or by a fact that an adapter states."""
    seen = [device.throttled_share for device in run.summary.devices if device.throttled_share is not None]
    return max([*seen, *run.facts.get("throttled_share", ())], default=0.0)


def _few_runs(pair: Pair, names: Names) -> Iterable[Reason]:
    counts = [len(one.ok) for one in pair]
    if not all(counts):
        return
    shown = f"{counts[0]} of {names[0]} and {counts[1]} of {names[1]}"
    if min(counts) < 2:
        sentence = f"too few runs: {shown} ended well; with a single run nothing says how much runs vary: --repeats {runs_needed()}"
        yield _prevents("too_few_runs", sentence)
    elif (least := attainable_p(*counts)) > ALPHA:
        sentence = (
            f"few runs: {shown} ended well; the smallest p they can give is {least:.2g}, {runs_needed()} each give less than {ALPHA:g}"
        )
        yield _reserves("few_runs", sentence)


def _division(pair: Pair, names: Names) -> Iterable[Reason]:
    mine, other = (one.any.manifest.division for one in pair)
    if mine != other:
        yield _reserves("different_divisions", f"{names[0]} is {mine}, {names[1]} {other}: one of them has settings of its user's own")


def _load(one: Group, name: str) -> Iterable[Reason]:
    loads = {run.id: load for run in one.ok if (load := _load_per_core(run)) is not None}
    busy = {run: load for run, load in loads.items() if load > LOAD_PER_CORE}
    if busy:
        worst = max(busy, key=lambda run: busy[run])
        sentence = f"the machine was busy when {len(busy)} of {len(one.ok)} runs of {name} began: load per core up to {busy[worst]:.2f}"
        yield _reserves("load", f"{sentence} ({worst})")
    disturbed = [run for run in one.ok if run.manifest.preconditions and run.manifest.preconditions.problems]
    if disturbed:
        first = disturbed[0]
        why = "; ".join(first.manifest.preconditions.problems) if first.manifest.preconditions else ""
        yield _reserves(
            "load", f"the machine was not quiet when {len(disturbed)} of {len(one.ok)} runs of {name} began: {why} ({first.id})"
        )


def _others(one: Group, name: str) -> Iterable[Reason]:
    """Others at work while a run was measured, by its collectors."""
    busy = {run.id: share for run in one.ok if (share := _others_share(run)) > BUSY_SHARE}
    if busy:
        worst = max(busy, key=lambda run: busy[run])
        sentence = f"others kept the machine busy while {len(busy)} of {len(one.ok)} runs of {name} were measured: up to"
        yield _reserves("others_at_work", f"{sentence} {busy[worst]:.0%} of its cores ({worst})")


def _others_share(run: Evidence) -> float:
    shares = [host.others_cpu_cores / host.cores for host in run.summary.host if host.others_cpu_cores is not None and host.cores]
    return max(shares, default=0.0)


def _load_per_core(run: Evidence) -> float | None:
    """By the kernel's load average, in records from before the load was measured."""
    if run.manifest.preconditions:
        return None
    load, cores = run.manifest.host.get("load"), run.manifest.host.get("cores")
    return float(load[0]) / float(cores) if load and cores else None


def _coverage(one: Group, name: str) -> Iterable[Reason]:
    low = {run.id: run.summary.coverage.min for run in one.ok if run.summary.coverage.min is not None}
    poor = {run: share for run, share in low.items() if share < COVERAGE_ENOUGH}
    if poor:
        worst = min(poor, key=lambda run: poor[run])
        yield _reserves("coverage", f"stages explain only {poor[worst]:.1%} of a step of {name} ({worst}): its breakdown is incomplete")


def _measured_by(groups: Sequence[Group]) -> Iterable[Reason]:
    versions = sorted({run.manifest.versions.rlmbench for one in groups for run in one.runs})
    if len(versions) > 1:
        yield _reserves("different_rlmbench", f"measured by different versions of rlmbench: {', '.join(versions)}")


def _work_in_effect(differences: Sequence[Difference]) -> Iterable[Reason]:
    """The same samples were trained, but not by the same computation."""
    own = [one for one in differences if one.changes == "work" and not one.name.startswith("field.")]
    if own:
        counted = [one.subject.removeprefix(f"{COMPUTED_TOKENS} of ") for one in own if one.subject.startswith(f"{COMPUTED_TOKENS} of ")]
        others = [_in_short(one) for one in own if not one.subject.startswith(f"{COMPUTED_TOKENS} of ")]
        named = ", ".join([*others, *([f"{COMPUTED_TOKENS} ({', '.join(counted)})"] if counted else [])])
        yield _reserves("work_in_effect", f"the same samples are trained by different computation: {named}; see what differs")


def _precision(differences: Sequence[Difference]) -> Iterable[Reason]:
    """Another type is other arithmetic on a device, and so another speed, though as much is computed."""
    own = [
        one for one in differences if one.name in ("trait.weights_dtype", "fact.weights_dtype", "trait.rollout_dtype", "fact.rollout_dtype")
    ]
    if own:
        named = ", ".join(dict.fromkeys(f"{one.subject} ({one.a} v {one.b})" for one in own))
        yield _reserves("precision", f"other precision, which is another speed on most devices: {named}")


def _in_short(difference: Difference) -> str:
    """The subject, with the two ways where they are short."""
    ways = f"{difference.a} v {difference.b}"
    return f"{difference.subject} ({ways})" if len(ways) <= SHORT else difference.subject
