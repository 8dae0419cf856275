"""One run from its folder to its summary. Whatever happens in between, the folder says how far it came and why it ended."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import rlmbench
from rlmbench.adapter import Launch, RunInputs
from rlmbench.environment import Environment, cache_root, ceilings, host_facts, kept, visible_devices
from rlmbench.errors import EnvironmentFailure, UserError
from rlmbench.metrics import RunSummary, summarize, write_summary
from rlmbench.probe import probe_environment
from rlmbench.records.manifest import EnvironmentRecord, Failure, Manifest, ProcessLaunch, ProfileRecord, Times, Versions, write_manifest
from rlmbench.records.store import PLAN, DamagedSummary, Run
from rlmbench.records.supervisor import Supervisor
from rlmbench.records.tables import Tables, tables_from_events, write_tables
from rlmbench.runner.campaign import Campaign
from rlmbench.runner.cells import Cell, Plan, devices_needed
from rlmbench.runner.collecting import Collecting
from rlmbench.runner.failures import FailureClass, Position, ProcessLog, classify
from rlmbench.runner.interrupts import Interrupted, Interrupts
from rlmbench.runner.logtext import before_end, find_cause, read_log, signal_name, tail
from rlmbench.runner.overhead import kept_overhead
from rlmbench.runner.preconditions import Machine, after_run, await_quiet, warnings_of
from rlmbench.runner.predicted import prediction_of
from rlmbench.runner.profile import prepare_profile, profile_variables
from rlmbench.runner.progress import Progress
from rlmbench.runner.schedule import content_hash
from rlmbench.runner.shared_memory import kept_unseen, remove_leftovers, segments
from rlmbench.runner.supervise import Limits, Outcome, Tick, supervise
from rlmbench.runner.temporary import Belongings, remove_abandoned, temporary_folder
from rlmbench.runner.watch import ProbeTail
from rlmbench.whatif.guidelines import advised
from rlmbench.workload.inputs import prepare_inputs, prepare_without_model

# What the user's shell says about Python is meant for rlmbench, not for the framework's interpreter.
NOT_PASSED_ON = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "PYTHONWARNINGS", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True)
class Ended:
    """A run that is over: its folder's content, and its figures."""

    run: Run
    summary: RunSummary


def cell_hash(plan: Plan, cell: Cell, environment: Environment) -> str:
    """Content hash of a cell: experiment, translation, environment and machine. Equal hashes need no second measurement."""
    part = plan.parts[cell.framework]
    return content_hash(
        {
            "suite": plan.suite,
            "scale": plan.scale,
            "experiment": plan.experiment.model_dump(mode="json"),
            "native": dict(part.translation.native),
            "environment": environment.key,
            "ray_address": plan.request.ray_address,
            "rlmbench": rlmbench.__version__,
            "machine": kept.machine(),
            **({"profile": asdict(plan.profile)} if plan.profile else {}),
        }
    )


def execute(
    plan: Plan, cell: Cell, environment: Environment, campaign: Campaign, results_dir: Path, progress: Progress, interrupts: Interrupts
) -> Ended:
    """Make one run of `cell` and return it; a run that fails is returned too, with its failure in manifest and summary.

    Raises:
        NotQuiet: the machine is not free for a measurement; nothing was written.
    """
    for abandoned in remove_abandoned():
        progress.message(f"removed {abandoned}, which a run had left when it was killed")
    machine = _machine(plan, cell.framework)
    conditions = await_quiet(machine, plan.request.when_busy, progress.phase, lambda: interrupts.asked)
    _warn(progress, cell, conditions.problems)
    run_dir = _new_folder(plan, cell, results_dir)
    manifest = _first_manifest(plan, cell, environment, campaign, run_dir.name).model_copy(
        update={"preconditions": conditions, "warnings": warnings_of(conditions)}
    )
    write_manifest(run_dir, manifest)
    began = time.monotonic()
    try:
        launch = _prepare(plan, cell, environment, run_dir, progress, interrupts)
    except (UserError, Interrupted) as error:
        failure = _failure_to_prepare(error, run_dir, interrupts)
        return _close(plan, cell, run_dir, manifest, failure, began)
    planned = (run_dir / PLAN).read_bytes()
    processes = [ProcessLaunch(name=process.name, argv=list(process.argv), env=dict(process.env)) for process in launch.processes]
    times = manifest.times.model_copy(update={"started_unix_s": time.time()})
    manifest = manifest.model_copy(update={"launch": processes, "times": times, "status": "running"})
    write_manifest(run_dir, manifest)
    probe = ProbeTail(run_dir / "probe", plan.experiment.optimization.epochs)
    shared_before = segments()
    began = time.monotonic()
    collecting = _collecting(plan, run_dir)
    belongings = Belongings(str(run_dir), [str(folder) for folder in launch.scratch], shared_before)
    with temporary_folder(belongings=belongings) as temporary, collecting:
        outcome = supervise(
            launch.processes,
            cwd=run_dir,
            log_dir=run_dir / "logs",
            limits=Limits(plan.experiment.measurement.wall_timeout_s, plan.experiment.measurement.stall_timeout_s),
            env=_base_environment(plan, cell, run_dir, temporary),
            watch=[run_dir / "probe"],
            on_tick=_follow(probe, plan.experiment.measurement.steps, progress),
            on_start=collecting.watch,
            interrupts=interrupts,
        )
        # Before the temporary folder goes: until then, whoever cleans up after a killed rlmbench finds what the run left.
        remove_leftovers(shared_before)
        for folder in launch.scratch:
            shutil.rmtree(folder, ignore_errors=True)
    kept = kept_unseen(shared_before)
    conditions = after_run(machine, conditions, lambda: interrupts.asked)
    unsampled = [f"the collector did not see the run to its end: {collecting.problem}"] if collecting.problem else []
    faults = [*unsampled, *([kept] if kept else [])]
    _warn(progress, cell, [*conditions.left_behind, *faults])
    manifest = manifest.model_copy(update={"preconditions": conditions, "warnings": [*warnings_of(conditions), *faults]})
    progress.step(0, 0)
    progress.stage(None)
    progress.phase("reading the records")
    _restore(run_dir / PLAN, planned)
    manifest = manifest.model_copy(update={"outcome": _outcome_record(outcome)})
    ended_by = _failure(outcome, launch, run_dir, probe, plan.experiment.measurement.steps)
    return _close(plan, cell, run_dir, manifest, ended_by, began)


