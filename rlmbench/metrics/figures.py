"""All figures of one run: the object under ``runs`` that ``--json`` prints and `summary.json` keeps.

Each field says what it is, in which unit and from what; docs/summary.schema.json is made from this file. A figure that
was not recorded is null, and `absent` says why: it is never 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from rlmbench.files import write_atomically
from rlmbench.metrics.audit import Audit
from rlmbench.metrics.idle import LongTail, RoleWaiting
from rlmbench.metrics.learning import LogprobDifference, NativeMean
from rlmbench.metrics.native import NativeFigure
from rlmbench.metrics.statistics import Estimate
from rlmbench.metrics.work import LengthStats
from rlmbench.records.manifest import Failure, Status
from rlmbench.records.store import SUMMARY

SUMMARY_SCHEMA_VERSION: Final = 1


class Figures(BaseModel):
    """Base of what is printed: no NaN and no infinity, which JSON does not have."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Coverage(Figures):
    """Share of a step that some stage of the driver covers: 1 - unattributed / step, in [0, 1]."""

    min: float | None = Field(description="Lowest of the steps considered.")
    median: float | None
    steps: int = Field(description="How many steps were considered.")
    scope: str = Field(description="Which ones: short steps are left out, unless all are short.")


class Seconds(Figures):
    """Step time over the measured steps, seconds."""

    median: float | None
    mean: float | None
    min: float | None
    max: float | None


class ExcludedStep(Figures):
    """A step left out of every mean and median."""

    step: int
    reason: str


class StepFigures(Figures):
    """One finished step. `start_s` counts from the start of the first step."""

    step: int
    excluded: str | None
    start_s: float
    step_s: float
    stages_s: dict[str, float]
    unattributed_s: float
    overlap_s: float
    coverage: float | None
    probe_share: float | None = Field(description="The probe's own time in the step over the step's time.")
    prompts: int | None
    samples: int | None
    visits: int | None = Field(description="Samples as the loss received them: once per epoch.")
    prompt_tokens: int | None
    response_tokens: int | None
    micro_batches: int | None = Field(description="Over all processes.")
    optimizer_steps: int | None
    work_digest: str | None = Field(
        description="Equal for steps that trained the same prompts with the same token counts, whatever the order."
    )
    tokens_per_s: float | None = Field(description="Prompt and response tokens over the step's seconds.")
    reward_mean: float | None


class ThroughputFigures(Figures):
    """Sums over the measured steps divided by seconds: rate x seconds = work. Each sample counts once, whatever the epochs."""

    seconds: float = Field(description="Sum of the measured steps' times.")
    samples: int
    response_tokens: int
    tokens: int = Field(description="Prompt and response tokens of the trained samples.")
    devices: int = Field(description="All devices the run held, rollout devices included; ranks on a CPU.")
    step_tokens_per_s: float
    step_tokens_per_s_per_device: float
    response_tokens_per_s: float
    samples_per_s: float
    generation_tokens_per_s: float | None = Field(description="Response tokens over the generation stage's own seconds.")
    assessment_tokens_per_s: float | None = Field(description="Prompt and response tokens over the assessment stages' own seconds.")
    training_tokens_per_s: float | None = Field(description="Prompt and response tokens over the training stages' own seconds.")


class PaddingFigures(Figures):
    """Tokens a stage processed, padding included, beside the valid ones, summed over measured steps and processes."""

    valid_tokens: int
    computed_tokens: int
    padding_share: float | None = Field(description="1 - valid / computed.")


class Memory(Figures):
    """Bytes. Peaks: the highest of any process and measured step, by stage and kind."""

    peak_bytes: dict[str, dict[str, int]] = Field(
        description="Stage -> rss_peak_bytes, torch_allocated_peak_bytes, torch_reserved_peak_bytes."
    )
    growth_bytes_per_step: Estimate | None = Field(description="Slope of the driver's resident set over the measured steps.")
    run_peak_pss_bytes: int | None = Field(
        default=None, description="Host memory of all of the run's processes at once, shared pages counted once: highest look of the run."
    )


class Learning(Figures):
    """Sanity figures over the measured steps."""

    reward: Estimate | None = Field(description="Mean of the steps' mean rewards; block bootstrap over steps within this one run.")
    grad_norm: float | None = Field(description="Mean gradient norm of the actor's optimizer steps, before clipping.")
    weights_changed: bool | None
    logprob_difference: LogprobDifference | None = Field(
        description="|trainer's - rollout engine's log-prob| over response tokens, as the loss received them: rounding, or a broken sync."
    )
    native: dict[str, NativeMean] = Field(
        description="KL, gradient norm, clip fraction, entropy, log-prob difference and staleness, as the framework logs them."
    )


