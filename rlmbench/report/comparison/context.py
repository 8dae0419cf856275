"""The chapters around the figures: in what the configurations differ, every run and how it ended, and how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rlmbench.comparison.configurations import versions_of
from rlmbench.comparison.evidence import Evidence
from rlmbench.comparison.figures import Comparison
from rlmbench.comparison.knowledge import EFFECTS
from rlmbench.records.manifest import Failure
from rlmbench.report import numbers, sections
from rlmbench.report.comparison import words
from rlmbench.report.comparison.measured import heads
from rlmbench.report.comparison.members import MOST_DRAWN, Member, drawn
from rlmbench.report.comparison.verdicts import folded_if_long
from rlmbench.report.palette import style_of
from rlmbench.report.parts import Cell, Code, Folded, Line, Note, Part, Section, State, Table, columns, line
from rlmbench.report.words import native_text, value_text

_EFFECT_STATES: dict[str, State] = {"work": "warn", "unknown": "warn", "numbers": "none", "neither": "none"}
_STATUS: dict[str, State] = {"ok": "ok", "failed": "bad", "interrupted": "warn"}
MOST_TAIL = 10


# --- in what they differ -------------------------------------------------------------------------------------------


def differences_section(comparison: Comparison, members: Sequence[Member]) -> Section:
    """What differs in effect, each thing once with what it changes; then settings of the users' own, and what was only approximated."""
    table = _differences_of_two(comparison) if len(comparison.pairs) == 1 else _differences_of_many(comparison)
    parts: list[Part] = [table]
    parts += [_ledger(member, "changed", "Settings of the user's own") for member in members if _entries(member, "changed")][:MOST_DRAWN]
    parts += [Folded(_ledger(member, "approximated", "Approximated")) for member in drawn(members) if _entries(member, "approximated")]
    intro = (
        "What each difference changes: the work (what is computed, so that time differs between frameworks that are equally good), the numbers "
        "(what the optimizer sees), or neither (how the same work is done, which is what one compares)."
    )
    return Section("differences", "In what they differ", "Differences", intro, tuple(parts))


def _present(tags: set[str]) -> tuple[str, ...]:
    return tuple(effect for effect in EFFECTS if effect in tags)


def _differences_of_two(comparison: Comparison) -> Table:
    (pair,) = comparison.pairs
    lines = tuple(
        line(
            Cell(one.changes, state=_EFFECT_STATES[one.changes]),
            one.subject,
            one.a,
            one.b,
            one.why,
            _unified(one.unify, one.changes),
            tag=one.changes,
        )
        for one in pair.differences
    )
    headings = columns("changes", "what", pair.a, pair.b, "why it matters", "made equal by")
    return Table(
        "Differences in effect", headings, lines, "nothing that was recorded", _present({one.changes for one in pair.differences}), True
    )


def _unified(unify: str | None, changes: str) -> str:
    return unify or ("not needed" if changes == "neither" else "no setting")


def _differences_of_many(comparison: Comparison) -> Table:
    merged = words.merged_differences(comparison)
    lines = tuple(
        line(
            Cell(one.difference.changes, state=_EFFECT_STATES[one.difference.changes]),
            one.text,
            one.difference.why,
            _unified(one.difference.unify, one.difference.changes),
            tag=one.difference.changes,
        )
        for one in merged[:200]
    )
    caption = "Differences in effect" if len(merged) <= 200 else f"Differences in effect: the first 200 of {len(merged):,}"
    headings = columns("changes", "what, and who has which", "why it matters", "made equal by")
    return Table(caption, headings, lines, "nothing that was recorded", _present({entry.tag for entry in lines}), True)


def _entries(member: Member, fidelity: str) -> list[dict[str, object]]:
    return [entry for entry in member.runs[-1].manifest.ledger if entry.get("fidelity") == fidelity]


def _ledger(member: Member, fidelity: str, title: str) -> Table:
    lines = tuple(
        line(
            Cell(str(entry.get("field")), code=True),
            Cell(value_text(entry.get("value")), code=True),
            Cell(native_text(entry), code=True),
            str(entry.get("reason") or ""),
        )
        for entry in _entries(member, fidelity)
    )
    return Table(f"{title}: {words.shortly(member.figures)}", columns("field", "asked for", "native", "reason"), lines, prose=True)


# --- every run -----------------------------------------------------------------------------------------------------


