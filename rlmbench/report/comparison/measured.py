"""The chapters on what was measured: time, timeline, waits, throughput, work, memory and learning, configurations beside each other."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from rlmbench.comparison.evidence import Evidence
from rlmbench.comparison.figures import Comparison
from rlmbench.metrics.figures import ThroughputFigures
from rlmbench.report import charts, efficiency, numbers, sections
from rlmbench.report.comparison import resources, words
from rlmbench.report.comparison.members import Member, drawn, left_out_note
from rlmbench.report.comparison.verdicts import folded_if_long
from rlmbench.report.palette import in_order, style_of
from rlmbench.report.parts import Cell, Chart, Column, Group, Legend, Line, Note, Part, Section, Table, columns, line
from rlmbench.report.words import listed, overlaps, workers_in_order

MOST_STEPS = 100
"""Steps drawn per configuration; of longer runs every second, third, ... step."""
NO_FIGURES = Note("No run ended well, so there are no figures.")


def section(id: str, title: str, short: str, intro: str, parts: Sequence[Part], members: Sequence[Member]) -> Section:
    """A chapter that says where it does not show all configurations, and where there is nothing to show."""
    note = left_out_note(members)
    shown = list(parts) if any(member.ok for member in members) else [NO_FIGURES]
    return Section(id, title, short, intro, (*([Note(note)] if note else []), *shown))


def heads(first: str, members: Sequence[Member], *, number: bool = True) -> tuple[Column, ...]:
    """Headings of a table with a column for each configuration."""
    return (Column(first), *(Column(member.key, number) for member in members))


# --- time ----------------------------------------------------------------------------------------------------------


def time_section(comparison: Comparison, members: Sequence[Member]) -> Section:
    """Stage seconds: as a table, and stacked per step for each configuration on one scale."""
    shown = drawn(members)
    stages = in_order({stage for member in shown for stage in words.stage_seconds(member.figures)})
    parts: list[Part] = []
    if shown:
        parts = [
            _stage_table(comparison, shown),
            Legend(tuple((style_of(stage).label, style_of(stage).colour) for stage in stages)),
            _steps_charts(shown),
        ]
    twice = (
        f" What stages that run at once both count is taken off once ({words.TWICE})."
        if any(overlaps(one.figures.overlap_s) for one in shown)
        else ""
    )
    intro = (
        "Mean seconds of a measured step on the process that drives the loop, over steps and then over runs, so that they add up to the "
        f"step.{twice} In the charts each bar is one step, the mean over the runs; faint bars are left out of all figures."
    )
    return section("time", "Where the time goes", "Time", intro, parts, members)


def _steps_charts(shown: Sequence[Member]) -> Group:
    rows = [_step_rows(member) for member in shown]
    longest_s = _longest_s(rows)
    return Group(tuple(_steps_chart(member, of_member, longest_s) for member, of_member in zip(shown, rows, strict=True)))


def _stage_table(comparison: Comparison, shown: Sequence[Member]) -> Table:
    titles = words.stage_heads(comparison)
    keep = len(shown) + (len(titles) - len([one for one in comparison.configurations if one.runs_ok]))
    styles = {style_of(stage).label: stage for member in shown for stage in (*member.figures.stages, "unattributed")}
    lines = []
    for row in words.stage_rows(comparison):
        name = sections.stage_cell(styles[row.label]) if row.label in styles else Cell(row.label)
        if row.label in styles or row.label in ("step", words.TWICE):
            lines.append(line(name, *row.cells[:keep]))
    return Table(
        "Seconds of a step and share of it",
        (Column("stage"), *(Column(f"{title}, s", True) for title in titles[:keep])),
        tuple(lines),
    )


def _step_rows(member: Member) -> list[charts.Row]:
    """Mean over runs of each stage in each step; a step counts as measured where any run measured it."""
    by_step: dict[int, list[dict[str, float]]] = {}
    counted: set[int] = set()
    for run in member.ok:
        for step in run.summary.steps:
            by_step.setdefault(step.step, []).append(sections.stage_seconds(step))
            if not step.excluded:
                counted.add(step.step)
    every = -(-len(by_step) // MOST_STEPS)
    return [
        {"step": step, "stage": stage, "seconds": round(_mean_of(of_runs, stage), 6), "measured": step in counted}
        for step, of_runs in sorted(by_step.items())[::every]
        for stage in in_order({stage for of_run in of_runs for stage in of_run})
    ]


def _step_seconds(member: Member) -> dict[int, float]:
    """Mean over runs of each step as a whole."""
    by_step: dict[int, list[float]] = {}
    for run in member.ok:
        for step in run.summary.steps:
            by_step.setdefault(step.step, []).append(step.step_s)
    return {step: statistics.fmean(of_runs) for step, of_runs in by_step.items()}


def _mean_of(of_runs: Sequence[dict[str, float]], stage: str) -> float:
    return statistics.fmean(of_run.get(stage, 0.0) for of_run in of_runs)


def _longest_s(of_members: Sequence[Sequence[charts.Row]]) -> float:
    """Seconds of the longest measured step of any configuration; a warm-up may be many times as long, and is cut off."""
    totals: dict[tuple[int, int], float] = {}
    for place, rows in enumerate(of_members):
        for row in rows:
            if row["measured"]:
                totals[place, row["step"]] = totals.get((place, row["step"]), 0.0) + row["seconds"]
    return max(totals.values(), default=1.0) * 1.05


def _steps_chart(member: Member, rows: list[charts.Row], longest_s: float) -> Chart:
    stages = in_order({row["stage"] for row in rows})
    steps = list(dict.fromkeys(row["step"] for row in rows))
    seconds = {(row["step"], row["stage"]): row["seconds"] for row in rows}
    whole = _step_seconds(member)
    table = Table(
        f"Seconds per step and stage, {words.shortly(member.figures)}",
        columns("#step", "#step, s", *[f"#{style_of(stage).label}" for stage in stages]),
        tuple(
            line(
                str(step),
                numbers.fixed_seconds(whole[step]),
                *[numbers.fixed_seconds(seconds.get((step, stage), 0.0)) for stage in stages],
            )
            for step in steps
        ),
    )
    runs = f"mean of {len(member.ok)} runs" if len(member.ok) > 1 else "one run"
    finished = len({step.step for run in member.ok for step in run.summary.steps})
    about = f"{len(steps)} steps, {runs}." if len(steps) == finished else f"{len(steps)} of {finished} steps, evenly chosen, {runs}."
    if overlaps(member.figures.overlap_s):
        about += f" Bars are higher than the step by what stages count twice, {numbers.seconds(member.figures.overlap_s)} in the mean."
    cut = [step for step in steps if sum(seconds.get((step, stage), 0.0) for stage in stages) > longest_s]
    if cut:
        about += f" Cut off: {listed([f'step {step} of {numbers.seconds(whole[step])}' for step in cut[:3]])}."
    spec = charts.stage_seconds(rows, longest_s)
    return Chart(f"chart-steps-{member.key}", words.shortly(member.figures), about, spec, table)


# --- timeline ------------------------------------------------------------------------------------------------------


def timeline_section(members: Sequence[Member]) -> Section:
    """One measured step of each configuration on a common time axis, every process and thread on lines of its own."""
    shown = drawn(members)
    chosen = {member.key: _worth_drawing(member) for member in shown}
    lengths = [step.step_s for member in shown for step in member.typical.summary.steps if step.step in chosen[member.key]]
    found: list[Part] = []
    for member in shown:
        title = f"{words.shortly(member.figures)}, run {member.typical.id}"
        chart = sections.timeline_chart(member.typical_run, chosen[member.key], f"chart-timeline-{member.key}", title, max(lengths) * 1e3)
        if chart is not None:
            found.append(chart)
    intro = (
        "What every process did in one step, of the run nearest to its configuration's mean; all on one time axis. Nested spans lie below "
        "the one they are part of, and so does a wait: the stretch in which no process works on what a span awaits. Gaps are time that no span covers."
    )
    return section("timeline", "Timeline of a step", "Timeline", intro, found, members)


def _worth_drawing(member: Member) -> dict[int, str]:
    chosen = sections.chosen_steps(member.typical.summary)
    measured = {step.step for step in sections.measured_steps(member.typical.summary)}
    return {step: why for step, why in chosen.items() if step in measured}


# --- waits ---------------------------------------------------------------------------------------------------------


def waits_section(members: Sequence[Member]) -> Section:
    """Where nobody worked: waits of the driver, time without a span, and processes that wait for the slowest of their kind."""
    shown = drawn(members)
    rows = [line(member.key, words.short(member.figures.name), *_waits(member)) for member in shown]
    headings = columns("", "configuration", "#wait, s", "#of the step", "#unattributed, s", "#of the step", "#lowest coverage")
    workers = [
        line(
            member.key,
            sections.stage_cell(worker.stage),
            worker.role,
            str(worker.processes),
            numbers.fixed_seconds(worker.min_s),
            numbers.fixed_seconds(worker.median_s),
            numbers.fixed_seconds(worker.max_s),
            numbers.share(worker.skew, "no time") if worker.processes > 1 else "–",
        )
        for member in shown
        for worker in workers_in_order(member.typical.summary)
    ]
    spread = columns("", "stage", "process", "#processes", "#least, s", "#median, s", "#most, s", "#skew")
    parts: list[Part] = [
        resources.idle_table(shown),
        Table("Seconds of a step in which nobody worked for the driver, or no span says what it did", headings, tuple(rows)),
        Table(
            "Waiting by role (typical run): the share of a step in which no process of the role runs a stage",
            columns("", "role", "#processes", "#busy, s", "waiting", "#bubbles a step", "#longest, s"),
            tuple(row for member in shown for row in _role_lines(member)),
            "not in these records, which were summarized before it was derived",
        ),
        Table(
            "The end of generation (typical run)",
            columns("", "configuration", "while fewer than a tenth of a step's samples are unfinished"),
            tuple(line(member.key, words.short(member.figures.name), _tail(member)) for member in shown),
            prose=True,
        ),
        folded_if_long(
            Table(
                "Busy seconds per step over processes of a kind (typical run, medians over steps)",
                spread,
                tuple(workers),
                "every stage ran in a single process, so none waited for another",
            )
        ),
    ]
    intro = (
        "Wait: the driver awaits other processes while none of them works on what it awaits, as in a poll, or waits for other ranks. Bubbles: "
        "stretches of at least 1 ms in which a role has nothing to do. Skew: the share of the slowest process's time that the average one of its kind waits."
    )
    return section("waits", "Waits and idle time", "Waits", intro, parts, members)


def _role_lines(member: Member) -> list[Line]:
    idle = member.typical.summary.idle
    return [
        line(
            member.key,
            role.role,
            str(role.processes),
            numbers.fixed_seconds(role.busy_s),
            Cell(numbers.share(role.role_waiting), bar=role.role_waiting),
            numbers.significant(role.bubbles.per_step),
            numbers.fixed_seconds(role.bubbles.longest_s) if role.bubbles.per_step else "–",
        )
        for role in (idle.roles if idle else ())
    ]


def _tail(member: Member) -> str:
    summary = member.typical.summary
    tail = summary.idle.tail if summary.idle else None
    if tail is None:
        return numbers.absent(summary.absent.get("idle.tail"))
    return f"{numbers.seconds(tail.tail_s)} of a step, {numbers.share(tail.tail_share)} of generation"


def _waits(member: Member) -> tuple[str, ...]:
    wait, step = member.figures.stages.get("wait"), member.figures.step_s
    gap = member.figures.unattributed_s
    lowest = [run.summary.coverage.min for run in member.ok if run.summary.coverage.min is not None]
    return (
        numbers.fixed_seconds(wait.seconds) if wait else "none seen",
        numbers.share(wait.share) if wait else "–",
        numbers.fixed_seconds(gap),
        numbers.share(gap / step.value if gap is not None and step and step.value else None),
        numbers.share(min(lowest, default=None)),
    )


# --- throughput ----------------------------------------------------------------------------------------------------

RATES: tuple[tuple[str, str, Callable[[ThroughputFigures], float | None]], ...] = (
    ("step tokens", "prompt and response tokens over step seconds", lambda rates: rates.step_tokens_per_s),
    (
        "step tokens per device",
        "the same over every device the run held (ranks, on a CPU)",
        lambda rates: rates.step_tokens_per_s_per_device,
    ),
    ("response tokens", "response tokens over step seconds", lambda rates: rates.response_tokens_per_s),
    ("samples", "samples over step seconds", lambda rates: rates.samples_per_s),
    ("generation", "response tokens over generation's own seconds", lambda rates: rates.generation_tokens_per_s),
    ("assessment", "tokens over rewards, log-probs, values and advantages", lambda rates: rates.assessment_tokens_per_s),
    ("training", "tokens over the actor's and critic's updates", lambda rates: rates.training_tokens_per_s),
)
"""Name, definition and figure; each per second."""


def throughput_section(members: Sequence[Member]) -> Section:
    """Our rates, and what each framework logs itself, with the ratio and the reason for it."""
    shown = drawn(members)
    lines = tuple(
        line(
            name,
            *[numbers.significant(rate) if (rate := _rate(member, figure)) is not None else words.NOT_GIVEN for member in shown],
            definition,
        )
        for name, definition, figure in RATES
    )
    ours = Table("Ours: means over runs, per second", (*heads("what", shown), Column("definition")), lines, prose=True)
    native = [row for member in shown for row in _native_lines(member)]
    headings = columns("", "the framework's", "#mean", "ours", "#value", "#ratio", "why they differ")
    intro = (
        "Work of the measured steps divided by their seconds. Frameworks mean different things by one word, so their own figures stand "
        "beside ours, never in place of them, and are not compared with each other."
    )
    theirs = Table(
        "The frameworks' own figures beside ours (typical runs)",
        headings,
        tuple(native),
        "no framework logged one that compares",
        prose=True,
    )
    return section(
        "throughput",
        "Throughput, ours and the frameworks' own",
        "Throughput",
        intro,
        (ours, _efficiency_table(shown), folded_if_long(theirs)),
        members,
    )


def _efficiency_table(shown: Sequence[Member]) -> Table:
    """FLOPs of the step and achieved rate of each stage; MFU against the basis that each configuration has."""
    stages = in_order({name for member in shown for name, stage in member.figures.stages.items() if stage.model_flops is not None})
    lines = [
        line("step: model FLOPs", *[efficiency.flops(member.figures.step_model_flops, reason=_no_efficiency(member)) for member in shown]),
        line("step: MFU", *[_mfu(member) for member in shown]),
        line("step over the least possible", *[numbers.ratio(member.figures.work_depth_ratio, _no_efficiency(member)) for member in shown]),
    ]
    for stage in stages:
        of = [member.figures.stages.get(stage) for member in shown]
        achieved = [efficiency.flops(one.achieved_flops_per_s, "FLOP/s") if one and one.achieved_flops_per_s else "–" for one in of]
        lines.append(line(sections.stage_cell(stage), *achieved))
    return Table(
        "Efficiency: FLOPs that the valid tokens need, and the rate at which each stage did them", heads("what", shown), tuple(lines)
    )


def _mfu(member: Member) -> str:
    share = member.figures.step_mfu
    return numbers.absent(_no_efficiency(member)) if share is None else f"{numbers.share(share)} ({member.figures.mfu_basis})"


def _no_efficiency(member: Member) -> str:
    """Why FLOPs or their shares are absent: the run's own reason where nothing was counted, else what the device is not known for."""
    summary = member.typical.summary
    if member.figures.step_model_flops is None:
        return summary.absent.get("efficiency", numbers.DEFAULT_REASON)
    known = summary.efficiency is not None and summary.efficiency.against
    return "no rate of the device in this dtype is known" if known else "unknown device"


