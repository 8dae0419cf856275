"""`rlmbench publish`: records as they may be shown to others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlmbench.errors import EXIT_OK, EXIT_RUN_FAILED, UserError

if TYPE_CHECKING:
    from rlmbench.metrics import RunSummary
    from rlmbench.publish import Published
    from rlmbench.records import Run

app = typer.Typer(add_completion=False)
AT_WORK = ("planned", "running")


@app.command()
def publish(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|CAMPAIGN|SUITE", help="Runs (ids, folders, latest), campaigns, folders of runs, or a suite: all of its runs."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to: a run goes to OUTPUT/<suite>/<run id>.")],
    results: Annotated[Path, typer.Option(help="Where records lie.")] = Path("results"),
    campaign: Annotated[str | None, typer.Option(metavar="ID|latest", help="Only the runs of this campaign.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> int:
    """Copy records for others to read: figures, tables, plan and manifest, without what names this machine or its user.

    Paths, host and user names, addresses and secrets become placeholders such as <run> and <host>; raw logs and the texts of prompts
    are left out. rlmbench reads the copies as it reads records, and they compare equal to them. A run or campaign that is damaged is
    named and left out, and the exit code is then 1 (2 where no run is left).

    \b
    rlmbench publish latest -o results/reference
    rlmbench publish gsm8k_grpo --campaign latest -o results/reference
    rlmbench publish 20261130-180218-079 -o shared
    """
    from rlmbench.comparison import find_runs, only
    from rlmbench.publish import Scrubber, publish, publish_campaign
    from rlmbench.publish.records import know_run
    from rlmbench.report import numbers
    from rlmbench.runner.execute import summarized

    problems: list[UserError] = []
    readable = _those_good(find_runs(runs, results), lambda run: run.manifest, problems)
    found = only(readable, campaign) if readable else []
    for run in found:
        if run.manifest.status in AT_WORK:
            print(f"{run.id}: left out, as it is still running", file=sys.stderr)
    scrubber = Scrubber()
    summaries: dict[Path, RunSummary] = {}
    done: list[Published] = []

    def know(run: Run) -> None:
        summaries[run.path] = summarized(run)
        know_run(scrubber, run, summaries[run.path])

    def write(run: Run) -> None:
        done.append(publish(run, summaries[run.path], scrubber, output))
        print(f"{done[-1].path}: {numbers.size(done[-1].size_bytes)}", flush=True)

    known = _those_good([run for run in found if run.manifest.status not in AT_WORK], know, problems)
    try:
        written = _those_good(known, write, problems)
        if not written:
            raise UserError(*(list(map(str, problems)) or ["nothing to publish: no run there has ended"]))
        for planned, suite in dict.fromkeys((_campaign(run.path, run.manifest.campaign_id), run.manifest.suite) for run in written):
            if planned is not None:
                try:
                    publish_campaign(planned, scrubber, output, suite)
                except UserError as error:
                    problems.append(error)
    except OSError as error:
        raise UserError(f"cannot write to {output}: {error.strerror}; choose another place with --output") from None
    total = sum(one.size_bytes for one in done)
    print(f"{len(done)} {'run' if len(done) == 1 else 'runs'}, {numbers.size(total)}, {numbers.size(total // len(done))} each")
    if as_json:
        from rlmbench.cli.output import print_json

        listed = [{"run": one.run_id, "path": str(one.path), "size_bytes": one.size_bytes} for one in done]
        print_json({"runs": listed, "size_bytes": total, "left_out": [str(problem) for problem in problems]})
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    return EXIT_RUN_FAILED if problems else EXIT_OK


def _those_good(runs: Iterable[Run], use: Callable[[Run], object], problems: list[UserError]) -> list[Run]:
    """The runs that `use` works for. One that is damaged is left out, and its problem kept: the others are as good as before."""
    good = []
    for run in runs:
        try:
            use(run)
        except UserError as error:
            problems.append(error)
        else:
            good.append(run)
    return good


def _campaign(run: Path, campaign_id: str | None) -> Path | None:
    path = run.parent / "campaigns" / f"{campaign_id}.json"
    return path if campaign_id and path.is_file() else None
