"""`rlmbench timeline`: a run as a trace for ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlmbench.errors import EXIT_OK, UserError

app = typer.Typer(add_completion=False)


@app.command()
def timeline(
    run: Annotated[str, typer.Argument(help="Run id (or its beginning), folder, or latest.")] = "latest",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write, .json or .json.gz; the default is reports/<run id>.trace.json.gz."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Where records lie.")] = Path("results"),
) -> int:
    """Write a run as one trace: every process, its stages, steps, memory, optimizer steps and losses; hosts and devices as counters.

    Open the file at https://ui.perfetto.dev (it stays in your browser) or in chrome://tracing.

    \b
    rlmbench timeline latest
    rlmbench timeline 20261130-120000-verl-tiny-r0 -o trace.json.gz
    rlmbench timeline results/gsm8k_grpo/20261130-120000-verl-tiny-r0 -o trace.json
    """
    from rlmbench.records.store import find_run

    if output is not None and not output.name.endswith((".json", ".json.gz")):
        raise UserError(f"--output {output}: give a name that ends in .json or .json.gz, which is how trace viewers know what it is")
    found = find_run(run, results)
    if found.spans.empty and found.steps.empty:
        raise UserError(
            f"{found.path}: nothing to draw, as no span was recorded: the run ended before its first, or had measurement.probe=false"
        )
    from rlmbench.report.perfetto import write_trace
    from rlmbench.runner.execute import summarized

    path = output or Path("reports") / f"{found.id}.trace.json.gz"
    try:
        write_trace(found, path, {step.step: step.reason for step in summarized(found).excluded_steps})
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another place with --output") from None
    print(path)
    return EXIT_OK