def _rate(member: Member, figure: Callable[[ThroughputFigures], float | None]) -> float | None:
    return member.mean(lambda run: figure(run.summary.throughput) if run.summary.throughput else None)


def _native_lines(member: Member) -> list[Line]:
    return [
        line(
            member.key,
            Cell(key, code=True),
            numbers.plain(figure.mean),
            Cell(figure.canonical, code=True),
            numbers.plain(figure.mean / figure.ratio if figure.ratio else None),
            numbers.ratio(figure.ratio),
            figure.reason or "",
        )
        for key, figure in sorted(member.typical.summary.native.items())
        if figure.canonical is not None and figure.ratio is not None
    ]


# --- work ----------------------------------------------------------------------------------------------------------


def work_section(members: Sequence[Member]) -> Section:
    """Response lengths, once where they are equal; computed beside valid tokens; and what the audits found."""
    shown = drawn(members)
    parts: list[Part] = []
    alike = _of_equal_lengths(shown)
    for group in alike:
        first = group[0]
        keys = listed([member.key for member in group])
        title = "Response lengths" if len(alike) == 1 else f"Response lengths, {keys}"
        parts.append(sections.lengths_chart(first.typical_run, first.typical.summary, f"chart-lengths-{first.key}", title))
    if len(alike) == 1 and len(alike[0]) > 1:
        keys = listed([member.key for member in alike[0]])
        reason = "as replay makes them" if first.typical.experiment["workload"].get("replay") else "by their figures"
        parts.insert(0, Note(f"Response lengths are equal in {keys}, {reason}: they are shown once.", "ok"))
    parts.append(_tokens_table(shown))
    parts.append(folded_if_long(_audit_table(members)))
    intro = (
        "Counted where the loss received it, not from the configuration. Valid tokens are those that matter; computed ones include padding."
    )
    return section("work", "Work, lengths and padding", "Work", intro, parts, members)


