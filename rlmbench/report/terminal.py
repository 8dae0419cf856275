"""Runs in the terminal: readable at 80 columns and without colour. Texts of a record are never taken for markup."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlmbench.errors import UserError
from rlmbench.records.vocabulary import CPU_LABEL
from rlmbench.report import efficiency, numbers, resources, words
from rlmbench.report.advice import print_advice
from rlmbench.report.agreement import print_agreement
from rlmbench.report.console_parts import fitting
from rlmbench.report.console_parts import hanging as _hanging
from rlmbench.report.console_parts import heading as _heading
from rlmbench.report.console_parts import say as _say
from rlmbench.report.console_parts import table as _table
from rlmbench.report.console_parts import text as _text
from rlmbench.report.console_parts import to_copy as _to_copy
from rlmbench.report.palette import in_order, style_of
from rlmbench.report.prediction import print_beside
from rlmbench.report.profile import print_profile, profile_run_of
from rlmbench.report.trust import checks, measured_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rlmbench.metrics import RunSummary
    from rlmbench.metrics.figures import Amount, Idle
    from rlmbench.metrics.native import NativeFigure
    from rlmbench.records import Manifest, Run

BAR_WIDTH = 16
LOG_LINES = 10
_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red", "none": "dim"}
_MARKS = {"ok": "ok ", "warn": "!  ", "bad": "X  ", "none": "-  "}
_SPARED = ("#probe", "#smp/s", "#cover")
"""Columns that a narrow terminal does without, in this order."""
_MEMORY = ("torch_reserved_peak_bytes", "rss_peak_bytes")
"""What stands for a stage's memory, the first that was recorded: the device's, else the host's."""


def print_runs(summaries: Sequence[RunSummary], console: Console) -> None:
    """Each run's stages, lengths, native figures, approximations and failure, around one table for all runs.

    A single run has its line first; of several the table comes last, with what they agree in, where a terminal still shows it.
    """
    if not summaries:
        console.print("No run was made, so there is nothing to show.", markup=False)
        return
    several = len(summaries) > 1
    if not several:
        console.print(_overview(summaries, console.width))
    for place, summary in enumerate(summaries, start=1):
        _heading(console, f"[{place}] {summary.id}")
        _print_run(summary, _manifest_of(summary), console)
    if several:
        _heading(console, f"{len(summaries)} runs")
        console.print(_overview(summaries, console.width))
        measured = [summary for summary in summaries if summary.run_pass == "measure"]
        if len({summary.variant for summary in measured}) == 1:  # variants of a sweep are not meant to agree
            print_agreement(measured, console)


def print_run_detail(run: Run, summary: RunSummary, console: Console, *, whole_ledger: bool = False) -> None:
    """One run with its checks and every step, and on demand the whole ledger."""
    manifest = run.manifest
    _heading(console, f"{manifest.suite} at {manifest.scale}, {words.framework_name(manifest)}: {words.status_word(summary)}")
    _say(console, words.lead(summary))
    if manifest.on_cpu and not manifest.simulated:
        _say(console, CPU_LABEL, "yellow")
    console.print()
    for check in checks(summary, manifest):
        _hanging(console, _MARKS[check.state], f"{check.name}: {check.text}", _STYLES[check.state])
    console.print()
    console.print(_overview([summary], console.width))
    _print_run(summary, manifest, console)
    if summary.workers:
        console.print(_workers(summary))
    if summary.idle is not None:
        _print_idle(summary, summary.idle, console)
    _print_resources(summary, console)
    _print_efficiency(summary, console)
    if manifest.prediction is not None and summary.run_pass == "measure":
        print_beside(manifest.prediction, summary, console)
    print_advice(summary, console)
    if summary.steps:
        console.print(_steps(summary))
    if (beside := profile_run_of(run)) is not None:
        _to_copy(console, "profile: ", shlex.join(["rlmbench", "show", beside.id]))
    if manifest.ledger and whole_ledger:
        print_ledger(manifest.ledger, console)
    elif manifest.ledger:
        _say(console, f"Fidelity ledger: {len(manifest.ledger)} fields, what is not exact stands above; --ledger lists them all")
    _to_copy(console, "folder: ", str(run.path))
    if summary.failure is None:  # a failure has said so already
        _to_copy(console, "again:  ", words.again_command(manifest))


