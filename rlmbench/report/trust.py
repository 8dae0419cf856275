"""The reasons to trust a run's figures, or not to, in sentences with their evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlmbench.metrics.host import BUSY_SHARE
from rlmbench.report import numbers, words
from rlmbench.report.parts import Check, State

if TYPE_CHECKING:
    from rlmbench.metrics import RunSummary
    from rlmbench.records import Manifest

COVERAGE_ENOUGH = 0.95
"""Below this the stage breakdown is incomplete (docs/metrics.md)."""
PROBE_SHARE_ENOUGH = 0.005
COLLECTOR_SHARE_ENOUGH = 0.01
"""Of one core."""
HARNESS_COST_ENOUGH = 0.01


def checks(summary: RunSummary, manifest: Manifest) -> tuple[Check, ...]:
    """Every check, the gravest kind first."""
    return (
        *_profiled(summary),
        _audit(summary),
        _coverage(summary),
        _arithmetic(summary),
        _probe(summary),
        _harness(manifest),
        _conditions(manifest),
        *_others(summary),
        *_throttled(summary),
        _measured(summary),
        _weights(summary),
        _weight_sync(summary),
        _fidelity(manifest),
        _versions(manifest),
        _hooks(summary),
    )


def _profiled(summary: RunSummary) -> Iterator[Check]:
    """A profile pass has the times of a trace being made."""
    if summary.run_pass == "profile":
        yield Check("Profile pass", "warn", words.SLOWED)


def _audit(summary: RunSummary) -> Check:
    audit = summary.audit
    if audit is None:
        return Check("Workload audit", "none", numbers.absent(summary.absent.get("audit", "there was no work to compare")))
    if not audit.ok and words.unfinished(summary):
        done = f"{summary.completed_steps} of {summary.planned_steps} steps finished"
        return Check("Workload audit", "warn", f"incomplete, as the run was: {done}")
    if not audit.ok:
        first = audit.mismatches[0] if audit.mismatches else "no detail recorded"
        mismatches = "1 mismatch" if audit.mismatch_count == 1 else f"{audit.mismatch_count:,} mismatches, first"
        return Check("Workload audit", "bad", f"{mismatches}: {first}")
    if audit.planned.response_tokens is None:
        return Check("Workload audit", "ok", f"{audit.samples:,} samples reached the loss as planned; their lengths were left to the model")
    return Check(
        "Workload audit",
        "ok",
        f"{audit.samples:,} samples and {audit.response_tokens:,} response tokens reached the loss, exactly as planned",
    )


def _coverage(summary: RunSummary) -> Check:
    coverage = summary.coverage
    if coverage.median is None:
        return Check("Coverage", "none", numbers.absent(summary.absent.get("coverage", "no step finished")))
    state: State = "ok" if coverage.min is not None and coverage.min >= COVERAGE_ENOUGH else "warn"
    text = f"{numbers.share(coverage.median)} of a step is explained by stages (lowest {numbers.share(coverage.min)}, {coverage.scope})"
    return Check(
        "Coverage", state, text if state == "ok" else f"{text}; below {numbers.share(COVERAGE_ENOUGH)} the breakdown is incomplete"
    )


def _arithmetic(summary: RunSummary) -> Check:
    if summary.violations:
        more = len(summary.violations) - 1
        return Check("Arithmetic", "bad", summary.violations[0] + (f" (and {more} more)" if more else ""))
    if not summary.steps:
        return Check("Arithmetic", "none", "no finished step to check")
    if summary.damaged_lines:
        return Check("Arithmetic", "warn", f"holds, but {summary.damaged_lines:,} lines of the record could not be read")
    steps = "the one step" if len(summary.steps) == 1 else f"each of {len(summary.steps):,} steps"
    return Check("Arithmetic", "ok", f"stages + unattributed - overlap equal {steps} exactly")


def _probe(summary: RunSummary) -> Check:
    if summary.probe_overhead is None:
        return Check("Probe overhead", "none", numbers.absent(summary.absent.get("probe_overhead")))
    text = f"{numbers.share(summary.probe_overhead)} of step time, by the probe's own account (limit {numbers.share(PROBE_SHARE_ENOUGH)})"
    shares = [one.cpu_share for one in summary.collectors if one.cpu_share is not None]
    if shares:
        text += f"; the collector beside it took {numbers.share(max(shares))} of one core (limit {numbers.share(COLLECTOR_SHARE_ENOUGH)})"
    within = summary.probe_overhead <= PROBE_SHARE_ENOUGH and max(shares, default=0.0) <= COLLECTOR_SHARE_ENOUGH
    return Check("Probe overhead", "ok" if within else "warn", text)


def _others(summary: RunSummary) -> Iterator[Check]:
    """Whether the machine was the run's alone while it was measured; nothing where no collector looked."""
    for host in summary.host:
        if host.others_cpu_cores is not None and host.cores:
            share = host.others_cpu_cores / host.cores
            text = f"{numbers.cores(host.others_cpu_cores)} of {host.cores} cores of {host.node} were busy with others during the measured steps"
            yield Check("Others at work", "ok" if share <= BUSY_SHARE else "warn", text)


