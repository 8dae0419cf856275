"""The page of several runs: who is faster, can I trust it, where does the time go; then the chapters in order."""

from __future__ import annotations

from collections.abc import Sequence

from rlmbench.comparison.configurations import Group
from rlmbench.comparison.figures import Comparison, Configuration, Reason, Verdict
from rlmbench.records.vocabulary import CPU_LABEL
from rlmbench.report import numbers
from rlmbench.report.comparison import context, measured, resources, verdicts, words
from rlmbench.report.comparison.members import MOST_DRAWN, Member, drawn, members_of
from rlmbench.report.comparison.parts import Bar, ComparisonPage, Extent, Rank, Told
from rlmbench.report.comparison.tabular import pairs_csv, runs_csv, stages_csv
from rlmbench.report.glossary import COMPARISON_GLOSSARY
from rlmbench.report.palette import in_order, style_of
from rlmbench.report.parts import Check, Download, Section, Share, State
from rlmbench.report.taxonomy import taxonomy_sections
from rlmbench.report.words import listed, overlaps, unbroken

STATES: dict[Verdict, State] = {"comparable": "ok", "comparable with reservations": "warn", "not comparable": "bad"}
MOST_RANKS = 8
SHORT_TITLE = 24
MOST_TOLD = 4
MOST_REASONS = 5
MOST_EMBEDDED = 200
"""Configurations whose figures the page carries for download, the fastest first; of every run a line, whatever their number."""
MOST_DOTS = 40
"""Runs of a configuration that are drawn one by one; more would be a smear, and the interval says it better."""


def comparison_page(comparison: Comparison, groups: Sequence[Group]) -> ComparisonPage:
    """The page of `comparison`, made from the runs of `groups`, which are in the order of its configurations."""
    members = members_of(comparison, groups)
    told = _told(comparison) if len(comparison.pairs) > 1 else ()  # of a single pair badge and lead have said it
    checks = _checks(comparison)
    worst = comparison.worst
    return ComparisonPage(
        title=_title(comparison),
        subtitle=_subtitle(comparison, members),
        status=STATES[worst] if worst else "none",
        status_word=_status_word(comparison),
        device_label=CPU_LABEL if all(one.device.startswith("cpu:") for one in comparison.configurations) else None,
        lead=words.lead(comparison),
        ranks=tuple(_rank(one, comparison) for one in comparison.configurations[:MOST_RANKS]),
        ranks_note=_ranks_note(comparison),
        told=told[:MOST_TOLD],
        told_note=_more(len(told), MOST_TOLD, "statements about pairs"),
        checks=(*_audits(members, checks), *checks[:MOST_REASONS]),
        checks_note=_more(len(words.shared_reasons(comparison)), min(len(checks), MOST_REASONS), "reasons"),
        bars=_bars(members),
        legend=_legend(members),
        bars_note=_bars_note(members),
        sections=_sections(comparison, members),
        glossary=COMPARISON_GLOSSARY,
        downloads=_downloads(comparison),
        data_note=_data_note(comparison),
    )


def _sections(comparison: Comparison, members: Sequence[Member]) -> tuple[Section, ...]:
    return (
        verdicts.verdicts_section(comparison, MOST_RANKS),
        measured.time_section(comparison, members),
        measured.timeline_section(members),
        measured.waits_section(members),
        measured.throughput_section(members),
        measured.work_section(members),
        measured.memory_section(members),
        resources.resources_section(members),
        measured.learning_section(members),
        context.differences_section(comparison, members),
        *taxonomy_sections(one.framework for one in comparison.configurations),
        context.runs_section(comparison, members),
        context.reproduce_section(members),
    )


def _downloads(comparison: Comparison) -> tuple[Download, ...]:
    name = "-".join(dict.fromkeys(one.suite for one in comparison.configurations))
    carried = _carried(comparison)
    return (
        Download("data", "Figures as JSON", f"{name}-comparison.json", carried.model_dump(mode="json")),
        Download("data-runs", "Runs as CSV", f"{name}-runs.csv", runs_csv(comparison)),
        Download("data-stages", "Stages as CSV", f"{name}-stages.csv", stages_csv(carried)),
        Download("data-pairs", "Pairs as CSV", f"{name}-pairs.csv", pairs_csv(carried)),
    )


def _carried(comparison: Comparison) -> Comparison:
    """What the page carries of `comparison`: all of it, or of very many configurations the fastest and what is among them."""
    kept = comparison.configurations[:MOST_EMBEDDED]
    if len(kept) == len(comparison.configurations):
        return comparison
    keys = {one.key for one in kept}
    pairs = [pair for pair in comparison.pairs if pair.a in keys and pair.b in keys]
    left_out = comparison.pairs_left_out + len(comparison.pairs) - len(pairs)
    return comparison.model_copy(update={"configurations": kept, "pairs": pairs, "pairs_left_out": left_out})


