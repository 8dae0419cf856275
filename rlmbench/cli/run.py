"""`rlmbench run`: plan cells, make their environments, run them, report."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlmbench.errors import EXIT_BUSY, EXIT_INTERRUPTED, EXIT_OK, EXIT_RUN_FAILED, EXIT_TERMINATED, UserError, did_you_mean

if TYPE_CHECKING:
    from rlmbench.environment import Environment
    from rlmbench.metrics import RunSummary
    from rlmbench.records import Run
    from rlmbench.runner.campaign import Campaign
    from rlmbench.runner.cells import Plan, Request
    from rlmbench.runner.interrupts import Interrupts
    from rlmbench.runner.progress import Progress

app = typer.Typer(add_completion=False)

CANNOT_BE_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)
"""What a disk that is full or gone says, in the middle of a run."""


@app.command()
def run(
    suite: Annotated[str, typer.Argument(help="A suite's name (gsm8k_grpo) or path (suites/gsm8k_grpo).")],
    framework: Annotated[
        list[str],
        typer.Option(
            "--framework",
            "-f",
            help="Needed, unless --resume: trl, verl, openrlhf, reference (simulated), or all that are real; may be given several times.",
        ),
    ] = [],  # noqa: B006
    scale: Annotated[str | None, typer.Option(help="tiny, small, base, large, or auto: the largest that fits this machine.")] = None,
    variant: Annotated[list[str], typer.Option(help="Of a sweep only this variant; may be given several times.")] = [],  # noqa: B006
    override: Annotated[list[str], typer.Option("--set", help="Change one field, as in optimization.group_size=8.")] = [],  # noqa: B006
    repeats: Annotated[int | None, typer.Option(help="Runs of each framework, interleaved A B B A.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the default follows from the scale.")] = None,
    python: Annotated[str | None, typer.Option(help="Use this interpreter or virtual environment instead of building one.")] = None,
    native: Annotated[
        list[str], typer.Option(help="FILE or FRAMEWORK=FILE: settings in the framework's own keys; the run is then 'tuned'.")
    ] = [],  # noqa: B006
    ray_address: Annotated[str | None, typer.Option(help="HOST:PORT of a Ray cluster to run in, instead of one of the run's own.")] = None,
    results: Annotated[Path, typer.Option(help="Where records go.")] = Path("results"),
    reports: Annotated[Path, typer.Option(help="Where HTML pages go.")] = Path("reports"),
    profile: Annotated[
        bool, typer.Option("--profile", help="Afterwards one more run of each framework under torch.profiler; no figure comes from it.")
    ] = False,
    profile_steps: Annotated[
        str | None,
        typer.Option(metavar="STEPS", help="With --profile: trace these, as in 2 or 2,3; the default is the first after warm-up."),
    ] = None,
    profile_with: Annotated[
        list[str], typer.Option(metavar="EXTRA", help="With --profile: shapes, stack or memory in the traces too, slower and larger.")
    ] = [],  # noqa: B006
    allow_busy: Annotated[
        bool, typer.Option("--allow-busy", help="Measure at once, also where others use the machine or its GPUs; the record says so.")
    ] = False,
    require_quiet: Annotated[
        bool,
        typer.Option("--require-quiet", help="Refuse (exit code 6) on a busy CPU too, after a wait of 60 s, and not only on a busy GPU."),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Complete the suite's latest campaign; what finished is not repeated.")] = False,
    campaign_id: Annotated[str | None, typer.Option("--campaign", help="With --resume: this campaign instead of the latest.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print ledger, native configuration and launch command, and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object (docs/summary.schema.json) as the last line.")] = False,
) -> int:
    """Run a suite with one or more frameworks, and report.

    \b
    rlmbench run suites/gsm8k_grpo --framework trl
    rlmbench run gsm8k_grpo -f trl --scale tiny --set optimization.group_size=8 --repeats 3
    rlmbench run gsm8k_grpo -f trl --dry-run
    rlmbench run gsm8k_grpo -f all --repeats 2
    rlmbench run gsm8k_grpo -f verl --native my_verl.yaml
    rlmbench run gsm8k_grpo -f trl --profile
    rlmbench run gsm8k_grpo --resume
    """
    from rlmbench.adapter import installed_adapters
    from rlmbench.runner.cells import EXTRAS, Request, check_devices, make_plan

    if device not in (None, "cpu", "cuda"):
        raise UserError(f"--device {device}: give cpu or cuda")
    if campaign_id and not resume:
        raise UserError("--campaign goes with --resume")
    if allow_busy and require_quiet:
        raise UserError("--allow-busy or --require-quiet: give one of them")
    if (profile_steps or profile_with) and not profile:
        raise UserError(f"--profile-{'steps' if profile_steps else 'with'} goes with --profile")
    if unknown := [extra for extra in profile_with if extra not in EXTRAS]:
        raise UserError(f"--profile-with {unknown[0]}{did_you_mean(unknown[0], EXTRAS)}: give one of {', '.join(EXTRAS)}")
    asked = Request(
        suite,
        tuple(framework),
        scale or "auto",
        tuple(override),
        1 if repeats is None else repeats,
        device,
        python,
        tuple(native),
        ray_address,
        str(results),
        str(reports),
        profile,
        _steps(profile_steps) if profile_steps else (),
        tuple(dict.fromkeys(profile_with)),
        tuple(dict.fromkeys(variant)),
        "allow" if allow_busy else "refuse" if require_quiet else "",
    )
    campaign = _resumed(asked, results, campaign_id, given=(scale, repeats)) if resume else None
    if campaign:
        when_busy = asked.when_busy or campaign.request.when_busy
        asked = replace(campaign.request, results=asked.results, reports=asked.reports, when_busy=when_busy)
    elif not asked.frameworks:
        raise UserError(f"give at least one --framework ({', '.join(sorted(installed_adapters()))}), or --framework all")
    plan = make_plan(asked, force_scale=dry_run)
    if dry_run:
        return _print_plan(plan, as_json)
    if plan.refusals:
        raise UserError(*plan.refusals)
    check_devices(plan)
    _check_place(results / plan.suite, "--results")
    _check_place(reports, "--reports")
    return _run_campaign(plan, campaign, results, reports, quiet=quiet, as_json=as_json)


def _resumed(asked: Request, results: Path, campaign_id: str | None, given: tuple[str | None, int | None]) -> Campaign:
    """The campaign to complete. What else is given on the command line must not contradict it."""
    from rlmbench.experiment.load import load_suite
    from rlmbench.runner.campaign import find_campaign, running_run

    campaign = find_campaign(results, load_suite(asked.suite).name, campaign_id)
    planned = campaign.request
    scale, repeats = given
    differences = [
        f"{name} {_said(wanted)}, planned with {_said(had)}"
        for name, wanted, had in (
            ("--framework", asked.frameworks or None, planned.frameworks),
            ("--scale", scale, planned.scale),
            ("--variant", asked.variants or None, planned.variants),
            ("--set", asked.overrides or None, planned.overrides),
            ("--repeats", repeats, planned.repeats),
            ("--device", asked.device, planned.device),
            ("--python", asked.python, planned.python),
            ("--native", asked.native or None, planned.native),
            ("--ray-address", asked.ray_address, planned.ray_address),
            ("--profile", asked.profile or None, planned.profile),
            ("--profile-steps", asked.profile_steps or None, planned.profile_steps),
            ("--profile-with", asked.profile_with or None, planned.profile_with),
        )
        if wanted is not None and wanted != had
    ]
    if differences:
        raise UserError(
            f"--resume completes campaign {campaign.campaign_id} as it was planned, but now: {'; '.join(differences)}; "
            "leave these out, or start a new campaign without --resume"
        )
    if running := running_run(results, campaign):
        raise UserError(f"campaign {campaign.campaign_id} is still at work on {running.id}: wait for its end, or stop it first")
    return campaign


def _steps(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(number) for number in text.split(",")}))
    except ValueError:
        raise UserError(f"--profile-steps {text}: give step numbers, as in 2 or 2,3") from None


def _check_place(folder: Path, option: str) -> None:
    """Refuse a folder that cannot be made or written to, before hours are spent on what belongs there."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir():
        raise UserError(f"{option}: {existing} is a file, not a folder; choose another place")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{option}: no permission to write in {existing}; choose another place")


