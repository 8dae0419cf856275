"""Idle time, hosts, devices and energy of configurations beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlmbench.comparison.figures import Configuration, StageFigures
from rlmbench.report import numbers
from rlmbench.report.comparison.members import Member, drawn, left_out_note
from rlmbench.report.palette import in_order, style_of
from rlmbench.report.parts import Cell, Column, Line, Note, Part, Section, Table, line
from rlmbench.report.resources import FIVE_NAMES
from rlmbench.report.words import listed

NONE = "–"
Form = Callable[[float], str]
OF_CONFIGURATION: tuple[tuple[str, str, Form, Callable[[Configuration], float | None]], ...] = (
    ("energy per step", "of all devices", numbers.joules, lambda one: one.energy_j_per_step),
    ("energy per 1,000 response tokens", "of all devices", numbers.joules, lambda one: one.energy_j_per_1000_response_tokens),
    ("device memory", "highest of any device in a measured step, by the device", numbers.size, lambda one: one.device_peak_bytes),
    (
        "host memory",
        "highest of any node in a measured step: all processes, shared pages counted once; read rarely, so some runs have none",
        numbers.size,
        lambda one: one.host_pss_peak_bytes,
    ),
    ("used by others", "cores kept busy by what was not part of the run", numbers.cores, lambda one: one.others_cpu_cores),
)
"""Name, definition, how it is written, and the figure."""
OF_STAGE: tuple[tuple[str, Form, Callable[[StageFigures], float | None]], ...] = (
    ("cpu_idle per stage", numbers.share, lambda stage: stage.cpu_idle),
    ("Host memory per stage: resident sets of a node's processes, added up", numbers.size, lambda stage: stage.host_rss_peak_bytes),
    ("Device memory per stage", numbers.size, lambda stage: stage.device_peak_bytes),
    ("Energy per stage of a step", numbers.joules, lambda stage: stage.energy_j),
)


def idle_table(shown: Sequence[Member]) -> Table:
    """Idle time by its five names; means over the runs that have it."""
    lines = []
    for name, of_what in FIVE_NAMES:
        cells = [_waiting(member) if name == "role_waiting" else _idle(member, name) for member in shown]
        lines.append(line(Cell(name, code=True), *cells, of_what))
    return Table(
        "Idle time by its five names",
        (Column("name"), *(Column(member.key) for member in shown), Column("share of what")),
        tuple(lines),
        prose=True,
    )


def _idle(member: Member, name: str) -> str:
    value = member.mean(lambda run: getattr(run.summary.idle, name, None))
    return numbers.share(value, member.typical.summary.absent.get(f"idle.{name}"))


def _waiting(member: Member) -> str:
    """By role, of the typical run."""
    idle, absent = member.typical.summary.idle, member.typical.summary.absent
    if idle is None or not idle.roles:
        return numbers.absent(absent.get("idle.roles") or absent.get("idle"))
    return ", ".join(f"{role.role} {numbers.share(role.role_waiting)}" for role in idle.roles)


def resources_section(members: Sequence[Member]) -> Section:
    """Energy, memory and CPU of each configuration, as a whole and by stage."""
    shown = drawn(members)
    lines = []
    for name, definition, form, figure in OF_CONFIGURATION:
        figures = [figure(member.figures) for member in shown]
        if any(value is not None for value in figures):
            lines.append(line(name, *map(_written(form, figures), figures), definition))
    parts: list[Part] = [Note(text) for text in (left_out_note(members),) if text]
    if lines:
        heads = (Column("what"), *(Column(member.key, True) for member in shown), Column("definition"))
        parts.append(Table("Hosts and devices: means over runs, or their highest", heads, tuple(lines), prose=True))
    for title, form, of_stage in OF_STAGE:
        rows = _stage_lines(shown, form, of_stage)
        if rows:
            parts.append(Table(title, (Column("stage"), *(Column(member.key, True) for member in shown)), tuple(rows)))
    parts += [Note(text) for text in _absent(shown)]
    if not parts:
        parts.append(Note("No run ended well, so there are no figures."))
    intro = (
        "What collectors saw from outside during the measured steps. A stage has what was used while any process ran it; of stages that run "
        "at once each counts it. How sure a stage's figures are stands on the page of each run."
    )
    return Section("resources", "Hosts, devices and energy", "Resources", intro, tuple(parts))


def _stage_lines(shown: Sequence[Member], form: Form, figure: Callable[[StageFigures], float | None]) -> list[Line]:
    stages = in_order({name for member in shown for name, stage in member.figures.stages.items() if figure(stage) is not None})
    figures = [[figure(stage) if (stage := member.figures.stages.get(name)) else None for member in shown] for name in stages]
    written = _written(form, [value for of_stage in figures for value in of_stage])
    rows = zip(stages, figures, strict=True)
    return [line(Cell(style_of(name).label, colour=style_of(name).colour), *map(written, of_stage)) for name, of_stage in rows]


def _absent(shown: Sequence[Member]) -> list[str]:
    """Which configurations have no energy, or nothing at all, and why; those with one reason together."""
    who: dict[tuple[str, str], list[str]] = {}
    for member in shown:
        for what, field in (("readings", "host"), ("energy", "energy")):
            if (reason := member.typical.summary.absent.get(field)) is not None:
                who.setdefault((what, reason), []).append(member.key)
                break
    return [f"No {what} of {listed(keys)}: {reason}." for (what, reason), keys in who.items()]


def _written(form: Form, values: Sequence[float | None]) -> Callable[[float | None], str]:
    """How figures that stand beside each other are written: sizes in one unit."""
    one = numbers.sizes(values) if form is numbers.size else form
    return lambda value: NONE if value is None else one(value)
