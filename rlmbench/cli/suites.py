"""`rlmbench suites`: which suites there are, what they say, and whether a suite file is right."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlmbench.errors import EXIT_USAGE

if TYPE_CHECKING:
    from rlmbench.experiment import Suite

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List, show and check suites.")

TEXT_COLUMNS = 80
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


@app.command("list")
def list_suites(as_json: JsonFlag = False) -> None:
    """List the suites that can be named, and where they lie.

    \b
    rlmbench suites list
    rlmbench suites list --json
    """
    from rlmbench.experiment.load import check_suite, suite_files
    from rlmbench.experiment.yaml_file import shown

    found = [(name, path, *check_suite(path)) for name, path in suite_files().items()]
    if as_json:
        entries = [
            {
                "name": name,
                "path": str(path),
                "title": suite.title if suite else None,
                "scales": _scales(suite) if suite else {},
                "problems": problems,
            }
            for name, path, suite, problems in found
        ]
        typer.echo(json.dumps({"suites": entries}))
        return
    rows = [
        (name, suite.title if suite else f"not valid: {problems[0]}", ", ".join(suite.scales) if suite else "", shown(path))
        for name, path, suite, problems in found
    ]
    typer.echo(_table(("suite", "what it is", "scales", "file"), rows))


@app.command()
def show(
    suite: Annotated[str, typer.Argument(help="Name or file of a suite.")],
    scale: Annotated[str | None, typer.Option(help="Show the whole experiment at this scale.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting first.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a suite, or the experiment that it means at one scale.

    \b
    rlmbench suites show gsm8k_grpo
    rlmbench suites show gsm8k_grpo --scale base
    rlmbench suites show gsm8k_grpo --scale tiny --set optimization.group_size=8
    """
    from rlmbench.experiment.load import build_experiment, load_suite

    loaded = load_suite(suite)
    if scale is None:
        if overrides:
            raise typer.BadParameter("needs --scale: a setting changes the experiment at one scale", param_hint="--set")
        typer.echo(json.dumps(_described(loaded)) if as_json else _page(loaded))
        return
    experiment = build_experiment(loaded, scale, overrides or [])
    facts = {
        "samples_per_step": experiment.samples_per_step,
        "updates_per_step": experiment.updates_per_step,
        "devices": experiment.devices,
    }
    settings = experiment.model_dump(mode="json")
    if as_json:
        typer.echo(json.dumps({"suite": loaded.name, "scale": scale, **facts, "experiment": settings}))
        return
    import yaml

    counted = ", ".join(f"{name} {value}" for name, value in facts.items())
    typer.echo(f"# {loaded.name} at {scale}: {counted}\n{yaml.safe_dump(settings, sort_keys=False)}", nl=False)


@app.command()
def validate(
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH]...", help="Suite files or names; all suites by default.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check suite files: every problem on one line, with file and line number. Exit code 2 if there is any.

    \b
    rlmbench suites validate
    rlmbench suites validate my_suite.yaml
    """
    from rlmbench.experiment.load import check_suite, find_suite, suite_files
    from rlmbench.experiment.yaml_file import shown

    files = [find_suite(path) for path in paths] if paths else list(suite_files().values())
    checked = [(path, check_suite(path)[1]) for path in files]
    if as_json:
        results = [{"path": str(path), "ok": not problems, "problems": problems} for path, problems in checked]
        typer.echo(json.dumps({"ok": bool(files) and not any(problems for _, problems in checked), "suites": results}))
    for path, problems in checked:
        for problem in problems:
            typer.echo(problem, err=True)
        if not problems and not as_json:
            typer.echo(f"{shown(path)}: ok")
    if not files:
        typer.echo("no suite was found to check", err=True)
    if not files or any(problems for _, problems in checked):
        raise typer.Exit(EXIT_USAGE)


@app.command()
def schema() -> None:
    """Print the JSON Schema of suite files, for editors.

    \b
    rlmbench suites schema > suite.schema.json
    """
    from rlmbench.experiment.schema import suite_schema

    typer.echo(json.dumps(suite_schema(), indent=2))


@app.command()
def shapes(as_json: JsonFlag = False) -> None:
    """List the published model shapes that can be built with random weights (`model.shape`).

    \b
    rlmbench suites shapes
    """
    from rlmbench.workload.shapes import SHAPES

    if as_json:
        found = [
            {
                "name": shape.name,
                "source": shape.source,
                "parameters": shape.parameters,
                "layers": shape.layers,
                "hidden_size": shape.hidden_size,
                "experts": shape.experts,
                "max_positions": shape.max_positions,
            }
            for shape in SHAPES.values()
        ]
        typer.echo(json.dumps({"shapes": found}))
        return
    rows = [
        (
            shape.name,
            shape.source,
            _millions(shape.parameters),
            shape.layers,
            shape.hidden_size,
            shape.experts or "dense",
            shape.max_positions,
        )
        for shape in SHAPES.values()
    ]
    typer.echo(_table(("shape", "published as", "parameters", "layers", "hidden", "experts", "positions"), rows))


def _scales(suite: Suite) -> dict[str, dict[str, Any]]:
    return {name: {"devices": scale.devices, "device_memory_gib": scale.device_memory_gib} for name, scale in suite.scales.items()}


def _described(suite: Suite) -> dict[str, Any]:
    return {
        "name": suite.name,
        "title": suite.title,
        "description": suite.description,
        "sources": suite.sources,
        "scales": _scales(suite),
        "variants": {scale: list(suite.variants_at(scale)) for scale in suite.scales},
    }


def _page(suite: Suite) -> str:
    rows = []
    for name, scale in suite.scales.items():
        it = suite.experiment_at(name)
        rows.append(
            (
                name,
                scale.devices or "CPU",
                it.model.shape or it.model.hub or it.model.path,
                f"{it.workload.prompts_per_step} x {it.optimization.group_size}",
                it.updates_per_step,
                it.workload.max_response_tokens,
                it.workload.mode,
                it.measurement.steps,
            )
        )
    heads = ("scale", "GPUs", "model", "prompts x samples", "updates/step", "response cap", "lengths", "steps")
    sources = "\n".join(_wrapped(f"  - {source}", "    ") for source in suite.sources)
    swept = [f"  {scale}: {', '.join(variants)}" for scale in suite.scales if (variants := suite.variants_at(scale))]
    variants_ = "\n\nVariants, each a run of its own, laid over the above\n" + "\n".join(swept) if swept else ""
    return f"{suite.name}: {suite.title}\n\n{_wrapped(suite.description)}\n\n{_table(heads, rows)}{variants_}\n\nSources\n{sources}"


def _wrapped(words: str, indent: str = "") -> str:
    return textwrap.fill(words, TEXT_COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _millions(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns, plain text: the same for a terminal and a pipe."""
    cells = [[str(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