def _new_folder(plan: Plan, cell: Cell, results_dir: Path) -> Path:
    """A folder of this run's own; the name sorts by time and says what it is."""
    suite_dir = results_dir / plan.suite
    which = "profile" if plan.profile else f"r{cell.repeat}"
    which = f"{cell.variant}-{which}" if cell.variant else which
    stem = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{cell.framework}-{plan.scale}-{which}"
    for attempt in range(100):
        folder = suite_dir / (f"{stem}-{attempt}" if attempt else stem)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"cannot write results to {suite_dir}: {error.strerror}; choose another place with --results") from None
        for name in ("probe", "logs", "native", "scratch"):
            (folder / name).mkdir()
        return folder.resolve()
    raise UserError(f"{suite_dir}: too many runs began in this second")


def _first_manifest(plan: Plan, cell: Cell, environment: Environment, campaign: Campaign, run_id: str) -> Manifest:
    part = plan.parts[cell.framework]
    try:
        predicted = prediction_of(plan.experiment, part.translation, plan.device)
    except UserError:  # a file of lengths that cannot be read, say: preparing the inputs comes upon it too, and the run says so
        predicted = None
    return Manifest(
        run_id=run_id,
        campaign_id=campaign.campaign_id,
        suite=plan.suite,
        scale=plan.scale,
        scale_reason=plan.scale_reason,
        framework=cell.framework,
        variant=cell.variant,
        repeat=cell.repeat,
        pass_="profile" if plan.profile else "measure",
        profile=ProfileRecord(steps=list(plan.profile.steps), extras=list(plan.profile.extras)) if plan.profile else None,
        division="tuned" if part.is_tuned else "matched",
        status="planned",
        experiment=plan.experiment.model_dump(mode="json"),
        overrides=list(plan.request.overrides),
        content_hash=cell_hash(plan, cell, environment),
        ledger=[asdict(entry) for entry in part.translation.ledger],
        native=dict(part.translation.native),
        expected_facts=dict(part.translation.expected_facts),
        native_metrics=dict(part.adapter.native_metrics()),
        traits=dict(part.translation.traits),
        simulated=part.translation.simulated,
        untested=list(part.translation.untested),
        environment=EnvironmentRecord(
            name=part.spec.name,
            device=plan.device,
            key=None if plan.request.python else environment.key,
            python=str(environment.python),
            packages=dict(environment.packages),
            notes=list(environment.notes),
        ),
        harness_overhead=kept_overhead(cell.framework, plan.device),
        host=host_facts(),
        devices=visible_devices() if plan.device == "cuda" else [],
        ceilings=ceilings.kept(plan.device),
        prediction=asdict(predicted) if predicted else None,
        times=Times(created_unix_s=time.time()),
        versions=Versions(rlmbench=rlmbench.__version__, commit=_commit()),
        supervisor=Supervisor.current(),
    )


