"""The chapters of a run's page, each from the run's summary and frames. Figures are taken, never computed anew."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rlmbench.report import charts, numbers, words
from rlmbench.report.palette import in_order, style_of
from rlmbench.report.parts import Cell, Chart, Choice, Code, Facts, Folded, Group, Line, Note, Part, Section, Table, columns, line

if TYPE_CHECKING:
    import pandas as pd

    from rlmbench.metrics.figures import RunSummary, StepFigures
    from rlmbench.metrics.stages import Window
    from rlmbench.records import Manifest, Run

MEMORY_KINDS = {"rss_peak_bytes": "RSS", "torch_allocated_peak_bytes": "torch allocated", "torch_reserved_peak_bytes": "torch reserved"}
LEARNING = {
    "kl": "KL to the reference",
    "entropy": "entropy",
    "clip_fraction": "clip fraction",
    "grad_norm": "gradient norm",
    "logprob_difference": "train / rollout log-prob difference",
    "staleness": "policy updates between a sample's weights and its training",
}
LONGEST_SPANS = 40


def why(summary: RunSummary, figure: str, otherwise: str = numbers.DEFAULT_REASON) -> str:
    """Why `figure` is absent, as the summary says or else `otherwise`."""
    return summary.absent.get(figure, otherwise)


def stage_cell(stage: str) -> Cell:
    """A stage's name with its colour."""
    style = style_of(stage)
    return Cell(style.label, colour=style.colour)


def measured_steps(summary: RunSummary) -> list[StepFigures]:
    """The steps that all figures are taken from."""
    return [step for step in summary.steps if not step.excluded]


def stage_seconds(step: StepFigures) -> dict[str, float]:
    """The step's stages with unattributed time as one more."""
    return {**step.stages_s, "unattributed": step.unattributed_s}


# --- where the time goes -------------------------------------------------------------------------------------------


def time_section(summary: RunSummary) -> Section:
    """Stage seconds per step, their medians and shares, the spread over processes, and the start-up."""
    parts: list[Part] = []
    if summary.steps:
        parts.append(_steps_chart(summary))
    if summary.stages_s:
        parts.append(_stage_table(summary))
    if words.overlaps(summary.overlap_s):
        parts.append(
            Note(
                f"Stages overlap: {numbers.seconds(summary.overlap_s)} of a step (median) runs beside another stage and is counted in both."
            )
        )
    if summary.workers:
        parts.append(_workers_table(summary))
    if summary.startup.total_s is not None or summary.startup.stages_s:
        parts.append(_startup_table(summary))
    if not parts:
        parts.append(Note(f"No step finished: {why(summary, 'step_s', 'there is nothing to divide')}."))
    intro = "Each bar is one step, divided into its stages on the process that drives the loop. Faint bars are left out of all figures."
    return Section("time", "Where the time goes", "Time", intro, tuple(parts))


def _steps_chart(summary: RunSummary) -> Chart:
    stages = in_order({stage for step in summary.steps for stage in stage_seconds(step)})
    rows = [
        {"step": step.step, "stage": stage, "seconds": round(seconds, 6), "measured": not step.excluded}
        for step in summary.steps
        for stage, seconds in stage_seconds(step).items()
    ]
    table = Table(
        "Seconds per step and stage",
        columns("#step", "#step, s", *[f"#{style_of(stage).label}" for stage in stages], "#coverage", "left out because"),
        tuple(
            line(
                str(step.step),
                numbers.fixed_seconds(step.step_s),
                *[numbers.fixed_seconds(stage_seconds(step).get(stage, 0.0)) for stage in stages],
                numbers.share(step.coverage),
                step.excluded or "",
            )
            for step in summary.steps
        ),
    )
    legend = tuple((style_of(stage).label, style_of(stage).colour) for stage in stages)
    slowest = max(summary.steps, key=lambda step: step.step_s)
    about = f"{len(summary.steps):,} finished steps; the longest is step {slowest.step} with {numbers.seconds(slowest.step_s)}."
    return Chart("chart-steps", "Stage seconds per step", about, charts.stage_seconds(rows), table, legend)


