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
from rlmbench.metrics.efficiency import Efficiency
from rlmbench.metrics.idle import Bubbles, LongTail, RoleWaiting
from rlmbench.metrics.learning import LogprobDifference, NativeMean
from rlmbench.metrics.native import NativeFigure
from rlmbench.metrics.profile import ProfileFigures
from rlmbench.metrics.statistics import Estimate
from rlmbench.metrics.work import LengthStats
from rlmbench.records.integrity import TABLES, fingerprints
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


class DeviceIdle(Figures):
    """One device's idle time over the measured steps, by name; each a share of 1 and null where it was not measured."""

    device: str
    node: str | None = Field(description="Null for a device that only a trace knows.")
    role_waiting: float | None = Field(description="No process bound to the device runs a stage, by spans.")
    bubbles: Bubbles | None = Field(default=None, description="Stretches of at least 1 ms of that.")
    low_sm: float | None = Field(description="1 - mean SM active, by the device's own counters (GPM).")
    no_kernel: float | None = Field(default=None, description="1 - union of kernels and copies over the window, by the profile pass.")
    exposed_communication: float | None = Field(
        default=None, description="Communication kernels that no compute kernel covers, over the window, by the profile pass."
    )


class Idle(Figures):
    """Idle time under its five names. The first is per role, by spans; the others are means over devices, or over nodes."""

    roles: list[RoleWaiting] = Field(description="One per role whose processes recorded stages. A driver that trains nothing is left out.")
    tail: LongTail | None = Field(description="Where the framework generates each sample by itself, in step with training.")
    no_kernel: float | None = None
    exposed_communication: float | None = None
    low_sm: float | None = None
    cpu_idle: float | None = Field(default=None, description="1 - CPU seconds of the run's processes / (cores x window), over all nodes.")
    devices: list[DeviceIdle] = []


class Amount(Figures):
    """What a counter gained per measured step, interpolated linearly between its readings.

    `low` and `high` bound it, whatever happened between two readings: a stretch between readings that lies in the stage only in part
    counts as nothing in `low` and in full in `high`.
    """

    value: float
    low: float
    high: float
    resolved: bool = Field(description="At least one whole stretch between two readings lies within; else it is interpolation alone.")


class Level(Figures):
    """A gauge over stretches of time: mean weighted by time, and highest reading. None of them without a reading there."""

    mean: float
    peak: float
    readings: int


class HostStage(Figures):
    """A stage on one node: while any of the run's processes there runs it."""

    seconds: float = Field(description="Per measured step.")
    cpu_s: Amount | None = Field(description="CPU seconds of the process tree.")
    cpu_idle: float | None = Field(description="1 - CPU seconds / (cores x the stage's seconds).")
    rss_bytes: Level | None = Field(description="Resident sets of the process tree, added up: shared pages count once in each.")
    pss_bytes: Level | None = Field(description="The same with shared pages divided among those that share them; read rarely.")


class HostFigures(Figures):
    """One node over the measured steps, by the collector that ran there. Amounts are per measured step."""

    node: str
    cores: int | None
    processes: int | None = Field(description="Most processes of the run at once.")
    cpu_s: Amount | None = Field(description="CPU seconds of the run's process tree, ended processes included.")
    cpu_idle: float | None = Field(description="1 - CPU seconds / (cores x step).")
    others_cpu_cores: float | None = Field(
        description="Cores kept busy by everything else on the node: its busy time less the tree's, over the steps' time."
    )
    load_1min: Level | None
    memory_used_bytes: Level | None = Field(description="The node as a whole.")
    rss_bytes: Level | None
    pss_bytes: Level | None
    read_bytes: float | None = Field(description="From storage, per step.")
    write_bytes: float | None = Field(description="To storage, per step.")
    voluntary_switches: float | None = Field(description="Context switches per step.")
    involuntary_switches: float | None
    rss_growth_bytes_per_step: Estimate | None = Field(description="Slope of the last reading of each measured step.")
    pss_growth_bytes_per_step: Estimate | None
    stages: dict[str, HostStage]