def _data_note(comparison: Comparison) -> str:
    count = len(comparison.configurations)
    if count <= MOST_EMBEDDED:
        return ""
    return f" Stages, pairs and JSON are of the fastest {MOST_EMBEDDED} of {count:,} configurations, runs are all; rlmbench compare --json prints everything."


def _title(comparison: Comparison) -> str:
    names = [_unbroken(words.short(one.name)) for one in comparison.configurations]
    return f"{listed(_suites(comparison))}: " + (listed(names) if len(names) <= 3 else f"{len(names)} configurations")


def _unbroken(name: str) -> str:
    """A short name keeps its version on its line."""
    return unbroken(name) if len(name) <= SHORT_TITLE else name


def _suites(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(f"{one.suite} at {one.scale}" for one in comparison.configurations))


def _subtitle(comparison: Comparison, members: Sequence[Member]) -> str:
    runs = [run for member in members for run in member.runs]
    algorithms = dict.fromkeys(one.algorithm.upper() for one in comparison.configurations)
    workloads = dict.fromkeys(
        "replayed lengths and rewards" if run.experiment["workload"].get("replay") else "natural lengths and rewards" for run in runs
    )
    begun = sorted(numbers.when(run.manifest.times.created_unix_s)[:10] for run in runs)
    days = begun[0] if begun[0] == begun[-1] else f"{begun[0]} to {begun[-1]}"
    devices = dict.fromkeys(one.device for one in comparison.configurations)
    return " · ".join([*algorithms, *workloads, f"{len(runs):,} runs", *list(devices)[:3], days])


def _status_word(comparison: Comparison) -> str:
    worst = comparison.worst
    if worst is None:
        return "nothing to compare"
    same = sum(pair.verdict == worst for pair in comparison.pairs)
    return worst if same == len(comparison.pairs) else f"{same} of {len(comparison.pairs)} pairs {worst}"


def _more(found: int, shown: int, what: str) -> str:
    return f"All {found} {what}" if found > shown else ""


# --- who is faster -------------------------------------------------------------------------------------------------


def _top(comparison: Comparison) -> float:
    """Where the common axis of tokens/s ends: the highest of any interval or run, but no more than twice the highest mean or run. An interval of
    two runs may reach ten times as far, and would leave nothing to see of the bars."""
    drawn_whole = [
        value
        for one in comparison.configurations
        for value in (one.tokens_per_s.value if one.tokens_per_s else None, *(run.tokens_per_s for run in one.runs))
        if value is not None
    ]
    ends = [one.tokens_per_s.high for one in comparison.configurations if one.tokens_per_s and one.tokens_per_s.high is not None]
    highest = max(drawn_whole, default=1.0)
    return min(max([highest, *ends]), 2 * highest) * 1.02


def _rank(one: Configuration, comparison: Comparison) -> Rank:
    cells = dict(zip(words.HEADLINE, words.headline(one, comparison), strict=True))
    return Rank(
        key=one.key,
        name=_unbroken(words.short(one.name)),
        note=words.NO_RUN if not one.runs_ok else "",
        cells=tuple((head, cells[head]) for head in ("tok/s", "95% interval", "step s", "runs", "spread", "peak memory")),
        extent=_extent(one, _top(comparison)),
    )


def _extent(one: Configuration, top: float) -> Extent | None:
    rate = one.tokens_per_s
    if rate is None:
        return None
    runs = [run.tokens_per_s / top for run in one.runs if run.tokens_per_s is not None]
    low, high = (None if bound is None else bound / top for bound in (rate.low, rate.high))
    beyond = high is not None and high > 1
    return Extent(rate.value / top, low, 1.0 if beyond else high, tuple(runs) if len(runs) <= MOST_DOTS else (), beyond)


def _ranks_note(comparison: Comparison) -> str:
    top = _top(comparison)
    cut = any(one.tokens_per_s and one.tokens_per_s.high and one.tokens_per_s.high > top for one in comparison.configurations)
    arrow = " (an arrow: it ends further on)" if cut else ""
    note = f"Bar: mean tokens per second over runs; line: its 95% interval{arrow}; dots: single runs. {words.sentence(words.CAPTION)}"
    count = len(comparison.configurations)
    return note if count <= MOST_RANKS else f"{note} The fastest {MOST_RANKS} of {count} configurations; all are below, under Verdicts."


# --- can I trust it ------------------------------------------------------------------------------------------------