def _stage_table(summary: RunSummary) -> Table:
    measured = measured_steps(summary)
    total_s = sum(step.step_s for step in measured)
    largest = max(summary.stages_share.values(), default=0) or 1
    lines = []
    for stage in in_order(set(summary.stages_s)):
        of_steps = [step.stages_s.get(stage, 0.0) for step in measured]
        part = summary.stages_share.get(stage, 0.0)
        lines.append(
            _stage_line(
                stage_cell(stage), summary.stages_s[stage], of_steps, Cell(numbers.share(part), style_of(stage).colour, part / largest)
            )
        )
        for name, seconds in summary.substages_s.items():
            owner, _, substage = name.partition(".")
            if owner == stage:
                lines.append(line(f"\u2003\u2003{substage}", numbers.fixed_seconds(seconds), "", "", ""))
    if summary.unattributed_s is not None and total_s:
        gaps = [step.unattributed_s for step in measured]
        part = sum(gaps) / total_s
        lines.append(
            _stage_line(
                stage_cell("unattributed"),
                summary.unattributed_s,
                gaps,
                Cell(numbers.share(part), style_of("unattributed").colour, min(1, part / largest)),
            )
        )
    step = summary.step_s
    lines.append(
        line("whole step", numbers.fixed_seconds(step.median), "", numbers.fixed_seconds(step.min), numbers.fixed_seconds(step.max))
    )
    caption = f"Seconds per step over {summary.measured_steps:,} measured steps"
    return Table(caption, columns("stage", "#median, s", "share of measured time", "#lowest, s", "#highest, s"), tuple(lines))


def _stage_line(name: Cell, median_s: float, of_steps: Sequence[float], share: Cell) -> Line:
    low, high = (min(of_steps), max(of_steps)) if of_steps else (None, None)
    return line(name, numbers.fixed_seconds(median_s), share, numbers.fixed_seconds(low), numbers.fixed_seconds(high))


def _workers_table(summary: RunSummary) -> Table:
    lines = [
        line(
            stage_cell(worker.stage),
            worker.role,
            str(worker.processes),
            numbers.fixed_seconds(worker.min_s),
            numbers.fixed_seconds(worker.median_s),
            numbers.fixed_seconds(worker.max_s),
            numbers.share(worker.skew, "no time"),
        )
        for worker in words.workers_in_order(summary)
    ]
    headings = columns("stage", "process", "#processes", "#least, s", "#median, s", "#most, s", "#skew")
    return Table("Busy seconds per step over processes of a kind (medians over steps)", headings, tuple(lines))


def _startup_table(summary: RunSummary) -> Table:
    lines = [line(name.replace("_", " "), numbers.fixed_seconds(seconds)) for name, seconds in summary.startup.stages_s.items()]
    lines.append(line("whole start-up", numbers.fixed_seconds(summary.startup.total_s, why(summary, "startup.total_s"))))
    return Table("Before the first step", columns("what", "#seconds"), tuple(lines))


# --- the timeline of a step ----------------------------------------------------------------------------------------


def timeline_section(run: Run, summary: RunSummary) -> Section:
    """The spans of a typical step, the slowest and the first, on every process and thread."""
    intro = (
        "Every span the probe recorded in one step. Nested spans lie below the one they are part of, and a span counts for its stage "
        "only where none lies below it; gaps are time that no span covers."
    )
    chosen = chosen_steps(summary)
    measured_ms = max((step.step_s * 1e3 for step in measured_steps(summary) if step.step in chosen), default=None)
    chart = timeline_chart(run, chosen, "chart-timeline", "Spans by process", measured_ms)
    none = Note("No step finished, so there is none to draw.")
    return Section("timeline", "Timeline of a step", "Timeline", intro, (chart or none,))


