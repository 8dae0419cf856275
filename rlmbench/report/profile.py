"""A profile pass in the terminal and on the page: one table, whose rows are processes and below each its stages."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlmbench.errors import UserError
from rlmbench.records.manifest import MANIFEST
from rlmbench.records.store import TRACES, Run
from rlmbench.report import numbers, words
from rlmbench.report.console_parts import hanging, table, text, to_copy
from rlmbench.report.palette import style_of
from rlmbench.report.parts import Cell, Code, Note, Part, Section, Table, columns, line

if TYPE_CHECKING:
    from rich.console import Console

    from rlmbench.metrics import RunSummary
    from rlmbench.metrics.profile import ProfiledDevice, ProfileFigures, TracedCpu, TracedDevice, TracedStage


@dataclass(frozen=True)
class Row:
    """A process, or (`is_stage`) one of its stages: what is shown, in the order of the columns."""

    name: str
    figures: tuple[str, ...]
    is_stage: bool = False


ON_DEVICES = ("#seconds", "#no kernel", "#exposed comm.", "#compute s", "#comm. s", "#copy s")
ON_CPU = ("#seconds", "#calls", "#operator s")


def rows_on_devices(profile: ProfileFigures) -> list[Row]:
    """Each device over all its processes, then processes with a device in their trace, a row for each device, and stages below."""
    rows = [Row(f"{one.device}, all processes", _on_device(one.window_s, one)) for one in profile.devices if len(one.workers) > 1]
    for worker in profile.workers:
        for device in worker.devices:
            which = f", device {device.index}" if len(worker.devices) > 1 else ""
            rows.append(Row(worker.worker + which, _on_device(device.window_s, device)))
            rows += [Row(_stage(stage.stage), _on_device(stage.seconds, stage), is_stage=True) for stage in device.stages]
    return rows


def _on_device(seconds: float, of: ProfiledDevice | TracedDevice | TracedStage) -> tuple[str, ...]:
    busy = [numbers.fixed_seconds(value) for value in (of.compute_s, of.communication_s, of.copy_s)]
    return (numbers.fixed_seconds(seconds), numbers.share(of.no_kernel), numbers.share(of.exposed_communication), *busy)


def rows_on_cpu(profile: ProfileFigures) -> list[Row]:
    """Processes without a device in their trace, and stages below."""
    rows = []
    for worker in profile.workers:
        if worker.cpu is not None:
            cpu: TracedCpu = worker.cpu
            rows.append(Row(worker.worker, (numbers.fixed_seconds(cpu.window_s), "", numbers.fixed_seconds(cpu.operator_s))))
            for stage in cpu.stages:
                figures = (numbers.fixed_seconds(stage.seconds), numbers.count(stage.count), numbers.fixed_seconds(stage.operator_s))
                rows.append(Row(_stage(stage.stage), figures, is_stage=True))
    return rows


def _stage(name: str) -> str:
    stage, _, substage = name.partition(".")
    label = style_of(stage).label
    return f"{label}: {substage}" if substage else label


def lines(profile: ProfileFigures) -> list[str]:
    """What is to be said of the traces as a whole, a sentence each."""
    steps = ", ".join(map(str, profile.steps))
    count = len({worker.worker for worker in profile.workers})
    plain = sum(worker.uncompressed_bytes for worker in profile.workers)
    extras = f", with {', '.join(profile.extras)}" if profile.extras else ""
    told = [
        f"step {steps}{extras}: {count} process{'es' if count != 1 else ''}, {numbers.size(profile.bytes)} ({numbers.size(plain)} unpacked)"
    ]
    if not profile.workers:
        told.append("no process opened a span in a traced step with torch loaded")
    told += [f"no trace of {one.process}: {one.reason}" for one in profile.missing]
    told += [f"{worker.worker}: {worker.problem}" for worker in profile.workers if worker.problem]
    told += [f"{worker.worker} on {one.device}: {one.problem}" for worker in profile.workers for one in worker.devices if one.problem]
    shared = [device for device in profile.devices if len(device.workers) > 1]
    told += [f"{device.device}: used by {words.listed(device.workers)}; each trace holds its own kernels only" for device in shared]
    told += sorted({worker.cpu.reason for worker in profile.workers if worker.cpu})
    return told


def tensorboard(run_path: str | Path) -> str:
    """The command that opens the traces."""
    return shlex.join(["tensorboard", "--logdir", str(Path(run_path) / TRACES)])


def print_profile(summary: RunSummary, console: Console) -> None:
    """The figures of a profile run's traces, and how to open them."""
    profile = summary.profile
    if profile is None:
        return
    for titles, rows, title in _tables(profile):
        shown = table("process, stage", *titles, title=title)
        for row in rows:
            shown.add_row(text(f"  {row.name}" if row.is_stage else row.name), *[text(figure) for figure in row.figures])
        console.print(shown)
    for sentence in lines(profile):
        hanging(console, "traces: ", sentence)
    to_copy(console, "open:   ", tensorboard(summary.path))


def _tables(profile: ProfileFigures) -> list[tuple[Sequence[str], list[Row], str]]:
    found: list[tuple[Sequence[str], Callable[[ProfileFigures], list[Row]], str]] = [
        (ON_DEVICES, rows_on_devices, "Devices under torch.profiler"),
        (ON_CPU, rows_on_cpu, "CPU operators under torch.profiler"),
    ]
    return [(titles, rows, title) for titles, make, title in found if (rows := make(profile))]


def profile_run_of(run: Run) -> Run | None:
    """The latest profile run of the same campaign, framework and variant beside `run`, or None."""
    manifest = run.manifest
    if manifest.campaign_id is None or not run.measures:
        return None
    for path in sorted(run.path.parent.glob(f"*-{manifest.framework}-{manifest.scale}-*profile*/{MANIFEST}"), reverse=True):
        found = Run(path.parent)
        try:
            same = (found.manifest.campaign_id, found.manifest.variant) == (manifest.campaign_id, manifest.variant)
            if same and not found.measures:
                return found
        except UserError:
            continue
    return None


def profile_sections(run: Run, summary: RunSummary) -> tuple[Section, ...]:
    """The chapter of a profile run's page, or on that of a run beside one where to find it; none where there is none."""
    profile = summary.profile
    parts: list[Part] = []
    if profile is not None:
        intro = f"{words.SLOWED} A moment belongs to the innermost annotated stage of its thread."
        for titles, rows, title in _tables(profile):
            shown = tuple(line(Cell(f"\N{EM SPACE}{row.name}" if row.is_stage else row.name), *row.figures) for row in rows)
            parts.append(Table(title, columns("process, stage", *titles), shown))
        parts += [Note(sentence) for sentence in lines(profile)]
        parts.append(Code("Open the traces in TensorBoard (each also opens in ui.perfetto.dev)", tensorboard(summary.path)))
    elif (beside := profile_run_of(run)) is not None:
        intro = "Under torch.profiler a further run of this framework shows what its devices did in each stage."
        parts.append(Code("Its figures", shlex.join(["rlmbench", "show", beside.id])))
        parts.append(Code("Its traces in TensorBoard (each also opens in ui.perfetto.dev)", tensorboard(beside.path)))
    else:
        return ()
    return (Section("profile", "Profile", "Profile", intro, tuple(parts)),)
