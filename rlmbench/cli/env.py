"""`rlmbench env`: build, list, check, remove and find the frameworks' environments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlmbench.errors import EXIT_OK, EnvironmentFailure, UserError, did_you_mean

if TYPE_CHECKING:
    from rlmbench.adapter import EnvironmentSpec
    from rlmbench.environment import State

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Build, list, check and remove the frameworks' environments.")

Framework = Annotated[str, typer.Argument(help="A framework, such as trl, or one of its environments, such as trl-ppo.")]
Name = Annotated[str | None, typer.Option("--name", help="Which of the framework's environments; by default its main one.")]
Device = Annotated[str | None, typer.Option("--device", help="cpu or cuda; by default what this machine has.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]


@app.command()
def create(
    framework: Framework,
    name: Name = None,
    device: Device = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build it again although it is there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> int:
    """Build an environment, or find that it is there. pip's own configuration decides where packages come from.

    \b
    rlmbench env create trl
    rlmbench env create trl --name trl-ppo
    rlmbench env create trl --device cuda --rebuild
    """
    from rlmbench.environment import ensure
    from rlmbench.runner.progress import open_progress

    spec = _select(framework, name, device)
    with open_progress(quiet) as progress:
        progress.run(f"{spec.name} for {spec.device}")
        environment = ensure(spec, progress=progress.phase, rebuild=rebuild)
    print(environment.python)
    return EXIT_OK


@app.command("list")
def list_environments(
    framework: Annotated[str | None, typer.Argument(help="Only this framework's.")] = None, as_json: JsonFlag = False
) -> int:
    """List the environments: which exist and how large they are (env path says where).

    \b
    rlmbench env list
    rlmbench env list trl --json
    """
    import sys

    from rich.table import Table

    from rlmbench.cli.output import console, print_json
    from rlmbench.environment import state

    states = [(owner, state(spec)) for owner, spec in _specs(framework)]
    if as_json:
        print_json({"environments": [environment_row(owner, one) for owner, one in states]})
        return EXIT_OK
    table = Table("environment", "device", "state", "size", "what it is", box=None, pad_edge=False)
    for _, one in states:
        size = "" if one.size_bytes is None else f"{one.size_bytes / 1e9:.1f} GB"
        table.add_row(one.spec.name, one.spec.device, state_name(one), size, one.spec.summary)
    console(sys.stdout).print(table)
    return EXIT_OK


@app.command()
def check(
    framework: Framework,
    name: Name = None,
    device: Device = None,
    python: Annotated[Path | None, typer.Option("--python", help="Check this interpreter of your own instead.")] = None,
    as_json: JsonFlag = False,
) -> int:
    """Import what a run imports, and compare versions. Exit code 3 when the environment cannot be used.

    \b
    rlmbench env check trl
    rlmbench env check trl --python ~/venvs/trl/bin/python
    """
    from rlmbench.cli.output import print_json
    from rlmbench.environment import check as check_environment
    from rlmbench.environment import use_python

    spec = _select(framework, name, device)
    environment = use_python(python, spec) if python else _built(spec, framework)
    problems = [] if python else check_environment(environment, spec)
    if as_json:
        print_json(
            {
                "environment": spec.name,
                "device": spec.device,
                "python": str(environment.python),
                "python_version": environment.python_version,
                "key": environment.key,
                "ok": not problems,
                "problems": problems,
                "notes": list(environment.notes),
                "torch": environment.torch,
                "packages": dict(environment.packages),
            }
        )
    if problems:
        raise EnvironmentFailure(
            f"{spec.name} for {spec.device} cannot be used: {'; '.join(problems)}; "
            f"build it again with `rlmbench env create {spec.name} --device {spec.device} --rebuild`"
        )
    if not as_json:
        versions = ", ".join(f"{package} {environment.packages[package]}" for package in spec.versions)
        print("\n".join([f"{spec.name} for {spec.device}: ok ({versions}, Python {environment.python_version})", *environment.notes]))
    return EXIT_OK


@app.command()
def remove(framework: Framework, name: Name = None, device: Device = None) -> int:
    """Remove an environment, builds from earlier lock files included.

    \b
    rlmbench env remove trl --name trl-ppo
    """
    from rlmbench.environment import remove as remove_environment

    spec = _select(framework, name, device)
    removed = remove_environment(spec)
    print("\n".join(f"removed {folder}" for folder in removed) or f"{spec.name} for {spec.device} is not built: nothing to remove")
    return EXIT_OK


@app.command()
def path(framework: Framework, name: Name = None, device: Device = None, as_json: JsonFlag = False) -> int:
    """Print the path of an environment's interpreter. Exit code 3 when it is not built.

    \b
    $(rlmbench env path trl) -c "import trl; print(trl.__version__)"
    """
    from rlmbench.cli.output import print_json

    spec = _select(framework, name, device)
    python = str(_built(spec, framework).python)
    if as_json:
        print_json({"environment": spec.name, "device": spec.device, "python": python})
    else:
        print(python)
    return EXIT_OK


def environment_row(owner: str, one: State) -> dict[str, Any]:
    """One environment for `--json`; what is not there is null."""
    built = one.environment
    return {
        "framework": owner,
        "name": one.spec.name,
        "device": one.spec.device,
        "summary": one.spec.summary,
        "state": state_name(one),
        "path": str(one.folder) if built else None,
        "python": str(built.python) if built else None,
        "key": built.key if built else None,
        "size_bytes": one.size_bytes,
        "build_s": built.build_s if built else None,
        "packages": dict(built.packages) if built else None,
    }


def state_name(one: State) -> str:
    """built, half-built (an interrupted build: the next one starts over) or not built."""
    return "built" if one.environment else "half-built" if one.half_built else "not built"


def _specs(framework: str | None = None) -> list[tuple[str, EnvironmentSpec]]:
    """(framework, environment) for the framework called so or owning an environment called so; all without a name."""
    from rlmbench.adapter import installed_adapters

    every = [(owner, spec) for owner, adapter in sorted(installed_adapters().items()) for spec in adapter.environments()]
    found = [(owner, spec) for owner, spec in every if framework in (None, owner)]
    found = found or [(owner, spec) for owner, spec in every if spec.name == framework]
    if framework is not None and not found:
        known = sorted({owner for owner, _ in every} | {spec.name for _, spec in every})
        raise UserError(f"unknown framework {framework!r}{did_you_mean(framework, known)}; known: {', '.join(known) or 'none'}")
    return found


def _select(framework: str, name: str | None, device: str | None) -> EnvironmentSpec:
    """The one environment meant: by name, else the one called like the framework, else its first."""
    from rlmbench.environment import default_device

    specs = [spec for _, spec in _specs(framework)]
    names = list(dict.fromkeys(spec.name for spec in specs))
    chosen = name or (framework if framework in names else names[0])
    if chosen not in names:
        raise UserError(f"{framework} has no environment {chosen!r}{did_you_mean(chosen, names)}; it has {', '.join(names)}")
    devices = [spec.device for spec in specs if spec.name == chosen]
    wanted = device or default_device()
    if wanted not in devices:
        raise UserError(f"{chosen} has no environment for device {wanted!r}{did_you_mean(wanted, devices)}; it has {', '.join(devices)}")
    return next(spec for spec in specs if (spec.name, spec.device) == (chosen, wanted))


def _built(spec: EnvironmentSpec, framework: str) -> Any:
    from rlmbench.environment import find

    environment = find(spec)
    if environment is None:
        raise EnvironmentFailure(
            f"{spec.name} for {spec.device} is not built: rlmbench env create {framework} --name {spec.name} --device {spec.device}"
        )
    return environment
