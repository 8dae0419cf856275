"""`rlmbench compare`: may runs be compared, which is faster, and in what do they differ."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from rlmbench.cli.options import Campaign, Since, check_minimum_effect
from rlmbench.errors import EXIT_NOT_COMPARABLE, EXIT_OK, EXIT_SLOWER, UserError, as_line

if TYPE_CHECKING:
    from rlmbench.comparison import Comparison, Evidence
    from rlmbench.records import Run

app = typer.Typer(add_completion=False)
_GIVEN = "rlmbench.arguments"


class _Command(TyperCommand):
    """Keeps the arguments in their order: a shell makes several of ``--against results/branch/*``, of which the option takes the first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_GIVEN] = tuple(args)
        return super().parse_args(ctx, args)


@app.command(cls=_Command)
def compare(
    context: typer.Context,
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN|SUITE", help="Runs (ids, folders, latest), folders of runs, or a suite: all of its runs.")
    ],
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN|SUITE", help="Compare these with RUNs, which are then the baseline; may be given several times."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="CONFIGURATION", help="Compare with this one alone: a framework, a name or its beginning, or a letter."),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="slower[:SHARE]",
            help="Exit code 5 when something is slower than its baseline (by SHARE, as in slower:5%), 4 when not judged.",
        ),
    ] = None,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing", help="With --fail-on: pass although something stands beside nothing: only in the baseline, or only new."
        ),
    ] = False,
    campaign: Campaign = None,
    since: Since = None,
    results: Annotated[Path, typer.Option(help="Where records lie.")] = Path("results"),
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 4 unless every pair may be compared (reservations pass).")] = False,
    minimum_effect: Annotated[
        float | None, typer.Option(help="Differences below this share of the speed count as none; 0.03 by default.")
    ] = None,
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
    rlmbench compare gsm8k_grpo --campaign latest --baseline trl
    rlmbench compare results/main --against results/branch --fail-on slower:5%
    rlmbench compare gsm8k_grpo --markdown > comparison.md
    """
    if sum((as_json, as_markdown, as_line)) > 1:
        raise UserError("give one of --json, --markdown and --line")
    if against:
        _check_order(context.meta[_GIVEN], runs)
    least = _minimum_effect(minimum_effect, fail_on)
    if fail_on is not None and not against and baseline is None:
        raise UserError("--fail-on: slower than what? give --baseline CONFIGURATION, or the new runs with --against")
    if against and baseline is not None:
        raise UserError("give one of --against and --baseline: with --against the RUNs named first are the baseline")
    if allow_missing and fail_on is None:
        raise UserError("--allow-missing: give --fail-on, too; without a gate nothing fails for what is missing")

    from rlmbench import comparison

    found, newer = _found([runs, against or []], results, campaign, since)
    if against:
        comparison.check_apart(found, newer)
        before, after = _evidence([found, newer])
        compared = comparison.compare_against(before, after, least)
        if not compared.pairs and fail_on is None:
            raise UserError(f"--against: {compared.alone[-1].sentence}; run it, too")
    else:
        compared = comparison.compare(_evidence([found])[0], least, baseline)
    if fail_on is not None:
        compared = comparison.gated(compared, allow_missing=allow_missing)
    if junit is not None:
        _write_junit(compared, junit)
    try:
        _print(compared, as_json=as_json, as_markdown=as_markdown, as_line=as_line)
        sys.stdout.flush()
    except BrokenPipeError:  # as in `... | head`: the exit code holds all the same
        from rlmbench.cli.output import discard_output

        discard_output()
    code = _strict(compared) if strict else EXIT_OK
    return max(code, _gate(compared))


def _minimum_effect(minimum_effect: float | None, fail_on: str | None) -> float:
    """The share of --fail-on, else --minimum-effect, else the default."""
    from rlmbench.comparison import parse_fail_on
    from rlmbench.metrics.statistics import MINIMUM_EFFECT

    if minimum_effect is not None:
        check_minimum_effect(minimum_effect)
    share = parse_fail_on(fail_on) if fail_on is not None else None
    if share is not None and minimum_effect not in (None, share):
        raise UserError(f"--fail-on {fail_on} and --minimum-effect {minimum_effect:g} contradict each other; give one of them")
    return next(value for value in (share, minimum_effect, MINIMUM_EFFECT) if value is not None)


def _check_order(given: tuple[str, ...], runs: list[str]) -> None:
    """That nothing which follows ``--against NEW`` is taken for a part of the baseline, which stands before it."""
    first = given.index(runs[0])
    for place, argument in enumerate(given):
        following = given[place + 2] if place + 2 < len(given) else "-"
        if argument == "--against" and first < place and not following.startswith("-"):
            raise UserError(
                f"--against takes one name, so that {following} would be part of the baseline; give --against for each, or a folder of runs"
            )


def _found(sides: list[list[str]], results: Path, campaign: str | None, since: str | None) -> list[list[Run]]:
    """The runs of each side. One that is damaged may be the worst, so none is left out; all that are damaged are named together."""
    from rlmbench import comparison
    from rlmbench.records.store import read_each

    found = [comparison.find_runs(names, results) for names in sides]
    read_each([run for runs in found for run in runs], lambda run: run.manifest)
    return [comparison.only(runs, campaign, since) if runs else [] for runs in found]


def _evidence(sides: list[list[Run]]) -> list[list[Evidence]]:
    from rlmbench import comparison
    from rlmbench.records.store import read_each
    from rlmbench.runner.execute import summarized

    counted = [comparison.without_replaced(runs) for runs in sides]
    attempts = {path: ids for _, replaced in counted for path, ids in replaced.items()}
    every = [run for kept, _ in counted for run in kept]
    read = iter(read_each(every, lambda run: comparison.evidence_of(run, summarized(run), attempts.get(run.path, ()))))
    return [[next(read) for _ in kept] for kept, _ in counted]


def _strict(compared: Comparison) -> int:
    """The exit code of --strict; why goes to standard error."""
    from rlmbench.report.comparison.words import nothing_to_compare

    if compared.worst not in (None, "not comparable"):
        return EXIT_OK
    refused = [pair for pair in compared.pairs if pair.verdict == "not comparable"]
    told = [f"{pair.a} v {pair.b} is not comparable: {pair.reasons[0].sentence}" for pair in refused]
    print(
        "\n".join(f"--strict: {as_line(line)}" for line in told or [nothing_to_compare(compared)]),
        file=sys.stderr,
    )
    return EXIT_NOT_COMPARABLE


def _gate(compared: Comparison) -> int:
    """The exit code of --fail-on; what it is about goes to standard error."""
    from rlmbench.report.comparison.words import nothing_to_compare

    if compared.gate is None or compared.gate.outcome == "passed":
        return EXIT_OK
    told = [pair.sentence for pair in compared.gate.pairs if pair.outcome != "passed"]
    told += [f"{one.sentence}; run it, too, or accept it with --allow-missing" for one in compared.gate.missing]
    print("\n".join(f"--fail-on: {as_line(line)}" for line in told or [nothing_to_compare(compared)]), file=sys.stderr)
    return EXIT_SLOWER if compared.gate.outcome == "slower" else EXIT_NOT_COMPARABLE


def _print(compared: Comparison, *, as_json: bool, as_markdown: bool, as_line: bool) -> None:
    from rlmbench.cli.output import console, print_json

    if as_json:
        print_json(compared.model_dump(mode="json"))
    elif as_markdown:
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