def runs_section(comparison: Comparison, members: Sequence[Member]) -> Section:
    """Runs that did not end well with their cause, then all runs, and those that were made again."""
    parts: list[Part] = []
    lost = [(member, run) for member in members for run in member.runs if not run.ok]
    if lost:
        headings = columns("", "run", "how it ended", "where", "what happened", "first cause")
        parts.append(folded_if_long(Table("Runs that did not end well", headings, tuple(_lost_line(*one) for one in lost), prose=True)))
        parts += [_tail(run) for _, run in lost[:3] if run.summary.failure and run.summary.failure.tail]
    rows = tuple(_run_line(member, place) for member in members for place in range(len(member.runs)))
    headings = columns("", "run", "status", "started", "#steps", "#step, s", "#tok/s", "audit", "#cores busy before")
    parts.append(folded_if_long(Table("All runs", headings, rows)))
    if (again := words.made_again(comparison)) is not None:
        parts.append(Note(words.sentence(again)))
    if drawn(members):
        parts.append(_cost_of_measuring(members))
    intro = "Every run that was asked for. One that did not end well is left out of all figures, and is listed."
    return Section("runs", "Runs and failures", "Runs", intro, tuple(parts))


def _cost_of_measuring(members: Sequence[Member]) -> Table:
    """Step time over step time without probe and collector, as the records cite it; the newest measurement of each configuration."""
    lines = []
    for member in drawn(members):
        cited = [run.manifest.harness_overhead for run in member.runs if run.manifest.harness_overhead is not None]
        if not cited:
            lines.append(line(member.key, words.NOT_GIVEN, words.NOT_GIVEN, "not measured there: rlmbench overhead"))
            continue
        newest = max(cited, key=lambda one: one.measured_unix_s)
        known = newest.low is not None and newest.high is not None
        interval = f"{newest.low:.3f} to {newest.high:.3f}" if known else words.NOT_GIVEN
        lines.append(
            line(member.key, f"{newest.ratio:.3f}", interval, f"{len(newest.ratios)} pairs of runs of {newest.suite} at {newest.scale}")
        )
    return Table(
        "What measuring cost: step time over that without probe and collector", columns("", "#median", "#95% interval", "of"), tuple(lines)
    )


def _lost_line(member: Member, run: Evidence) -> Line:
    failure = run.summary.failure
    where = _where(failure) if failure else []
    status = run.summary.status
    return line(
        member.key,
        Cell(run.id, code=True),
        Cell(words.end_word(status, run.summary.failure_class), state=_STATUS.get(status, "none")),
        ", ".join(where),
        failure.message if failure else "",
        Cell((failure.first_cause or "") if failure else "", code=True),
    )


def _where(failure: Failure) -> list[str]:
    step = None if failure.step is None else f"step {failure.step}" if failure.step else "before the first step"
    stage = style_of(failure.stage).label if failure.stage and failure.step else None
    return [word for word in (failure.phase, step, stage) if word]


def _tail(run: Evidence) -> Code:
    failure = run.summary.failure
    assert failure is not None
    again = f"\n\nagain: {failure.rerun_command}" if failure.rerun_command else ""
    return Code(f"Last lines of {run.id}", "\n".join(failure.tail[-MOST_TAIL:]) + again, folded=True)


def _run_line(member: Member, place: int) -> Line:
    figures, run = member.figures.runs[place], member.runs[place]
    audit = run.summary.audit
    return line(
        member.key,
        Cell(figures.id, code=True),
        Cell(figures.status, state=_STATUS.get(figures.status, "none")),
        numbers.when(run.manifest.times.created_unix_s),
        numbers.count(figures.measured_steps),
        words.NOT_GIVEN if figures.step_s is None else numbers.significant(figures.step_s),
        words.NOT_GIVEN if figures.tokens_per_s is None else numbers.significant(figures.tokens_per_s),
        Cell("none", state="none") if audit is None else Cell("passed", state="ok") if audit.ok else Cell("not passed", state="bad"),
        _others_before(run),
    )


def _others_before(run: Evidence) -> str:
    """How busy the machine was when the run began: measured, in older records by its load average."""
    measured = run.manifest.preconditions
    if measured is not None and measured.host_busy_share is not None:
        return numbers.share(measured.host_busy_share)
    load, cores = run.manifest.host.get("load"), run.manifest.host.get("cores")
    return f"load {load[0]:.2f} on {cores} cores" if load and cores else "–"


# --- how to do it again --------------------------------------------------------------------------------------------


