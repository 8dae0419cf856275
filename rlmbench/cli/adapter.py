"""`rlmbench adapter`: does an adapter keep its promises?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlmbench.errors import EXIT_OK, EXIT_RUN_FAILED, UserError, did_you_mean

if TYPE_CHECKING:
    from rlmbench.adapter import Adapter

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Check adapters, one's own or somebody else's.")


@app.callback()
def group() -> None:
    """Check adapters, one's own or somebody else's."""


@app.command()
def check(
    package: Annotated[str, typer.Argument(help="An installed adapter: its name (trl) or its package (rlmbench_trl).")],
    runs: Annotated[bool, typer.Option("--runs/--no-runs", help="Also run it on the CPU: exact replay, coverage, failures.")] = True,
    suite: Annotated[list[str], typer.Option("--suite", help="Suites to run; by default gsm8k_grpo.")] = [],  # noqa: B006
    override: Annotated[list[str], typer.Option("--set", help="Change one field of each run, as in measurement.steps=3.")] = [],  # noqa: B006
    keep: Annotated[Path | None, typer.Option(help="Keep the records of the runs here; by default they are removed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> int:
    """Run the conformance kit: what docs/adapters.md asks of an adapter, one line a check. Exit code 1 when one fails.

    \b
    rlmbench adapter check trl --no-runs
    rlmbench adapter check rlmbench_mine --suite gsm8k_grpo --suite gsm8k_ppo
    """
    import sys
    from contextlib import ExitStack

    from rlmbench.cli.output import console, print_json
    from rlmbench.conformance import Finding, run_checks, static_checks
    from rlmbench.runner.temporary import temporary_folder

    name, adapter = _find(package)
    out = console(sys.stderr if as_json else sys.stdout)
    findings: list[Finding] = []

    def show(found: Finding) -> None:
        findings.append(found)
        out.print("ok  " if found.ok else "FAIL", style="green" if found.ok else "bold red", end=" ", highlight=False)
        out.print(f"{found.check}: {found.evidence}", markup=False, highlight=False, soft_wrap=True)

    for found in static_checks(adapter):
        show(found)
    if runs:
        with ExitStack() as stack:
            folder = keep or Path(stack.enter_context(temporary_folder("conformance-")))

            def tell(text: str) -> None:
                print(f"... {text}", file=sys.stderr, flush=True)

            for found in run_checks(name, tuple(suite) or ("gsm8k_grpo",), tuple(override), folder.resolve(), tell):
                show(found)
    failed = [found for found in findings if not found.ok]
    print(f"{name}: {len(findings) - len(failed)} of {len(findings)} checks hold", file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print_json({"adapter": name, "checks": [{"check": one.check, "ok": one.ok, "evidence": one.evidence} for one in findings]})
    return EXIT_RUN_FAILED if failed else EXIT_OK


def _find(package: str) -> tuple[str, Adapter]:
    """The adapter whose name is `package`, or which that package provides."""
    from importlib.metadata import entry_points

    from rlmbench.adapter import ENTRY_POINT_GROUP, find_adapter

    points = list(entry_points(group=ENTRY_POINT_GROUP))
    for point in points:
        if package in (point.name, point.module, point.module.partition(".")[0]):
            return point.name, find_adapter(point.name)
    known = sorted({name for point in points for name in (point.name, point.module)})
    raise UserError(
        f"no adapter {package!r}{did_you_mean(package, known)}; installed: {', '.join(known) or 'none'}. "
        f"A package names its adapter in the entry-point group {ENTRY_POINT_GROUP!r}, and must be installed (pip install -e .)"
    )