def timeline_chart(run: Run, chosen: dict[int, str], id: str, title: str, length_ms: float | None = None) -> Chart | None:
    """The spans of the `chosen` steps (with why each was), one at a time; None where none of them finished.

    `length_ms` is where the axis ends, over all drawings that are compared by eye, else with the longest of the steps; a step that is
    longer, as a warm-up may be many times, is cut off there, and its name says so.
    """
    from rlmbench.metrics.stages import windows_of
    from rlmbench.records.clocks import clock_offsets_ns
    from rlmbench.report.timeline import lay_out

    steps = run.steps[run.steps["step"].isin(chosen)].drop_duplicates("step")
    windows = windows_of(steps)
    if not windows:
        return None
    driver = str(steps["process"].iloc[0])
    drawing = lay_out(run.spans, run.processes, windows, clock_offsets_ns(run.processes, driver), driver)
    by_step = {window.step: window for window in windows}
    shown = [step for step in chosen if step in by_step]
    longest_ms = length_ms or max(_length_ms(window) for window in windows)
    first = shown[0]
    bars = drawing.steps[first]
    stages = in_order({bar.stage for step in shown for bar in drawing.steps[step]})
    longest = sorted(bars, key=lambda bar: bar.start_ms - bar.end_ms)[:LONGEST_SPANS]
    owners = _owners(drawing.lanes)
    table = Table(
        f"The {len(longest)} longest spans of step {first}",
        columns("where", "stage", "substage", "name", "#start, ms", "#length, ms"),
        tuple(
            line(
                owners[bar.lane],
                stage_cell(bar.stage),
                bar.substage or "",
                bar.name,
                _fixed_ms(bar.start_ms),
                _fixed_ms(bar.end_ms - bar.start_ms),
            )
            for bar in sorted(longest, key=lambda bar: (bar.lane, bar.start_ms))
        ),
    )
    about = f"{len(bars):,} spans in step {first}."
    if any(drawing.left_out.values()):
        about += f" Of steps with more than {len(bars):,} spans the longest are drawn."
    if drawing.threads_left_out:
        about += f" {drawing.threads_left_out:,} further threads are not drawn."
    return Chart(
        id,
        title,
        about,
        charts.timeline(drawing.lanes, longest_ms),
        table,
        tuple((style_of(stage).label, style_of(stage).colour) for stage in stages),
        tuple(
            Choice(
                f"step {step} ({chosen[step]}{_cut(by_step[step], longest_ms)})",
                charts.timeline_rows(bar._asdict() for bar in drawing.steps[step]),
            )
            for step in shown
        ),
    )


def chosen_steps(summary: RunSummary) -> dict[int, str]:
    """Step -> what makes it worth drawing: the one nearest to the median, the slowest measured, the first."""
    measured = measured_steps(summary)
    chosen: dict[int, str] = {}
    if measured:
        middle = summary.step_s.median or 0.0
        chosen[min(measured, key=lambda step: abs(step.step_s - middle)).step] = "typical"
        chosen.setdefault(max(measured, key=lambda step: step.step_s).step, "slowest measured")
    if summary.steps:
        first = summary.steps[0]
        chosen.setdefault(first.step, f"first, {first.excluded}" if first.excluded else "first")
    return chosen


def _cut(window: Window, longest_ms: float) -> str:
    if _length_ms(window) <= 1.01 * longest_ms:
        return ""
    return f"; {numbers.seconds(_length_ms(window) / 1e3)}, cut at {numbers.seconds(longest_ms / 1e3)}"


def _fixed_ms(value: float) -> str:
    """Milliseconds with two decimals; what is not nothing is not written as 0, as in the tables of seconds."""
    return "<0.01" if 0 < value < 0.005 else f"{value:,.2f}"


def _length_ms(window: Window) -> float:
    return (window.end_ns - window.start_ns) / 1e6


def _owners(lanes: Iterable[str]) -> list[str]:
    """For each line the label of the block it belongs to."""
    owners: list[str] = []
    for label in lanes:
        owners.append(label or owners[-1])
    return owners


# --- work and lengths ----------------------------------------------------------------------------------------------


def work_section(run: Run, summary: RunSummary) -> Section:
    """Prompts, samples and tokens per step, response lengths, and what padding added."""
    parts: list[Part] = []
    if any(step.samples for step in summary.steps):
        parts.append(_work_table(summary.steps))
    if summary.lengths is not None:
        parts.append(lengths_chart(run, summary, "chart-lengths", "Response lengths"))
    if summary.padding:
        parts.append(_padding_table(summary))
    if not parts:
        parts.append(Note(f"No sample reached the loss: {why(summary, 'lengths', 'the run ended before')}."))
    intro = "Counted where the loss received it, not from the configuration."
    return Section("work", "Work and lengths", "Work", intro, tuple(parts))


def _work_table(steps: Sequence[StepFigures]) -> Folded | Table:
    def lines() -> Iterable[Line]:
        for step in steps:
            values = (step.prompts, step.samples, step.prompt_tokens, step.response_tokens, step.micro_batches, step.optimizer_steps)
            yield line(str(step.step), *[numbers.count(value) for value in values], step.excluded or "")

    headings = columns(
        "#step", "#prompts", "#samples", "#prompt tokens", "#response tokens", "#micro-batches", "#optimizer steps", "left out because"
    )
    table = Table("Work per step", headings, tuple(lines()))
    return Folded(table) if len(steps) > 12 else table


