"""Sentences and cells that every format of a comparison shares, so that all of them show the same numbers."""

from __future__ import annotations

from typing import NamedTuple

from rlmbench.comparison.figures import Comparison, Configuration, Difference, Interval, Pair, Reason, RunFigures, Speed, Verdict
from rlmbench.comparison.knowledge import EFFECTS
from rlmbench.comparison.wording import about, ratio
from rlmbench.errors import as_line
from rlmbench.records.vocabulary import CPU_LABEL
from rlmbench.report import numbers
from rlmbench.report.words import how_it_ended, listed, overlaps, plain_class

NOT_GIVEN = "n/a"
SHORT_NAME = 80
MOST_PAIRS = 6
MOST_LINES = 30
"""Verdicts, reasons and differences that the terminal and Markdown list; JSON holds all."""
MOST_MADE_AGAIN = 6
"""Attempts in the one line that all of them have."""
NO_RUN = "no run ended well"
TWICE = "counted twice"
"""Seconds of a step in which two stages ran at once: both count them, so they are taken off once."""
HEADLINE = ("", "configuration", "runs", "step s", "tok/s", "95% interval", "spread", "peak memory")
CAPTION = (
    "step s and tok/s are means over runs; the interval is that of tok/s. Spread: standard deviation of tok/s over runs, the noise floor. "
    "Peak memory: the device's reserved memory, or host memory of all of a run's processes."
)


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


def legend(one: Configuration) -> str:
    """What a key stands for, and how many of its runs ended well."""
    runs = f"{one.runs_ok} of {_counted(len(one.runs), 'run')} ended well" if one.runs_ok < len(one.runs) else _counted(one.runs_ok, "run")
    return f"{one.name}: {runs}"


def named(configuration: Configuration) -> str:
    return f"{configuration.key} ({configuration.name})"


def short(name: str) -> str:
    """A configuration's name where there is little room: a long list of settings is cut between two of them, and says so."""
    if len(name) <= SHORT_NAME:
        return name
    marks = name.split(", ")
    kept = 1
    while kept < len(marks) and len(", ".join(marks[: kept + 1])) <= SHORT_NAME:
        kept += 1
    return ", ".join(marks[:kept]) + (f" and {_counted(len(marks) - kept, 'more setting')}" if kept < len(marks) else "")


def shortly(configuration: Configuration) -> str:
    return f"{configuration.key} ({short(configuration.name)})"


def few(pairs: str) -> str:
    """The names of pairs, or the first of very many."""
    names = pairs.split(", ")
    return pairs if len(names) <= MOST_PAIRS else f"{', '.join(names[:MOST_PAIRS])} and {len(names) - MOST_PAIRS} more pairs"


def pair_name(pair: Pair) -> str:
    return f"{pair.a} v {pair.b}"