def print_ledger(entries: Iterable[Mapping[str, Any]], console: Console) -> None:
    """Every field of the experiment: what was asked for, how faithfully it is met, the native key, and why.

    `entries` are `rlmbench.adapter.LedgerEntry` as mappings, the least faithful shown first.
    """
    order = ("unsupported", "changed", "approximated", "exact")
    listed = sorted(entries, key=lambda entry: order.index(str(entry["fidelity"])))
    table = _table("fidelity", "field = asked for", "native", title=f"Fidelity ledger ({len(listed)} fields)")
    styles = {"exact": "", "changed": "magenta", "approximated": "yellow", "unsupported": "bold red"}
    for entry in listed:
        asked = f"{entry['field']} = {words.value_text(entry['value'])}"
        native = words.native_text(entry)
        told = "\n".join(text for text in (native, str(entry.get("reason") or "")) if text)
        table.add_row(_text(entry["fidelity"], styles[str(entry["fidelity"])]), _text(asked), _text(told))
    console.print(table)


def _overview(summaries: Sequence[RunSummary], width: int) -> Table:
    """The runs side by side. Their ids stand in the table only where all columns fit beside them."""
    longest = max(len(summary.id) for summary in summaries)
    named = width >= 84 + longest
    rows = [_overview_cells(summary, summary.id if named else f"[{place}]") for place, summary in enumerate(summaries, start=1)]
    return fitting({name: [row[name] for row in rows] for name in rows[0]}, _SPARED, width)[0]


def _overview_cells(summary: RunSummary, name: str) -> dict[str, Any]:
    rates = summary.throughput
    return {
        "run": _text(name),
        "framework": _text(words.summary_name(summary)),
        "status": _text(summary.status, _STYLES[words.status_state(summary)]),
        "audit": _audit(summary),
        "#steps": _text(f"{summary.measured_steps}/{summary.completed_steps}"),
        "#step s": _text(_short(summary.step_s.median, numbers.significant)),
        "#cover": _text(_short(summary.coverage.median, numbers.share)),
        "#tok/s": _text(_short(rates.step_tokens_per_s if rates else None, numbers.significant)),
        "#smp/s": _text(_short(rates.samples_per_s if rates else None, numbers.significant)),
        "#probe": _text(_short(summary.probe_overhead, numbers.share)),
    }


def _short(value: float | None, form: Callable[[float], str]) -> str:
    """A figure in a narrow column; why it is absent is said below the table."""
    return "n/a" if value is None else form(value)


def _audit(summary: RunSummary) -> Any:
    if summary.audit is None:
        return _text("n/a", "dim")
    if not summary.audit.ok and words.unfinished(summary):
        return _text("partial", "yellow")
    return _text("ok", "green") if summary.audit.ok else _text("FAILED", "bold red")


def _print_run(summary: RunSummary, manifest: Manifest | None, console: Console) -> None:
    if manifest is not None and manifest.simulated:
        _say(console, manifest.simulated, "yellow")
    if summary.failure is not None:
        _print_failure(summary, manifest, console)
    reasons = {
        figure: summary.absent[figure]
        for figure in ("step_s", "throughput", "coverage", "probe_overhead", "audit")
        if figure in summary.absent
    }
    for reason in dict.fromkeys(reasons.values()):
        names = ", ".join(figure for figure, given in reasons.items() if given == reason)
        _hanging(console, "n/a:    ", f"{names}: {reason}")
    _hanging(console, "steps:  ", measured_text(summary))
    if summary.audit is not None and not summary.audit.ok and not words.unfinished(summary):
        for mismatch in summary.audit.mismatches[:5]:
            _hanging(console, "audit:  ", mismatch, "bold red")
    for violation in summary.violations:
        _hanging(console, "wrong:  ", violation, "bold red")
    if summary.run_pass == "profile":
        _hanging(console, "profile: ", words.SLOWED, "yellow")
    if summary.stages_s:
        console.print(_stages(summary, console.width))
    print_profile(summary, console)
    if summary.memory.run_peak_pss_bytes is not None:
        _hanging(console, "memory: ", words.run_memory(summary.memory.run_peak_pss_bytes))
    if (energy := resources.energy_text(summary)) is not None:
        _hanging(console, "energy: ", energy)
    if summary.lengths is not None:
        lengths = summary.lengths
        _hanging(
            console,
            "lengths: ",
            f"{lengths.samples:,} responses of {lengths.minimum:,} to {lengths.maximum:,} tokens: mean {lengths.mean:,.1f}, "
            f"p50 {numbers.count(lengths.p50)}, p90 {numbers.count(lengths.p90)}, p99 {numbers.count(lengths.p99)}, "
            f"{numbers.share(lengths.share_at_cap)} at the cap",
        )
    staleness = summary.learning.native.get("staleness")
    if staleness is not None and staleness.value > 0:
        _hanging(console, "staleness: ", f"{numbers.plain(staleness.value)} policy updates behind on average ({staleness.key})")
    if _compared(summary):
        console.print(_native(summary))
        for key, figure in _compared(summary):
            if figure.reason:
                _hanging(console, "  ", f"{key}: {figure.reason}", "dim")
    if manifest is not None:
        for entry in manifest.ledger:
            if entry.get("fidelity") != "exact":
                _hanging(console, f"{entry.get('fidelity')}: ", f"{entry.get('field')}: {entry.get('reason')}", "yellow")
    console.print()