def _throttled(summary: RunSummary) -> Iterator[Check]:
    """Whether a device was slowed down; nothing where none said so."""
    shares = {one.device: one.throttled_share for one in summary.devices if one.throttled_share is not None}
    if shares:
        worst = max(shares, key=lambda device: shares[device])
        if shares[worst] == 0:
            yield Check("Throttling", "ok", "no device was slowed down for heat or by its hardware")
        else:
            yield Check("Throttling", "warn", f"device {worst} was slowed down {numbers.share(shares[worst])} of the measured time")


def _harness(manifest: Manifest) -> Check:
    measured = manifest.harness_overhead
    name = "Cost of measuring"
    if measured is None:
        ask = f"rlmbench overhead {manifest.suite} --framework {manifest.framework} --scale {manifest.scale}"
        return Check(name, "none", f"not measured on this machine by paired runs with and without probe and collector ({ask})")
    text = f"step time is {measured.ratio:.3f} times that without probe and collector: median of {len(measured.ratios)} pairs of runs"
    text += f" of {measured.suite} at {measured.scale} on this machine"
    if measured.low is None or measured.high is None:
        return Check(name, "none", f"{text}, too few for an interval")
    state: State = "warn" if measured.low > 1 + HARNESS_COST_ENOUGH else "ok"
    return Check(name, state, f"{text}, 95% interval {measured.low:.3f} to {measured.high:.3f}")


def _conditions(manifest: Manifest) -> Check:
    """Whether the machine was free for a measurement, and what else its record warns of."""
    name, found = "Conditions", manifest.preconditions
    if manifest.warnings:
        return Check(name, "warn", "; ".join(manifest.warnings))
    if found is None:
        return Check(name, "none", numbers.absent("not looked at before this run"))
    text = "how busy the machine was is not told here"
    if found.host_busy_share is not None:
        text = f"quiet: {numbers.share(found.host_busy_share)} of the machine's cores were at work when it began"
    if found.devices:
        after = ", and free again after it" if found.devices_after else ""
        text += f"; {len(found.devices)} device{'s' * (len(found.devices) > 1)} free and not slowed down{after}"
    return Check(name, "ok", text)


def _measured(summary: RunSummary) -> Check:
    text = measured_text(summary)
    state: State = "bad" if not summary.measured_steps else "ok" if summary.measured_steps >= 3 else "warn"
    if state == "warn":
        text += "; below 3 steps there are no intervals"
    return Check("Measured steps", state, text)


