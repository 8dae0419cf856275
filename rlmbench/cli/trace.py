"""`rlmbench trace`: what the devices of torch.profiler traces did, by stage."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlmbench.errors import EXIT_OK

if TYPE_CHECKING:
    from rich.console import Console

    from rlmbench.traces import CpuUsage, HtaBreakdown, TensorboardStep, Trace, Usage

app = typer.Typer(add_completion=False)


class Definitions(StrEnum):
    """Whose definitions the figures follow."""

    RLMBENCH = "rlmbench"
    HTA = "hta"
    TENSORBOARD = "tensorboard"


@app.command()
def trace(
    files: Annotated[list[Path], typer.Argument(help="Traces of torch.profiler: .pt.trace.json or .pt.trace.json.gz.", show_default=False)],
    definitions: Annotated[
        Definitions, typer.Option(help="rlmbench's own, HolisticTraceAnalysis' or torch-tb-profiler's (docs/traces.md).")
    ] = Definitions.RLMBENCH,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> int:
    """Say how long each device of a trace ran nothing, computed, communicated and copied, as a whole and per stage.

    \b
    rlmbench trace rank0.1234.pt.trace.json.gz
    rlmbench trace profile/*.pt.trace.json.gz --json
    rlmbench trace rank0.pt.trace.json --definitions hta
    """
    from rlmbench.cli.output import console, print_json
    from rlmbench.traces import hta_breakdown, read_trace, tensorboard_overall

    readers: dict[Definitions, Any] = {
        Definitions.RLMBENCH: (read_trace, _document, _print),
        Definitions.HTA: (hta_breakdown, _plain, _print_hta),
        Definitions.TENSORBOARD: (tensorboard_overall, _steps, _print_tensorboard),
    }
    read, document, show = readers[definitions]
    documents = []
    out = console(sys.stderr if as_json else sys.stdout)
    for file in files:
        found = read(file)
        documents.append({"file": str(file), **document(found)})
        if not as_json:
            show(out, file, found)
    if as_json:
        print_json({"definitions": str(definitions), "traces": documents})
    return EXIT_OK


def _plain(found: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(found)


def _steps(found: tuple[TensorboardStep, ...]) -> dict[str, Any]:
    return {"steps": [_plain(step) for step in found]}


def _document(found: Trace) -> dict[str, Any]:
    """`Trace` as JSON, with the shares beside the times."""
    document = _plain(found)
    del document["path"]
    for device, its in zip(found.devices, document["devices"], strict=True):
        pairs = [(device.usage, its["usage"]), *zip(device.steps, its["steps"], strict=True)]
        pairs += [(stage.during, one["during"]) for stage, one in zip(device.stages, its["stages"], strict=True)]
        for usage, one in pairs:
            one |= {"no_kernel": usage.no_kernel, "exposed_communication": usage.exposed_communication}
    return document


def _print(out: Console, file: Path, found: Trace) -> None:
    from rlmbench.report.console_parts import heading, say
    from rlmbench.report.numbers import count

    heading(out, str(file))
    rank = f"rank {found.rank} of {found.world_size} · " if found.rank is not None and found.world_size is not None else ""
    window = f"{len(found.steps)} profiled steps" if found.window_source == "steps" else "no profiled steps: first to last event"
    say(out, f"{rank}window {found.window_ns / 1e9:.3f} s ({window})")
    if found.cpu is not None:
        say(out, found.cpu.reason, "yellow")
        _print_cpu(out, found)
        return
    graphs = f", {count(found.graph_launches)} of graphs" if found.graph_launches else ""
    say(out, f"{count(found.launches)} launches{graphs}")
    for device in found.devices:
        rows: list[tuple[str, Usage]] = [("window", device.usage)]
        rows += [(f"step {step.number}", usage) for step, usage in zip(found.steps, device.steps, strict=True)]
        rows += [(stage.stage, stage.during) for stage in device.stages]
        _print_usage(out, f"device {device.device}{f' ({device.name})' if device.name else ''}, {device.streams} streams", rows)
        if not device.reliable:
            say(out, f"not reliable: {device.reason}; no_kernel is an upper bound", "yellow")
        if device.stages:
            _print_launched(out, [(stage.stage, stage.launched) for stage in device.stages], device.stages[0].attribution)


def _print_usage(out: Console, title: str, rows: list[tuple[str, Usage]]) -> None:
    from rlmbench.report.console_parts import table, text
    from rlmbench.report.numbers import share

    made = table("", "#ms", "#no kernel", "#compute", "#comm.", "#exposed", "#copy", "#events", title=title)
    for name, usage in rows:
        shares = [usage.no_kernel_ns, usage.compute_ns, usage.communication_ns, usage.exposed_communication_ns, usage.copy_ns]
        cells = [f"{(usage.window_ns or 0) / 1e6:,.1f}", *(share(usage.share(part)) for part in shares), f"{usage.events:,}"]
        made.add_row(text(name), *map(text, cells))
    out.print(made)


def _print_launched(out: Console, rows: list[tuple[str, Usage]], attribution: str) -> None:
    from rlmbench.report.console_parts import table, text

    made = table(
        "launched by",
        "#busy ms",
        "#compute ms",
        "#communication ms",
        "#copy ms",
        "#events",
        title=f"whenever it ran (found by {attribution})",
    )
    for name, usage in rows:
        times = (usage.busy_ns, usage.compute_ns, usage.communication_ns, usage.copy_ns)
        made.add_row(text(name), *(text(f"{time / 1e6:,.1f}") for time in times), text(f"{usage.events:,}"))
    out.print(made)


def _print_cpu(out: Console, found: Trace) -> None:
    from rlmbench.report.console_parts import table, text
    from rlmbench.report.numbers import share

    assert found.cpu is not None
    rows: list[tuple[str, CpuUsage]] = [("window", found.cpu.usage)]
    rows += [(f"step {step.number}", usage) for step, usage in zip(found.steps, found.cpu.steps, strict=True)]
    rows += [(stage.stage, stage.usage) for stage in found.cpu.stages]
    made = table("", "#ms", "#operators ms", "#no operator", title=f"CPU operators on {found.cpu.threads} threads")
    for name, usage in rows:
        made.add_row(
            text(name), text(f"{usage.window_ns / 1e6:,.1f}"), text(f"{usage.operator_ns / 1e6:,.1f}"), text(share(usage.no_operator))
        )
    out.print(made)


def _print_hta(out: Console, file: Path, found: HtaBreakdown) -> None:
    from rlmbench.report.console_parts import heading, say, table, text

    heading(out, f"{file}, as HolisticTraceAnalysis counts")
    overlap = "none" if found.overlap is None else f"{100 * found.overlap:.2f}%"
    say(out, f"kernel time {found.kernel_us:,} us: idle {found.idle_us:,}, compute {found.compute_us:,}, other {found.non_compute_us:,}")
    say(out, f"communication that overlaps with computation: {overlap}")
    made = table("#stream", "#host wait us", "#kernel wait us", "#other us", title="idle time")
    for stream in found.streams:
        made.add_row(*(text(f"{value:,}") for value in (stream.stream, stream.host_wait_us, stream.kernel_wait_us, stream.other_us)))
    out.print(made)


def _print_tensorboard(out: Console, file: Path, found: tuple[TensorboardStep, ...]) -> None:
    from rlmbench.report.console_parts import heading, table, text

    heading(out, f"{file}, as torch-tb-profiler counts")
    made = table("ms of step", *(f"#{step.name}" for step in found))
    for name in ("kernel", "memcpy", "memset", "communication", "runtime", "data_loader", "cpu_exec", "other", "total"):
        made.add_row(text(name.replace("_", " ")), *(text(f"{getattr(step, f'{name}_ns') / 1e6:,.3f}") for step in found))
    out.print(made)
