"""`rlmbench doctor`: what this machine can run and measure, and what is missing."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rlmbench.errors import EXIT_OK, UserError, did_you_mean

app = typer.Typer(add_completion=False)


@app.command()
def doctor(
    ceilings: Annotated[
        bool, typer.Option("--ceilings", help="First measure how fast the devices multiply and copy, and keep it for MFU and MBU.")
    ] = False,
    framework: Annotated[str | None, typer.Option(help="With --ceilings: measure with this framework's torch.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> int:
    """Say what this machine can measure: each probe and collector is available, or absent with the reason.

    \b
    rlmbench doctor
    rlmbench doctor --json
    rlmbench doctor --ceilings --framework trl
    """
    from rich.markup import escape
    from rich.table import Table

    from rlmbench.adapter import broken_adapters, installed_adapters
    from rlmbench.cli.env import environment_row, state_name
    from rlmbench.cli.output import console, print_json
    from rlmbench.collectors.sampler import capabilities as collector_capabilities
    from rlmbench.environment import ceilings as measured
    from rlmbench.environment import default_device, devices, host_facts, state
    from rlmbench.environment.doctor import examine

    if framework and not ceilings:
        raise UserError("--framework names whose torch measures ceilings: give --ceilings with it")
    adapters, broken = installed_adapters(), broken_adapters()
    if framework and framework not in adapters:
        raise UserError(f"unknown framework {framework!r}{did_you_mean(framework, sorted(adapters))}; known: {', '.join(sorted(adapters))}")
    states = [(owner, state(spec)) for owner, adapter in sorted(adapters.items()) for spec in adapter.environments()]
    if ceilings:
        if not as_json:
            console(sys.stderr).print("measuring how fast this machine multiplies and copies: about 20 s")
        measured.measure_with(states, framework, default_device())
    facts = examine([one for _, one in states], collector_capabilities())
    if as_json:
        print_json(
            {
                "adapters": sorted(adapters),
                "broken_adapters": broken,
                "facts": [fact.as_dict() for fact in facts],
                "environments": [environment_row(owner, one) for owner, one in states],
                "host": host_facts(),
                "devices": devices(),
                "ceilings": measured.kept(default_device()),
            }
        )
        return EXIT_OK
    table = Table("fact", "state", "value or reason", box=None, pad_edge=False)
    table.columns[2].overflow = "fold"
    for fact in facts:
        table.add_row(fact.name, "available" if fact.available else "absent", escape(fact.shown))
    for name in sorted(adapters):
        table.add_row(f"adapter {name}", "available", "")
    for name, why in sorted(broken.items()):
        table.add_row(f"adapter {name}", "absent", escape(why))
    if not adapters:
        table.add_row("adapters", "absent", "no installed package names one in the entry-point group rlmbench.adapters")
    for _, one in states:
        if one.size_bytes is None:
            state_text, detail = "absent", f"{state_name(one)}: rlmbench env create {one.spec.name} --device {one.spec.device}"
        else:
            state_text, detail = "available", f"{one.size_bytes / 1e9:.1f} GB at {one.folder}"
        table.add_row(f"environment {one.spec.name}-{one.spec.device}", state_text, escape(detail))
    console(sys.stdout).print(table)
    return EXIT_OK
