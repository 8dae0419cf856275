"""A run's page: the headline, what ended the run if it failed, and the chapters in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlmbench.report import numbers, resources, sections, words
from rlmbench.report.advice import advice_section
from rlmbench.report.efficiency import efficiency_section
from rlmbench.report.glossary import GLOSSARY
from rlmbench.report.palette import in_order, style_of
from rlmbench.report.parts import Download, Failing, Page, Share, Tile
from rlmbench.report.prediction import beside_parts
from rlmbench.report.profile import profile_sections
from rlmbench.report.taxonomy import taxonomy_sections
from rlmbench.report.trust import checks, excluded_text
from rlmbench.report.whatif import what_if_parts

if TYPE_CHECKING:
    from rlmbench.metrics import RunSummary
    from rlmbench.records import Manifest, Run


def run_page(run: Run, summary: RunSummary) -> Page:
    """The page of one run, finished or not."""
    manifest = run.manifest
    return Page(
        title=f"{manifest.suite} · {words.framework_name(manifest)}",
        subtitle=_subtitle(run, manifest),
        status=words.status_state(summary),
        status_word=words.status_word(summary),
        device_label=manifest.device_label,
        lead=words.lead(summary),
        checks=checks(summary, manifest),
        tiles=_tiles(summary, manifest),
        shares=_shares(summary),
        share_note=_share_note(summary),
        failing=_failing(summary, manifest),
        sections=(
            sections.time_section(summary),
            sections.timeline_section(run, summary),
            *profile_sections(run, summary),
            sections.work_section(run, summary),
            sections.throughput_section(summary, manifest),
            efficiency_section(summary, beside_parts(manifest.prediction, summary)),
            sections.memory_section(summary),
            resources.idle_section(summary),
            resources.resources_section(summary, run),
            advice_section(summary, what_if_parts(run, summary) if manifest.pass_ == "measure" else ()),
            sections.learning_section(run, summary),
            sections.ledger_section(manifest),
            *taxonomy_sections([manifest.framework]),
            sections.audit_section(run, summary),
            sections.hooks_section(run, summary),
            sections.reproduce_section(manifest),
        ),
        glossary=GLOSSARY,
        downloads=(
            Download(
                "data",
                "Download as JSON",
                f"{run.id}.json",
                {"summary": summary.model_dump(mode="json"), "manifest": manifest.model_dump(mode="json")},
            ),
        ),
    )


def _subtitle(run: Run, manifest: Manifest) -> str:
    experiment = manifest.experiment
    model = experiment.get("model", {})
    name = model.get("shape") or model.get("hub") or model.get("path") or "unknown model"
    algorithm = str(experiment.get("optimization", {}).get("algorithm", "")).upper()
    workload = "replayed lengths and rewards" if experiment.get("workload", {}).get("replay") else "natural lengths and rewards"
    weights = " with random weights" if model.get("shape") else ""
    words_ = [f"scale {manifest.scale}", algorithm, f"model {name}{weights}", workload, numbers.when(manifest.times.created_unix_s), run.id]
    return " · ".join(word for word in words_ if word)


def _tiles(summary: RunSummary, manifest: Manifest) -> tuple[Tile, ...]:
    step, rates = summary.step_s, summary.throughput
    no_step = sections.why(summary, "step_s", "no step was measured")
    no_rate = sections.why(summary, "throughput", "no step was measured")
    spread = (
        f"median; {words.unbroken(numbers.seconds(step.min))} to {words.unbroken(numbers.seconds(step.max))}"
        if step.median is not None and summary.measured_steps > 1
        else ""
    )
    devices = words.devices_held(rates.devices, manifest) if rates else ""
    left_out = (
        f"of {summary.completed_steps:,}; left out: {excluded_text(summary)}"
        if summary.excluded_steps
        else f"of {summary.completed_steps:,} finished"
    )
    coverage, probe = summary.coverage, summary.probe_overhead
    return (
        Tile("Step time", *_figure(numbers.seconds(step.median, no_step)), spread),
        Tile(
            "Step tokens",
            *_figure(numbers.rate(rates.step_tokens_per_s if rates else None, "tokens", no_rate)),
            f"prompt + response, {devices}" if rates else "",
        ),
        Tile("Samples", *_figure(numbers.rate(rates.samples_per_s if rates else None, "samples", no_rate)), "trained" if rates else ""),
        Tile(
            "Coverage",
            numbers.share(coverage.median, no_step),
            note=f"lowest {numbers.share(coverage.min)}" if coverage.min is not None else "",
        ),
        Tile("Measured steps", numbers.count(summary.measured_steps), note=left_out),
        Tile(
            "Probe overhead",
            numbers.share(probe, sections.why(summary, "probe_overhead")),
            note="of step time" if probe is not None else "",
        ),
    )


def _figure(text: str) -> tuple[str, str]:
    """A figure and its unit apart; an absent one stays whole."""
    value, _, unit = text.partition(" ")
    return (text, "") if text.startswith("n/a") else (value, unit)


def _shares(summary: RunSummary) -> tuple[Share, ...]:
    measured = [step for step in summary.steps if not step.excluded]
    total_s = sum(step.step_s for step in measured)
    if not total_s:
        return ()
    parts = {**summary.stages_share, "unattributed": sum(step.unattributed_s for step in measured) / total_s}
    medians = {**summary.stages_s, "unattributed": summary.unattributed_s}
    return tuple(
        Share(style_of(stage).label, style_of(stage).colour, numbers.seconds(medians.get(stage)), numbers.share(parts[stage]), parts[stage])
        for stage in in_order(set(parts))
    )


def _share_note(summary: RunSummary) -> str:
    note = "Median seconds per step, and share of all measured time."
    return f"{note} Stages overlap, so the shares add up to more than 100%." if words.overlaps(summary.overlap_s) else note


def _failing(summary: RunSummary, manifest: Manifest) -> Failing | None:
    failure = summary.failure
    if failure is None:
        return None
    candidates = (
        ("phase", failure.phase),
        ("step", None if failure.step is None else "before the first" if failure.step == 0 else str(failure.step)),
        ("stage", style_of(failure.stage).label if failure.stage else None),
        ("signal", failure.signal),
        ("exit code", None if failure.exit_code is None else str(failure.exit_code)),
    )
    return Failing(
        title=f"How it ended: {words.plain_class(failure.failure_class)}",
        message=failure.message,
        facts=tuple((name, value) for name, value in candidates if value is not None),
        cause=failure.first_cause,
        tail=tuple(failure.tail),
        log_path=failure.log_path,
        command=words.again_command(manifest),
    )
