"""`rlmbench plan`: what a suite will need, before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rlmbench.errors import EXIT_OK, UserError

if TYPE_CHECKING:
    from rich.console import Console

    from rlmbench.costmodel.devices import Ceiling, Device
    from rlmbench.costmodel.prediction import Prediction
    from rlmbench.experiment import Experiment
    from rlmbench.runner.cells import Plan

app = typer.Typer(add_completion=False)


@app.command()
def plan(
    suite: Annotated[str, typer.Argument(help="Name or file of a suite.")],
    framework: Annotated[
        list[str],
        typer.Option(
            "--framework", "-f", help="Whose placement of models and memory: trl, verl, openrlhf, or all; may be given several times."
        ),
    ],
    scale: Annotated[str, typer.Option(help="tiny, small, base, large, or auto.")] = "auto",
    devices: Annotated[int | None, typer.Option(help="Devices in all: changes the number of data-parallel ranks.")] = None,
    device_type: Annotated[str | None, typer.Option(help="Devices to plan for, such as H100-SXM; else this machine's.")] = None,
    price_per_gpu_hour: Annotated[float | None, typer.Option(min=0, max=1_000_000, help="For the cost, in any currency.")] = None,
    prompt_tokens: Annotated[
        float | None, typer.Option(min=1, max=10_000_000, help="Mean length of the prompts, where it is known better.")
    ] = None,
    variants: Annotated[list[str] | None, typer.Option("--variant", help="Of a sweep: only this one.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting first.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> int:
    """Say whether a suite fits the devices' memory, how long a step takes at least, and what it costs at least. Starts nothing.

    The exit code is 0 whatever the verdict: it is in the output. Execution modes before any run: plan placement_sweep; after one: rlmbench whatif.

    \b
    rlmbench plan gsm8k_grpo -f verl --scale base --device-type H100-SXM
    rlmbench plan gsm8k_grpo -f all --scale base --device-type H100-SXM
    rlmbench plan placement_sweep -f verl --scale base --device-type H100-SXM
    rlmbench plan gsm8k_ppo -f openrlhf --scale base --devices 16 --device-type H100-SXM --price-per-gpu-hour 2.5
    """
    from rlmbench.cli.output import console, print_json
    from rlmbench.costmodel.devices import find_device
    from rlmbench.runner.cells import ALL, Request, make_plan

    kind = find_device(device_type) if device_type else None
    request = Request(
        suite, tuple(framework), scale, tuple(overrides or ()), device="cuda" if kind else None, variants=tuple(variants or ())
    )
    made = make_plan(request, force_scale=True)
    if not made.cells:
        raise UserError(*made.left_out)
    for line in made.left_out:
        print(f"left out: {line}", file=sys.stderr)
    is_single = len(made.parts) == 1 and ALL not in framework
    planned: dict[str, list[_Cell]] = {}
    refused: list[str] = []
    for name in made.parts:
        possible = {cell.variant for cell in made.cells if cell.framework == name}
        try:
            cells = [_cell(one, name, devices, kind, prompt_tokens) for one in made.each if one.variant in possible]
        except UserError as error:
            if is_single:
                raise
            refused.append(str(error))
            continue
        if cells:
            planned[name] = cells
    if not planned:
        raise UserError(*dict.fromkeys(refused))
    for line in refused:
        print(f"left out: {line}", file=sys.stderr)
    if as_json:
        told = {name: _document(made, name, cells, price_per_gpu_hour) for name, cells in planned.items()}
        print_json(next(iter(told.values())) if is_single else {"suite": made.suite, "scale": made.scale, "frameworks": told})
    else:
        _print([cell for cells in planned.values() for cell in cells], price_per_gpu_hour, console(sys.stdout))
    return EXIT_OK


@dataclass(frozen=True)
class _Cell:
    """One experiment (of a sweep: one variant) with its prediction, and the ceiling that it was made against."""

    title: str
    name: str
    variant: str
    prediction: Prediction
    ceiling: Ceiling | None


def _cell(made: Plan, framework: str, devices: int | None, kind: Device | None, prompt_tokens: float | None) -> _Cell:
    from rlmbench.adapter import find_adapter
    from rlmbench.costmodel.devices import datasheet
    from rlmbench.costmodel.stages import setup_of
    from rlmbench.runner.predicted import here, prediction_of

    adapter = find_adapter(framework)
    experiment = made.experiment
    if devices is not None:
        groups = 1 + bool(setup_of(experiment, adapter.translate(experiment, made.device).traits).critic_devices)
        experiment = with_devices(experiment, devices, groups)
    longest = experiment.workload.max_prompt_tokens
    if prompt_tokens is not None and prompt_tokens > longest:
        raise UserError(f"--prompt-tokens {prompt_tokens:g}: a prompt has at most {longest} here (workload.max_prompt_tokens)")
    translation = adapter.translate(experiment, made.device)
    if translation.unsupported:
        first = translation.unsupported[0]
        raise UserError(f"{framework} cannot run {made.suite} at {made.scale}: {first.field} = {first.value!r}: {first.reason}")
    if translation.simulated:
        raise UserError(f"{framework}: {translation.simulated}; no model computes, so there is nothing to plan")
    found = prediction_of(experiment, translation, made.device, device_type=kind, prompt_tokens=prompt_tokens)
    if found is None:
        raise UserError(
            "the model is not one of rlmbench's published shapes (rlmbench suites shapes), so its work is not known: set model.shape"
        )
    named = f"{made.suite} {made.variant}".strip()
    title = f"{named} at {made.scale}, {framework}: {experiment.samples_per_step} samples a step, {experiment.placement.mode}"
    return _Cell(
        title,
        f"{framework} {made.variant}".strip(),
        made.variant,
        found,
        datasheet(kind, found.dtype) if kind else here(made.device, found.dtype)[0],
    )


def _document(made: Plan, framework: str, cells: Sequence[_Cell], price: float | None) -> dict[str, object]:
    return {
        "suite": made.suite,
        "scale": made.scale,
        "framework": framework,
        "cells": [_as_json(cell, price) for cell in cells],
    }


def _as_json(cell: _Cell, price: float | None) -> dict[str, object]:
    from dataclasses import asdict

    from rlmbench.costmodel.budget import budget

    cost = budget(cell.prediction, price)
    return {
        "variant": cell.variant or None,
        "prediction": {**asdict(cell.prediction), "verdict": cell.prediction.verdict},
        "least_device_hours": cost.device_hours,
        "least_cost": cost.cost,
        "no_hours_because": cost.why_not,
        "if_like_published": None if cost.likely is None else asdict(cost.likely),
    }


def _print(cells: Sequence[_Cell], price: float | None, out: Console) -> None:
    from rlmbench.report.console_parts import heading
    from rlmbench.report.plan import print_prediction, print_side_by_side

    for cell in cells:
        heading(out, cell.title)
        print_prediction(cell.prediction, cell.ceiling, price, out)
    if len(cells) > 1:
        print_side_by_side([(cell.name, cell.prediction) for cell in cells], price, out)


def with_devices(experiment: Experiment, devices: int, groups: int = 1) -> Experiment:
    """`experiment` on `devices` devices, by more or fewer data-parallel ranks; rollout devices of their own stay as they are.

    `groups`: 2 where a framework trains the critic on devices of its own, as many as the actor's.

    Raises:
        UserError: they do not divide by what one rank needs, or the batch does not divide by the ranks.
    """
    from pydantic import ValidationError

    from rlmbench.experiment import Experiment

    split, own = experiment.parallelism, experiment.placement.rollout_devices
    each = split.tensor * split.pipeline * split.context * groups
    if devices <= own or (devices - own) % each:
        rollout = f"{own} are the rollout's, and " if own else ""
        degrees = "tensor x pipeline x context" + (", for actor and critic each" if groups > 1 else "")
        needed = f"a multiple of {each} ({degrees})" if each > 1 else "at least 1"
        raise UserError(f"--devices {devices}: {rollout}training needs {needed}")
    changed = experiment.model_dump()
    changed["parallelism"]["data"] = (devices - own) // each
    try:
        return Experiment.model_validate(changed)
    except ValidationError as error:
        raise UserError(f"--devices {devices}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
