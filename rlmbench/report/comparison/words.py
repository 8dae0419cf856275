"""Sentences and cells that every format of a comparison shares, so that all of them show the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlmbench.comparison.figures import Comparison, Configuration, Difference, Interval, Pair, Reason, RunFigures, Speed
from rlmbench.report import numbers
from rlmbench.report.words import CPU_LABEL, listed, plain_class

NOT_GIVEN = "n/a"
HEADLINE = ("", "configuration", "runs", "step s", "tok/s", "95% interval", "spread", "peak memory")
CAPTION = (
    "step s and tok/s are means over runs; the interval is that of tok/s. Spread: standard deviation of tok/s over runs, the noise floor. "
    "Peak memory: the device's reserved memory, or the host's resident set."
)
CHANGES = {
    "work": "what is computed",
    "numbers": "what the optimizer sees",
    "neither": "how the same is done",
    "unknown": "not known",
}


def title(comparison: Comparison) -> str:
    """What was compared: ``gsm8k_grpo at tiny: 2 configurations, 8 runs``."""
    suites = list(dict.fromkeys(f"{one.suite} at {one.scale}" for one in comparison.configurations))
    runs = sum(len(one.runs) for one in comparison.configurations)
    return f"{listed(suites)}: {_counted(len(comparison.configurations), 'configuration')}, {_counted(runs, 'run')}"


def device_line(comparison: Comparison) -> str:
    """The hardware, and on a CPU what the figures are good for."""
    devices = list(dict.fromkeys(one.device for one in comparison.configurations))
    on_cpu = all(device.startswith("cpu:") for device in devices)
    return "; ".join(devices) + (f" ({CPU_LABEL})" if on_cpu else "")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def named(configuration: Configuration) -> str:
    return f"{configuration.key} ({configuration.name})"


def pair_name(pair: Pair) -> str:
    return f"{pair.a} v {pair.b}"


def headline(one: Configuration) -> tuple[str, ...]:
    """The cells of a configuration under `HEADLINE`."""
    return (
        one.key,
        one.name,
        f"{one.runs_ok}/{len(one.runs)}",
        cell(one.step_s),
        cell(one.tokens_per_s),
        bounds(one.tokens_per_s),
        NOT_GIVEN if one.run_spread is None else numbers.share(one.run_spread),
        NOT_GIVEN if one.peak_bytes is None else numbers.size(one.peak_bytes),
    )


def cell(interval: Interval | None) -> str:
    return NOT_GIVEN if interval is None else numbers.significant(interval.value)


def bounds(interval: Interval | None) -> str:
    """``2,510 to 2,700``; of a single run it is over its steps, which it says."""
    if interval is None or interval.low is None or interval.high is None:
        return NOT_GIVEN
    text = f"{numbers.significant(interval.low)} to {numbers.significant(interval.high)}"
    return text if interval.over == "runs" else f"{text} (steps of 1 run)"


def lost_runs(one: Configuration) -> list[tuple[RunFigures, str]]:
    """Runs that did not end well, each with how it ended."""
    lost = [run for run in one.runs if run.tokens_per_s is None]
    return [(run, ending(run)) for run in lost]


def ending(run: RunFigures) -> str:
    kind = run.failure_class
    named = f"{run.status}: {plain_class(kind)}" if kind and kind != run.status else run.status
    return f"{named}: {run.failure}" if run.failure else named


def ratio(value: float) -> str:
    """How many times as fast; three decimals near 1, where two would hide the difference."""
    return f"{value:.3f}x" if 0.9 < value < 1.1 else f"{value:.2f}x"


def speed_evidence(speed: Speed) -> str:
    """``95% interval 1.41x to 1.55x, p 0.029, 4 and 4 runs``."""
    interval = (
        "" if speed.low is None or speed.high is None else f"95% interval {ratio(speed.low)} to {ratio(speed.high)}, p {speed.p:.2g}, "
    )
    runs = f"{speed.runs_a} and {_counted(speed.runs_b, 'run')}"
    return f"{interval}{runs}"


def speed_sentence(pair: Pair, comparison: Comparison) -> str:
    """Who is faster, or why nobody can say so."""
    speed = pair.speed
    if speed is None:
        return "no speed is claimed: they are not comparable"
    evidence = speed_evidence(speed)
    least = numbers.share(comparison.minimum_effect)
    if speed.verdict in ("faster", "slower"):
        return f"{pair.a} is {speed.verdict}: {ratio(speed.ratio)} the tokens/s of {pair.b} ({evidence})"
    if speed.verdict == "too few runs":
        return f"too few runs to say who is faster: so far {pair.a} has {ratio(speed.ratio)} the tokens/s of {pair.b} ({evidence})"
    within = f"any difference is below {least}" if speed.within_minimum_effect else f"differences below {least} count as none"
    return f"no difference shown: {pair.a} has {ratio(speed.ratio)} the tokens/s of {pair.b} ({evidence}; {within})"


def shared_reasons(comparison: Comparison) -> list[tuple[str, Reason]]:
    """Each reason once, with the pairs that it holds for: ``A v B, A v C``; what prevents a comparison first."""
    pairs: dict[tuple[str, str], list[str]] = {}
    first: dict[tuple[str, str], Reason] = {}
    for pair in comparison.pairs:
        for reason in pair.reasons:
            key = (reason.severity, reason.sentence)
            pairs.setdefault(key, []).append(pair_name(pair))
            first.setdefault(key, reason)
    order = sorted(first, key=lambda key: key[0] != "prevents")
    return [(", ".join(pairs[key]), first[key]) for key in order]


def stage_names(comparison: Comparison) -> list[str]:
    from rlmbench.report.palette import in_order

    return in_order({stage for one in comparison.configurations for stage in one.stages})


class StageRow(NamedTuple):
    """One stage over all configurations: ``0.185 (18.6%)`` each, or nothing where a configuration does not have it."""

    label: str
    cells: list[str]


def stage_rows(comparison: Comparison) -> list[StageRow]:
    """Mean seconds per measured step and share of it, unattributed last."""
    from rlmbench.report.palette import style_of

    rows = []
    for stage in stage_names(comparison):
        figures = [one.stages.get(stage) for one in comparison.configurations]
        rows.append(StageRow(style_of(stage).label, [stage_cell(of.seconds, of.share) if of else "" for of in figures]))
    gaps = [(one.unattributed_s, one.step_s) for one in comparison.configurations]
    rows.append(StageRow("unattributed", [stage_cell(gap, gap / step.value) if gap is not None and step else "" for gap, step in gaps]))
    return rows


def stage_cell(seconds: float, share: float) -> str:
    return f"{numbers.fixed_seconds(seconds)} ({numbers.share(share)})"


def differing(difference: Difference, pair: Pair) -> str:
    """``old log-probs: A a forward of its own, B taken from the training forward``."""
    return f"{difference.subject}: {pair.a} {difference.a}; {pair.b} {difference.b}"


def unify(difference: Difference) -> str:
    return f"can be made equal: {difference.unify}" if difference.unify else "cannot be made equal by any setting"


def one_line(comparison: Comparison) -> str:
    """The whole comparison in one line."""
    rates = [f"{named(one)} {cell(one.tokens_per_s)} tok/s" for one in comparison.configurations]
    verdicts = [f"{pair_name(pair)}: {pair.verdict}, {speed_sentence(pair, comparison)}" for pair in comparison.pairs]
    return "; ".join([f"{title(comparison)}; {', '.join(rates)}", *(verdicts or [nothing_to_compare(comparison)])])


def nothing_to_compare(comparison: Comparison) -> str:
    return (
        f"all {sum(len(one.runs) for one in comparison.configurations)} runs are of one configuration: there is nothing to compare it with"
    )


def many_pairs(comparison: Comparison) -> str | None:
    """What several tests at once mean for the reader."""
    count = len([pair for pair in comparison.pairs if pair.speed])
    if count < 2:
        return None
    chance = round(1 / comparison.alpha)
    return f"Each of {count} pairs is tested at {comparison.alpha:.0%} on its own: where nothing differs, one in {chance} would still seem to."