def measured_text(summary: RunSummary) -> str:
    """How many steps the figures rest on, and which were left out and why."""
    text = f"{summary.measured_steps:,} of {summary.completed_steps:,} finished steps"
    if summary.planned_steps and summary.completed_steps < summary.planned_steps:
        text += f", {summary.planned_steps:,} planned"
    return text + (f"; left out: {excluded_text(summary)}" if summary.excluded_steps else "")


def excluded_text(summary: RunSummary) -> str:
    """The steps left out by reason, such as ``steps 1, 2 (warm-up)``."""
    by_reason: dict[str, list[int]] = {}
    for excluded in summary.excluded_steps:
        by_reason.setdefault(excluded.reason, []).append(excluded.step)
    parts = []
    for reason, steps in by_reason.items():
        shown = ", ".join(str(step) for step in steps[:6]) + (f" and {len(steps) - 6} more" if len(steps) > 6 else "")
        parts.append(f"step{'s' if len(steps) > 1 else ''} {shown} ({reason})")
    return "; ".join(parts)


def _weights(summary: RunSummary) -> Check:
    changed = summary.learning.weights_changed
    if changed is None:
        return Check("Weights", "none", numbers.absent(summary.absent.get("learning.weights_changed", "no optimizer step was checked")))
    return Check("Weights", "ok", "changed by the optimizer") if changed else Check("Weights", "bad", "did not change: nothing was trained")


def _weight_sync(summary: RunSummary) -> Check:
    """Whether the rollout engine's log-probs follow the trainer's."""
    found = summary.learning.logprob_difference
    if found is None:
        return Check("Weight sync", "none", numbers.absent(summary.absent.get("learning.logprob_difference")))
    text = f"log-probs of trainer and rollout engine differ by {numbers.plain(found.mean)} on average over {found.tokens:,} tokens"
    if not found.is_rounding:
        return Check("Weight sync", "bad", f"{text}: more than {found.tolerance:g}, which rounding in {found.dtype} explains")
    return Check("Weight sync", "ok", f"{text}, as rounding in {found.dtype} explains")


def _fidelity(manifest: Manifest) -> Check:
    counts = Counter(str(entry.get("fidelity")) for entry in manifest.ledger)
    if not counts:
        return Check("Fidelity", "none", numbers.absent("no ledger was recorded"))
    if counts["unsupported"]:
        return Check("Fidelity", "bad", f"{counts['unsupported']} fields of the experiment are not supported")
    if counts["changed"]:
        text = f"{counts['exact']} fields exact, {counts['approximated']} approximated, {counts['changed']} settings of the user's own"
        return Check("Fidelity", "warn", f"tuned division: {text}: see the ledger")
    if counts["approximated"]:
        return Check("Fidelity", "warn", f"{counts['exact']} fields exact, {counts['approximated']} approximated: see the ledger")
    return Check("Fidelity", "ok", f"all {counts['exact']} fields of the experiment are exact")


def _versions(manifest: Manifest) -> Check:
    """Whether the framework is the one that the adapter was written and tested for."""
    environment = manifest.environment
    if environment is None:
        return Check("Versions", "none", numbers.absent("no environment was recorded"))
    if environment.notes:
        return Check("Versions", "warn", f"the user's own interpreter: {'; '.join(environment.notes)}")
    if environment.key is None:
        return Check("Versions", "ok", "the user's own interpreter, with the versions that the adapter is tested with")
    return Check("Versions", "ok", f"the locked environment {environment.name} for {environment.device}")


def _hooks(summary: RunSummary) -> Check:
    attached, missing = len(summary.hooks.attached), summary.hooks.missing
    if not attached and not missing:
        return Check("Hooks", "none", numbers.absent("no probe reported"))
    text = f"{attached} attached"
    if missing:
        reason = f" ({missing[0].reason})" if missing[0].reason else ""
        text += f", {len(missing)} missing: {missing[0].name}{reason}" + (" and others" if len(missing) > 1 else "")
    return Check("Hooks", "ok" if not missing else "none" if attached else "bad", text)