def _told(comparison: Comparison) -> tuple[Told, ...]:
    """Each pair's speed, and its verdict where that is not the one in the badge of the page's head. Where no pair has enough runs, lead and reasons
    have said it, and the table of every pair has the ratios."""
    if all(pair.speed and pair.speed.verdict == "too few runs" for pair in comparison.pairs):
        return ()
    said = sorted(words.verdicts(comparison), key=lambda one: one[1] == "not comparable")
    apart = len({verdict for _, verdict, _ in said}) > 1
    return tuple(
        Told(verdicts.pairs_text(pairs), STATES[verdict], verdict if apart else "", speed[:1].upper() + speed[1:])
        for pairs, verdict, speed in said
    )


def _audits(members: Sequence[Member], reasons: Sequence[Check]) -> tuple[Check, ...]:
    """What speaks for the figures before what speaks against them: that the planned work reached the loss."""
    runs = [run for member in members for run in member.ok]
    if not runs or any(check.state == "ok" for check in reasons):  # that nothing speaks against them says it too
        return ()
    passed = sum(run.summary.audit is not None and run.summary.audit.ok for run in runs)
    if passed < len(runs):
        return (Check("audits", "warn", f"passed in {passed} of {len(runs)} runs that ended well"),)
    well = " that ended well" if len(runs) < sum(len(member.runs) for member in members) else ""
    which = f"all {passed:,} runs{well}" if passed > 1 else "the one run"
    return (Check("audits", "ok", f"in {which} what reached the loss is what was planned"),)


def _checks(comparison: Comparison) -> tuple[Check, ...]:
    """Reasons, what prevents a comparison first. Of a kind that several sentences tell, the first, so that few lines show all kinds; of the others
    the pairs alone."""
    kinds: dict[tuple[str, str], list[tuple[str, Reason]]] = {}
    for pairs, reason in words.shared_reasons(comparison):
        kinds.setdefault((reason.severity, reason.kind), []).append((pairs, reason))
    found = [_check(told, comparison) for told in kinds.values()]
    if comparison.pairs and not found:
        found = [Check("", "ok", "same work asked and proven by audits, same hardware, enough runs: nothing speaks against it")]
    return tuple(found)


def _check(told: Sequence[tuple[str, Reason]], comparison: Comparison) -> Check:
    """A reason with the pairs that it holds for, and how many more of its kind there are for which."""
    pairs, reason = told[0]
    several = words.names_needed(comparison)
    others = ", ".join(dict.fromkeys(name for names, _ in told[1:] for name in names.split(", ")))
    of_others = f": {verdicts.pairs_text(others)}" if several else ""
    more = f" (and {len(told) - 1} more such{of_others})" if others else ""
    state: State = "bad" if reason.severity == "prevents" else "warn"
    every = len(pairs.split(", ")) == len(comparison.pairs) > 2
    where = "all pairs" if every else verdicts.pairs_text(pairs)
    return Check(where if several else "", state, f"{reason.sentence}{more}")


# --- where does the time go ----------------------------------------------------------------------------------------


def _bars(members: Sequence[Member]) -> tuple[Bar, ...]:
    shown = [member.figures for member in drawn(members)]
    longest = max((one.step_s.value for one in shown if one.step_s), default=1.0) or 1.0
    return tuple(_bar(one, longest) for one in shown)


def _bar(one: Configuration, longest: float) -> Bar:
    step_s = one.step_s.value if one.step_s else 0.0
    seconds = words.stage_seconds(one)
    total = sum(seconds.values()) or 1.0
    shares = tuple(
        Share(style_of(stage).label, style_of(stage).colour, numbers.seconds(of), numbers.share(of / total), of / total)
        for stage, of in seconds.items()
    )
    largest = sorted(shares, key=lambda share: -share.part)[:3]
    sentence = listed([f"{share.label} {share.time}" for share in largest])
    return Bar(one.key, numbers.seconds(step_s), step_s / longest, shares, sentence)


def _legend(members: Sequence[Member]) -> tuple[tuple[str, str], ...]:
    stages = in_order({stage for member in drawn(members) for stage in words.stage_seconds(member.figures)})
    return tuple((style_of(stage).label, style_of(stage).colour) for stage in stages)


def _bars_note(members: Sequence[Member]) -> str:
    note = "Mean seconds of a measured step on the process that drives the loop; all bars on one scale."
    twice = [
        f"{one.key} {numbers.seconds(one.overlap_s)}" for one in (member.figures for member in drawn(members)) if overlaps(one.overlap_s)
    ]
    if twice:
        note += f" Where stages run at once, both count the time ({listed(twice)} of a step), and their parts are narrower for it."
    good = sum(bool(member.ok) for member in members)
    return note if good <= MOST_DRAWN else f"{note} The fastest {MOST_DRAWN} of {good} configurations."