def _commit() -> str | None:
    """The commit of the checkout that rlmbench runs from; None for an installed package."""
    git = Path(__file__).parents[2] / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        return (git / head.removeprefix("ref: ")).read_text().strip() if head.startswith("ref: ") else head
    except OSError:
        return None


def _prepare(plan: Plan, cell: Cell, environment: Environment, run_dir: Path, progress: Progress, interrupts: Interrupts) -> Launch:
    """Model, prompts and the adapter's launch; raises `Interrupted` a few seconds after the user has asked to stop."""
    part = plan.parts[cell.framework]

    def tell(text: str) -> None:
        interrupts.check()
        progress.phase(text)

    if plan.profile:
        prepare_profile(run_dir)
    tell("preparing model and prompts")
    if part.translation.simulated:
        model_dir, plan_path = prepare_without_model(plan.experiment, run_dir)
    else:
        model_dir, plan_path = prepare_inputs(plan.experiment, environment.python, cache_root() / "inputs", run_dir, tell)
    inputs = RunInputs(
        run_dir, model_dir, plan_path, environment.python, plan.device, plan.request.ray_address, _own_variables(plan, cell, run_dir)
    )
    launch = part.adapter.launch(part.translation, plan.experiment, inputs)
    interrupts.check()
    return launch


def _failure_to_prepare(error: Exception, run_dir: Path, interrupts: Interrupts) -> Failure:
    """Why there is nothing to start. A terminal's Ctrl-C also ends the child that prepares, and its error is no cause then."""
    if interrupts.signal is not None:
        name = signal_name(interrupts.signal)
        return Failure(
            failure_class=FailureClass.INTERRUPTED, message=f"interrupted by {name} while its inputs were prepared", phase="preparing"
        )
    kind = FailureClass.ENVIRONMENT if isinstance(error, EnvironmentFailure) else FailureClass.CONFIGURATION
    log = run_dir / "logs" / "prepare.log"
    return Failure(
        failure_class=kind,
        message=str(error),
        phase="preparing",
        log_path=str(log.relative_to(run_dir)) if log.exists() else None,
        tail=tail(read_log(log)),
    )


def _restore(path: Path, planned: bytes) -> None:
    """Put the plan back as it was written: what is audited is what was planned, whatever a trainer did to the file."""
    if not path.exists() or path.read_bytes() != planned:
        path.write_bytes(planned)


def _base_environment(plan: Plan, cell: Cell, run_dir: Path, temporary: str) -> Mapping[str, str]:
    """The environment of every process of the run, before the adapter's own variables.

    Its temporary files go to a folder that ends with it: vLLM and torch leave dozens of sockets and folders behind in
    theirs. What torch.compile made is kept, as it is in a user's own runs.
    """
    inherited = {key: value for key, value in os.environ.items() if key not in NOT_PASSED_ON}
    compiled = {"TORCHINDUCTOR_CACHE_DIR": str(cache_root() / "torchinductor")}
    return {**compiled, **inherited, "TMPDIR": temporary, **_own_variables(plan, cell, run_dir)}


