"""`rlmbench publish`: records as they may be shown to others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlmbench.errors import EXIT_OK, UserError

app = typer.Typer()


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
    are left out. rlmbench reads the copies as it reads records, and they compare equal to them.

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

    found = [(run, summarized(run)) for run in only(find_runs(runs, results), campaign)]
    scrubber = Scrubber()
    for run, summary in found:
        know_run(scrubber, run, summary)
    ended = [(run, summary) for run, summary in found if run.manifest.status not in ("planned", "running")]
    for run, _ in found:
        if run.manifest.status in ("planned", "running"):
            print(f"{run.id}: left out, as it is still running", file=sys.stderr)
    if not ended:
        raise UserError("nothing to publish: no run there has ended")
    done = []
    try:
        for run, summary in ended:
            done.append(publish(run, summary, scrubber, output))
            print(f"{done[-1].path}: {numbers.size(done[-1].size_bytes)}", flush=True)
        for planned, suite in dict.fromkeys((_campaign(run.path, run.manifest.campaign_id), run.manifest.suite) for run, _ in ended):
            if planned is not None:
                publish_campaign(planned, scrubber, output, suite)
    except OSError as error:
        raise UserError(f"cannot write to {output}: {error.strerror}; choose another place with --output") from None
    total = sum(one.size_bytes for one in done)
    print(f"{len(done)} {'run' if len(done) == 1 else 'runs'}, {numbers.size(total)}, {numbers.size(total // len(done))} each")
    if as_json:
        from rlmbench.cli.output import print_json

        listed = [{"run": one.run_id, "path": str(one.path), "size_bytes": one.size_bytes} for one in done]
        print_json({"runs": listed, "size_bytes": total})
    return EXIT_OK


def _campaign(run: Path, campaign_id: str | None) -> Path | None:
    path = run.parent / "campaigns" / f"{campaign_id}.json"
    return path if campaign_id and path.is_file() else None