def _of_equal_lengths(shown: Sequence[Member]) -> list[list[Member]]:
    """Configurations with the same figures of response lengths in all of their runs, together."""
    groups: dict[str, list[Member]] = {}
    for member in shown:
        found = {repr(run.summary.lengths) for run in member.ok}
        if member.typical.summary.lengths is not None:
            groups.setdefault(found.pop() if len(found) == 1 else f"varies in {member.key}", []).append(member)
    return list(groups.values())


def _tokens_table(shown: Sequence[Member]) -> Table:
    stages = in_order({name for member in shown for name, stage in member.figures.stages.items() if stage.computed_tokens})
    lines = tuple(line(sections.stage_cell(stage), *[_tokens(member, stage) for member in shown]) for stage in stages)
    return Table(
        "Tokens of a step: computed / valid (share of padding)", heads("stage", shown), lines, "no stage counted the tokens it processed"
    )


def _tokens(member: Member, name: str) -> str:
    stage = member.figures.stages.get(name)
    if stage is None or not stage.computed_tokens:
        return words.NOT_GIVEN
    if stage.valid_tokens is None:
        return numbers.count(round(stage.computed_tokens))
    valid = numbers.count(round(stage.valid_tokens))
    return f"{numbers.count(round(stage.computed_tokens))} / {valid} ({numbers.share(1 - stage.valid_tokens / stage.computed_tokens)})"


