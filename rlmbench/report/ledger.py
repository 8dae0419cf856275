"""What a run would be: the ledger, the framework's configuration and the processes, before anything starts."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from rlmbench.adapter import Process
    from rlmbench.runner.cells import Part, Plan


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as one JSON object: experiment, and per framework ledger, what was never run, native configuration, and processes."""
    return {
        "suite": plan.suite,
        "scale": plan.scale,
        "scale_reason": plan.scale_reason,
        "device": plan.device,
        "experiment": plan.experiment.model_dump(mode="json"),
        "cells": [asdict(cell) for cell in plan.cells],
        "profile": _profile_document(plan.then) if plan.then else None,
        "frameworks": {name: _part_document(plan, part) for name, part in plan.parts.items()},
        "variants": {name: _variant_document(one) for name, one in plan.variants.items()},
        "left_out": list(plan.left_out),
    }


def _variant_document(plan: Plan) -> dict[str, Any]:
    return {
        "experiment": plan.experiment.model_dump(mode="json"),
        "frameworks": {name: _part_document(plan, part) for name, part in plan.parts.items()},
    }


def _profile_document(plan: Plan) -> dict[str, Any]:
    """The profile pass: what it traces, and how many steps its runs have."""
    assert plan.profile is not None
    return {"cells": [asdict(cell) for cell in plan.cells], **asdict(plan.profile), "run_steps": plan.experiment.measurement.steps}


def _part_document(plan: Plan, part: Part) -> dict[str, Any]:
    return {
        "environment": part.spec.name,
        "ledger": [asdict(entry) for entry in part.translation.ledger],
        "simulated": part.translation.simulated,
        "untested": list(part.translation.untested),
        "native": dict(part.translation.native),
        "launch": launch_commands(plan, part),
    }


def launch_commands(plan: Plan, part: Part) -> list[str]:
    """The command line of each process, with placeholders for what exists only once a run is prepared."""
    import tempfile

    from rlmbench.adapter import RunInputs

    if part.translation.unsupported:
        return []
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        inputs = RunInputs(run_dir, Path("MODEL"), run_dir / "plan.json", Path("PYTHON"), plan.device, plan.request.ray_address)
        launch = part.adapter.launch(part.translation, plan.experiment, inputs)
        return [_command(process).replace(folder, "RUN") for process in launch.processes]


def _command(process: Process) -> str:
    """A process as a shell would start it, with the environment that the adapter gives it."""
    variables = [f"{key}={value}" for key, value in sorted(process.env.items())]
    return shlex.join(["env", *variables, *process.argv])


def print_plan(plan: Plan, console: Console) -> None:
    """The plan for a person: ledger, native configuration as JSON, launch commands; long lines are left whole, to be copied."""
    console.print(
        f"{plan.suite} at {plan.scale} ({plan.scale_reason}) on {plan.device}: {len(plan.cells)} {'run' if len(plan.cells) == 1 else 'runs'}",
        soft_wrap=True,
    )
    if plan.then and plan.then.profile:
        traced, of = ", ".join(map(str, plan.then.profile.steps)), plan.then.experiment.measurement.steps
        console.print(f"then one more run of each framework, of {of} steps, with step {traced} under torch.profiler", soft_wrap=True)
    for line in plan.left_out:
        console.print(f"left out: {line}", soft_wrap=True)
    for one in plan.each:
        if one.variant:
            console.print(f"\nvariant {one.variant}", style="bold")
        _print_parts(one, console)


def _print_parts(plan: Plan, console: Console) -> None:
    from rlmbench.report.terminal import print_ledger

    for name, part in plan.parts.items():
        console.print(f"\n{name}", style="bold")
        print_ledger([asdict(entry) for entry in part.translation.ledger], console)
        for line in filter(None, (part.translation.simulated, *part.translation.untested)):
            console.print(f"note: {line}", soft_wrap=True)
        console.print(f"\n{name}: native configuration, run in the environment {part.spec.name}")
        console.print(json.dumps(dict(part.translation.native), indent=2), soft_wrap=True)
        console.print(f"\n{name}: processes")
        for command in launch_commands(plan, part):
            console.print(f"  {command}", soft_wrap=True)