def lengths_chart(run: Run, summary: RunSummary, id: str, title: str) -> Chart:
    """Response lengths of the measured steps' samples, for a run that has some."""
    from rlmbench.metrics.work import unique_samples

    lengths = summary.lengths
    assert lengths is not None
    measured = {step.step for step in measured_steps(summary)}
    samples = unique_samples(run.samples, run.experiment.optimization.epochs)
    values = [int(value) for value in samples.loc[samples["step"].isin(measured), "response_tokens"]]
    cap = run.experiment.workload.max_response_tokens
    spec = charts.lengths(values, lengths.p50, lengths.p99, cap)
    table = Table(
        "Response tokens per sample",
        columns("figure", "#tokens"),
        (
            line("lowest", numbers.count(lengths.minimum)),
            line("mean", f"{lengths.mean:,.1f}"),
            line("p50", numbers.count(lengths.p50)),
            line("p90", numbers.count(lengths.p90)),
            line("p99", numbers.count(lengths.p99)),
            line("highest", numbers.count(lengths.maximum)),
            line("cap", numbers.count(cap)),
            line("share at the cap", numbers.share(lengths.share_at_cap)),
        ),
    )
    about = (
        f"{lengths.samples:,} samples; median {numbers.count(lengths.p50)}, p99 {numbers.count(lengths.p99)}, "
        f"{numbers.share(lengths.share_at_cap)} at the cap of {cap:,} tokens."
    )
    return Chart(id, title, about, spec, table)


def _padding_table(summary: RunSummary) -> Table:
    lines = []
    for stage in in_order(set(summary.padding)):
        padding = summary.padding[stage]
        lines.append(
            line(
                stage_cell(stage),
                numbers.count(padding.valid_tokens),
                numbers.count(padding.computed_tokens),
                Cell(
                    numbers.share(padding.padding_share, "nothing processed"),
                    style_of(stage).colour,
                    max(0.0, padding.padding_share or 0.0),
                ),
            )
        )
    return Table(
        "Tokens that mattered and tokens that were computed", columns("stage", "#valid", "#computed", "padding share"), tuple(lines)
    )


# --- throughput ----------------------------------------------------------------------------------------------------


def throughput_section(summary: RunSummary, manifest: Manifest) -> Section:
    """Our rates, and the framework's own figures with the reason why they differ."""
    parts: list[Part] = []
    rates = [(step.step, step.tokens_per_s) for step in summary.steps if step.tokens_per_s is not None]
    if summary.throughput is None:
        parts.append(Note(f"Throughput is absent: {why(summary, 'throughput', 'no step was measured')}."))
    else:
        parts.append(_rates_table(summary, manifest))
    if len(rates) > 1:
        parts.append(
            _line_chart(
                "chart-rate", "Tokens per second over steps", rates, "Prompt and response tokens over the step's seconds, warm-up included."
            )
        )
    parts += _native_tables(summary)
    intro = (
        "Work of the measured steps divided by their seconds. Frameworks mean different things by one word, "
        "so their figures stand beside ours, never in place of them."
    )
    return Section("throughput", "Throughput, ours and the framework's own", "Throughput", intro, tuple(parts))


def _rates_table(summary: RunSummary, manifest: Manifest) -> Table:
    rates = summary.throughput
    assert rates is not None
    no_stage = "the stage took no time"
    lines = [
        line("step tokens", numbers.rate(rates.step_tokens_per_s, "tokens"), "prompt and response tokens over step seconds"),
        line("response tokens", numbers.rate(rates.response_tokens_per_s, "tokens"), "response tokens over step seconds"),
        line("samples", numbers.rate(rates.samples_per_s, "samples"), "samples over step seconds"),
        line(
            "generation", numbers.rate(rates.generation_tokens_per_s, "tokens", no_stage), "response tokens over generation's own seconds"
        ),
        line(
            "assessment",
            numbers.rate(rates.assessment_tokens_per_s, "tokens", no_stage),
            "tokens over rewards, log-probs, values and advantages",
        ),
        line("training", numbers.rate(rates.training_tokens_per_s, "tokens", no_stage), "tokens over the actor's and critic's updates"),
        line(
            "step tokens per device",
            numbers.rate(rates.step_tokens_per_s_per_device, "tokens"),
            f"step tokens over the {words.devices_held(rates.devices, manifest)} the run held",
        ),
    ]
    caption = f"{rates.tokens:,} tokens of {rates.samples:,} samples in {numbers.seconds(rates.seconds)}"
    return Table(caption, columns("what", "#rate", "definition"), tuple(lines))