def _audit_table(members: Sequence[Member]) -> Table:
    lines = []
    for member in members:
        audits = [run.summary.audit for run in member.runs if run.summary.audit is not None]
        passed = sum(audit.ok for audit in audits)
        state = "ok" if passed == len(member.runs) else "bad" if not passed else "warn"
        first = audits[0] if audits else None
        planned = first.planned.response_tokens if first else None
        lines.append(
            line(
                member.key,
                words.short(member.figures.name),
                Cell(f"{passed} of {len(member.runs)} runs", state=state),  # type: ignore[arg-type]
                numbers.count(first.samples if first else None),
                numbers.count(first.response_tokens if first else None),
                "left to the model" if first and planned is None else numbers.count(planned),
                next((audit.mismatches[0] for audit in audits if audit.mismatches), ""),
            )
        )
    headings = columns("", "configuration", "audit passed in", "#samples", "#response tokens", "#planned", "first mismatch")
    return Table("What reached the loss against the plan (whole run, warm-up included)", headings, tuple(lines), prose=True)


# --- memory --------------------------------------------------------------------------------------------------------


def memory_section(members: Sequence[Member]) -> Section:
    """Highest memory per stage and of the whole run."""
    shown = [member for member in drawn(members) if any(stage.peak_bytes for stage in member.figures.stages.values())]
    parts: list[Part] = []
    if shown:
        parts.append(_memory_chart(shown))
    written = numbers.sizes(member.figures.peak_bytes for member in drawn(members))
    rows = [
        line(member.key, words.short(member.figures.name), written(member.figures.peak_bytes), _kind(member.typical))
        for member in drawn(members)
    ]
    parts.append(Table("Of a whole run", columns("", "configuration", "#highest", "what it is"), tuple(rows), prose=True))
    intro = (
        "The highest of any run, process and measured step: memory that torch reserved on the device, or where there is none the resident set of "
        "a process. A framework that spreads its work over more processes needs less in each: the whole run counts all of them."
    )
    return section("memory", "Memory per stage", "Memory", intro, parts, members)