def _said(value: object) -> str:
    """An option's value as it is typed; nothing where it was not given."""
    return " ".join(map(str, value)) if isinstance(value, tuple) and value else "nothing" if value in ((), None) else str(value)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _notes(plan: Plan) -> list[str]:
    """What frameworks' adapters say of their translations, a line each."""
    parts = [(name, part.translation) for one in plan.each for name, part in one.parts.items() if not part.translation.unsupported]
    return [f"{name}: note: {line}" for name, told in parts for line in filter(None, (told.simulated, *told.untested))]


def _then(plan: Plan) -> str:
    return f", then {_runs(len(plan.then.cells))} under torch.profiler" if plan.then else ""


def _print_plan(plan: Plan, as_json: bool) -> int:
    from rlmbench.cli.output import console, print_json
    from rlmbench.report.ledger import plan_document, print_plan

    if as_json:
        print_json(plan_document(plan))
    else:
        print_plan(plan, console(sys.stdout))
    if plan.refusals:
        raise UserError(*plan.refusals)
    return EXIT_OK


def _run_campaign(plan: Plan, campaign: Campaign | None, results: Path, reports: Path, *, quiet: bool, as_json: bool) -> int:
    from rlmbench.cli.output import discard_output
    from rlmbench.runner.campaign import new_campaign, save
    from rlmbench.runner.interrupts import Interrupts
    from rlmbench.runner.progress import open_progress

    with open_progress(quiet) as progress:
        progress.message(f"{plan.suite} at {plan.scale} ({plan.scale_reason}) on {plan.device}: {_runs(len(plan.cells))}{_then(plan)}")
        for line in plan.left_out:
            progress.message(f"left out: {line}")
        for line in dict.fromkeys(_notes(plan)):
            progress.message(line)
        needed = {(cell.framework, plan.of(cell).parts[cell.framework].spec.name): (plan.of(cell), cell) for cell in plan.cells}
        environments = {key: _environment(one, cell.framework, progress) for key, (one, cell) in needed.items()}
        if campaign is None:
            campaign = new_campaign(plan.suite, plan.request)
            save(campaign, results)
        with Interrupts() as interrupts:
            try:
                summaries = _run_cells(plan, environments, campaign, results, reports, progress, interrupts)
            except OSError as error:
                if error.errno not in CANNOT_BE_WRITTEN:
                    raise
                raise _unrecorded(error, plan) from None
    try:
        _print_results(plan, summaries, reports, as_json)
    except BrokenPipeError:
        discard_output()
    if interrupts.asked:
        return EXIT_INTERRUPTED if interrupts.signal == signal.SIGINT else EXIT_TERMINATED
    if len(summaries) < len(plan.passes):
        return EXIT_BUSY
    return EXIT_OK if summaries and all(summary.status == "ok" for summary in summaries) else EXIT_RUN_FAILED