def _native_tables(summary: RunSummary) -> list[Part]:
    compared, others = [], []
    for key, figure in sorted(summary.native.items()):
        if figure.canonical is None or figure.ratio is None:
            others.append(
                line(Cell(key, code=True), numbers.plain(figure.mean), numbers.plain(figure.last), str(figure.n), figure.reason or "")
            )
        else:
            ours = figure.mean / figure.ratio if figure.ratio else None
            compared.append(
                line(
                    Cell(key, code=True),
                    numbers.plain(figure.mean),
                    Cell(figure.canonical, code=True),
                    numbers.plain(ours),
                    numbers.ratio(figure.ratio),
                    figure.reason or "",
                )
            )
    headings = columns("the framework's", "#mean", "ours", "#value", "#ratio", "why they differ")
    parts: list[Part] = [
        Table(
            "Native figures beside ours",
            headings,
            tuple(compared),
            why(summary, "native", "the framework logged none that compares"),
            prose=True,
        )
    ]
    if others:
        parts.append(Folded(Table("What else the framework logged", columns("key", "#mean", "#last", "#n", "note"), tuple(others))))
    return parts


def _line_chart(id: str, title: str, values: Sequence[tuple[int, float]], about: str) -> Chart:
    rows = [{"step": step, "value": value} for step, value in values]
    table = Table(title, columns("#step", "#value"), tuple(line(str(step), numbers.plain(value)) for step, value in values))
    return Chart(id, title, about, charts.line(rows), table)


# --- memory --------------------------------------------------------------------------------------------------------


def memory_section(summary: RunSummary) -> Section:
    """Peak memory per stage, on the host and on the device, and growth over steps."""
    peaks = summary.memory.peak_bytes
    stages = in_order(set(peaks))
    kinds = [kind for kind in MEMORY_KINDS if any(kind in peaks[stage] for stage in stages)]
    parts: list[Part] = []
    host, device = kinds[:1] if "rss_peak_bytes" in kinds else [], [kind for kind in kinds if kind != "rss_peak_bytes"]
    drawn = [
        _memory_chart(name, label, group, stages, peaks)
        for name, label, group in (("host", "Host memory", host), ("device", "Device memory", device))
        if group
    ]
    if drawn:
        parts.append(Group(tuple(drawn)))
    if summary.memory.run_peak_pss_bytes is not None:
        parts.append(Note(f"Host memory: {words.run_memory(summary.memory.run_peak_pss_bytes)}."))
    growth = summary.memory.growth_bytes_per_step
    if growth is not None:
        parts.append(Note(_growth_text(growth.value, growth.low, growth.high, growth.n)))
    if not parts:
        parts.append(Note(f"Memory is absent: {why(summary, 'memory')}."))
    elif not device:
        parts.append(Note("Device memory: " + numbers.absent(why(summary, "memory.device", "torch used no accelerator")) + "."))
    intro = "The highest of any process and measured step. A stage's peak includes the spans within it."
    return Section("memory", "Memory per stage", "Memory", intro, tuple(parts))


def _memory_chart(name: str, label: str, kinds: Sequence[str], stages: Sequence[str], peaks: dict[str, dict[str, int]]) -> Chart:
    rows: list[charts.Row] = [
        {"stage": stage, "kind": MEMORY_KINDS[kind], "bytes": peaks[stage][kind]}
        for stage in stages
        for kind in kinds
        if kind in peaks[stage]
    ]
    written = numbers.sizes(row["bytes"] for row in rows)
    table = Table(
        f"{label}, peak per stage",
        columns("stage", *[f"#{MEMORY_KINDS[kind]}" for kind in kinds]),
        tuple(line(stage_cell(stage), *[written(peaks[stage].get(kind)) for kind in kinds]) for stage in stages),
    )
    highest = max(rows, key=lambda row: row["bytes"])
    about = f"Highest: {numbers.size(highest['bytes'])} {highest['kind']} in {style_of(highest['stage']).label}."
    legend = (
        tuple((MEMORY_KINDS[kind], colour) for kind, colour in zip(kinds, charts.MEMORY_COLOURS, strict=False)) if len(kinds) > 1 else ()
    )
    return Chart(f"chart-memory-{name}", label, about, charts.memory(rows), table, legend)