def _kind(run: Evidence) -> str:
    peaks = run.summary.memory.peak_bytes.values()
    if any("torch_reserved_peak_bytes" in of for of in peaks):
        return "reserved on the device by torch, one process"
    if run.summary.memory.run_peak_pss_bytes is not None:
        return "host memory of all processes at once, start-up included, shared pages counted once"
    return "resident set of one process"


def _memory_chart(shown: Sequence[Member]) -> Chart:
    stages = in_order({name for member in shown for name, stage in member.figures.stages.items() if stage.peak_bytes})
    rows: list[charts.Row] = [
        {"stage": name, "kind": member.key, "bytes": stage.peak_bytes}
        for name in stages
        for member in shown
        if (stage := member.figures.stages.get(name)) is not None and stage.peak_bytes
    ]
    written = numbers.sizes(row["bytes"] for row in rows)
    cells = {(row["stage"], row["kind"]): written(row["bytes"]) for row in rows}
    table = Table(
        "Peak memory per stage",
        heads("stage", shown),
        tuple(line(sections.stage_cell(name), *[cells.get((name, member.key), "–") for member in shown]) for name in stages),
    )
    highest = max(rows, key=lambda row: row["bytes"])
    about = f"Highest: {numbers.size(highest['bytes'])} of {highest['kind']} in {style_of(highest['stage']).label}."
    legend = tuple((words.shortly(member.figures), member.colour) for member in shown)
    spec = charts.memory(rows, [member.colour for member in shown])
    return Chart("chart-memory", "Peak memory per stage", about, spec, table, legend)


