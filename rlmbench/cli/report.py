"""`rlmbench report`: a run's HTML page again, from its record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlmbench.errors import EXIT_OK, UserError

app = typer.Typer()


@app.command()
def report(
    run: Annotated[str, typer.Argument(help="Run id (or its beginning), folder, or latest.")] = "latest",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; the default is reports/<run id>.html.")] = None,
    results: Annotated[Path, typer.Option(help="Where records lie.")] = Path("results"),
) -> int:
    """Write the HTML page of a run again.

    \b
    rlmbench report latest
    rlmbench report 20261130-120000-trl-tiny-r0 -o page.html
    """
    from rlmbench.records.store import find_run
    from rlmbench.report.html import write_run_page
    from rlmbench.runner.execute import summarized

    found = find_run(run, results)
    path = output or Path("reports") / f"{found.id}.html"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_run_page(found, summarized(found), path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another place with --output") from None
    print(path)
    return EXIT_OK
