"""From a run's tables to its figures: choose the measured steps, call the pure functions, say what is absent and why."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rlmbench.costmodel.stages import devices_held
from rlmbench.metrics import figures as fig
from rlmbench.metrics import learning, memory
from rlmbench.metrics.audit import Audit, audit
from rlmbench.metrics.efficiency import Efficiency, efficiency, step_lengths
from rlmbench.metrics.figures import RunSummary
from rlmbench.metrics.idle import long_tail, roles_waiting, sample_intervals
from rlmbench.metrics.invariants import check_invariants
from rlmbench.metrics.native import native_figures
from rlmbench.metrics.profile import ProfileFigures, profile_figures
from rlmbench.metrics.resources import ON_CPU, Resources, device_idle, resources
from rlmbench.metrics.selection import excluded_steps
from rlmbench.metrics.stages import (
    Overlay,
    Segment,
    StepStages,
    Window,
    awaited,
    check_identity,
    generation_ns,
    innermost_segments,
    stage_breakdown,
    windows_of,
    worker_busy,
)
from rlmbench.metrics.throughput import Throughput, throughput
from rlmbench.metrics.work import LengthStats, StepWork, length_stats, optimizer_steps, padding_by_stage, step_work, unique_samples
from rlmbench.records.clocks import clock_offsets_ns
from rlmbench.records.frames import plain_rows
from rlmbench.records.manifest import Failure, Status
from rlmbench.records.vocabulary import STARTUP

if TYPE_CHECKING:
    import pandas as pd

    from rlmbench.records.store import Run

SHORT_STEP_S = 0.3
"""Steps below this are left out of the coverage: a fixed cost of a few milliseconds is a large share of them."""


def summarize(run: Run) -> RunSummary:
    """The figures of `run`. A run that ended well fails here when its audit does, or when it measured no step."""
    measured = _Measured(run)
    native_metrics = run.manifest.native_metrics
    checked = _audit(run)
    status, failure = _verdict(run, checked, measured)
    summary = RunSummary(
        id=run.id,
        path=_short(run.path),
        suite=run.manifest.suite,
        scale=run.manifest.scale,
        framework=run.manifest.framework,
        variant=run.manifest.variant,
        division=run.manifest.division,
        run_pass=run.manifest.pass_,
        status=status,
        failure_class=failure.failure_class if failure else None,
        failure=failure,
        wall_s=run.manifest.times.wall_s,
        planned_steps=run.experiment.measurement.steps,
        completed_steps=len(measured.breakdown),
        measured_steps=len(measured.included),
        excluded_steps=[fig.ExcludedStep(step=step, reason=reason) for step, reason in measured.excluded.items()],
        audit=checked,
        coverage=_coverage(measured),
        step_s=_step_seconds(measured.included),
        stages_s=_medians([step.stages_ns for step in measured.included]),
        stages_share=_shares(measured.included),
        substages_s=_medians([{".".join(key): ns for key, ns in step.substages_ns.items()} for step in measured.included]),
        unattributed_s=_median([step.unattributed_ns / 1e9 for step in measured.included]) if measured.has_spans else None,
        overlap_s=_median([step.overlap_ns / 1e9 for step in measured.included]) if measured.has_spans else None,
        startup=_startup(measured),
        throughput=_throughput(measured.throughput),
        native=native_figures(run.native, measured.steps, _canonical(measured), native_metrics),
        lengths=measured.lengths,
        padding={
            stage: fig.PaddingFigures(valid_tokens=tokens.valid_tokens, computed_tokens=tokens.computed_tokens, padding_share=tokens.share)
            for stage, tokens in padding_by_stage(run.spans, run.microbatches, measured.steps).items()
        },
        memory=fig.Memory(
            peak_bytes=memory.peaks_by_stage(run.spans, measured.steps),
            growth_bytes_per_step=memory.growth_per_step(run.spans, measured.driver, measured.steps) if measured.driver else None,
            run_peak_pss_bytes=run.manifest.outcome.get("peak_pss_bytes"),
        ),
        learning=fig.Learning(
            reward=learning.reward_mean(measured.rewards, measured.steps),
            grad_norm=learning.grad_norm_mean(run.updates, measured.steps),
            weights_changed=learning.weights_changed(run.updates),
            logprob_difference=learning.logprob_difference(
                run.logprobs, measured.steps, learning.dtypes_at_work(run.experiment.model.dtype, run.facts)
            ),
            native=learning.native_sanity(run.native, measured.steps, native_metrics),
        ),
        workers=measured.workers,
        idle=_idle(measured),
        efficiency=measured.efficiency if isinstance(measured.efficiency, Efficiency) else None,
        host=measured.resources.host,
        processes=measured.resources.processes,
        devices=measured.resources.devices,
        energy=measured.resources.energy,
        collectors=measured.resources.collectors,
        profile=measured.profile,
        hooks=_hooks(run.hooks),
        probe_overhead=_median([share for step in measured.steps if (share := measured.probe_shares.get(step)) is not None]),
        damaged_lines=int(run.processes["damaged_lines"].sum()),
        steps=_step_list(measured),
        violations=[],
        absent={},
    )
    violations = [violation for step in measured.breakdown if (violation := check_identity(step))]
    violations += check_invariants(summary)
    summary = summary.model_copy(update={"violations": violations, "absent": _absent(summary, measured)})
    if violations and summary.status == "ok":
        contradiction = Failure(failure_class="audit", message=f"the figures contradict each other: {violations[0]}")
        return summary.model_copy(update={"status": "failed", "failure_class": contradiction.failure_class, "failure": contradiction})
    return summary


class _Measured:
    """What several figures need of a run, each derived once."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.driver = driver_of(run.processes, run.steps, run.spans)
        self.driver_spans = run.spans[run.spans["process"] == self.driver]
        self.driver_steps = run.steps[run.steps["process"] == self.driver]
        self.has_spans = len(self.driver_spans) > 0

    @cached_property
    def windows(self) -> list[Window]:
        return windows_of(self.driver_steps)

    @cached_property
    def breakdown(self) -> list[StepStages]:
        overlays, beside = self._awaited()
        return stage_breakdown([*innermost_segments(self.driver_spans, overlays), *beside], self.windows)

    def _awaited(self) -> tuple[list[Overlay], list[Segment]]:
        """What other processes did while the driver only waited for them."""
        if self.driver is None or self.driver_spans["awaits"].isna().all():
            return [], []
        spans = self.run.spans
        return awaited(self.driver_spans, spans[spans["process"] != self.driver], clock_offsets_ns(self.run.processes, self.driver))

    @cached_property
    def work(self) -> dict[int, StepWork]:
        return step_work(self.run.samples, self.run.microbatches, self.run.updates, self.run.experiment.optimization.epochs)

    @cached_property
    def excluded(self) -> dict[int, str]:
        experiment = self.run.experiment
        updates = optimizer_steps(self.run.updates)
        return excluded_steps(self.breakdown, experiment.measurement.warmup_steps, updates, experiment.updates_per_step)

    @cached_property
    def included(self) -> list[StepStages]:
        """The measured steps."""
        return [step for step in self.breakdown if step.step not in self.excluded]

    @cached_property
    def steps(self) -> list[int]:
        """The numbers of the measured steps."""
        return [step.step for step in self.included]

    @cached_property
    def throughput(self) -> Throughput | None:
        """None unless the work of every measured step is known: time without its work would make the rates too low."""
        if any(step not in self.work for step in self.steps):
            return None
        steps = [(step, self.work[step.step]) for step in self.included]
        return throughput(steps, devices_held(self.run.experiment, self.run.manifest.traits), self.generation_ns)

    @cached_property
    def asynchronous(self) -> bool:
        return self.run.experiment.placement.mode == "async"

    @cached_property
    def generation_ns(self) -> int | None:
        """Generation's own time in the measured steps where it runs beside the driver's step; None where the driver's is all there is."""
        if not self.asynchronous or self.driver is None:
            return None
        return generation_ns(self.run.spans, clock_offsets_ns(self.run.processes, self.driver), self.steps)

    @cached_property
    def measured_windows(self) -> list[Window]:
        return [window for window in self.windows if window.step not in self.excluded]

    @cached_property
    def resources(self) -> Resources:
        """What the collectors' samples say of the measured steps."""
        tokens = self.throughput.response_tokens if self.throughput else None
        return resources(self.run.tables, self.driver, self.measured_windows, tokens, on_cpu=self.on_cpu)

    @property
    def on_cpu(self) -> bool:
        environment = self.run.manifest.environment
        return environment is not None and environment.device == "cpu"

    @cached_property
    def profile(self) -> ProfileFigures | None:
        return profile_figures(self.run)

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Each sample once, of all steps."""
        return unique_samples(self.run.samples, self.run.experiment.optimization.epochs)

    @cached_property
    def workers(self) -> list[fig.WorkerFigures]:
        return _workers(self)

    @cached_property
    def efficiency(self) -> Efficiency | str:
        """The figures, or why there are none."""
        if self.run.manifest.simulated:
            return f"{self.run.manifest.simulated}, and no model whose work could be counted"
        if self.run.manifest.pass_ == "profile":
            return "torch.profiler slowed this run: the measuring run beside it tells"
        means = _mean_stage_seconds(self.included)
        driver = {name.removesuffix("_s"): seconds for name, seconds in means.items()}
        # What runs beside another stage takes longer than the driver waits for it.
        stages = {stage: max([seconds, *(one.max_s for one in self.workers if one.stage == stage)]) for stage, seconds in driver.items()}
        if self.asynchronous and self.driver is not None and self.windows:
            # Generation runs ahead, of short runs all of it in the warm-up: only over the whole run do its seconds belong to its samples.
            steps = [window.step for window in self.windows]
            whole = generation_ns(self.run.spans, clock_offsets_ns(self.run.processes, self.driver), steps)
            stages["generation"] = (whole or 0) / len(steps) / 1e9
        manifest, experiment = self.run.manifest, self.run.experiment
        return efficiency(experiment, manifest.model_dump(), step_lengths(self.samples, self.steps), stages, means.get("step_s"))

    @cached_property
    def lengths(self) -> LengthStats | None:
        measured = self.samples[self.samples["step"].isin(self.steps)]["response_tokens"].tolist()
        return length_stats(measured, self.run.experiment.workload.max_response_tokens)

    @cached_property
    def probe_shares(self) -> dict[int, float]:
        """Step -> the probe's own time in it over its time, where both are known."""
        known = self.driver_steps.dropna(subset=["probe_ns"])
        rows = plain_rows(known, "step", "start_ns", "end_ns", "probe_ns")
        return {step: probe / (end - start) for step, start, end, probe in rows if end > start}

    @cached_property
    def rewards(self) -> dict[int, float]:
        """Step -> mean reward of its samples."""
        return learning.step_rewards(self.run.samples, self.run.rewards)