# --- learning ------------------------------------------------------------------------------------------------------


def learning_section(members: Sequence[Member]) -> Section:
    """Whether weights changed and reached the rollout engine, and the sanity figures over steps."""
    shown = drawn(members)
    found = [chart for chart in (_reward_chart(shown), _norm_chart(shown), *_native_charts(shown)) if chart is not None]
    parts: list[Part] = [_sanity_table(shown)]
    if found:
        parts.append(Legend(tuple((words.shortly(member.figures), member.colour) for member in shown)))
        parts.append(Group(tuple(found)))
    intro = (
        "So that speed is not bought with wrong training. Under replay rewards are given, so they must be equal; what the optimizer makes of "
        "them is the frameworks' own. Curves are of the typical run, warm-up drawn too."
    )
    return section("learning", "Learning sanity", "Learning", intro, parts, members)


def _sanity_table(shown: Sequence[Member]) -> Table:
    lines = [
        line("optimizer changed the weights", *[_weights(member) for member in shown]),
        line("rollout engine has the trainer's weights", *[_sync(member) for member in shown]),
        line("mean reward", *[_four_digits(member.mean(_reward), "none recorded") for member in shown]),
        line("gradient norm", *[_four_digits(member.mean(_norm), "none recorded") for member in shown]),
    ]
    for figure in ("kl", "clip_fraction", "entropy", "staleness"):
        if any(figure in run.summary.learning.native for member in shown for run in member.ok):
            cells = [_four_digits(member.mean(_native(figure)), "not logged") for member in shown]
            lines.append(line(f"{sections.LEARNING[figure]} (as logged)", *cells))
    return Table("Over all runs: checks, and means of the measured steps", heads("what", shown, number=False), tuple(lines), prose=True)


def _four_digits(value: float | None, reason: str) -> str:
    """A number that stands beside others: like them with four digits, zeros at its end too."""
    ordinary = value is not None and 1e-3 <= abs(value) < 1e7
    return numbers.significant(value, 4) if ordinary and value is not None else numbers.plain(value, reason)


def _weights(member: Member) -> Cell:
    changed = [run.summary.learning.weights_changed for run in member.ok]
    if False in changed:
        return Cell(f"not in {changed.count(False)} of {len(changed)} runs: nothing was trained", state="bad")
    if not any(changed):
        return Cell("not checked", state="none")
    return Cell(f"in {changed.count(True)} of {len(changed)} runs", state="ok" if all(changed) else "warn")


