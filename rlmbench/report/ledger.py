"""What a run would be: the ledger, the framework's configuration and the processes, before anything starts."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlmbench.adapter import LedgerEntry
    from rlmbench.runner.cells import Part, Plan


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as one JSON object: experiment, and per framework ledger, native configuration, environment and processes."""
    return {
        "suite": plan.suite,
        "scale": plan.scale,
        "scale_reason": plan.scale_reason,
        "device": plan.device,
        "experiment": plan.experiment.model_dump(mode="json"),
        "cells": [asdict(cell) for cell in plan.cells],
        "frameworks": {name: _part_document(plan, part) for name, part in plan.parts.items()},
    }


def _part_document(plan: Plan, part: Part) -> dict[str, Any]:
    return {
        "environment": part.spec.name,
        "ledger": [asdict(entry) for entry in part.translation.ledger],
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
        inputs = RunInputs(run_dir, Path("MODEL"), run_dir / "plan.json", Path("PYTHON"), plan.device)
        launch = part.adapter.launch(part.translation, plan.experiment, inputs)
        return [shlex.join(process.argv).replace(folder, "RUN") for process in launch.processes]


def print_plan(plan: Plan) -> None:
    """The plan for a person: ledger by fidelity, native configuration as JSON, launch commands."""
    print(f"{plan.suite} at {plan.scale} ({plan.scale_reason}) on {plan.device}: {len(plan.cells)} run(s)")
    for name, part in plan.parts.items():
        print(f"\n{name}: fidelity ledger")
        for fidelity in ("unsupported", "approximated", "exact"):
            entries = [entry for entry in part.translation.ledger if entry.fidelity == fidelity]
            print(f"\n  {fidelity} ({len(entries)})")
            for entry in entries:
                print(ledger_line(entry))
        print(f"\n{name}: native configuration, run in the environment {part.spec.name}")
        print(json.dumps(dict(part.translation.native), indent=2))
        print(f"\n{name}: processes")
        for command in launch_commands(plan, part):
            print(f"  {command}")


def ledger_line(entry: LedgerEntry) -> str:
    """``field = asked -> native_key=value: reason`` on one line, whatever its length: a terminal wraps, a program greps."""
    asked = "" if entry.field.startswith("(") else f" = {_short(entry.value)}"
    native = f" -> {entry.native_key}={json.dumps(entry.native_value)}" if entry.native_key else ""
    reason = f": {entry.reason}" if entry.reason else ""
    return f"    {entry.field}{asked}{native}{reason}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