def driver_of(processes: pd.DataFrame, steps: pd.DataFrame, spans: pd.DataFrame) -> str | None:
    """The process that drives the loop: the one that writes steps, else the one that says so, else the first with a span."""
    drivers = processes[processes["role"] == "driver"]["process"].tolist()
    writers = steps["process"].unique().tolist()
    candidates = [process for process in drivers if process in writers] + writers + drivers + spans["process"].head(1).tolist()
    return candidates[0] if candidates else None


def _audit(run: Run) -> Audit | None:
    return audit(run.plan, run.tables, run.experiment, run.manifest.expected_facts) if run.plan is not None and len(run.processes) else None


def _verdict(run: Run, checked: Audit | None, measured: _Measured) -> tuple[Status, Failure | None]:
    """The manifest's word, except that no run is ok whose work was not the planned one, or of which nothing was measured."""
    if run.manifest.status != "ok":
        return run.manifest.status, run.manifest.failure
    if checked is None:
        return "failed", Failure(failure_class="audit", message="the run recorded no work, so that it cannot be audited")
    if not checked.ok:
        return "failed", Failure(
            failure_class="audit", message=f"{checked.mismatch_count} mismatches with the plan; first: {checked.mismatches[0]}"
        )
    if not measured.included:
        return "failed", Failure(failure_class="audit", message=f"no step was measured: all {len(measured.breakdown)} are left out")
    return "ok", None