def _sync(member: Member) -> Cell:
    """The worst of the runs: log-probs of trainer and rollout engine may differ by rounding alone."""
    found = [difference for run in member.ok if (difference := run.summary.learning.logprob_difference) is not None]
    if not found:
        reasons = {run.summary.absent.get("learning.logprob_difference", numbers.DEFAULT_REASON) for run in member.ok}
        return Cell(f"not checked: {'; '.join(sorted(reasons))}", state="none")
    worst = max(found, key=lambda difference: difference.mean / difference.tolerance)
    text = f"log-probs differ by {numbers.plain(worst.mean)}, rounding in {worst.dtype} explains {worst.tolerance:g}"
    return Cell(text, state="ok" if worst.is_rounding else "bad")


def _reward(run: Evidence) -> float | None:
    reward = run.summary.learning.reward
    return reward.value if reward else None


def _norm(run: Evidence) -> float | None:
    seen = run.summary.learning.grad_norm
    return seen if seen is not None else _native("grad_norm")(run)


def _native(figure: str) -> Callable[[Evidence], float | None]:
    def value(run: Evidence) -> float | None:
        found = run.summary.learning.native.get(figure)
        return found.value if found else None

    return value


Curve = dict[int, float]


def _reward_chart(shown: Sequence[Member]) -> Chart | None:
    curves = {
        member.key: {step.step: step.reward_mean for step in member.typical.summary.steps if step.reward_mean is not None}
        for member in shown
    }
    known = [curve for curve in curves.values() if curve]
    equal = len(known) > 1 and all(_close(curve, known[0]) for curve in known)
    about = "Equal in every step: one line lies upon the other." if equal else "Mean of the step's samples."
    return _curves("chart-reward", "Reward", about, shown, curves)


def _close(one: Curve, other: Curve) -> bool:
    return one.keys() == other.keys() and all(abs(one[step] - other[step]) <= 1e-6 * max(1.0, abs(other[step])) for step in one)


def _norm_chart(shown: Sequence[Member]) -> Chart | None:
    curves = {}
    for member in shown:
        updates = member.typical_run.updates
        seen = dict(sections.per_step(updates[updates["role"] == "actor"], "grad_norm"))
        curves[member.key] = seen or _logged(member, "grad_norm")
    about = "Before clipping, as the probe saw it, or else as the framework logs it."
    return _curves("chart-grad-norm", "Gradient norm", about, shown, curves)


def _logged(member: Member, figure: str) -> Curve:
    """A sanity figure as the framework logged it over the steps of the typical run."""
    found = member.typical.summary.learning.native.get(figure)
    native = member.typical_run.native
    return dict(sections.per_step(native[native["key"] == found.key], "value")) if found else {}


def _native_charts(shown: Sequence[Member]) -> list[Chart | None]:
    made = []
    for figure in ("kl", "entropy", "clip_fraction"):
        curves = {member.key: _logged(member, figure) for member in shown}
        title = sections.LEARNING[figure]
        about = "As the frameworks log it, each by its own definition."
        made.append(_curves(f"chart-{figure.replace('_', '-')}", title[:1].upper() + title[1:], about, shown, curves))
    return made


def _curves(id: str, title: str, about: str, shown: Sequence[Member], curves: dict[str, Curve]) -> Chart | None:
    rows: list[charts.Row] = [
        {"step": step, "value": value, "key": member.key, "colour": member.colour, "dash": member.dash}
        for member in shown
        for step, value in sorted(curves[member.key].items())
    ]
    if not rows:
        return None
    steps = sorted({row["step"] for row in rows})
    having = [member for member in shown if curves[member.key]]
    table = Table(
        title,
        (Column("step", True), *heads("", having)[1:]),
        tuple(line(str(step), *[_point(curves[member.key].get(step)) for member in having]) for step in steps),
    )
    missing = [member.key for member in shown if not curves[member.key]]
    return Chart(id, title, about + (f" Absent in {listed(missing)}." if missing else ""), charts.lines(rows), table)


def _point(value: float | None) -> str:
    return "–" if value is None else numbers.plain(value)
