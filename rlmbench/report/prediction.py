"""A prediction beside what was then measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlmbench.costmodel.prediction import PROCESSES
from rlmbench.report import numbers
from rlmbench.report.console_parts import table, text
from rlmbench.report.palette import in_order, style_of
from rlmbench.report.parts import Cell, Note, Part, Table, columns, line

if TYPE_CHECKING:
    from rich.console import Console

    from rlmbench.metrics.figures import RunSummary

STAGES_OF = {
    "generation": ("generation",),
    "assessment": ("reference_logprob", "old_logprob", "values"),
    "training": ("actor_update", "critic_update"),
}
"""Stage of the memory model -> stages of the records."""


def beside_rows(prediction: Mapping[str, Any], summary: RunSummary) -> Iterable[tuple[str, str, str, str]]:
    """(what, predicted, measured, ratio): least seconds of each stage and of the step, then memory."""
    found = summary.efficiency
    seconds = {stage: one.seconds for stage, one in found.stages.items()} if found else {}
    if found and found.weight_sync:
        seconds["weight_sync"] = found.weight_sync.seconds
    for stage in in_order(set(prediction["stages"])):
        yield _row(f"{style_of(stage).label}, at least", prediction["stages"][stage]["least_s"], seconds.get(stage), numbers.seconds)
    yield _row("step, at least", prediction["least_step_s"], summary.step_s.mean, numbers.seconds)
    memory = prediction["memory"]
    if prediction.get("device") == "cpu" or any(PROCESSES in of.get("terms", ()) for of in memory.values()):
        most = max(of["total_bytes"] for of in memory.values())
        yield _row("memory of the machine", most, summary.memory.run_peak_pss_bytes, numbers.size)
        return
    for stage, of in memory.items():
        yield _row(f"memory of one device, {stage}", of["total_bytes"], _peak(summary, STAGES_OF[stage]), numbers.size)


def _row(what: str, predicted: float | None, measured: float | None, form: Any) -> tuple[str, str, str, str]:
    ratio = numbers.ratio(measured / predicted) if predicted and measured is not None else ""
    return what, form(predicted, "no ceiling was known"), form(measured), ratio


def _peak(summary: RunSummary, stages: Iterable[str]) -> int | None:
    """Highest that torch reserved on a device, else the resident set of a process."""
    peaks = [of for stage, of in summary.memory.peak_bytes.items() if stage in stages]
    for kind in ("torch_reserved_peak_bytes", "rss_peak_bytes"):
        if known := [of[kind] for of in peaks if kind in of]:
            return max(known)
    return None


def print_beside(prediction: Mapping[str, Any], summary: RunSummary, console: Console) -> None:
    """Prediction and measurement side by side, after a run."""
    made = table("what", "#predicted", "#measured", "#ratio", title="Predicted before the run, and measured")
    for row in beside_rows(prediction, summary):
        made.add_row(*[text(cell) for cell in row])
    made.caption = text(CAPTION, "dim")
    made.caption_justify = "left"
    console.print(made)


CAPTION = (
    "Ratio: measured over predicted. Times are lower bounds, so it is how far the run was above them. Memory is an estimate: of a device what torch "
    "reserved there, of a CPU machine what all of the run's processes held at once (docs/plan.md)."
)


def beside_parts(prediction: Mapping[str, Any] | None, summary: RunSummary) -> list[Part]:
    """The same for a run's page; nothing of a run that torch.profiler slowed."""
    if prediction is None or summary.run_pass == "profile":
        return []
    lines = tuple(line(Cell(what), predicted, measured, ratio) for what, predicted, measured, ratio in beside_rows(prediction, summary))
    return [Table("Predicted before the run, and measured", columns("what", "#predicted", "#measured", "#ratio"), lines), Note(CAPTION)]