class ProcessStage(Figures):
    """A stage of one process: while it runs it, waits aside."""

    seconds: float = Field(description="Per measured step.")
    energy_j: Amount | None = Field(description="Of its devices, per measured step; null where another process is bound to one of them.")
    peak_bytes: dict[str, int] = Field(description="Highest of any measured step, as in memory.peak_bytes.")


class ProcessFigures(Figures):
    """One process that the probe entered, by readings of about one a second; amounts are per measured step."""

    process: str
    role: str | None
    rank: int | None
    pid: int
    node: str
    devices: list[str] = Field(description="Those bound to it, by its own fact or by the device's list of processes.")
    cpu_s: Amount | None
    rss_bytes: Level | None
    pss_bytes: Level | None
    read_bytes: float | None
    write_bytes: float | None
    voluntary_switches: float | None
    involuntary_switches: float | None
    threads: int | None = Field(description="Most at once.")
    device_memory_bytes: Level | None = Field(description="Over its devices, as they list it.")
    energy_j: Amount | None = Field(None, description="Of its devices; null where another process is bound to one of them.")
    stages: dict[str, ProcessStage] = Field(default_factory=dict)


class DeviceStage(Figures):
    """A stage on one device: while any process bound to the device runs it. `idle` is not here: see `low_sm` and docs/metrics.md."""

    seconds: float = Field(description="Per measured step.")
    energy_j: Amount | None
    power_w: Level | None
    memory_used_bytes: Level | None = Field(description="The device as a whole, whoever uses it.")
    nvml_kernel_present: float | None = Field(
        description="Mean of NVML's utilization.gpu: share of time in which some kernel was there, of any size. Not busy."
    )
    low_sm: float | None
    tensor_active: float | None
    dram_active: float | None
    throttled_share: float | None


class DeviceFigures(Figures):
    """One device over the measured steps, by its node's collector. Amounts are per measured step."""

    device: str = Field(description="UUID.")
    node: str
    processes: list[str] = Field(description="The run's processes bound to it.")
    bound_by: Literal["pid", "fact", "driver"] = Field(
        description="How stages were attributed: by the device's list of processes, by the processes' own fact, or, without either, by the driver's stages."
    )
    role_waiting: float | None = Field(description="Share of the measured time in which no process bound to it runs a stage.")
    bubbles: Bubbles | None = Field(default=None, description="Stretches of at least 1 ms of that.")
    energy_j: Amount | None
    energy_source: Literal["counter", "power"] | None = Field(
        description="The device's total energy counter, or the integral of power readings."
    )
    energy_resolution_s: float | None = Field(description="Median time between two readings of it that differ.")
    power_w: Level | None
    memory_used_bytes: Level | None
    memory_growth_bytes_per_step: Estimate | None
    nvml_kernel_present: float | None
    sm_active: float | None
    low_sm: float | None = Field(description="1 - mean SM active.")
    sm_occupancy: float | None
    tensor_active: float | None
    dram_active: float | None
    sm_clock_min_hz: float | None
    sm_clock_median_hz: float | None
    memory_clock_median_hz: float | None
    throttled_share: float | None = Field(description="Share of time with a slowdown for heat or by the hardware.")
    power_capped_share: float | None = Field(description="Share of time at the device's own power limit, which is no fault.")
    throttle_reasons: dict[str, float] = Field(description="Reason that the device gave for its clock -> share of time.")
    temperature_max_c: float | None
    pcie_rx_bytes_per_s: float | None = Field(description="Mean of readings, each NVML's rate over some 20 ms.")
    pcie_tx_bytes_per_s: float | None
    nvlink_rx_bytes: float | None = Field(description="Per step, by NVLink's own counters.")
    nvlink_tx_bytes: float | None
    nvlink_rx_bytes_per_s: float | None = Field(None, description="Mean of GPM's rates (Hopper and later).")
    nvlink_tx_bytes_per_s: float | None = None
    stages: dict[str, DeviceStage]


class Energy(Figures):
    """Of all the run's devices. Stages that run at once are both counted: stages + no_stage - overlap = j_per_step."""

    devices: int
    source: Literal["counter", "power", "both"]
    j_per_step: Amount
    j_per_1000_response_tokens: float | None
    stages_j: dict[str, Amount]
    no_stage_j: Amount | None = Field(description="While no process bound to the device ran a stage.")
    overlap_j: float | None