def _growth_text(value: float, low: float | None, high: float | None, n: int) -> str:
    sign = "-" if value < 0 else "+"
    text = f"The driver's resident set changes by {sign}{numbers.size(abs(value))} per step over {n} steps"
    if low is None or high is None:
        return text + "."
    leaks = low > 0
    bounds = " to ".join(("-" if bound < 0 else "+") + numbers.size(abs(bound)) for bound in (low, high))
    return f"{text} (95% interval {bounds}): " + ("it grows." if leaks else "no growth shown.")


# --- learning ------------------------------------------------------------------------------------------------------


def learning_section(run: Run, summary: RunSummary) -> Section:
    """Reward, KL, gradient norm and the like over all steps."""
    drawn = []
    rewards = [(step.step, step.reward_mean) for step in summary.steps if step.reward_mean is not None]
    if rewards:
        drawn.append(_line_chart("chart-reward", "Reward", rewards, _reward_text(summary)))
    norms = per_step(run.updates[run.updates["role"] == "actor"], "grad_norm")
    if norms:
        about = f"Before clipping; mean {numbers.plain(summary.learning.grad_norm, 'no measured step')}."
        drawn.append(_line_chart("chart-grad-norm", "Gradient norm", norms, about))
    for figure, found in summary.learning.native.items():
        if figure == "grad_norm" and norms:
            continue
        values = per_step(run.native[run.native["key"] == found.key], "value")
        title = LEARNING.get(figure, figure.replace("_", " "))
        about = f"As the framework logs it ({found.key}); mean {numbers.plain(found.value)}."
        drawn.append(_line_chart(f"chart-learning-{figure.replace('_', '-')}", title[:1].upper() + title[1:], values, about))
    missing = [
        label for figure, label in LEARNING.items() if figure not in summary.learning.native and not (figure == "grad_norm" and norms)
    ]
    parts: list[Part] = [Group(tuple(drawn))] if drawn else [Note(f"Absent: {why(summary, 'learning', 'no step finished')}.")]
    if drawn and missing:
        parts.append(Note(f"Absent, since neither the probe nor the framework's log holds them: {', '.join(missing)}."))
    intro = "So that speed is not bought with wrong training. Warm-up steps are drawn too; means are over the measured steps."
    return Section("learning", "Learning sanity", "Learning", intro, tuple(parts))


def _reward_text(summary: RunSummary) -> str:
    reward = summary.learning.reward
    if reward is None:
        return "No measured step."
    text = f"Mean {numbers.plain(reward.value)} over {reward.n} steps"
    if reward.low is None or reward.high is None:
        return text + "; too few steps for an interval."
    return f"{text}, 95% interval {numbers.plain(reward.low)} to {numbers.plain(reward.high)}."


def per_step(rows: pd.DataFrame, column: str) -> list[tuple[int, float]]:
    """Mean of `column` per step, for the steps that have one."""
    from rlmbench.records.frames import by_step

    return list(by_step(rows.dropna(subset=[column]).groupby("step")[column].mean()).items())


# --- fidelity, audit, hooks ----------------------------------------------------------------------------------------


def ledger_section(manifest: Manifest) -> Section:
    """What became of each field of the experiment in the framework's own configuration."""
    order = {"unsupported": 0, "changed": 1, "approximated": 2, "exact": 3}
    states: dict[str, Any] = {"exact": "ok", "changed": "warn", "approximated": "warn", "unsupported": "bad"}
    entries = sorted(manifest.ledger, key=lambda entry: order.get(str(entry.get("fidelity")), 0))
    lines = tuple(
        line(
            Cell(str(entry.get("field")), code=True),
            Cell(words.value_text(entry.get("value")), code=True),
            Cell(str(entry.get("fidelity")), state=states.get(str(entry.get("fidelity")), "none")),
            Cell(words.native_text(entry), code=True),
            str(entry.get("reason") or ""),
            tag=str(entry.get("fidelity")),
        )
        for entry in entries
    )
    present = tuple(name for name in order if any(entry.tag == name for entry in lines))
    table = Table(
        "Fields of the experiment",
        columns("field", "asked for", "fidelity", "native", "reason"),
        lines,
        "no ledger was recorded",
        present,
        prose=True,
    )
    intro = "How faithfully the framework honours each field of the experiment, and under which of its own keys."
    if manifest.untested:
        intro += f" By the adapter's authors: {'; '.join(manifest.untested)}."
    return Section("ledger", "Fidelity ledger", "Fidelity", intro, (table,))