def headline(one: Configuration, comparison: Comparison) -> tuple[str, ...]:
    """The cells of a configuration under `HEADLINE`; memory in one unit for all of them."""
    memory = numbers.sizes(other.peak_bytes for other in comparison.configurations)
    return (
        one.key,
        one.name,
        f"{one.runs_ok}/{len(one.runs)}",
        cell(one.step_s),
        cell(one.tokens_per_s),
        bounds(one.tokens_per_s),
        NOT_GIVEN if one.run_spread is None else numbers.share(one.run_spread),
        NOT_GIVEN if one.peak_bytes is None else memory(one.peak_bytes),
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
    named = end_word(run.status, run.failure_class)
    return how_it_ended(named, run.failure) if run.failure else named


def made_again(comparison: Comparison) -> str | None:
    """Interrupted attempts that are no runs of their own, since each cell was finished later; None where there are none."""
    pairs = [(run.id, attempt) for one in comparison.configurations for run in one.runs for attempt in run.replaced]
    if not pairs:
        return None
    named = ", ".join(f"{attempt} by {by}" for by, attempt in pairs[:MOST_MADE_AGAIN])
    more = f" and {len(pairs) - MOST_MADE_AGAIN} more" if len(pairs) > MOST_MADE_AGAIN else ""
    return f"interrupted, then made again by --resume and counted once: {named}{more}"


def end_word(status: str, kind: str | None) -> str:
    """``failed: out of memory (host)``."""
    return f"{status}: {plain_class(kind)}" if kind and kind != status else status


def speed_evidence(speed: Speed) -> str:
    """``95% interval 1.41x to 1.55x, p 0.029, 4 and 4 runs``."""
    interval = (
        "" if speed.low is None or speed.high is None else f"95% interval {ratio(speed.low)} to {ratio(speed.high)}, p {speed.p:.2g}, "
    )
    runs = f"{speed.runs_a} and {_counted(speed.runs_b, 'run')}"
    return f"{interval}{runs}"


def speed_sentence(pair: Pair, comparison: Comparison, a: str | None = None, b: str | None = None) -> str:
    """Who is faster, or why nobody can say so. `a` and `b` are what the two are called, else by their keys."""
    speed = pair.speed
    if speed is None:
        return "no speed is claimed: they are not comparable"
    a, b = a or pair.a, b or pair.b
    evidence = speed_evidence(speed)
    least = numbers.share(comparison.minimum_effect)
    of_b = f"the tokens/s of {b}{_at_equal(speed)}"
    without = f"; {waitless}" if (waitless := without_waits(speed)) else ""
    if speed.verdict in ("faster", "slower"):
        return f"{a} is {speed.verdict}: {ratio(speed.ratio)} {of_b} ({evidence}){without}"
    if speed.verdict == "too few runs":
        return f"too few runs to say who is faster: so far {a} has {ratio(speed.ratio)} {of_b} ({evidence}){without}"
    within = f"any difference is below {least}" if speed.within_minimum_effect else f"differences below {least} count as none"
    return f"no difference shown: {a} has {ratio(speed.ratio)} {of_b} ({evidence}; {within}){without}"


def without_waits(speed: Speed) -> str:
    """``about 1.6x without C's wait of 50.9% of a step``; nothing where neither waits for long."""
    if (made := speed.without_waits) is None:
        return ""
    waits = [f"{key}'s wait of {numbers.share(share)} of a step" for key, share in made.of.items()]
    return f"{about(made.ratio)} without {listed(waits)}"


def _at_equal(speed: Speed) -> str:
    """That lengths were natural and the two are compared at equal tokens; and what they would seem to be as they were."""
    if speed.adjustment is None:
        return ""
    made = speed.adjustment
    return (
        f" at equal tokens of a step ({numbers.significant(made.at_tokens)}; as they were, with {numbers.significant(made.tokens_a)} and "
        f"{numbers.significant(made.tokens_b)}: {ratio(made.unadjusted_ratio)})"
    )


def sentence(text: str) -> str:
    """`text` with a capital and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def lead(comparison: Comparison) -> str:
    """The whole comparison in a sentence or two, for who reads no further. With several pairs: how the fastest stands to each other one."""
    if not comparison.pairs:
        return sentence(nothing_to_compare(comparison))
    if comparison.baseline and len(comparison.pairs) > 1:
        return " ".join(_beside(key, comparison) for key in comparison.baseline[:4] if any(pair.b == key for pair in comparison.pairs))
    if len(comparison.pairs) == 1:
        (pair,) = comparison.pairs
        a, b = (shortly(comparison.configuration(key)) for key in (pair.a, pair.b))
        return sentence(speed_sentence(pair, comparison, a, b))
    suites = list(dict.fromkeys((one.suite, one.scale) for one in comparison.configurations))
    if len(suites) > 1 and len(comparison.configurations) > 2:
        firsts = [next(one for one in comparison.configurations if (one.suite, one.scale) == suite) for suite in suites]
        return " ".join(_standing(one, comparison, f"In {one.suite} at {one.scale}, ") for one in firsts[:4])
    return _standing(comparison.configurations[0], comparison, "")


def _beside(baseline: str, comparison: Comparison) -> str:
    """How the others stand to their baseline: ``Beside A (TRL): B is slower (0.91x, ...); C shows no difference.``"""
    others: dict[str, list[Pair]] = {}
    for pair in comparison.pairs:
        if pair.b == baseline:
            others.setdefault(pair.speed.verdict if pair.speed else "refused", []).append(pair)
    said = {
        "slower": "slower: {}",
        "faster": "faster: {}",
        "no difference shown": "no difference shown: {}",
        "too few runs": "too few runs to say: {}",
        "refused": "not comparable: {}",
    }
    parts = [text.format(_some_a(others[kind], with_speed=kind in ("slower", "faster"))) for kind, text in said.items() if kind in others]
    return f"Beside {shortly(comparison.configuration(baseline))}, {'; '.join(parts)}."


def _some_a(pairs: list[Pair], *, with_speed: bool) -> str:
    if with_speed and len(pairs) <= 3:
        return listed([f"{pair.a} ({_by_how_much(pair.speed)})" for pair in pairs if pair.speed])
    return listed([pair.a for pair in pairs]) if len(pairs) <= 6 else f"{len(pairs)} configurations"


def _standing(one: Configuration, comparison: Comparison, where: str) -> str:
    """How the fastest of a suite stands to the others: ``A (TRL) is faster than B (1.30x, 95% interval ...) and C (...)``."""
    others: dict[str, list[Pair]] = {}
    for pair in comparison.pairs:
        if pair.a == one.key:
            others.setdefault(pair.speed.verdict if pair.speed else "refused", []).append(pair)
    said = {
        "faster": "is faster than {}",
        "slower": "is slower than {}",  # at equal tokens: as they were it is the fastest
        "no difference shown": "shows no difference to {}",
        "too few runs": "has too few runs beside {} to say that it is faster",
        "refused": "may not be compared with {}",
    }
    parts = [text.format(_some(others[kind], with_speed=kind in ("faster", "slower"))) for kind, text in said.items() if kind in others]
    called = f"{one.key} ({one.name.split(', ')[0]})" if where else shortly(one)  # where it is has been said
    few = _so_far(one, others["too few runs"]) if "too few runs" in others else ""
    return f"{where}{called} {'; '.join(parts) or 'has nothing beside it'}.{few}"


def _so_far(one: Configuration, pairs: list[Pair]) -> str:
    """What is to be seen before there are enough runs, and what would be enough."""
    from rlmbench.metrics.statistics import runs_needed

    ratios = listed([f"{ratio(pair.speed.ratio)} that of {pair.b}" for pair in pairs[:3] if pair.speed])
    more = f" (and {len(pairs) - 3} more)" if len(pairs) > 3 else ""
    return f" So far its tokens/s are {ratios}{more}; with {runs_needed()} runs of each (--repeats {runs_needed()}) a test can tell."


def _some(pairs: list[Pair], *, with_speed: bool) -> str:
    if with_speed and len(pairs) <= 3:
        return listed([f"{pair.b} ({_by_how_much(pair.speed)})" for pair in pairs if pair.speed])
    return listed([pair.b for pair in pairs]) if len(pairs) <= 6 else f"{len(pairs)} others"


def _by_how_much(speed: Speed) -> str:
    interval = "" if speed.low is None or speed.high is None else f", 95% interval {ratio(speed.low)} to {ratio(speed.high)}"
    without = f"; {waitless}" if (waitless := without_waits(speed)) else ""
    return f"{ratio(speed.ratio)}{' at equal tokens' if speed.adjustment else ''}{interval}{without}"


def stage_seconds(one: Configuration) -> dict[str, float]:
    """Mean seconds of each stage in the order of a step, unattributed time last; what no run spent is left out."""
    from rlmbench.report.palette import in_order

    seconds = {name: one.stages[name].seconds for name in in_order(set(one.stages))}
    if one.unattributed_s is not None:
        seconds["unattributed"] = one.unattributed_s
    return {name: of for name, of in seconds.items() if of > 0}


def shared_reasons(comparison: Comparison) -> list[tuple[str, Reason]]:
    """Each reason once, with the pairs that it holds for: ``A v B, A v C``, or the configuration that is in no pair. First what prevents a
    comparison, then what says how much of a ratio a wait is."""
    pairs: dict[tuple[str, str], list[str]] = {}
    first: dict[tuple[str, str], Reason] = {}
    for pair in comparison.pairs:
        for reason in pair.reasons:
            key = (reason.severity, reason.sentence)
            pairs.setdefault(key, []).append(pair_name(pair))
            first.setdefault(key, reason)
    for one, reason in _reasons_of_unpaired(comparison):
        pairs.setdefault((reason.severity, reason.sentence), []).append(one)
        first.setdefault((reason.severity, reason.sentence), reason)
    order = sorted(first, key=lambda key: (key[0] != "prevents", first[key].kind != "waiting"))
    return [(", ".join(pairs[key]), first[key]) for key in order]


def names_needed(comparison: Comparison) -> bool:
    """Whether a reason must say of which pair or configuration it is: not where there is a single pair and nothing else."""
    return len(comparison.pairs) != 1 or len(comparison.configurations) > 2


def _reasons_of_unpaired(comparison: Comparison) -> list[tuple[str, Reason]]:
    """What the runs of a configuration that is in no pair say against its figures: no pair tells it."""
    paired = {key for pair in comparison.pairs for key in (pair.a, pair.b)}
    return [(one.key, reason) for one in comparison.configurations if one.key not in paired for reason in one.reasons]


def stage_names(comparison: Comparison) -> list[str]:
    from rlmbench.report.palette import in_order

    return in_order({stage for one in comparison.configurations for stage in one.stages})


def verdicts(comparison: Comparison) -> list[tuple[str, Verdict, str]]:
    """Pairs, verdict and speed; pairs of which no speed is claimed together in one."""
    told: dict[tuple[Verdict, str], list[str]] = {}
    for pair in comparison.pairs:
        told.setdefault((pair.verdict, speed_sentence(pair, comparison)), []).append(pair_name(pair))
    return [(", ".join(pairs), verdict, speed) for (verdict, speed), pairs in told.items()]


class StageRow(NamedTuple):
    """One stage over all configurations: ``0.185 (18.6%)`` each, or nothing where a configuration does not have it."""

    label: str
    cells: list[str]


def stage_heads(comparison: Comparison) -> list[str]:
    """One column a configuration; of two also how much longer B is in the stage."""
    keys = [one.key for one in comparison.configurations if one.runs_ok]
    return [*keys, f"{keys[1]} - {keys[0]}"] if len(keys) == 2 else keys


def stage_rows(comparison: Comparison) -> list[StageRow]:
    """Mean seconds per measured step and share of it, then unattributed, what stages that ran at once count twice, and the step: they add up.
    Under `stage_heads`."""
    from rlmbench.report.palette import style_of

    good = [one for one in comparison.configurations if one.runs_ok and one.step_s]
    rows: list[tuple[str, list[float | None]]] = []
    for stage in stage_names(comparison):
        figures = [one.stages.get(stage) for one in good]
        rows.append((style_of(stage).label, [of.seconds if of else None for of in figures]))
    rows.append(("unattributed", [one.unattributed_s for one in good]))
    steps_s = [one.step_s.value if one.step_s else None for one in good]
    shared = [
        StageRow(
            label,
            [stage_cell(of, of / step) if of is not None and step else "" for of, step in zip(seconds, steps_s, strict=True)]
            + _longer(seconds),
        )
        for label, seconds in rows
    ]
    twice = [-one.overlap_s if overlaps(one.overlap_s) and one.overlap_s else None for one in good]
    if any(twice):
        cells = [f"{of:.3f} ({of / step:.1%})" if of and step else "" for of, step in zip(twice, steps_s, strict=True)]
        shared.append(StageRow(TWICE, cells + _longer(twice)))
    return [*shared, StageRow("step", [numbers.fixed_seconds(step) for step in steps_s] + _longer(steps_s))]


def _longer(seconds: list[float | None]) -> list[str]:
    """Of two configurations, how many seconds more the second takes."""
    if len(seconds) != 2:
        return []
    more = (seconds[1] or 0.0) - (seconds[0] or 0.0)
    return [f"{more:+.3f}" if abs(more) >= 0.0005 else "0.000"]


def stage_cell(seconds: float, share: float) -> str:
    return f"{numbers.fixed_seconds(seconds)} ({numbers.share(share)})"


def differing(difference: Difference, pair: Pair) -> str:
    """``old log-probs: A a forward of its own, B taken from the training forward``."""
    return f"{difference.subject}: {pair.a} {difference.a}; {pair.b} {difference.b}"


class MergedDifference(NamedTuple):
    """One thing over all pairs: who has which way of it."""

    difference: Difference
    text: str


def merged_differences(comparison: Comparison) -> list[MergedDifference]:
    """Each thing once, gravest first: ``rollout engine: A and C vllm; B hf``. What a configuration has beside one and not beside
    another, such as a list of shared versions, is told pair by pair."""
    ways: dict[str, dict[str, str]] = {}
    found: dict[str, Difference] = {}
    apart: list[MergedDifference] = []
    for pair in comparison.pairs:
        for difference in pair.differences:
            mine = ways.setdefault(difference.name, {})
            found.setdefault(difference.name, difference)
            told = {pair.a: difference.a, pair.b: difference.b}
            if any(mine.get(key, way) != way for key, way in told.items()):
                apart.append(MergedDifference(difference, differing(difference, pair)))
            else:
                mine |= told
    merged = [MergedDifference(found[name], f"{found[name].subject}: {_who_has_what(ways[name])}") for name in found]
    return sorted([*merged, *apart], key=lambda one: EFFECTS.index(one.difference.changes))


def _who_has_what(ways: dict[str, str]) -> str:
    who: dict[str, list[str]] = {}
    for key in sorted(ways):
        who.setdefault(ways[key], []).append(key)
    return "; ".join(f"{listed(keys)} {way}" for way, keys in who.items())


def consequence(difference: Difference) -> str:
    """Why it matters, and whether both could get the same. What is meant to differ needs no unifying."""
    if difference.unify:
        return f"{difference.why}; made equal by {difference.unify}"
    return difference.why if difference.changes == "neither" else f"{difference.why}; no setting makes it equal"


def one_line(comparison: Comparison) -> str:
    """The whole comparison in one line."""
    rates = [f"{named(one)} {cell(one.tokens_per_s)} tok/s" for one in comparison.configurations]
    verdicts = [f"{pair_name(pair)}: {pair.verdict}, {speed_sentence(pair, comparison)}" for pair in comparison.pairs]
    gate = [gate_line(comparison)] if comparison.gate else []
    alone = [one.sentence for one in comparison.alone]
    own = [f"{key}: {reason.severity}: {reason.sentence}" for key, reason in _reasons_of_unpaired(comparison)]
    told = [*gate, *alone, f"{title(comparison)}; {', '.join(rates)}", *(verdicts or [nothing_to_compare(comparison)]), *own]
    return as_line("; ".join(told))


def gate_line(comparison: Comparison) -> str:
    """``regression gate (slower by 5% or more): passed``; nothing without a gate."""
    gate = comparison.gate
    return f"regression gate ({gate.fail_on} by {100 * gate.share:g}% or more): {gate.outcome}" if gate else ""


def alone(comparison: Comparison) -> list[tuple[str, str]]:
    """What stands beside nothing, each with what a gate makes of it: ``missing``, ``allowed``, or without a gate ``alone``."""
    gate = comparison.gate
    what = "alone" if gate is None else "missing" if gate.missing else "allowed"
    return [(what, one.sentence) for one in comparison.alone]


def left_out(comparison: Comparison) -> str | None:
    """That configurations are too many to put each beside each, and how to get the others."""
    if not comparison.pairs_left_out:
        return None
    every = len(comparison.pairs) + comparison.pairs_left_out
    return (
        f"Of {every:,} pairs the {len(comparison.pairs):,} with the fastest of each suite are told. For others: --baseline CONFIGURATION, or give only the "
        "runs of those that you mean (--campaign, --since)."
    )


def nothing_to_compare(comparison: Comparison) -> str:
    """Why there is no pair."""
    configurations = len(comparison.configurations)
    if comparison.baseline:
        return "nothing stands beside the baseline: there is nothing to compare it with"
    if configurations > 1:
        return f"no two of the {configurations} configurations are of one suite and scale: there is nothing to compare"
    runs = sum(len(one.runs) for one in comparison.configurations)
    if runs == 1:
        return "one run alone: there is nothing to compare it with; --framework all makes runs of the others, --repeats of the same"
    return f"all {runs} runs are of one configuration: there is nothing to compare it with"


MOST_COLUMNS = 12
"""Configurations whose stages the terminal and Markdown put side by side."""


def told_first(comparison: Comparison) -> list[Configuration]:
    """Configurations that the terminal and Markdown list: the fastest, and every baseline."""
    first = comparison.configurations[:MOST_LINES]
    return [*first, *(one for one in comparison.configurations[MOST_LINES:] if one.key in comparison.baseline)]


def more(found: int, what: str) -> str | None:
    """That a list was cut off after `MOST_LINES`."""
    return f"... and {found - MOST_LINES:,} more {what}: --json prints all" if found > MOST_LINES else None


def many_pairs(comparison: Comparison) -> str | None:
    """What several tests at once mean for the reader."""
    count = len([pair for pair in comparison.pairs if pair.speed])
    if count < 2:
        return None
    chance = round(1 / comparison.alpha)
    return (
        f"Each of {count} pairs is tested at {comparison.alpha:.0%} on its own: where nothing differs, one in {chance} would still seem to."
    )
