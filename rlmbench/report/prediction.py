"""A prediction in words: before a run, and beside what was then measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlmbench.costmodel.prediction import PROCESSES
from rlmbench.report import numbers
from rlmbench.report.console_parts import hanging, say, table, text
from rlmbench.report.efficiency import bandwidth, flops
from rlmbench.report.palette import in_order, style_of
from rlmbench.report.parts import Cell, Note, Part, Table, columns, line

if TYPE_CHECKING:
    from rich.console import Console

    from rlmbench.costmodel.devices import Ceiling
    from rlmbench.costmodel.prediction import Prediction
    from rlmbench.metrics.figures import RunSummary

NO_CEILING = "no ceiling is known: name a device with --device-type, or measure this machine with rlmbench doctor --ceilings"
BOUND = (
    "Times are lower bounds: products at the peak, or the least traffic at full bandwidth. Communication, launches, padding and skew come on top; "
    "docs/plan.md says how far above them real runs were."
)
ESTIMATE = "Memory is an estimate (docs/plan.md): 2 GiB a GPU are assumed for CUDA, communication buffers and fragmentation."
ESTIMATE_CPU = (
    "Memory is an estimate (docs/plan.md): that of the machine, for all ranks; processes hold what they were seen to hold besides a model."
)
STAGES_OF = {
    "generation": ("generation",),
    "assessment": ("reference_logprob", "old_logprob", "values"),
    "training": ("actor_update", "critic_update"),
}
"""Stage of the memory model -> stages of the records."""


def print_prediction(found: Prediction, ceiling: Ceiling | None, price_per_hour: float | None, console: Console) -> None:
    """Memory per device and stage, least times, device hours and cost."""
    lengths = f"prompts of {found.prompt_tokens:,.0f} tokens, responses of {found.response_tokens:,.0f} on average ({found.lengths})"
    hanging(console, "work:    ", f"{found.shape} in {found.dtype}; {lengths}")
    if ceiling is not None:
        peak = flops(ceiling.flops_per_s, "FLOP/s") if ceiling.flops_per_s else f"no rate known in {found.dtype}"
        rates = f"{peak}, {bandwidth(ceiling.bytes_per_s)}"
        hanging(console, "devices: ", f"{found.devices} x {ceiling.device}: {rates} ({ceiling.basis}: {ceiling.source})")
    else:
        hanging(console, "devices: ", f"{found.devices}: {NO_CEILING}")
    capacity = f" of {numbers.size(found.capacity_bytes)}" if found.capacity_bytes else ""
    made = table("stage", "#needs", "verdict", "most of it", "#KV rounds", title=f"Memory of one device{capacity}: {found.verdict}")
    for stage, of in found.memory.items():
        rounds = "" if of.cache_rounds is None else numbers.significant(max(of.cache_rounds, 1.0), 2)
        largest = sorted(of.terms.items(), key=lambda term: -term[1])[:3]
        terms = ", ".join(f"{name} {numbers.size(size)}" for name, size in largest)
        verdict = f"{of.verdict}: {of.breaks}" if of.breaks else of.verdict
        made.add_row(*[text(cell) for cell in (stage, numbers.size(of.total_bytes), verdict, terms, rounds)])
    console.print(made)
    say(console, ESTIMATE_CPU if any(PROCESSES in of.terms for of in found.memory.values()) else ESTIMATE, "dim")
    made = table("stage", "#model FLOPs", "#least bytes", "#least s", title="Work of a step, and the least time it takes")
    for stage in in_order(set(found.stages)):
        one = found.stages[stage]
        made.add_row(
            *[
                text(cell)
                for cell in (
                    style_of(stage).label,
                    flops(one.model_flops),
                    numbers.size(one.least_bytes),
                    numbers.fixed_seconds(one.least_s, "unknown"),
                )
            ]
        )
    console.print(made)
    if found.least_step_s is not None and found.device_hours is not None:
        hours = f"{found.steps} steps take at least {numbers.significant(found.device_hours)} device hours"
        cost = (
            f", {numbers.significant(found.device_hours * price_per_hour)} at {price_per_hour:g} an hour"
            if price_per_hour is not None
            else " (their cost: --price-per-gpu-hour)"
        )
        hanging(console, "step:    ", f"at least {numbers.seconds(found.least_step_s)}; {hours}{cost}, start-up aside")
        say(console, BOUND, "dim")
    elif ceiling is not None:
        hanging(console, "step:    ", f"unknown, as no rate of {ceiling.device} in {found.dtype} is known, and so are hours and cost")


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
    "Times are lower bounds, so a ratio is how far the run was above them. Memory is an estimate: of a device what torch reserved there, of a CPU machine "
    "what all of the run's processes held at once (docs/plan.md)."
)


def beside_parts(prediction: Mapping[str, Any] | None, summary: RunSummary) -> list[Part]:
    """The same for a run's page; nothing of a run that torch.profiler slowed."""
    if prediction is None or summary.run_pass == "profile":
        return []
    lines = tuple(line(Cell(what), predicted, measured, ratio) for what, predicted, measured, ratio in beside_rows(prediction, summary))
    return [Table("Predicted before the run, and measured", columns("what", "#predicted", "#measured", "#ratio"), lines), Note(CAPTION)]
