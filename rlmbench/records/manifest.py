"""`manifest.json`: what ran, where, and how it ended.

Written before anything starts and replaced atomically at every change, so that whatever ends a run leaves one that can
be read. Readers go through `read_manifest`, which notices a supervisor that died without a last word.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlmbench.adapter import NativeMetric
from rlmbench.errors import UserError
from rlmbench.files import write_atomically
from rlmbench.records.integrity import ANOTHER_COPY, damaged_json
from rlmbench.records.overhead import HarnessOverhead
from rlmbench.records.supervisor import Supervisor
from rlmbench.records.vocabulary import CPU_LABEL, FAILURE_CLASSES

MANIFEST = "manifest.json"
SCHEMA_VERSION: Final = 1

Status = Literal["planned", "running", "ok", "failed", "interrupted"]


class Record(BaseModel):
    """Base of what is kept on disk. Unknown keys are left out on reading: a later version may have added some."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, serialize_by_alias=True)


class Failure(Record):
    """Why and where a run did not succeed, with all that is needed to try it again."""

    failure_class: str = Field(description=f"One of {', '.join(FAILURE_CLASSES)}.")
    message: str = Field(description="One line for a person.")
    phase: str | None = Field(default=None, description="How far it had come: preparing, server, startup, training or shutdown.")
    step: int | None = Field(default=None, description="Step it was in; 0 before the first.")
    stage: str | None = None
    first_cause: str | None = Field(default=None, description="The first error of the first process that failed, quoted.")
    exit_code: int | None = None
    signal: str | None = Field(default=None, description="Name of the signal that ended the process, such as SIGKILL.")
    log_path: str | None = Field(default=None, description="The log that holds the cause, relative to the run's folder.")
    tail: list[str] = Field(default_factory=list, description="Last lines of that log.")
    rerun_command: str | None = Field(default=None, description="The exact command that tries this run again.")


class ProcessLaunch(Record):
    """One process as it was started: arguments, and what was laid over the environment passed on to it."""

    name: str
    argv: list[str]
    env: dict[str, str] = Field(default_factory=dict)


class EnvironmentRecord(Record):
    """The framework's virtual environment."""

    name: str
    device: str
    key: str | None = Field(default=None, description="Content address of the environment; null for the user's own interpreter.")
    python: str
    packages: dict[str, str] = Field(default_factory=dict, description="Version of each installed package.")
    notes: list[str] = Field(default_factory=list, description="Versions other than the adapter's, in the user's own interpreter.")


class Times(Record):
    """When it happened, in seconds since 1970; `wall_s` is measured with a monotonic clock."""

    created_unix_s: float
    started_unix_s: float | None = None
    ended_unix_s: float | None = None
    wall_s: float | None = Field(default=None, description="From the start of the first process to the end of the last.")


class Versions(Record):
    """What measured it."""

    rlmbench: str
    commit: str | None = None


class ProfileRecord(Record):
    """Steps that torch.profiler traced, from 1, and what it was to add to the traces: shapes, stack, memory."""

    steps: list[int]
    extras: list[str] = Field(default_factory=list)


class DeviceState(Record):
    """A GPU, or a MIG slice, at one moment. `processes` is null where the driver does not tell them."""

    uuid: str
    memory_used_bytes: int | None = None
    processes: list[int] | None = None
    throttle_reasons: str = Field(default="", description="Names joined by commas.")


class Preconditions(Record):
    """How free the machine was when a run began, and what the run left on its devices."""

    waited_s: float = Field(default=0.0, description="Seconds that the run waited for a quiet machine.")
    host_busy_share: float | None = Field(
        default=None, description="Share of the machine's cores at work, measured for a second before the run. Null where it is not told."
    )
    problems: list[str] = Field(default_factory=list, description="Why it was not free, in words; empty when it was.")
    devices: list[DeviceState] = Field(default_factory=list, description="The run's GPUs before it began.")
    devices_after: list[DeviceState] = Field(default_factory=list, description="And after it had ended.")
    left_behind: list[str] = Field(default_factory=list, description="What it left on them, in words.")


