"""`rlmbench plan` in words: memory, work and least time of a step, and what a run costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rlmbench.costmodel.budget import PUBLISHED, PUBLISHED_RUN, Budget, Range, budget, on_cpu
from rlmbench.report import numbers
from rlmbench.report.console_parts import fitting, hanging, heading, say, table, text
from rlmbench.report.efficiency import bandwidth, flops
from rlmbench.report.palette import in_order, style_of

if TYPE_CHECKING:
    from rich.console import Console

    from rlmbench.costmodel.devices import Ceiling
    from rlmbench.costmodel.prediction import Prediction, StagePrediction

NO_CEILING = "no ceiling is known: name a device with --device-type, or measure this machine with rlmbench doctor --ceilings"
BOUND = (
    "Times are lower bounds: communication, launches, padding and skew come on top; docs/plan.md says how far above them real runs were."
)
ESTIMATE = "Memory is an estimate (docs/plan.md): 2 GiB a GPU are assumed for CUDA, communication buffers and fragmentation."
ESTIMATE_CPU = (
    "Memory is an estimate (docs/plan.md): that of the machine, for all ranks; processes hold what they were seen to hold besides a model."
)


SUMS = {
    "colocated": "the stages in turn",
    "disaggregated": "generation, then the longest of the log-probs and values, then the longer update, then sync",
    "async": "the longer of generation and the trainer's stages (as disaggregated), then sync",
}
"""How a step's least time adds up from its stages', by placement."""


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
    _print_memory(found, console)
    _print_work(found, ceiling, console)
    cost = budget(found, price_per_hour)
    if found.least_step_s is not None:
        hanging(console, "step:    ", step_text(found, cost, price_per_hour))
        if cost.likely is not None:
            hanging(console, "if like: ", likely_text(cost, price_per_hour))
        elif cost.why_not is None and not on_cpu(found):
            hanging(
                console, "if like: ", f"no range: the only run on GPUs whose distance to the bound is known is another, {PUBLISHED_RUN}"
            )
        say(console, BOUND, "dim")
    elif ceiling is not None:
        hanging(console, "step:    ", f"unknown, as no rate of {ceiling.device} in {found.dtype} is known, and so are hours and cost")


def step_text(found: Prediction, cost: Budget, price_per_hour: float | None) -> str:
    """Least seconds of a step, and what all steps take and cost at least; of what does not fit why nothing is given."""
    least = f"at least {numbers.seconds(found.least_step_s)}, {SUMS[found.mode]}"
    if cost.device_hours is None:
        return f"{least}, if there were memory for it; no hours and no cost, as {cost.why_not}"
    paid = (
        " (their cost: --price-per-gpu-hour)" if cost.cost is None else f", {numbers.significant(cost.cost)} at {price_per_hour:g} an hour"
    )
    return f"{least}; {found.steps} steps take at least {numbers.significant(cost.device_hours)} device hours{paid}, start-up aside"


def likely_text(cost: Budget, price_per_hour: float | None) -> str:
    """The same if the run were as far above its bound as the published one was."""
    assert cost.likely is not None
    paid = "" if cost.likely.cost is None else f", {_range(cost.likely.cost)} at {price_per_hour:g} an hour"
    low, high = PUBLISHED
    figures = f"{_range(cost.likely.step_s)} s a step, {_range(cost.likely.device_hours)} device hours{paid}"
    return f"{cost.likely.like}, {low:g} to {high:g} times the least: {figures}"


def print_side_by_side(plans: Sequence[tuple[str, Prediction]], price_per_hour: float | None, console: Console) -> None:
    """Several plans in one table, a line each: (what it is of, its prediction)."""
    heading(console, "Side by side")
    costs = [budget(found, price_per_hour) for _, found in plans]
    columns: dict[str, list[str]] = {
        "plan": [name.replace("_", " ") for name, _ in plans],  # wraps between its words
        "#devices": [str(found.devices) for _, found in plans],
        "#memory": [numbers.size(max(of.total_bytes for of in found.memory.values())) for _, found in plans],
        "verdict": [found.verdict for _, found in plans],
        "#least s": [numbers.fixed_seconds(found.least_step_s, "unknown") for _, found in plans],
        "#hours": [_or_none(cost.device_hours) for cost in costs],
    }
    if price_per_hour is not None:
        columns["#cost"] = [_or_none(cost.cost) for cost in costs]
    made, _ = fitting(columns, ("#devices", "#hours", "#memory"), console.width, "All stages of a step, and all steps")
    told = "Memory: the most that a device holds. Least seconds of a step; device hours and cost of all steps, at least: none of what does not fit."
    made.caption = text(told, "dim")
    made.caption_justify = "left"
    console.print(made)


def _print_memory(found: Prediction, console: Console) -> None:
    capacity = f" of {numbers.size(found.capacity_bytes)}" if found.capacity_bytes else ""
    made = table("stage", "#needs", "verdict", "most of it", "#KV rounds", title=f"Memory of one device{capacity}: {found.verdict}")
    for stage, of in found.memory.items():
        rounds = "" if of.cache_rounds is None else numbers.significant(max(of.cache_rounds, 1.0), 2)
        largest = sorted(of.terms.items(), key=lambda term: -term[1])[:3]
        terms = ", ".join(f"{name} {numbers.size(size)}" for name, size in largest)
        verdict = f"{of.verdict}: {of.breaks}" if of.breaks else of.verdict
        made.add_row(*[text(cell) for cell in (stage, numbers.size(of.total_bytes), verdict, terms, rounds)])
    console.print(made)
    say(console, ESTIMATE_CPU if on_cpu(found) else ESTIMATE, "dim")


def _print_work(found: Prediction, ceiling: Ceiling | None, console: Console) -> None:
    """Every figure that a least time follows from, so that it can be divided again by hand."""
    stages = [(style_of(stage).label, found.stages[stage]) for stage in in_order(set(found.stages))]
    columns: dict[str, list[str]] = {
        "stage": [label for label, _ in stages],
        "#model": [flops(one.model_flops) for _, one in stages],
        "#executed": [flops(one.executed_flops) for _, one in stages],
        "#bytes": [numbers.size(one.least_bytes) for _, one in stages],
        "#on": [str(one.devices) for _, one in stages],
        "#least s": [numbers.fixed_seconds(one.least_s, "unknown") for _, one in stages],
        "by": [one.limit or "" for _, one in stages],
    }
    made, _ = fitting(columns, ("#model", "by"), console.width, "Work of a step, and the least time it takes")
    made.caption = text(" ".join(_work_caption(found, ceiling)), "dim")
    made.caption_justify = "left"
    console.print(made)


def _work_caption(found: Prediction, ceiling: Ceiling | None) -> Iterator[str]:
    yield "Model: FLOPs that the algorithm needs; executed: those that the devices compute at least. Bytes: the least traffic. On: devices."
    limits = {one.limit for one in found.stages.values()}
    if ceiling is not None and "products" in limits:
        yield f"Products: executed / (on x {flops(ceiling.flops_per_s, 'FLOP/s')})."
    if ceiling is not None and "traffic" in limits:
        yield f"Traffic: bytes / (on x {bandwidth(ceiling.bytes_per_s)})."
    for stage, one in found.stages.items():
        if ceiling is not None and one.limit == "decode steps":
            yield (
                f"Decode steps: each reads the weights, one step after the other: {numbers.size(one.latency_bytes)} a device / "
                f"{bandwidth(ceiling.bytes_per_s)}."
            )
        if told := _difference(stage, one):
            yield told
    for stage, why in found.not_run.items():
        yield f"No {style_of(stage).label}: {why}."


def _difference(stage: str, one: StagePrediction) -> str:
    """Why a stage executes other FLOPs than the model's; nothing where it does not."""
    if one.executed_flops < one.model_flops:
        spared = flops(one.model_flops - one.executed_flops)
        return f"{style_of(stage).label.capitalize()}: {spared} fewer, as a group's prompt is computed once, as with a prefix cache."
    if one.executed_flops > one.model_flops:
        again = flops(one.executed_flops - one.model_flops)
        return f"{style_of(stage).label.capitalize()}: {again} more, as gradient checkpointing computes forwards again."
    return ""


def _or_none(value: float | None) -> str:
    return "none" if value is None else numbers.significant(value)


def _range(of: Range) -> str:
    return f"{numbers.significant(of[0], 2)} to {numbers.significant(of[1], 2)}"