def _stages(summary: RunSummary, width: int) -> Table:
    measured = [step for step in summary.steps if not step.excluded]
    total_s = sum(step.step_s for step in measured)
    gap = sum(step.unattributed_s for step in measured) / total_s if total_s else 0.0
    shares = {**summary.stages_share, "unattributed": gap}
    medians = {**summary.stages_s, "unattributed": summary.unattributed_s}
    largest = max(shares.values()) or 1.0
    highest = {stage: next((peaks[kind] for kind in _MEMORY if kind in peaks), None) for stage, peaks in summary.memory.peak_bytes.items()}
    written = numbers.sizes(highest.values())
    stages = in_order(set(shares))
    paddings, peaks = [summary.padding.get(stage) for stage in stages], [highest.get(stage) for stage in stages]
    columns = {
        "stage": [style_of(stage).label for stage in stages],
        "#median s": [numbers.fixed_seconds(medians.get(stage)) for stage in stages],
        "#share": [numbers.share(shares[stage]) for stage in stages],
        "": [_bar(shares[stage] / largest) for stage in stages],
        "#tok/step": [numbers.count(round(of.computed_tokens / len(measured))) if of and measured else "" for of in paddings],
        "#peak memory": [written(peak) if peak is not None else "" for peak in peaks],
    }
    table, _ = fitting(columns, ("",), width, "Where a measured step's time goes")
    twice = f"Stages run at once for {numbers.seconds(summary.overlap_s)} of a step, so that shares add up to more than 100%. "
    table.caption = _text(
        "Seconds are medians over the measured steps, so they need not add up; shares are of all their time together. "
        f"{twice if words.overlaps(summary.overlap_s) else ''}Tokens are those computed, padding included, "
        "on average per measured step. Memory is the device's reserved peak, or the host's RSS.",
        "dim",
    )
    table.caption_justify = "left"
    return table


def _workers(summary: RunSummary) -> Table:
    """What each kind of process did meanwhile: more than one rank shows how evenly."""
    table = _table("stage", "process", "#number", "#least s", "#median s", "#most s", title="Busy seconds of a measured step, by process")
    for worker in words.workers_in_order(summary):
        seconds = [numbers.fixed_seconds(value) for value in (worker.min_s, worker.median_s, worker.max_s)]
        table.add_row(*[_text(cell) for cell in (style_of(worker.stage).label, worker.role, str(worker.processes), *seconds)])
    return table


