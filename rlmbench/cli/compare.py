"""`rlmbench compare`: may runs be compared, which is faster, and in what do they differ."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlmbench.errors import EXIT_NOT_COMPARABLE, EXIT_OK, UserError

if TYPE_CHECKING:
    from rlmbench.comparison import Comparison

app = typer.Typer()


@app.command()
def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN|SUITE", help="Runs (ids, folders, latest), folders of runs, or a suite: all of its runs.")
    ],
    results: Annotated[Path, typer.Option(help="Where records lie.")] = Path("results"),
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 4 unless every pair may be compared (reservations pass).")] = False,
    minimum_effect: Annotated[float, typer.Option(help="Differences below this share of the speed count as none.")] = 0.03,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object (docs/comparison.schema.json) as the last line.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")] = False,
    as_line: Annotated[bool, typer.Option("--line", help="Print one line.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML to FILE, for CI.")] = None,
) -> int:
    """Compare runs: first whether they may be compared, then who is faster, then in what they differ.

    Runs that were made alike are one configuration, and its runs are repetitions: make them with run --repeats.

    \b
    rlmbench compare gsm8k_grpo
    rlmbench compare results/gsm8k_grpo/20261130-120000-trl-tiny-r0 latest
    rlmbench compare results --strict --junit compare.xml
    rlmbench compare gsm8k_grpo --markdown > comparison.md
    """
    if sum((as_json, as_markdown, as_line)) > 1:
        raise UserError("give one of --json, --markdown and --line")
    if not 0 <= minimum_effect < 1:
        raise UserError(f"--minimum-effect {minimum_effect:g}: give a share from 0 to 1, such as 0.03 for 3%")

    from rlmbench import comparison
    from rlmbench.runner.execute import summarized

    found = comparison.find_runs(runs, results)
    compared = comparison.compare([comparison.evidence_of(run, summarized(run)) for run in found], minimum_effect)
    if junit is not None:
        _write_junit(compared, junit)
    if as_json:
        from rlmbench.cli.output import print_json

        print_json(compared.model_dump(mode="json"))
    else:
        _print(compared, as_markdown=as_markdown, as_line=as_line)
    if not strict or compared.worst not in (None, "not comparable"):
        return EXIT_OK
    refused = [pair for pair in compared.pairs if pair.verdict == "not comparable"]
    told = [f"{pair.a} v {pair.b} is not comparable: {pair.reasons[0].sentence}" for pair in refused]
    print("\n".join(f"--strict: {line}" for line in told or ["there is only one configuration, so nothing was compared"]), file=sys.stderr)
    return EXIT_NOT_COMPARABLE


def _print(compared: Comparison, *, as_markdown: bool, as_line: bool) -> None:
    from rlmbench.cli.output import console

    if as_markdown:
        from rlmbench.report.comparison.markdown import markdown

        print(markdown(compared), end="")
    elif as_line:
        from rlmbench.report.comparison.words import one_line

        print(one_line(compared))
    else:
        from rlmbench.report.comparison.terminal import print_comparison

        print_comparison(compared, console(sys.stdout))


def _write_junit(compared: Comparison, path: Path) -> None:
    from rlmbench.report.comparison.junit import junit

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(junit(compared))
    except OSError as error:
        raise UserError(f"--junit {path}: cannot be written ({error.strerror}); choose another place") from None
