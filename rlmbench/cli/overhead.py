"""`rlmbench overhead`: what does measuring cost on this machine?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlmbench.errors import EXIT_OK

app = typer.Typer(add_completion=False)


@app.command()
def overhead(
    suite: Annotated[str, typer.Argument(help="A suite's name or file.")],
    framework: Annotated[list[str], typer.Option("--framework", "-f", help="The framework; may be given more than once.")],
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of runs; below 6, the median has no interval.")] = 6,
    scale: Annotated[str | None, typer.Option(help="The suite's scale; by default as `rlmbench run` chooses.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default cuda where there is one.")] = None,
    override: Annotated[list[str], typer.Option("--set", help="Change one field of every run, as in measurement.steps=12.")] = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> int:
    """Run pairs of runs, with and without probe and collector, interleaved: the median ratio of their step times, with its interval.

    The result is kept for this machine, and later reports of the framework cite it. Quote the ratio, not the seconds.

    \b
    rlmbench overhead gsm8k_grpo -f trl
    rlmbench overhead gsm8k_grpo -f trl -f verl -f openrlhf --scale tiny --set measurement.steps=8
    """
    import sys

    from rlmbench.cli.output import print_json
    from rlmbench.runner.overhead import measure_overhead
    from rlmbench.runner.temporary import remove_abandoned, temporary_folder

    options = [word for name, value in (("--scale", scale), ("--device", device)) if value for word in (name, value)]
    found = []
    for abandoned in remove_abandoned():
        print(f"removed {abandoned}, which a run had left when it was killed", file=sys.stderr)
    with temporary_folder("overhead-") as folder:
        for name in framework:

            def tell(text: str, name: str = name) -> None:
                print(f"{name}: {text}", file=sys.stderr, flush=True)

            found.append(measure_overhead(suite, name, options, override, pairs, Path(folder), tell))
    for one in found:
        interval = f"95% interval {one.low:.4f} to {one.high:.4f}" if one.low is not None else "no interval from fewer than 6 pairs"
        print(f"{one.framework}, {one.suite} at {one.scale} on {one.device}: ratio {one.ratio:.4f}, {interval}, {len(one.ratios)} pairs")
    if as_json:
        print_json({"overhead": [one.model_dump() for one in found]})
    return EXIT_OK