def reproduce_section(members: Sequence[Member]) -> Section:
    """Commands, versions and hardware of each configuration; experiment and native configurations on demand."""
    shown = members[:MOST_DRAWN]
    commands = _commands(members)
    parts: list[Part] = [Code("Run it again", "\n".join([*commands[:20], _compare_command(members)]))]
    if len(commands) > 20:
        parts.append(Note(f"The first 20 of {len(commands)} commands; each run's folder holds its own."))
    facts = [_facts(member) for member in shown]
    packages = dict.fromkeys(name for member in shown for name in versions_of(member.runs[-1]))
    names = [*list(facts[0])[:4], *packages, *list(facts[0])[4:]]
    facts = [{**of, **versions_of(member.runs[-1])} for of, member in zip(facts, shown, strict=True)]
    parts.append(
        Table(
            "Versions and hardware",
            heads("", shown, number=False),
            tuple(line(name, *[of.get(name, "–") for of in facts]) for name in names),
        )
    )
    for member in shown:
        run = member.runs[-1]
        called = words.shortly(member.figures)
        parts.append(Code(f"{called}: experiment as it ran", sections.pretty(run.manifest.experiment), folded=True))
        if run.manifest.native:
            parts.append(Code(f"{called}: the framework's own configuration", sections.pretty(run.manifest.native), folded=True))
        for process in run.manifest.launch:
            environment = [f"{name}={shlex.quote(value)}" for name, value in process.env.items()]
            parts.append(Code(f"{called}: process {process.name}", " ".join([*environment, shlex.join(process.argv)]), folded=True))
    parts.append(Folded(_packages(shown)))
    return Section("reproduce", "Versions, hardware and commands", "Reproduce", "", tuple(parts))


def _commands(members: Sequence[Member]) -> list[str]:
    """How the runs are made again; frameworks that were asked for alike in one command, which interleaves them."""
    alike: dict[tuple[object, ...], list[Member]] = {}
    for member in members:
        manifest = member.runs[-1].manifest
        asked = (manifest.suite, manifest.scale, tuple(manifest.overrides), manifest.division, len(member.runs))
        twice = any(manifest.framework == other.figures.framework for other in alike.get(asked, ()))
        alike.setdefault((*asked, member.key) if twice or manifest.division == "tuned" else asked, []).append(member)
    return [_command(group) for group in alike.values()]


def _command(alike: Sequence[Member]) -> str:
    manifest, count = alike[0].runs[-1].manifest, len(alike[0].runs)
    given = ["rlmbench", "run", manifest.suite, "--scale", manifest.scale]
    for member in alike:
        given += ["--framework", member.figures.framework]
    for override in manifest.overrides:
        given += ["--set", override]
    own = f"  # {alike[0].key}: and --native FILE with the settings listed under Differences" if manifest.division == "tuned" else ""
    return shlex.join([*given, *(["--repeats", str(count)] if count > 1 else [])]) + own


def _compare_command(members: Sequence[Member]) -> str:
    return shlex.join(["rlmbench", "report", *dict.fromkeys(member.figures.suite for member in members)])


def _facts(member: Member) -> dict[str, str]:
    run = member.runs[-1]
    manifest = run.manifest
    host, environment = manifest.host, manifest.environment
    begun = [one.manifest.times.created_unix_s for one in member.runs]
    rlmbench = dict.fromkeys(
        one.manifest.versions.rlmbench + (f" ({one.manifest.versions.commit[:12]})" if one.manifest.versions.commit else "")
        for one in member.runs
    )
    memory = host.get("memory_bytes")
    return {
        "configuration": member.figures.name,
        "suite": f"{manifest.suite} at {manifest.scale}",
        "division": manifest.division,
        "environment": f"{environment.name} for {environment.device}" if environment else numbers.absent(),
        "rlmbench": ", ".join(rlmbench),
        "device": member.figures.device,
        "host memory": numbers.size(memory) if memory else numbers.absent(),
        "kernel": value_text(host.get("kernel")) or numbers.absent(),
        "hosts": ", ".join(
            dict.fromkeys(str(one.manifest.host.get("hostname")) for one in member.runs if one.manifest.host.get("hostname"))
        )
        or "–",
        "first run": numbers.when(min(begun)),
        "last run": numbers.when(max(begun)),
        "plan": run.plan_hash or numbers.absent(),
    }


def _packages(shown: Sequence[Member]) -> Table:
    """Every package of the environments whose version is not the same in all of them."""
    installed = [member.runs[-1].manifest.environment for member in shown]
    versions = [environment.packages if environment else {} for environment in installed]
    names = sorted({name for of in versions for name in of})
    lines = tuple(line(name, *[Cell(of.get(name, "–"), code=True) for of in versions]) for name in names)
    return Table("Packages of the environments", heads("package", shown, number=False), lines)
