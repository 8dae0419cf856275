"""`rlmbench report`: the HTML page of a run again, or of several beside each other, from their records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlmbench.cli.options import Campaign, Since, check_minimum_effect
from rlmbench.errors import EXIT_OK, UserError

if TYPE_CHECKING:
    from rlmbench.records import Run

app = typer.Typer(add_completion=False)


@app.command()
def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|SUITE]...",
            help="Runs (ids, folders, latest), folders of runs, or suites: all of their runs. The default is latest.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write; the default is reports/<run id>.html, of several runs reports/<suite>-comparison.html."
        ),
    ] = None,
    campaign: Campaign = None,
    since: Since = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIGURATION", help="Of several runs: compare with this one alone: a framework, a name or its beginning, or a letter."
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="Where records lie.")] = Path("results"),
    minimum_effect: Annotated[float, typer.Option(help="Of several runs: differences below this share of the speed count as none.")] = 0.03,
) -> int:
    """Write the HTML page of a run again; of several runs, the page that compares them.

    \b
    rlmbench report latest
    rlmbench report 20261130-120000-trl-tiny-r0 -o page.html
    rlmbench report gsm8k_grpo --campaign latest
    rlmbench report results/gsm8k_grpo results/gsm8k_ppo -o reports/both.html
    """
    check_minimum_effect(minimum_effect)
    from rlmbench.comparison import find_runs, only
    from rlmbench.records.store import read_each

    found = find_runs(runs or ["latest"], results)
    read_each(found, lambda run: run.manifest)  # one that is damaged may be the worst: all of them are named, and none is left out
    found = only(found, campaign, since)
    path = output or Path("reports") / _default_name(found)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(found, minimum_effect, baseline, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another place with --output") from None
    print(path)
    return EXIT_OK


def _default_name(found: Sequence[Run]) -> str:
    if len(found) == 1:
        return f"{found[0].id}.html"
    return "-".join([*dict.fromkeys(run.manifest.suite for run in found), "comparison.html"])


def _write(found: list[Run], minimum_effect: float, baseline: str | None, path: Path) -> None:
    if len(found) == 1 and baseline is not None:
        raise UserError(f"--baseline {baseline}: {found[0].id} is the only run; name those to compare it with, too")
    from rlmbench.report.html import write_comparison_page, write_run_page
    from rlmbench.runner.execute import summarized

    if len(found) == 1:
        from rlmbench.whatif.guidelines import advised

        write_run_page(found[0], advised(found[0], summarized(found[0])), path)
        return
    from rlmbench.comparison import compare_groups, evidence_of, ordered, without_replaced
    from rlmbench.records.store import read_each

    counted, replaced = without_replaced(found)
    groups = ordered(read_each(counted, lambda run: evidence_of(run, summarized(run), replaced.get(run.path, ()))))
    write_comparison_page(compare_groups(groups, minimum_effect, baseline), groups, path)