def _unrecorded(error: OSError, plan: Plan) -> UserError:
    place = f"{error.filename}: " if error.filename else ""
    failure = UserError(
        f"a record could not be written: {place}{error.strerror}; what was written is kept: "
        f"make room there, then {plan.request.resume_command()}"
    )
    failure.exit_code = EXIT_RUN_FAILED
    return failure


def _environment(plan: Plan, framework: str, progress: Progress) -> Environment:
    from rlmbench.environment import ensure, use_python

    progress.run(f"{framework} environment")
    spec = plan.parts[framework].spec
    if plan.request.python:
        return use_python(plan.request.python, spec, progress.phase)
    return ensure(spec, progress=progress.phase)


def _run_cells(
    asked: Plan,
    environments: dict[tuple[str, str], Environment],
    campaign: Campaign,
    results: Path,
    reports: Path,
    progress: Progress,
    interrupts: Interrupts,
) -> list[RunSummary]:
    """Every cell in order, then the profile pass; each run's page is written as soon as it ends."""
    from rlmbench.report.line import one_line
    from rlmbench.runner.campaign import finished_run
    from rlmbench.runner.execute import cell_hash, execute, summarized
    from rlmbench.runner.preconditions import NotQuiet

    made: list[tuple[Run, RunSummary]] = []
    for number, (plan, cell) in enumerate(asked.passes, start=1):
        if interrupts.asked:
            break
        environment = environments[cell.framework, plan.parts[cell.framework].spec.name]
        progress.run(f"{cell.framework} {cell.variant} {number}/{len(asked.passes)}".replace("  ", " "))
        done = finished_run(results, campaign, cell, cell_hash(plan, cell, environment))
        if done is not None:
            progress.finish(f"finished before ({done.id})")
            made.append((done, summarized(done)))
            continue
        try:
            ended = execute(plan, cell, environment, campaign, results, progress, interrupts)
        except NotQuiet as error:
            if not made:
                raise
            progress.finish(f"not started: {error}")
            break
        progress.phase("writing the report")
        made.append((ended.run, ended.summary))
        of_framework = [one for one in made if one[1].framework == cell.framework]
        _write_pages(of_framework if plan.profile else made[-1:], reports)  # the pages of what was measured tell of its profile
        progress.finish(one_line(ended.summary))
    return [summary for _, summary in made]


def _write_pages(made: Sequence[tuple[Run, RunSummary]], reports: Path) -> None:
    from rlmbench.report.html import write_run_page

    reports.mkdir(parents=True, exist_ok=True)
    for run, summary in made:
        write_run_page(run, summary, run.path / "report.html")
        write_run_page(run, summary, reports / f"{run.id}.html")


def _print_results(plan: Plan, summaries: list[RunSummary], reports: Path, as_json: bool) -> None:
    from rlmbench.cli.output import console, print_json
    from rlmbench.metrics import document
    from rlmbench.report.terminal import print_runs

    print_runs(summaries, console(sys.stderr if as_json else sys.stdout))
    if plan.variants:
        from rlmbench.records import load
        from rlmbench.report.sweep import print_sweep
        from rlmbench.whatif.sweep import rows

        print_sweep(rows([(load(summary.path), summary) for summary in summaries]), console(sys.stderr if as_json else sys.stdout))
    lines = [f"report: {reports / f'{summary.id}.html'}" for summary in summaries]
    finished = sum(summary.status == "ok" for summary in summaries)
    measured = [summary for summary in summaries if summary.run_pass == "measure"]
    if len({(summary.framework, summary.variant, summary.division) for summary in measured}) > 1:
        lines.append(f"compare: {shlex.join(['rlmbench', 'compare', *(summary.path for summary in measured)])}")
    if finished < len(plan.passes):
        lines.append(f"{finished} of {_runs(len(plan.passes))} finished")
        # What a configuration forbids it forbids again; everything else is worth another try.
        if len(summaries) < len(plan.passes) or any(summary.failure_class not in (None, "configuration", "audit") for summary in summaries):
            lines[-1] += f"; complete with: {plan.request.resume_command()}"
    print("\n".join(lines), file=sys.stderr if as_json else sys.stdout, flush=True)
    if as_json:
        print_json(document(summaries))
