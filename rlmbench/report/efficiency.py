"""FLOPs and their shares of what the devices could do, in the terminal and on a run's page. Figures are taken, never computed anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rlmbench.report import numbers
from rlmbench.report.palette import in_order, style_of
from rlmbench.report.parts import Cell, Note, Part, Section, Table, columns, line

if TYPE_CHECKING:
    from rlmbench.metrics.efficiency import Against, Efficiency
    from rlmbench.metrics.figures import RunSummary

INTRO = (
    "Work of the valid tokens by the model's shape, over the driver's seconds. Padding, communication and waiting are time without work, so they "
    "lower MFU; gradient checkpointing counts in HFU alone. Ceilings are data sheet peaks, and what rlmbench measured on this machine."
)


BASES = {"measured": "what was measured on this machine", "datasheet": "the data sheet's peaks"}


def flops(value: float | None, unit: str = "FLOP", reason: str | None = None) -> str:
    """FLOPs (or per second) in the unit that leaves one to four digits before the point."""
    if value is None:
        return numbers.absent(reason)
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{numbers.significant(value / factor)} {prefix}{unit}"
    return f"{numbers.significant(value)} {unit}"


def bandwidth(value: float | None) -> str:
    """Bytes per second, decimal as data sheets have it."""
    if value is None:
        return numbers.absent()
    return f"{numbers.significant(value / 1e9)} GB/s" if value >= 1e9 else f"{numbers.significant(value / 1e6)} MB/s"


def against_heads(found: Efficiency) -> list[str]:
    """Column titles for each ceiling: ``MFU (measured)``; of a single one the caption says what it is."""
    return [
        f"#{name} ({one.basis})" if len(found.against) > 1 else f"#{name}"
        for one in found.against
        for name in ("MFU", "HFU", "MBU", "roofline")
    ]


def rows(found: Efficiency) -> Iterable[tuple[str, list[str]]]:
    """(stage, cells): FLOPs, achieved rate, intensity, and for each ceiling MFU, HFU, MBU and nearness to the roof with its side."""
    for stage in in_order(set(found.stages)):
        one = found.stages[stage]
        cells = [flops(one.model_flops), flops(one.achieved_flops_per_s, "FLOP/s"), numbers.significant(one.intensity)]
        for ceiling in found.against:
            of = ceiling.stages[stage]
            roof = f"{numbers.share(of.roofline)} {of.limit}" if of.roofline is not None else "unknown"
            cells += [*(numbers.share(value, "unknown") for value in (of.mfu, of.hfu, of.mbu)), roof]
        yield stage, cells


def step_lines(summary: RunSummary, found: Efficiency) -> list[tuple[str, str]]:
    """(name, text) of what holds for a step as a whole."""
    step = f"{flops(found.step_model_flops)} in {numbers.seconds(found.step_s)} on average: {flops(found.achieved_flops_per_s, 'FLOP/s')}"
    lines = [("step", f"{step}, {numbers.count(found.devices)} device{'s' if found.devices > 1 else ''}, {found.dtype}")]
    lines += [(f"{one.basis}", _against_text(one)) for one in found.against]
    if not found.against:
        lines.append(("MFU", numbers.absent(summary.absent.get("efficiency.mfu"))))
    sync = found.weight_sync
    if sync is not None:
        into = f"{numbers.size(sync.least_bytes)} into {sync.replicas} rollout replica{'s' if sync.replicas > 1 else ''}"
        roofs = [
            f"; {numbers.share(one.sync_roofline)} of what {bandwidth(one.bytes_per_s)} a device allow ({one.basis})"
            for one in found.against
            if one.sync_roofline is not None
        ]
        lines.append(("weight sync", f"{into} in {numbers.seconds(sync.seconds)}: {bandwidth(sync.bytes_per_s)} at least{''.join(roofs)}"))
    return lines


def _against_text(one: Against) -> str:
    peak = f"{flops(one.flops_per_s, 'FLOP/s')} and {bandwidth(one.bytes_per_s)} a device ({one.device}; {one.source})"
    if one.step_mfu is None:
        return f"{peak}: no rate for this dtype is known"
    bound = ""
    if one.least_step_s is not None and one.work_depth_ratio is not None:
        bound = f"; a step of the lengths it had takes at least {numbers.seconds(one.least_step_s)}, it took {numbers.ratio(one.work_depth_ratio)} that"
    return f"MFU {numbers.share(one.step_mfu)}, HFU {numbers.share(one.step_hfu)} of {peak}{bound}"


def efficiency_section(summary: RunSummary, predicted: Sequence[Part] = ()) -> Section:
    """The chapter of a run's page; `predicted` is what it says of the prediction before the run."""
    parts: list[Part] = []
    found = summary.efficiency
    if found is None:
        parts.append(Note(f"Efficiency is absent: {summary.absent.get('efficiency', numbers.DEFAULT_REASON)}."))
    else:
        lines = tuple(line(Cell(style_of(stage).label, colour=style_of(stage).colour), *cells) for stage, cells in rows(found))
        heads = columns("stage", "#model FLOPs", "#achieved", "#FLOP/byte", *against_heads(found))
        basis = f"; shares of {BASES[found.against[0].basis]}" if len(found.against) == 1 else ""
        parts.append(Table(f"Per measured step and stage{basis}", heads, lines))
        parts.append(Table("Of a step", columns("what", "figure"), tuple(line(*pair) for pair in step_lines(summary, found))))
        parts += predicted
    return Section("efficiency", "Efficiency: FLOPs, MFU and the least time", "Efficiency", INTRO, tuple(parts))