def _own_variables(plan: Plan, cell: Cell, run_dir: Path) -> Mapping[str, str]:
    """What rlmbench itself sets there: the probe's variables, the device, the number of threads."""
    adapter, measure = plan.parts[cell.framework].adapter, plan.experiment.measurement
    probe = probe_environment(
        run_dir / "probe",
        adapter.probe_module(),
        enabled=measure.probe,
        synchronize=measure.synchronize_stages,
        roots=[adapter.probe_path()],
    )
    threads = str(measure.threads_per_process)
    if plan.profile:
        probe = {**probe, **profile_variables(run_dir, plan.profile)}
    env = {**probe, "RLMBENCH_DEVICE": plan.device, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    return env | {"CUDA_VISIBLE_DEVICES": ""} if plan.device == "cpu" else env


def _follow(probe: ProbeTail, steps: int, progress: Progress) -> Callable[[Tick], None]:
    """Show where the run is, from what its probe has written."""

    def on_tick(tick: Tick) -> None:
        state = probe.poll()
        if not tick.is_main:
            progress.phase(f"starting {tick.process}")
        elif state.step == 0:
            part = f": {state.starting.replace('_', ' ')}" if state.starting else ""
            progress.phase(f"starting the trainer{part}")
        else:
            progress.stage(state.stage)
            progress.phase("training" if state.steps_done < steps else "ending")
            progress.step(min(state.step, steps), steps, state.last_step_s, state.tokens_per_s, state.seconds_left(steps))

    return on_tick


def _failure(outcome: Outcome, launch: Launch, run_dir: Path, probe: ProbeTail, steps: int) -> Failure | None:
    state = probe.poll()
    logs = [_log(run_dir, process.name) for process in launch.processes]
    found = classify(outcome, logs, Position(state.step, state.stage, state.steps_done, steps))
    return Failure.model_validate(found.as_dict()) if found else None


def _log(run_dir: Path, process: str) -> ProcessLog:
    path = run_dir / "logs" / f"{process}.log"
    return ProcessLog(process, str(path.relative_to(run_dir)), read_log(path))


def _warn(progress: Progress, cell: Cell, warnings: Sequence[str]) -> None:
    for warning in warnings:
        progress.message(f"{cell.framework}: warning: {warning}")


def _machine(plan: Plan, framework: str) -> Machine:
    """What must be free for a run. In somebody's Ray cluster its GPUs may be on other machines, and only the host is looked at."""
    here = plan.device == "cuda" and not plan.request.ray_address
    return Machine(devices_needed(plan, framework) if here else 0, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _collecting(plan: Plan, run_dir: Path) -> Collecting:
    """The collector of a run. In somebody's Ray cluster the workers are that cluster's processes, not ours."""
    address = plan.request.ray_address
    unseen = f"the workers run in the Ray cluster at {address}, below its own processes: only what rlmbench itself started is seen"
    return Collecting(
        run_dir,
        plan.experiment.measurement.collector_interval_s,
        devices=plan.device == "cuda",
        unseen=unseen if address else None,
    )


def _with_sampled_peaks(manifest: Manifest, tables: Tables) -> Manifest:
    """The outcome with the peaks of memory that the collector saw, where they are higher: it looks more often."""
    if not manifest.outcome or tables.tree_samples.empty:
        return manifest
    peaks = dict(manifest.outcome)
    for name, column in (("peak_rss_bytes", "rss_bytes"), ("peak_pss_bytes", "pss_bytes")):
        seen = [peaks.get(name), *tables.tree_samples.groupby("node")[column].max().dropna().tolist()]
        peaks[name] = max((int(value) for value in seen if value is not None), default=None)
    return manifest.model_copy(update={"outcome": peaks})


def _outcome_record(outcome: Outcome) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(json.dumps(asdict(outcome), default=str))
    return record


def _close(plan: Plan, cell: Cell, run_dir: Path, manifest: Manifest, failure: Failure | None, began: float) -> Ended:
    """Write what the run was: tables, verdict, summary."""
    shutil.rmtree(run_dir / "scratch", ignore_errors=True)
    status = "ok" if failure is None else "interrupted" if failure.failure_class == FailureClass.INTERRUPTED else "failed"
    times = manifest.times.model_copy(update={"ended_unix_s": time.time(), "wall_s": time.monotonic() - began})
    manifest = manifest.model_copy(update={"status": status, "failure": failure, "times": times})
    if failure:  # should what follows fail as well, the cause is not lost
        write_manifest(run_dir, manifest)
    tables = tables_from_events(run_dir)
    write_tables(run_dir, tables)
    manifest = _with_sampled_peaks(manifest, tables)
    # The last word on disk comes after the audit: a run that is killed before it was audited must never read "ok".
    summary = advised(Run(run_dir, manifest), summarize(Run(run_dir, manifest)))
    if summary.failure:
        failure = _explained(summary.failure, run_dir, manifest).model_copy(
            update={"rerun_command": replace(plan.request, scale=plan.scale).command()}
        )
        summary = summary.model_copy(update={"failure": failure})
    manifest = manifest.model_copy(update={"status": summary.status, "failure": summary.failure})
    write_manifest(run_dir, manifest)
    write_summary(run_dir, summary)
    return Ended(Run(run_dir), summary)


def _explained(failure: Failure, run_dir: Path, manifest: Manifest) -> Failure:
    """A failed audit of a run that ended well, with the first error in its logs: frameworks log some and go on without the sample."""
    if failure.failure_class != FailureClass.AUDIT or failure.first_cause:
        return failure
    for process in manifest.launch:
        log = _log(run_dir, process.name)
        cause = find_cause(before_end(log.text))
        if cause:
            return failure.model_copy(update={"first_cause": cause.text, "log_path": log.path, "tail": tail(before_end(log.text))})
    return failure


def summarized(run: Run) -> RunSummary:
    """The figures of a recorded run: those kept with it, or derived again where it was ended before it had any, where they are damaged
    (which a line on standard error says), or where another version of rlmbench kept others.

    Raises:
        UserError: the record is damaged, so that neither can be had.
    """
    try:
        kept = run.summary
    except DamagedSummary as damage:
        taken = summarize(run)
        print(f"warning: {damage}", file=sys.stderr)
        return taken
    if kept is not None:
        try:
            return RunSummary.model_validate(kept)
        except ValidationError:
            pass
    return summarize(run)