def _print_idle(summary: RunSummary, idle: Idle, console: Console) -> None:
    """Idle time by its five names, how long each role had nothing to do, by its spans, and the end of generation."""
    no_tail = summary.absent.get("idle.tail")
    _say(console, "Idle time of the measured steps, by name", "bold")
    for name, share, of_what in resources.idle_rows(summary):
        _hanging(console, f"  {name:<21} ", share if share.startswith("n/a") else f"{share}: {of_what}", "")
    if idle.roles:
        table = _table("role", "#processes", "#busy s", "#waiting", "#bubbles", "#longest s", title="Waiting in a measured step, by role")
        for role in idle.roles:
            bubbles = (numbers.significant(role.bubbles.per_step), numbers.fixed_seconds(role.bubbles.longest_s))
            cells = (role.role, str(role.processes), numbers.fixed_seconds(role.busy_s), numbers.share(role.role_waiting), *bubbles)
            table.add_row(*[_text(cell) for cell in cells])
        table.caption = _text("Means. Waiting: no process of the role runs a stage. Bubbles: stretches of it of 1 ms or longer.", "dim")
        table.caption_justify = "left"
        console.print(table)
    if idle.tail is not None:
        tail = f"{numbers.seconds(idle.tail.tail_s)} per step, {numbers.share(idle.tail.tail_share)} of generation"
        _hanging(console, "tail:   ", f"{tail}, with fewer than a tenth of a step's samples unfinished")
    elif no_tail is not None:
        _hanging(console, "tail:   ", f"n/a ({no_tail})", "dim")


def _print_resources(summary: RunSummary, console: Console) -> None:
    """What the run took of its hosts and devices, by the collectors."""
    for host in summary.host:
        # PSS is dear to read, and so rarely read that no reading may lie within a stage.
        looked_for_pss = any(one.pss_bytes is not None for one in host.stages.values())
        heads = ("stage", "#cores", "#cpu_idle", "#RSS", *(["#PSS"] if looked_for_pss else []))
        table = _table(*heads, title=f"Host {host.node}, {host.cores or '?'} cores: the run's processes")
        for stage in in_order(set(host.stages)):
            one = host.stages[stage]
            levels = (one.rss_bytes, one.pss_bytes)[: len(heads) - 3]
            memory = [numbers.size(level.peak) if level is not None else "" for level in levels]
            idle = resources.about(one.cpu_s, numbers.share(one.cpu_idle)) if one.cpu_idle is not None else ""
            table.add_row(*[_text(cell) for cell in (style_of(stage).label, resources.cores_text(one.cpu_s, one.seconds), idle, *memory)])
        table.caption = _text(
            "Cores: in use on average; ~: the stage is shorter than the time between two readings. Memory: highest sum over all processes meanwhile; "
            "in RSS a shared page counts in each process, in PSS once.",
            "dim",
        )
        table.caption_justify = "left"
        console.print(table)
        if host.others_cpu_cores is not None:
            _hanging(
                console, "others: ", f"{numbers.significant(host.others_cpu_cores)} cores of {host.node} were busy with something else"
            )
        if host.pss_growth_bytes_per_step is not None:
            _hanging(console, "growth: ", f"PSS {resources.growth_text(host.pss_growth_bytes_per_step)} per step")
    for device in summary.devices:
        title = f"Device {device.device} on {device.node}"
        table = _table("stage", "#memory", "#power", "#low_sm", "#tensor", "#nvml_kernel_present", title=title)
        for stage in in_order(set(device.stages)):
            of = device.stages[stage]
            shares = [numbers.share(value) if value is not None else "" for value in (of.low_sm, of.tensor_active, of.nvml_kernel_present)]
            memory_peak = numbers.size(of.memory_used_bytes.peak) if of.memory_used_bytes is not None else ""
            power = f"{of.power_w.mean:,.0f} W" if of.power_w is not None else ""
            table.add_row(*[_text(cell) for cell in (style_of(stage).label, memory_peak, power, *shares)])
        console.print(table)
        _hanging(console, "throttled: ", resources.throttled_text(device))
    _print_energy(summary, console)
    for collector in summary.collectors:
        _hanging(console, "collector: ", f"{collector.node}: {resources.collector_text(collector)}")


def _print_efficiency(summary: RunSummary, console: Console) -> None:
    """FLOPs of each stage, and the shares of what the devices could do; two tables, since one would not fit 80 columns."""
    found = summary.efficiency
    if found is None:
        _hanging(console, "efficiency: ", numbers.absent(summary.absent.get("efficiency")), "dim")
        return
    table = _table("stage", "#model FLOPs", "#achieved", "#FLOP/byte", title="Efficiency, per measured step")
    listed = list(efficiency.rows(found))
    for stage, cells in listed:
        table.add_row(*[_text(cell) for cell in (style_of(stage).label, *cells[:3])])
    console.print(table)
    for place, one in enumerate(found.against):
        table = _table("stage", "#MFU", "#HFU", "#MBU", "#roofline", title=f"Against {one.basis} ceilings")
        for stage, cells in listed:
            table.add_row(*[_text(cell) for cell in (style_of(stage).label, *cells[3 + 4 * place : 7 + 4 * place])])
        console.print(table)
    for name, told in efficiency.step_lines(summary, found):
        _hanging(console, f"{name}: ", told)


