"""`rlmbench whatif`: what a recorded run would have been in other execution modes, on other devices."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlmbench.errors import EXIT_OK, UserError

app = typer.Typer(add_completion=False)

MOST = 10_000_000
"""Devices: more than anybody has, and few enough that every figure stays exact."""
MOST_STEPS = 100_000
MOST_STALENESS = 10_000
"""2 x (staleness + 2) steps are the fewest that show it, which `MOST_STEPS` allows."""
MODES = (
    "colocated, hybrid_layouts, partially_colocated, disaggregated, inter_stage_fusion, intra_stage_fusion, stage_fusion, one_step_off, "
    "bounded_asynchrony, combined"
)
"""Those of `rlmbench.whatif`, which help need not import (a test compares them)."""


@app.command()
def whatif(
    run: Annotated[str, typer.Argument(help="Run id (or its beginning), folder, or latest.")] = "latest",
    mode: Annotated[
        list[str], typer.Option("--mode", "-m", help=f"Only this mode, may be given several times; default: all ({MODES}).")
    ] = [],  # noqa: B006
    devices: Annotated[int | None, typer.Option(min=1, max=MOST, help="Devices in total; default: the run's, two at least.")] = None,
    split: Annotated[str | None, typer.Option(metavar="G:T", help="Rollout and training devices; default: the best split.")] = None,
    staleness: Annotated[
        int | None, typer.Option(min=0, max=MOST_STALENESS, help="Versions a batch may lag behind; default: the run's, one at least.")
    ] = None,
    tensor: Annotated[int | None, typer.Option(min=1, max=MOST, help="Devices of one rollout replica; default: the run's.")] = None,
    steps: Annotated[int, typer.Option(min=10, max=MOST_STEPS, help="Steps to simulate.")] = 400,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the drawn lengths and variation.")] = 0,
    assume: Annotated[list[str], typer.Option("--assume", metavar="NAME=VALUE", help="Set an assumption; all are printed.")] = [],  # noqa: B006
    results: Annotated[Path, typer.Option(help="Where records lie.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object (docs/whatif.schema.json) as the last line.")] = False,
) -> int:
    """Predict a run's step time in other execution modes, from what it measured and what is assumed.

    Before any run: rlmbench plan placement_sweep says how long a step takes at least in each mode, on devices that you name.

    \b
    rlmbench whatif latest
    rlmbench whatif latest --devices 64 --mode one_step_off --mode bounded_asynchrony --staleness 4
    rlmbench whatif latest --devices 16 --split 4:12 --assume latency_share=0.7 --assume training_efficiency=0.95
    rlmbench whatif results/gsm8k_grpo/20261130-120000-verl-tiny-r0 --json
    """
    from rlmbench.records.store import find_run

    found = find_run(run, results)

    from rlmbench.cli.output import console, print_json
    from rlmbench.report.whatif import print_what_if
    from rlmbench.runner.execute import summarized
    from rlmbench.whatif import Assumptions, Question, document, what_if

    asked = Question(tuple(mode), devices, _split(split, devices), staleness, tensor, steps, seed, Assumptions().with_settings(assume))
    answer = what_if(found, summarized(found), asked)
    if as_json:
        print_json(document([answer]))
    else:
        print_what_if(answer, console(sys.stdout))
    return EXIT_OK


def _split(text: str | None, devices: int | None) -> tuple[int, int] | None:
    if text is None:
        return None
    rollout, colon, training = text.partition(":")
    rollout, training = rollout.lstrip("0"), training.lstrip("0")
    if not colon or not rollout.isdecimal() or not training.isdecimal():
        raise UserError(f"--split {text}: give rollout and training devices as in 4:12")
    if max(map(len, (rollout, training))) > len(str(MOST)) or int(rollout) + int(training) > MOST:
        raise UserError(f"--split {text}: more than {MOST:,} devices")
    if devices is not None and int(rollout) + int(training) != devices:
        raise UserError(f"--split {text}: these are {int(rollout) + int(training)} devices, --devices says {devices}")
    return int(rollout), int(training)