class CollectorFigures(Figures):
    """The collector itself on one node."""

    node: str
    interval_s: float | None = Field(description="Planned time between two readings.")
    resolution_s: float | None = Field(description="Median time between two readings, as it was.")
    readings: int
    late_ticks: int | None
    cpu_share: float | None = Field(description="Its own CPU seconds over the time it ran: share of one core.")


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


class Guideline(Figures):
    """A guideline whose figure the run recorded. Filled by rlmbench.whatif.guidelines, with what its simulation predicts."""

    name: str
    says: str
    figure: str = Field(description="What `value` is.")
    value: float
    threshold: float = Field(description="The guideline is triggered by this value or a higher one; rlmbench's own choice.")
    triggered: bool
    step_s: float | None = Field(description="Simulated seconds per step as it is; null where not triggered or not simulated.")
    predicted_step_s: float | None = Field(description="The same if the guideline is followed.")
    prediction: str | None = Field(description="What was simulated, or why nothing was; null where not triggered.")


class RunSummary(Figures):
    """One run."""

    id: str
    path: str
    suite: str
    scale: str
    framework: str
    variant: str = Field(default="", description="Of the suite's sweep; empty for a suite that is none.")
    division: str = Field(description="matched: every framework was given the same. tuned: with settings of the user's own.")
    run_pass: str = Field(
        default="measure", description="measure, or profile: torch.profiler watched this run and slowed it, so that it is no repetition."
    )
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
        default=None, description="Idle time by its five names, bubbles and the long tail; null in records of before it was derived."
    )
    host: list[HostFigures] = Field(default=[], description="One per node with a collector.")
    processes: list[ProcessFigures] = Field(default=[], description="CPU, memory and I/O of each process that the probe entered.")
    devices: list[DeviceFigures] = Field(default=[], description="One per device that the run held.")
    energy: Energy | None = Field(default=None, description="Of the run's devices; null on a CPU and on MIG.")
    collectors: list[CollectorFigures] = Field(default=[], description="What collecting cost, and how finely it resolved.")
    efficiency: Efficiency | None = Field(
        default=None,
        description="FLOPs, MFU, HFU, MBU and the step's least time, by rlmbench's cost model; null where the model is unknown.",
    )
    profile: ProfileFigures | None = Field(
        default=None, description="Of a profile pass: what its traces show; null for a run that measured."
    )
    hooks: Hooks
    probe_overhead: float | None = Field(description="Median over the measured steps of the probe's own time over the step's.")
    damaged_lines: int = Field(description="Lines of the event files that could not be read.")
    steps: list[StepFigures]
    violations: list[str] = Field(description="Invariants that this record breaks; empty for a sound one.")
    guidelines: list[Guideline] | None = Field(
        default=None, description="Guidelines with their figures, those triggered first; null where they were not looked at."
    )
    absent: dict[str, str] = Field(description="Figure -> why it is null or empty.")


class SummaryDocument(Figures):
    """What ``--json`` prints as stdout's last line, and `summary.json` holds for one run."""

    schema_version: Literal[1] = SUMMARY_SCHEMA_VERSION
    runs: list[RunSummary]


def document(runs: Iterable[RunSummary]) -> dict[str, Any]:
    """The JSON object for `runs`."""
    return SummaryDocument(runs=list(runs)).model_dump(mode="json")


def write_summary(run_dir: Path, summary: RunSummary) -> None:
    """Write `run_dir`/summary.json atomically: what ``--json`` prints, and the fingerprints of the tables that the figures were taken from."""
    content = {**document([summary]), TABLES: fingerprints(run_dir)}
    write_atomically(run_dir / SUMMARY, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def json_schema() -> dict[str, Any]:
    """JSON Schema of the object that ``--json`` prints."""
    schema = SummaryDocument.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text() -> str:
    """The content of docs/summary.schema.json."""
    return json.dumps(json_schema(), indent=1) + "\n"
