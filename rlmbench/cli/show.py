"""`rlmbench show`: the figures of recorded runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlmbench.errors import EXIT_OK

app = typer.Typer(add_completion=False)


@app.command()
def show(
    runs: Annotated[list[str], typer.Argument(help="Run ids (or their beginnings), folders, or latest.")] = ["latest"],  # noqa: B006
    results: Annotated[Path, typer.Option(help="Where records lie.")] = Path("results"),
    ledger: Annotated[bool, typer.Option("--ledger", help="Also list every field of the fidelity ledger.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object (docs/summary.schema.json) as the last line.")] = False,
) -> int:
    """Print the figures of recorded runs.

    \b
    rlmbench show latest
    rlmbench show results/gsm8k_grpo/20261130-120000-trl-tiny-r0 --json
    """
    from rlmbench.records.store import find_run, read_each

    found = [find_run(name, results) for name in runs]

    from rlmbench.cli.output import console, print_json
    from rlmbench.metrics import document
    from rlmbench.report.sweep import print_sweep
    from rlmbench.report.terminal import print_run_detail
    from rlmbench.runner.execute import summarized
    from rlmbench.whatif.guidelines import advised
    from rlmbench.whatif.sweep import rows

    summaries = read_each(found, lambda run: advised(run, summarized(run)))
    if as_json:
        print_json(document(summaries))
        return EXIT_OK
    for run, summary in zip(found, summaries, strict=True):
        print_run_detail(run, summary, console(sys.stdout), whole_ledger=ledger)
    print_sweep(rows(list(zip(found, summaries, strict=True))), console(sys.stdout))
    return EXIT_OK
