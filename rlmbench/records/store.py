"""Finding runs on disk and opening them.

`Run` reads nothing until it is asked: a listing of a thousand runs stays cheap.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rlmbench.errors import UserError, did_you_mean
from rlmbench.records.integrity import ANOTHER_COPY, Faults, damaged_json, empty_though_needed, faults, has_events
from rlmbench.records.manifest import MANIFEST, Manifest, read_manifest

if TYPE_CHECKING:
    import pandas as pd

    from rlmbench.experiment import Experiment
    from rlmbench.records.tables import Tables

LATEST = "latest"
PLAN = "plan.json"
SUMMARY = "summary.json"
TRACES = "traces"
LEFT_AS_IT_IS = "the figures are taken again from the tables"
Read = TypeVar("Read")
_OF_A_ROW = {"row", "step", "prompt_hash", "prompt_tokens", "response_tokens", "rewards"}
"""What a row of a plan holds at least."""


class Run:
    """One run's folder, read lazily. Frames are pandas; their columns and units are in docs/records.md.

    `manifest` stands in for the one on disk, for a run whose end has not been written yet.
    """

    def __init__(self, path: Path, manifest: Manifest | None = None) -> None:
        self.path = path
        self._given = manifest
        self._found: Faults | None = None

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def id(self) -> str:
        """The run's id, which is the name of its folder."""
        return self.path.name

    @cached_property
    def manifest(self) -> Manifest:
        """What ran, where and how it ended (`rlmbench.records.manifest`)."""
        return self._given or read_manifest(self.path)

    @property
    def measures(self) -> bool:
        """Whether its figures count: not those of a profile pass, which torch.profiler slowed. A damaged manifest says so when it is read."""
        try:
            return self.manifest.pass_ == "measure"
        except UserError:
            return True

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment as it ran.

        Raises:
            UserError: the recorded experiment is not one that this version understands.
        """
        from pydantic import ValidationError

        from rlmbench.experiment import Experiment

        try:
            return Experiment.model_validate(self.manifest.experiment)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise UserError(f"{self.path / MANIFEST}: experiment.{place}: {first['msg']}") from None

    @cached_property
    def plan(self) -> dict[str, Any] | None:
        """The workload plan (docs/records.md), or None for a run that ended before it had one."""
        return read_plan(self.path)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The recorded figures, or None when the run was ended before it wrote any; `rlmbench.summarize` derives them.

        Raises:
            DamagedSummary: the file cannot be used; the tables hold all that it was made from.
            UserError: tables that the figures were taken from are damaged or missing: then nothing can show that the figures are theirs.
        """
        document = read_summary(self.path)
        self._faults(document)
        return document["runs"][0] if document else None

    @cached_property
    def tables(self) -> Tables:
        """All tables together.

        Raises:
            UserError: some are damaged or missing, and cannot be derived again.
        """
        from rlmbench.records.tables import read_tables, tables_from_events

        try:
            kept = read_summary(self.path)
        except DamagedSummary:
            kept = None
        if not self._faults(kept):
            return read_tables(self.path)
        derived = tables_from_events(self.path)
        if kept and (lost := empty_though_needed(kept, self.manifest, lambda table: len(getattr(derived, table)))):
            raise UserError(lost.told(self.path))
        return derived

    def _faults(self, kept: dict[str, Any] | None) -> Faults:
        """What is wrong with the tables' files, looked at once. Every reader of figures or tables comes by here.

        Raises:
            UserError: something is, and there are no raw events to derive tables from.
        """
        if self._found is None:
            found = Faults() if self._given else faults(self.path, kept, self.manifest)  # a run that is being closed is judged by its audit
            audited = kept["runs"][0].get("audit") if kept else self.manifest.status == "ok"
            if audited and not self._given and not (self.path / PLAN).is_file():
                raise UserError(f"{self.path / PLAN}: missing, though the run was audited against it; {ANOTHER_COPY}")
            if found and not has_events(self.path):
                raise UserError(found.told(self.path))
            self._found = found
        return self._found

    @property
    def processes(self) -> pd.DataFrame:
        """One row per process that the probe entered."""
        return self.tables.processes

    @property
    def hooks(self) -> pd.DataFrame:
        """Which patch points attached in which process, and why others did not."""
        return self.tables.hooks

    @property
    def spans(self) -> pd.DataFrame:
        """One row per span; times in nanoseconds of the process's monotonic clock."""
        return self.tables.spans

    @property
    def steps(self) -> pd.DataFrame:
        """One row per finished step."""
        return self.tables.steps

    @property
    def microbatches(self) -> pd.DataFrame:
        """One row per micro-batch as the loss received it, with valid and computed tokens."""
        return self.tables.microbatches

    @property
    def samples(self) -> pd.DataFrame:
        """One row per sample as the loss received it, with its reward."""
        return self.tables.samples

    @property
    def rewards(self) -> pd.DataFrame:
        """One row per reward as it entered the advantage."""
        return self.tables.rewards

    @property
    def logprobs(self) -> pd.DataFrame:
        """How far the rollout engine's log-probs are from the trainer's, a row for each batch in which both were seen."""
        return self.tables.logprobs

    @property
    def updates(self) -> pd.DataFrame:
        """One row per optimizer step and process."""
        return self.tables.updates

    @property
    def native(self) -> pd.DataFrame:
        """The framework's own figures, one row per step and key."""
        return self.tables.native

    @property
    def facts(self) -> pd.DataFrame:
        """What was checked inside the run, such as the world size; `value` is a JSON text."""
        return self.tables.facts

    @property
    def collectors(self) -> pd.DataFrame:
        """One row per node on which a collector sampled devices and host, with what that cost."""
        return self.tables.collectors

    @property
    def capabilities(self) -> pd.DataFrame:
        """What each collector could measure, on which device, and why not."""
        return self.tables.capabilities

    @property
    def node_samples(self) -> pd.DataFrame:
        """CPU seconds, memory and load of each node as a whole, a row per tick of its collector."""
        return self.tables.node_samples

    @property
    def tree_samples(self) -> pd.DataFrame:
        """CPU seconds, memory, I/O and context switches of the run's own processes on each node, a row per tick."""
        return self.tables.tree_samples

    @property
    def process_samples(self) -> pd.DataFrame:
        """The same of each of these processes, about every second."""
        return self.tables.process_samples

    @property
    def device_samples(self) -> pd.DataFrame:
        """Memory, energy, clocks, traffic and activity of each device, a row per tick."""
        return self.tables.device_samples

    @property
    def device_processes(self) -> pd.DataFrame:
        """Which processes held how much of a device's memory, about every five seconds."""
        return self.tables.device_processes