def audit_section(run: Run, summary: RunSummary) -> Section:
    """Plan against run: the totals, every step, every mismatch."""
    intro = "What reached the loss against the plan, per step. A mismatch, or no step at all, fails the run."
    audit = summary.audit
    if audit is None:
        return Section(
            "audit", "Workload audit", "Audit", intro, (Note(f"No audit: {why(summary, 'audit', 'there was no work to compare')}."),)
        )
    parts: list[Part] = []
    if audit.mismatches:
        shown = tuple(line(Cell(text, state="bad")) for text in audit.mismatches)
        title = f"Mismatches ({len(shown)} of {audit.mismatch_count:,})" if audit.mismatch_count > len(shown) else "Mismatches"
        parts.append(Table(title, columns("what differs"), shown))
    natural = "left to the model"
    rows = (
        ("steps", audit.planned.steps, audit.steps),
        ("prompts", audit.planned.prompts, audit.prompts),
        ("samples", audit.planned.samples, audit.samples),
        ("prompt tokens", audit.planned.prompt_tokens, audit.prompt_tokens),
        ("response tokens", audit.planned.response_tokens, audit.response_tokens),
        ("optimizer steps", audit.planned.optimizer_steps, audit.optimizer_steps),
    )
    parts.append(
        Table(
            "Whole run",
            columns("what", "#planned", "#run", "verdict"),
            tuple(
                line(name, numbers.count(planned, reason=natural), numbers.count(got), _verdict(planned, got))
                for name, planned, got in rows
            ),
        )
    )
    steps = _audit_steps(run, summary)
    parts.append(Folded(steps) if len(steps.lines) > 12 else steps)
    return Section("audit", "Workload audit", "Audit", intro, tuple(parts))


def _verdict(planned: int | None, got: int | None) -> Cell:
    if planned is None:
        return Cell("not planned", state="none")
    return Cell("equal", state="ok") if planned == got else Cell("differs", state="bad")


def _audit_steps(run: Run, summary: RunSummary) -> Table:
    planned: dict[int, list[dict[str, Any]]] = {}
    for row in (run.plan or {}).get("rows", []):
        planned.setdefault(int(row["step"]), []).append(row)
    group = int((run.plan or {}).get("group_size", 1))
    done = {step.step: step for step in summary.steps}
    lines = []
    for step in sorted({*planned, *done}):
        rows, got = planned.get(step, []), done.get(step)
        replayed = bool(rows) and all(row.get("response_tokens") is not None for row in rows)
        expected = (
            len(rows),
            len(rows) * group,
            sum(row["prompt_tokens"] for row in rows) * group,
            sum(sum(row["response_tokens"]) for row in rows) if replayed else None,
        )
        received = (got.prompts, got.samples, got.prompt_tokens, got.response_tokens) if got else (None,) * 4
        pairs = [_of(part, whole) for part, whole in zip(received, expected, strict=True)]
        agree = all(whole is None or part == whole for part, whole in zip(received, expected, strict=True))
        lines.append(
            line(str(step), *pairs, Cell("equal", state="ok") if agree else Cell("differs" if got else "did not finish", state="bad"))
        )
    headings = columns("#step", "#prompts", "#samples", "#prompt tokens", "#response tokens", "verdict")
    return Table("Per step, run / plan", headings, tuple(lines), "no plan was written")


def _of(got: int | None, planned: int | None) -> str:
    received = "–" if got is None else f"{got:,}"
    return received if planned is None else f"{received} / {planned:,}"