def _print_energy(summary: RunSummary, console: Console) -> None:
    energy = summary.energy
    if energy is None:
        if "energy" in summary.absent:
            _hanging(console, "energy: ", numbers.absent(summary.absent["energy"]), "dim")
        return
    _say(console, "Energy of a measured step, by stage (and between which bounds it lies)", "bold")
    for stage in in_order(set(energy.stages_j)):
        _hanging(console, f"  {style_of(stage).label:<21} ", _energy_of(energy.stages_j[stage]))
    _hanging(console, "  no stage              ", _energy_of(energy.no_stage_j))


def _energy_of(amount: Amount | None) -> str:
    return f"{resources.amount_text(amount, numbers.joules)} ({resources.bounds_text(amount, numbers.joules)})"


def _bar(part: float) -> str:
    """A bar of eighths of a character; anything above nothing leaves a trace."""
    eighths = max(1 if part > 0 else 0, round(part * BAR_WIDTH * 8))
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _native(summary: RunSummary) -> Table:
    """Side by side; why they differ stands below the table, where there is room for a sentence."""
    table = _table("native figure", "#mean", "ours", "#value", "#ratio", title="The framework's own figures beside ours")
    for key, figure in _compared(summary):
        ours = figure.mean / figure.ratio if figure.ratio else None
        cells = (key, numbers.plain(figure.mean), figure.canonical or "", numbers.plain(ours), numbers.ratio(figure.ratio))
        table.add_row(*[_text(cell) for cell in cells])
    return table


def _compared(summary: RunSummary) -> list[tuple[str, NativeFigure]]:
    return [(key, figure) for key, figure in sorted(summary.native.items()) if figure.canonical is not None and figure.ratio is not None]


def _steps(summary: RunSummary) -> Table:
    table = _table("#step", "#seconds", "#coverage", "#samples", "#response tok", "#tok/s", "left out because", title="Steps")
    for step in summary.steps:
        cells = (
            str(step.step),
            numbers.fixed_seconds(step.step_s),
            _short(step.coverage, numbers.share),
            _short(step.samples, numbers.count),
            _short(step.response_tokens, numbers.count),
            _short(step.tokens_per_s, numbers.significant),
            step.excluded or "",
        )
        table.add_row(*[_text(cell, "dim" if step.excluded else "") for cell in cells])
    return table


def _print_failure(summary: RunSummary, manifest: Manifest | None, console: Console) -> None:
    failure = summary.failure
    assert failure is not None
    kind = words.plain_class(failure.failure_class)
    message = failure.message if failure.message.startswith(kind) else f"{kind}: {failure.message}"
    if message.startswith(summary.status):
        _say(console, message, "bold red")
    else:
        _hanging(console, f"{summary.status}: ", message, "bold red")
    ended = failure.signal or (None if failure.exit_code is None else f"exit code {failure.exit_code}")
    where = [("phase", failure.phase), ("step", failure.step), ("stage", failure.stage), ("ended by", ended)]
    known = ", ".join(f"{name} {value}" for name, value in where if value is not None)
    if known:
        _hanging(console, "where:  ", known)
    if failure.first_cause:
        _hanging(console, "cause:  ", failure.first_cause)
    if failure.log_path:
        _to_copy(console, "log:    ", str(Path(summary.path) / failure.log_path))
    for text in failure.tail[-LOG_LINES:]:
        _hanging(console, "  | ", text, "dim")
    command = words.again_command(manifest) if manifest is not None else failure.rerun_command
    if command:
        _to_copy(console, "again:  ", command)


def _manifest_of(summary: RunSummary) -> Manifest | None:
    """The record behind a summary, or None where it lies elsewhere: its ledger is then not shown."""
    from rlmbench.records import read_manifest

    try:
        return read_manifest(Path(summary.path))
    except UserError:
        return None