def load(path: str | Path) -> Run:
    """The run whose folder (or manifest) is at `path`.

    Raises:
        UserError: there is no run.
    """
    folder = Path(path)
    if folder.name == MANIFEST:
        folder = folder.parent
    if not (folder / MANIFEST).is_file():
        siblings = [run.id for run in _runs_in(folder.parent)]
        raise UserError(f"{folder}: no run there: a run's folder holds {MANIFEST}{did_you_mean(folder.name, siblings)}{_those_in(folder)}")
    return Run(folder.resolve())


def list_runs(results_dir: str | Path) -> list[Run]:
    """Every run in `results_dir`/<suite>/, oldest first. A run with a damaged manifest is listed; asking for it says what is wrong."""
    folder = Path(results_dir)
    suites = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    runs = [run for suite in suites for run in _runs_in(suite)]
    return sorted(runs, key=_created_unix_s)


def find_run(name_or_path: str | Path, results_dir: str | Path) -> Run:
    """The run called `name_or_path`: a folder (also below `results_dir`), a run id, the beginning of exactly one run id, or ``latest``,
    which is the latest that measured.

    Raises:
        UserError: none or several match.
    """
    name = str(name_or_path)
    if (Path(name) / MANIFEST).is_file() or Path(name).name == MANIFEST:
        return load(name)
    if "/" in name:
        below_results = Path(results_dir) / name
        return load(below_results if (below_results / MANIFEST).is_file() else name)
    runs = list_runs(results_dir)
    if name == LATEST and runs:
        return next((run for run in reversed(runs) if run.measures), runs[-1])
    matches = [run for run in runs if run.id == name] or [run for run in runs if run.id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        several = ", ".join(str(run.path) for run in matches[:5])
        raise UserError(
            f"run {name!r} is ambiguous in {results_dir}: {several}{', ...' if len(matches) > 5 else ''}; give more of its id, or its path"
        )
    if not runs:
        raise UserError(
            f"unknown run {name!r} in {results_dir}; no runs there yet; rlmbench run SUITE makes them, --results names another folder, "
            "and a run elsewhere is given by its path"
        )
    known = did_you_mean(name, [run.id for run in runs])
    held = f"{len(runs)} run{'s' * (len(runs) > 1)} there"
    if inside := _those_in(Path(results_dir) / name):
        raise UserError(f"{name!r} is a suite in {results_dir}, not a run{inside}")
    raise UserError(f"unknown run {name!r} in {results_dir}{known}; {held}; give a run id, its beginning, a path, or {LATEST!r}")


def _those_in(folder: Path) -> str:
    """What to name instead, where `folder` is one of runs."""
    inside = sorted(_runs_in(folder), key=_created_unix_s)
    return f"; name one of the {len(inside)} below it, such as {folder / inside[-1].path.name}" if inside else ""


def _runs_in(folder: Path) -> list[Run]:
    return [Run(path.parent.resolve()) for path in sorted(folder.glob(f"*/{MANIFEST}"))]


def _created_unix_s(run: Run) -> float:
    """When the run was planned, as its manifest says; a damaged one falls back on the file's own time."""
    try:
        return run.manifest.times.created_unix_s
    except UserError:
        return (run.path / MANIFEST).stat().st_mtime


class DamagedSummary(UserError):
    """`summary.json` cannot be used. Its figures can be taken again from the tables."""


def read_summary(run_dir: Path) -> dict[str, Any] | None:
    """The document in `run_dir`/summary.json, which has a run's figures; None where there is none.

    Raises:
        DamagedSummary: it has not, or is no JSON.
    """
    path = run_dir / SUMMARY
    try:
        document = _read_json(path, LEFT_AS_IT_IS)
    except UserError as error:
        raise DamagedSummary(str(error)) from None
    if document is None and not path.is_file():
        return None
    runs = document.get("runs") if isinstance(document, dict) else None
    if not isinstance(runs, list) or not runs or not isinstance(runs[0], dict):
        raise DamagedSummary(f"{path}: damaged (holds no run's figures); {LEFT_AS_IT_IS}")
    return document


def read_each(runs: Iterable[Run], read: Callable[[Run], Read]) -> list[Read]:
    """What `read` makes of each run.

    Raises:
        UserError: runs are damaged; it names every one, not the first alone.
    """
    found: list[Read] = []
    problems: list[str] = []
    for run in runs:
        try:
            found.append(read(run))
        except UserError as error:
            problems += error.lines
    if problems:
        raise UserError(*dict.fromkeys(problems))
    return found


def read_plan(run_dir: Path) -> dict[str, Any] | None:
    """The workload plan in `run_dir`; None where there is none.

    Raises:
        UserError: it is damaged.
    """
    path, fix = run_dir / PLAN, f"{ANOTHER_COPY}, or leave it out"
    plan = _read_json(path, fix)
    if plan is None and not path.is_file():
        return None
    rows = plan.get("rows") if isinstance(plan, dict) else None
    known = isinstance(rows, list) and all(isinstance(row, dict) and row.keys() >= _OF_A_ROW for row in rows)
    if not known or not {"mode", "group_size"} <= plan.keys():
        raise UserError(f"{path}: damaged (not a workload plan); {fix}")
    return plan


def _read_json(path: Path, fix: str) -> Any:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return json.loads(content)
    except ValueError:
        raise damaged_json(path, content, fix) from None