class WorkerFigures(Figures):
    """Busy seconds of a stage over the processes of one role, each the median over measured steps; skew = (max - mean) / max."""

    stage: str
    role: str = Field(description="What these processes are in the run: trainer (its ranks), rollout, reward, engine, engine rank.")
    processes: int
    min_s: float
    mean_s: float
    median_s: float
    max_s: float
    skew: float | None


class Idle(Figures):
    """Waiting by the processes' spans. Not a device's idle time: that needs collectors and traces, and `absent` says so."""

    roles: list[RoleWaiting] = Field(description="One per role whose processes recorded stages. A driver that trains nothing is left out.")
    tail: LongTail | None = Field(description="Where the framework generates each sample by itself, in step with training.")


class MissingHook(Figures):
    """A patch point that attached in no process: what it would have measured is absent."""

    name: str
    target: str | None
    reason: str | None


class Hooks(Figures):
    """Which patch points of the probe attached in at least one process."""

    attached: list[str]
    missing: list[MissingHook]


class Startup(Figures):
    """Before the first step, seconds. `total_s` counts from the start of the run's first process."""

    total_s: float | None
    stages_s: dict[str, float] = Field(description="By the names of the startup spans, or their stage.")


class RunSummary(Figures):
    """One run."""

    id: str
    path: str
    suite: str
    scale: str
    framework: str
    division: str = Field(description="matched: every framework was given the same. tuned: with settings of the user's own.")
    status: Status
    failure_class: str | None
    failure: Failure | None
    wall_s: float | None = Field(description="From the start of the run's first process to the end of its last.")
    planned_steps: int | None
    completed_steps: int
    measured_steps: int = Field(description="Steps that the figures below are taken from.")
    excluded_steps: list[ExcludedStep]
    audit: Audit | None
    coverage: Coverage
    step_s: Seconds
    stages_s: dict[str, float] = Field(
        description="Stage -> median driver seconds over the measured steps; medians do not add up to a step."
    )
    stages_share: dict[str, float] = Field(description="Stage -> its share of all measured step time.")
    substages_s: dict[str, float] = Field(description="stage.substage -> median driver seconds over the measured steps.")
    unattributed_s: float | None = Field(description="Median seconds per step in which no stage ran.")
    overlap_s: float | None = Field(description="Median seconds per step that further stages ran beside the first.")
    startup: Startup
    throughput: ThroughputFigures | None
    native: dict[str, NativeFigure] = Field(description="The framework's own figures, with the ratio to the canonical one.")
    lengths: LengthStats | None = Field(description="Response lengths of the measured steps' samples.")
    padding: dict[str, PaddingFigures]
    memory: Memory
    learning: Learning
    workers: list[WorkerFigures] = Field(
        description="Per stage and role, the spread over processes; empty for a single process. A driver that trains nothing is left out."
    )
    idle: Idle | None = Field(
        default=None, description="role_waiting, bubbles and the long tail; null in records of before it was derived."
    )
    hooks: Hooks
    probe_overhead: float | None = Field(description="Median over the measured steps of the probe's own time over the step's.")
    damaged_lines: int = Field(description="Lines of the event files that could not be read.")
    steps: list[StepFigures]
    violations: list[str] = Field(description="Invariants that this record breaks; empty for a sound one.")
    absent: dict[str, str] = Field(description="Figure -> why it is null or empty.")


class SummaryDocument(Figures):
    """What ``--json`` prints as stdout's last line, and `summary.json` holds for one run."""

    schema_version: Literal[1] = SUMMARY_SCHEMA_VERSION
    runs: list[RunSummary]


def document(runs: Iterable[RunSummary]) -> dict[str, Any]:
    """The JSON object for `runs`."""
    return SummaryDocument(runs=list(runs)).model_dump(mode="json")


def write_summary(run_dir: Path, summary: RunSummary) -> None:
    """Write `run_dir`/summary.json atomically."""
    write_atomically(run_dir / SUMMARY, (json.dumps(document([summary]), indent=1, allow_nan=False) + "\n").encode())


def json_schema() -> dict[str, Any]:
    """JSON Schema of the object that ``--json`` prints."""
    schema = SummaryDocument.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text() -> str:
    """The content of docs/summary.schema.json."""
    return json.dumps(json_schema(), indent=1) + "\n"