def hooks_section(run: Run, summary: RunSummary) -> Section:
    """Where the probe attached, and why not elsewhere."""
    rows = run.hooks.fillna({"target": ""})
    lines = []
    for (name, target), of_hook in rows.groupby(["name", "target"], dropna=False, sort=False):
        attached = int(of_hook["attached"].sum())
        reasons = [str(reason) for reason in of_hook.loc[~of_hook["attached"], "reason"].dropna().unique()]
        state = (
            Cell("attached", state="ok")
            if attached == len(of_hook)
            else Cell("in part", state="none")
            if attached
            else Cell("missing", state="none")
        )
        lines.append(line(str(name), Cell(str(target), code=True), state, f"{attached} of {len(of_hook)}", "; ".join(reasons)))
    empty = why(summary, "hooks", "no probe reported, so nothing was measured from inside")
    table = Table("Hooks of the probe", columns("hook", "target", "state", "#processes", "why not"), tuple(lines), empty, prose=True)
    parts: list[Part] = [table]
    facts = [
        (str(name).replace("_", " "), _fact_values(of_fact["value"]))
        for name, of_fact in run.facts.groupby("name", sort=True)
        if name != "torch_trace"
    ]
    if facts:
        parts.append(Facts("Checked inside the run", tuple(facts)))
    intro = (
        "A hook that attached nowhere leaves its stage unmeasured: a stated gap, not a silent one. In part: some processes never import what "
        "it attaches to, and have nothing to measure there."
    )
    return Section("hooks", "Hooks and checks inside the run", "Hooks", intro, tuple(parts))


def _fact_values(values: Iterable[str]) -> str:
    """The distinct values of one fact, which every process may report."""
    return ", ".join(words.value_text(json.loads(value)) for value in dict.fromkeys(values))


# --- how to reproduce ----------------------------------------------------------------------------------------------


def reproduce_section(manifest: Manifest) -> Section:
    """Versions, hardware, commands and configurations."""
    times = manifest.times
    facts = [
        ("suite", f"{manifest.suite} at scale {manifest.scale}" + (f" ({manifest.scale_reason})" if manifest.scale_reason else "")),
        ("framework", f"{words.framework_name(manifest)}{f'; {manifest.simulated}' if manifest.simulated else ''}"),
        ("rlmbench", manifest.versions.rlmbench + (f", commit {manifest.versions.commit[:12]}" if manifest.versions.commit else "")),
        ("started", numbers.when(times.started_unix_s or times.created_unix_s)),
        ("took", numbers.seconds(times.wall_s, "the run has no end of its own")),
        ("repeat", str(manifest.repeat)),
        ("content hash", manifest.content_hash or numbers.absent()),
    ]
    parts: list[Part] = [Code("Run it again", words.again_command(manifest)), Facts("This run", tuple(facts))]
    machine = [
        *flat(manifest.host),
        *[entry for index, device in enumerate(manifest.devices) for entry in flat(device, f"device {index} ")],
    ]
    if not manifest.devices:
        machine.append(("devices", "none: the run used the CPU" if manifest.on_cpu else numbers.absent()))
    parts.append(Facts("Machine", tuple(machine)))
    for process in manifest.launch:
        environment = [f"{name}={shlex.quote(value)}" for name, value in process.env.items()]
        parts.append(Code(f"Process {process.name}", " ".join([*environment, shlex.join(process.argv)]), folded=True))
    parts.append(Code("Experiment as it ran", pretty(manifest.experiment), folded=True))
    if manifest.native:
        parts.append(Code("The framework's own configuration", pretty(manifest.native), folded=True))
    if manifest.environment and manifest.environment.packages:
        lines = tuple(line(name, Cell(version, code=True)) for name, version in sorted(manifest.environment.packages.items()))
        parts.append(Folded(Table("Packages of the framework's environment", columns("package", "version"), lines)))
    return Section("reproduce", "Versions, hardware and commands", "Reproduce", "", tuple(parts))


def flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """A mapping as names and texts; bytes in binary units."""
    rows = []
    for name, value in values.items():
        is_size = name.endswith("_bytes") and (value is None or isinstance(value, int | float))
        label = name.removesuffix("_bytes") if is_size else name
        text = numbers.size(value) if is_size else numbers.absent() if value is None else _short_text(value)
        rows.append((prefix + label.replace("_", " "), text))
    return rows


def _short_text(value: Any) -> str:
    """A value, or several with a comma; fractions to three digits, as of a load average."""
    if isinstance(value, list) and value and all(isinstance(one, float) for one in value):
        return ", ".join(numbers.significant(one) for one in value)
    return words.value_text(value)


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