def _coverage(measured: _Measured) -> fig.Coverage:
    if not measured.has_spans:
        return fig.Coverage(min=None, median=None, steps=0, scope="no spans were recorded")
    long = [step for step in measured.included if step.step_ns >= SHORT_STEP_S * 1e9]
    steps = long or measured.included
    scope = f"measured steps of {SHORT_STEP_S} s or longer" if long else f"all measured steps (none is {SHORT_STEP_S} s long)"
    shares = [step.coverage for step in steps if step.coverage is not None]
    return fig.Coverage(min=min(shares, default=None), median=_median(shares), steps=len(shares), scope=scope)


def _step_seconds(steps: Sequence[StepStages]) -> fig.Seconds:
    seconds = [step.step_ns / 1e9 for step in steps]
    mean = statistics.fmean(seconds) if seconds else None
    return fig.Seconds(median=_median(seconds), mean=mean, min=min(seconds, default=None), max=max(seconds, default=None))


def _medians(per_step_ns: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Name -> median seconds over all steps; a step without the stage spent 0 s in it."""
    names = dict.fromkeys(name for step in per_step_ns for name in step)
    return {name: statistics.median(step.get(name, 0) for step in per_step_ns) / 1e9 for name in names}


def _shares(steps: Sequence[StepStages]) -> dict[str, float]:
    total_ns = sum(step.step_ns for step in steps)
    names = dict.fromkeys(name for step in steps for name in step.stages_ns)
    return {name: sum(step.stages_ns.get(name, 0) for step in steps) / total_ns for name in names} if total_ns else {}


def _startup(measured: _Measured) -> fig.Startup:
    """From the run's start to its first step (or, without one, to its last span).

    `imports` is the driver's time before its first span. Where another process of the same machine started the driver
    (verl's driver is a Ray actor), `launcher` is that one's time until then, less its own spans.
    """
    own = measured.run.processes[measured.run.processes["process"] == measured.driver].dropna(subset=["mono_ns", "real_ns"])
    spans = measured.driver_spans
    ends = [measured.windows[0].start_ns] if measured.windows else spans["end_ns"].tolist()
    if own.empty or not ends:
        return fig.Startup(total_s=None, stages_s={})
    mono_ns, real_ns, end_ns = int(own["mono_ns"].iloc[0]), int(own["real_ns"].iloc[0]), max(ends)
    before = spans[spans["start_ns"] < end_ns]
    stages = dict(_named_breakdown(before, Window(0, mono_ns, end_ns)).stages_ns)
    if len(before):
        stages = {"imports": int(before["start_ns"].min()) - mono_ns, **stages}
    beside = measured.run.processes[measured.run.processes["boot_id"].eq(own["boot_id"].iloc[0])].sort_values("mono_ns")
    launcher, launched_ns = (beside["process"].iloc[0], int(beside["mono_ns"].iloc[0])) if len(beside) else (measured.driver, mono_ns)
    if launcher != measured.driver:
        spans = measured.run.spans[measured.run.spans["process"] == launcher]
        part = _named_breakdown(spans[spans["start_ns"] < mono_ns], Window(0, launched_ns, mono_ns))
        stages = {"launcher": part.unattributed_ns, **part.stages_ns, **stages}
    started_s = measured.run.manifest.times.started_unix_s
    total_s = None if started_s is None else (end_ns - mono_ns + real_ns) / 1e9 - started_s
    return fig.Startup(total_s=total_s, stages_s={stage: ns / 1e9 for stage, ns in stages.items()})


def _named_breakdown(spans: pd.DataFrame, window: Window) -> StepStages:
    """Stages of one process before the first step, by the names of the start-up spans."""
    named = spans.assign(stage=spans["stage"].where(spans["stage"] != STARTUP, spans["name"].fillna(STARTUP)))
    return stage_breakdown(innermost_segments(named), [window])[0]


def _throughput(rates: Throughput | None) -> fig.ThroughputFigures | None:
    if rates is None:
        return None
    fields = {name: getattr(rates, name) for name in fig.ThroughputFigures.model_fields}
    return fig.ThroughputFigures(**fields)


def _canonical(measured: _Measured) -> dict[str, float | None]:
    """Our figures by the names that ``NativeMetric.canonical`` uses."""
    rates, lengths = measured.throughput, measured.lengths
    seconds = sum(step.step_ns for step in measured.included) / 1e9
    updates = sum(measured.work[step].optimizer_steps for step in measured.steps if step in measured.work)
    rewards = [measured.rewards[step] for step in measured.steps if step in measured.rewards]
    return {
        **_mean_stage_seconds(measured.included),
        "step_tokens_per_s_per_device": rates.step_tokens_per_s_per_device if rates else None,
        "update_s": seconds / updates if updates else None,
        "updates_per_s": updates / seconds if seconds else None,
        "samples_per_s": rates.samples_per_s if rates else None,
        "response_tokens_mean": lengths.mean if lengths else None,
        "share_at_cap": lengths.share_at_cap if lengths else None,
        "reward_mean": statistics.fmean(rewards) if rewards else None,
        "actor_update_mfu": _actor_update_mfu(measured.efficiency),
    }


def _actor_update_mfu(found: Efficiency | str) -> float | None:
    """Against the data sheet where it is known, else against what was measured."""
    if isinstance(found, str) or not found.against or "actor_update" not in found.stages:
        return None
    return found.against[0].stages["actor_update"].mfu


def _mean_stage_seconds(steps: Sequence[StepStages]) -> dict[str, float]:
    """Mean seconds per step of each stage, of the step, of training (both updates, what runs at once counted once), and of the
    rollout: what a driver that awaits it spends until it may go on."""
    if not steps:
        return {}
    stages = {stage for step in steps for stage in step.stages_ns}
    seconds = {f"{stage}_s": statistics.fmean(step.stages_ns.get(stage, 0) for step in steps) / 1e9 for stage in stages}
    rollout = sum(seconds.get(f"{stage}_s", 0.0) for stage in ("generation", "reward", "wait", "offload"))
    overlap = statistics.fmean(step.overlap_ns for step in steps) / 1e9
    training = statistics.fmean(step.groups_ns.get("training", 0) for step in steps) / 1e9
    step = statistics.fmean(step.step_ns for step in steps) / 1e9
    return {**seconds, "step_s": step, "rollout_s": rollout - overlap, "training_s": training}


def _workers(measured: _Measured) -> list[fig.WorkerFigures]:
    spans, processes, driver = measured.run.spans, measured.run.processes, measured.driver
    if driver is None or spans["process"].nunique() < 2:
        return []
    roles = _roles(measured.run, driver)
    busy = list(
        worker_busy(
            spans, roles, clock_offsets_ns(processes, driver), measured.measured_windows, asynchronous=measured.asynchronous
        ).values()
    )
    return [
        fig.WorkerFigures(
            stage=stage,
            role=role,
            processes=busy[0][stage, role].processes,
            min_s=statistics.median(step[stage, role].minimum_s for step in busy),
            mean_s=statistics.median(step[stage, role].mean_s for step in busy),
            median_s=statistics.median(step[stage, role].median_s for step in busy),
            max_s=statistics.median(step[stage, role].maximum_s for step in busy),
            skew=_median([skew for step in busy if (skew := step[stage, role].skew) is not None]),
        )
        for stage, role in (busy[0] if busy else ())
    ]


def _idle(measured: _Measured) -> fig.Idle | None:
    run, driver = measured.run, measured.driver
    if driver is None or not measured.included or run.spans.empty:
        return None
    offsets = clock_offsets_ns(run.processes, driver)
    tail = None if measured.asynchronous else long_tail(sample_intervals(run.spans, offsets, measured.steps).values())
    return fig.Idle(
        roles=roles_waiting(run.spans, _roles(run, driver), offsets, measured.measured_windows),
        tail=tail,
        no_kernel=measured.profile.mean("no_kernel") if measured.profile else None,
        exposed_communication=measured.profile.mean("exposed_communication") if measured.profile else None,
        low_sm=measured.resources.low_sm,
        cpu_idle=measured.resources.cpu_idle,
        devices=device_idle(measured.resources.devices, measured.profile),
    )


def _roles(run: Run, driver: str) -> dict[str, str]:
    """Process -> what it is in the run. A driver that trains is one of the trainers, as are workers without a part of their own;
    one that only directs others is left out."""
    trains = driver in set(run.updates["process"])
    roles = {process: role or "worker" for process, role in plain_rows(run.processes, "process", "role")}
    named = {process: "trainer" if role in ("driver", "worker") else role for process, role in roles.items()}
    return {process: role for process, role in named.items() if role != "launcher" and (process != driver or trains)}


def _hooks(hooks: pd.DataFrame) -> fig.Hooks:
    """A hook is missing only if it attached nowhere: a launcher never imports what its workers do. Optional ones never are."""
    attached = sorted(hooks[hooks["attached"]]["name"].unique())
    needed = hooks[~hooks["optional"].fillna(value=False)]
    missing = needed[~needed["name"].isin(attached)].drop_duplicates("name", keep="last")
    rows = plain_rows(missing, "name", "target", "reason")
    return fig.Hooks(attached=attached, missing=[fig.MissingHook(name=name, target=target, reason=reason) for name, target, reason in rows])


def _step_list(measured: _Measured) -> list[fig.StepFigures]:
    return [_step(measured, window, stages) for window, stages in zip(measured.windows, measured.breakdown, strict=True)]


def _step(measured: _Measured, window: Window, stages: StepStages) -> fig.StepFigures:
    work = measured.work.get(stages.step)
    names = ("prompts", "samples", "visits", "prompt_tokens", "response_tokens", "micro_batches", "optimizer_steps")
    counts = {name: getattr(work, name) if work else None for name in names} | {"work_digest": work.digest if work else None}
    return fig.StepFigures(
        step=stages.step,
        excluded=measured.excluded.get(stages.step),
        start_s=(window.start_ns - measured.windows[0].start_ns) / 1e9,
        step_s=stages.step_ns / 1e9,
        stages_s={stage: ns / 1e9 for stage, ns in stages.stages_ns.items()},
        unattributed_s=stages.unattributed_ns / 1e9,
        overlap_s=stages.overlap_ns / 1e9,
        coverage=stages.coverage if measured.has_spans else None,
        probe_share=measured.probe_shares.get(stages.step),
        tokens_per_s=work.total_tokens * 1e9 / stages.step_ns if work and stages.step_ns else None,
        reward_mean=measured.rewards.get(stages.step),
        **counts,
    )


@dataclass(frozen=True)
class _Reason:
    figure: str
    is_absent: bool
    reason: str


def _absent(summary: RunSummary, measured: _Measured) -> dict[str, str]:
    """Why each figure that is null or empty is so; the first reason that applies to a figure counts."""
    spans = _no_spans(summary, measured.run)
    steps = "no step was measured"
    nothing = not summary.measured_steps
    on_device = any("torch_allocated_peak_bytes" in peaks for peaks in summary.memory.peak_bytes.values())
    reasons = [
        _Reason("audit", summary.audit is None, "there is no plan, or no process recorded anything"),
        _Reason("step_s", nothing, steps),
        *(_Reason(name, nothing, steps) for name in ("coverage", "stages_s", "throughput", "probe_overhead", "lengths", "learning.reward")),
        *(_Reason(name, not measured.has_spans, spans) for name in ("coverage", "stages_s", "memory.peak_bytes", "startup.stages_s")),
        _Reason("wall_s", summary.wall_s is None, "the run has not ended, or was ended before it could say when"),
        _Reason("startup.total_s", summary.startup.total_s is None, "the start of the run or of its driver was not recorded"),
        _Reason("throughput", summary.throughput is None, "the work of some measured step was not recorded"),
        _Reason("lengths", summary.lengths is None, "no sample reached the loss in a measured step"),
        _Reason("substages_s", not summary.substages_s, "no span is divided into substages"),
        _Reason("padding", not summary.padding, "no span and no loss recorded computed tokens"),
        _Reason("memory.peak_bytes", not summary.memory.peak_bytes, "no span recorded a memory peak"),
        _Reason("memory.device", not on_device, "no span recorded torch's memory, as on a run without an accelerator"),
        _Reason(
            "memory.growth_bytes_per_step", summary.memory.growth_bytes_per_step is None, "fewer than 3 measured steps with a resident set"
        ),
        _Reason("learning.reward", summary.learning.reward is None, "no reward was recorded"),
        _Reason("learning.grad_norm", summary.learning.grad_norm is None, "no optimizer step recorded a gradient norm"),
        _Reason(
            "learning.logprob_difference",
            summary.learning.logprob_difference is None,
            "no log-probs of a rollout engine reached the loss beside the trainer's",
        ),
        _Reason("learning.weights_changed", summary.learning.weights_changed is None, "no optimizer step was checked"),
        *(
            _Reason(f"learning.native.{name}", name not in summary.learning.native, "the framework did not log it")
            for name in learning.NATIVE_SANITY
        ),
        _Reason("native", not summary.native, "the framework logged no figure of its own"),
        _Reason("workers", not summary.workers, "a single process recorded spans"),
        *_absent_idle(summary, measured, steps if nothing else spans),
        *_absent_efficiency(measured.efficiency),
        _Reason("probe_overhead", summary.probe_overhead is None, "the probe did not account for its time"),
    ]
    absent: dict[str, str] = {}
    for reason in reasons:
        if reason.is_absent:
            absent.setdefault(reason.figure, reason.reason)
    return absent


def _no_spans(summary: RunSummary, run: Run) -> str:
    """Why a run has none, where it has none."""
    if not run.experiment.measurement.probe:
        return "no spans were recorded: measurement.probe is off"
    return "no spans were recorded by the hooks that attached" if summary.hooks.attached else "no spans were recorded: no hook attached"


def _absent_efficiency(found: Efficiency | str) -> list[_Reason]:
    if isinstance(found, str):
        return [_Reason("efficiency", True, found)]
    unknown = (
        f"no rate of {found.against[0].device} in {found.dtype} is known"
        if found.against
        else "unknown device: no data sheet has it, and nothing was measured (rlmbench doctor --ceilings)"
    )
    return [
        _Reason("efficiency.mfu", not any(one.step_mfu is not None for one in found.against), unknown),
        _Reason(
            "efficiency.weight_sync",
            found.weight_sync is None,
            "no weight sync was recorded: the trainer generates by itself, or no hook attached",
        ),
    ]


def _absent_idle(summary: RunSummary, measured: _Measured, nothing: str) -> list[_Reason]:
    """Of the five names of idle time role_waiting follows from spans, low_sm and cpu_idle from samples, the others from a profile."""
    traced = [(f"idle.{name}", getattr(summary.idle, name, None)) for name in ("no_kernel", "exposed_communication")]
    untraced = "needs --profile" if summary.profile is None else "no device was traced, or not completely"
    if measured.on_cpu and not measured.resources.devices:
        untraced = ON_CPU
    reasons = [_Reason(name, value is None, untraced) for name, value in traced]
    reasons += [_Reason(name, True, reason) for name, reason in measured.resources.reasons.items()]
    if summary.idle is None:
        return [_Reason("idle", True, nothing), *reasons]
    if measured.asynchronous:
        tail = "generation runs ahead of training, so that a sample's step is not that of its batch"
    elif not any(sample_intervals(measured.run.spans, {}, measured.steps).values()):
        tail = "no interval of each sample was recorded: the framework generates a batch in one call, or no hook attached there"
    else:
        tail = "a measured step has 10 samples or fewer, of which a tenth is less than one"
    return [
        _Reason("idle.roles", not summary.idle.roles, "no process that trains or serves recorded a stage"),
        _Reason("idle.tail", summary.idle.tail is None, tail),
        *reasons,
    ]


def _median(values: Sequence[float]) -> float | None:
    return float(statistics.median(values)) if values else None


def _short(path: Path) -> str:
    """Relative to the working directory where it lies below it, so that a committed record names no machine's folders."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
