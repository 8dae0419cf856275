"""`rlmbench frameworks`: which parallelism and inter-model techniques each framework can run, as its adapter drives it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from rlmbench.errors import EXIT_OK

if TYPE_CHECKING:
    from rlmbench.adapter import Adapter

app = typer.Typer(add_completion=False)

HEADER = """# What each framework can do, in the paper's terms

Parallelism and techniques between models as in arXiv 2608.27046 (Sections 3 and 4), for each framework as its adapter drives it.
`rlmbench frameworks` prints this table; this page is made by `rlmbench frameworks --markdown`, and a test holds it to what adapters state, and
what they state to what their translations really refuse.

- **run here**: has trained and passed its audit on a machine of rlmbench's authors, a CPU at `tiny`. On a GPU nothing has been run yet.
- translated, not run: rlmbench writes the framework's configuration for it, and nobody here has run it.
- not expressible: the framework lacks it, only comes near it, or no field of an experiment reaches it.

"""


@app.command()
def frameworks(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/taxonomy.md.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> int:
    """Say for every technique whether a framework's adapter has run it, translates it, or cannot express it.

    \b
    rlmbench frameworks
    rlmbench frameworks --json
    """
    from rlmbench.adapter import installed_adapters
    from rlmbench.cli.output import console, print_json
    from rlmbench.report.taxonomy import table
    from rlmbench.taxonomy import declared

    adapters = {name: adapter for name, adapter in sorted(installed_adapters().items()) if not _is_simulated(adapter)}
    if as_json:
        stated = {
            name: {kind: {"support": str(one.support), "how": one.how} for kind, one in declared(adapter).items()}
            for name, adapter in adapters.items()
        }
        print_json({"frameworks": stated})
    elif markdown:
        print(page(adapters), end="")
    else:
        console(sys.stdout).print(table(adapters))
    return EXIT_OK


def page(adapters: Mapping[str, Adapter]) -> str:
    """docs/taxonomy.md."""
    from rlmbench.records.vocabulary import FRAMEWORK_NAMES
    from rlmbench.taxonomy import markdown

    ordered = dict(sorted(adapters.items()))
    return HEADER + markdown(ordered, [FRAMEWORK_NAMES.get(name, name) for name in ordered])


def _is_simulated(adapter: Adapter) -> bool:
    """Of a stand-in for a framework no technique is worth a column."""
    from rlmbench.experiment import Experiment
    from rlmbench.taxonomy import BASE

    return bool(adapter.translate(Experiment.model_validate(BASE), "cpu").simulated)