class Manifest(Record):
    """One run. `experiment` is the validated experiment as it ran, with overrides and the scale laid in."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    campaign_id: str | None = None
    suite: str
    scale: str
    scale_reason: str | None = Field(default=None, description="Why this scale was taken, when rlmbench chose it.")
    framework: str
    variant: str = Field(default="", description="Which variant of the suite's sweep; empty for a suite that is none.")
    repeat: int = Field(default=0, description="Which repetition of its cell, from 0.")
    pass_: Literal["measure", "profile"] = Field(
        default="measure",
        alias="pass",
        description="measure: its figures count. profile: torch.profiler watched it and slowed it, so that it is no repetition of anything.",
    )
    profile: ProfileRecord | None = Field(default=None, description="What a profile pass traced.")
    division: Literal["matched", "tuned"] = Field(
        default="matched",
        description="matched: every framework is given the same experiment. tuned: with settings of the user's own (--native).",
    )
    status: Status
    failure: Failure | None = None
    experiment: dict[str, Any]
    overrides: list[str] = Field(default_factory=list, description="What --set changed, as given: key=value.")
    content_hash: str = Field(default="", description="Of experiment, adapter, environment and machine: equal hashes need no second run.")
    ledger: list[dict[str, Any]] = Field(default_factory=list, description="Entries of rlmbench.adapter.LedgerEntry.")
    native: dict[str, Any] = Field(default_factory=dict, description="The framework's own configuration.")
    expected_facts: dict[str, Any] = Field(
        default_factory=dict, description="What the run had to say of itself, by rlmbench.adapter.Translation."
    )
    untested: list[str] = Field(
        default_factory=list,
        description="Parts of the translation that the adapter's authors have never run, by rlmbench.adapter.Translation.",
    )
    native_metrics: dict[str, NativeMetric] = Field(
        default_factory=dict, description="Key in the framework's log -> what the adapter says of it."
    )
    simulated: str = Field(default="", description="What stood in for a framework, in words; empty for a real one.")
    traits: dict[str, str] = Field(
        default_factory=dict, description="What the framework does by itself, by rlmbench.adapter.Translation: name -> how."
    )
    harness_overhead: HarnessOverhead | None = Field(
        default=None, description="The latest measurement on this machine, by paired runs, of what probe and collector cost this framework."
    )
    launch: list[ProcessLaunch] = Field(default_factory=list)
    environment: EnvironmentRecord | None = None
    host: dict[str, Any] = Field(default_factory=dict)
    devices: list[dict[str, Any]] = Field(default_factory=list)
    prediction: dict[str, Any] | None = Field(
        default=None, description="rlmbench.costmodel.prediction.Prediction, made before the run; null where the model is no known shape."
    )
    ceilings: list[dict[str, Any]] = Field(
        default_factory=list, description="Rates measured on this machine before the run by `rlmbench doctor --ceilings`, one per device."
    )
    times: Times
    versions: Versions
    supervisor: Supervisor | None = None
    preconditions: Preconditions | None = Field(default=None, description="Null in records from before it was looked at.")
    outcome: dict[str, Any] = Field(default_factory=dict, description="What supervision saw at the end, such as each process's exit.")
    warnings: list[str] = Field(
        default_factory=list,
        description="What was not as it should be and yet did not end the run, such as a collector that died; a line each.",
    )

    @property
    def on_cpu(self) -> bool:
        """Whether the run held no accelerator."""
        return self.environment.device == "cpu" if self.environment else not self.devices

    @property
    def device_label(self) -> str | None:
        """What its figures are not good for, which stands beside every headline; None where they are those of a GPU."""
        return self.simulated or (CPU_LABEL if self.on_cpu else None)


def write_manifest(run_dir: Path, manifest: Manifest) -> None:
    """Replace the manifest of `run_dir` atomically."""
    write_atomically(run_dir / MANIFEST, (manifest.model_dump_json(indent=1, by_alias=True) + "\n").encode())


def read_manifest(run_dir: Path) -> Manifest:
    """The manifest of `run_dir`, with the status as it is now.

    A run that says it is planned or running while its supervisor is gone comes back as interrupted, failure class
    `killed`; the file is left as it is.

    Raises:
        UserError: no manifest there, not readable, or written by a newer rlmbench.
    """
    path = run_dir / MANIFEST
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the folder of a run, which holds {MANIFEST}") from None
    _refuse_newer(path, text)
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        fix = f"{ANOTHER_COPY}, or leave it out"
        if first["type"] == "json_invalid":
            raise damaged_json(path, text, fix) from None
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UserError(f"{path}: {place}: {first['msg']}; not a manifest of this version, or damaged: {fix}") from None
    return _as_it_is_now(manifest)


class _Versioned(BaseModel):
    schema_version: int = SCHEMA_VERSION


def _refuse_newer(path: Path, text: bytes) -> None:
    try:
        version = _Versioned.model_validate_json(text).schema_version
    except ValidationError:
        return  # the full validation says what is wrong
    if version > SCHEMA_VERSION:
        raise UserError(
            f"{path}: schema version {version} is newer than this rlmbench reads ({SCHEMA_VERSION}); read it with the rlmbench that wrote it, or upgrade"
        )


def _as_it_is_now(manifest: Manifest) -> Manifest:
    unfinished = manifest.status in ("planned", "running")
    if not unfinished or (manifest.supervisor is not None and manifest.supervisor.is_alive()):
        return manifest
    said = "before it started" if manifest.status == "planned" else "while it ran"
    failure = Failure(failure_class="killed", message=f"rlmbench itself ended {said} and could not say why; the run has no end of its own")
    return manifest.model_copy(update={"status": "interrupted", "failure": failure})
