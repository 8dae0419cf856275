"""What a command asks for, as cells: one framework, at one scale, once. Everything that can be wrong is found here,
before anything starts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rlmbench.adapter import Adapter, EnvironmentSpec, Translation, broken_adapters, find_adapter, installed_adapters
from rlmbench.environment import default_device, gpus, visible_count, visible_devices, why_fewer
from rlmbench.errors import UserError, did_you_mean
from rlmbench.experiment import Experiment, Suite
from rlmbench.experiment.load import build_experiment, load_suite
from rlmbench.experiment.scale import choose_scale
from rlmbench.ray_cluster import check_address
from rlmbench.runner.schedule import interleave
from rlmbench.runner.tuned import read_native, tuned
from rlmbench.workload.shapes import find_shape

ALL = "all"
RESULTS, REPORTS = "results", "reports"
WHEN_BUSY = {"allow": "--allow-busy", "refuse": "--require-quiet"}
EXTRAS = ("shapes", "stack", "memory")
"""What torch.profiler can add to a trace, each at its price in time and size."""


@dataclass(frozen=True)
class Request:
    """What the user asked for, as given: enough to ask for the same again."""

    suite: str
    frameworks: tuple[str, ...]
    scale: str = "auto"
    overrides: tuple[str, ...] = ()
    repeats: int = 1
    device: str | None = None
    python: str | None = None
    native: tuple[str, ...] = ()
    ray_address: str | None = None
    results: str = RESULTS
    reports: str = REPORTS
    profile: bool = False
    profile_steps: tuple[int, ...] = ()
    profile_with: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    when_busy: Literal["", "allow", "refuse"] = ""

    def command(self) -> str:
        """The command line that asks for this."""
        words = ["rlmbench", "run", self.suite]
        for framework in self.frameworks:
            words += ["--framework", framework]
        if self.scale != "auto":
            words += ["--scale", self.scale]
        for variant in self.variants:
            words += ["--variant", variant]
        for override in self.overrides:
            words += ["--set", override]
        if self.repeats != 1:
            words += ["--repeats", str(self.repeats)]
        if self.device:
            words += ["--device", self.device]
        if self.python:
            words += ["--python", self.python]
        for native in self.native:
            words += ["--native", native]
        if self.ray_address:
            words += ["--ray-address", self.ray_address]
        if self.profile:
            words += ["--profile"]
        if self.profile_steps:
            words += ["--profile-steps", ",".join(map(str, self.profile_steps))]
        for more in self.profile_with:
            words += ["--profile-with", more]
        if self.when_busy:
            words += [WHEN_BUSY[self.when_busy]]
        return shlex.join([*words, *self._places()])

    def resume_command(self) -> str:
        """The command line that completes the latest campaign of this."""
        return shlex.join(["rlmbench", "run", self.suite, "--resume", *self._places()])

    def _places(self) -> list[str]:
        places = (("--results", self.results, RESULTS), ("--reports", self.reports, REPORTS))
        return [word for option, place, default in places if place != default for word in (option, place)]


@dataclass(frozen=True)
class Part:
    """One framework's share of a request: the experiment in its terms, and where it runs. `is_tuned` with settings of the user's own."""

    framework: str
    adapter: Adapter
    translation: Translation
    spec: EnvironmentSpec
    is_tuned: bool = False


@dataclass(frozen=True)
class Cell:
    """One run to make: of which variant, where the suite is a sweep."""

    framework: str
    repeat: int
    variant: str = ""


@dataclass(frozen=True)
class Profile:
    """What a profile pass traces: `steps`, from 1, and `extras` (of `EXTRAS`) beside operators and kernels."""

    steps: tuple[int, ...]
    extras: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A request with everything decided. `cells` are in the order in which they run.

    `then` is the profile pass that follows, a plan of its own with `profile` set: torch.profiler slows what it watches, so nothing
    that is measured is traced. Of a sweep, `variants` are the plans of its variants, without cells, and `left_out` says which cells a
    framework cannot run; `experiment` and `parts` are then those of the first variant.
    """

    request: Request
    suite: str
    scale: str
    scale_reason: str
    device: str
    experiment: Experiment
    parts: dict[str, Part] = field(repr=False)
    cells: tuple[Cell, ...]
    profile: Profile | None = None
    then: Plan | None = None
    variant: str = ""
    variants: Mapping[str, Plan] = field(default_factory=dict, repr=False)
    left_out: tuple[str, ...] = ()

    @property
    def passes(self) -> list[tuple[Plan, Cell]]:
        """Every run to make, with the plan that it is part of: first those that measure."""
        return [(plan.of(cell), cell) for plan in (self, self.then) if plan for cell in plan.cells]

    @property
    def each(self) -> list[Plan]:
        """The plans of the variants; the plan itself where the suite is no sweep."""
        return list(self.variants.values()) or [self]

    def of(self, cell: Cell) -> Plan:
        """The plan of the cell's variant."""
        return self.variants.get(cell.variant, self)

    @property
    def refusals(self) -> list[str]:
        """Why the frameworks cannot run this, a line each. What a sweep leaves out is no reason as long as something is left."""
        if self.variants:
            return [] if self.cells else list(self.left_out)
        return [
            f"{part.framework} cannot run {self.suite} at {self.scale}: {entry.field} = {entry.value!r}: {entry.reason}"
            for part in self.parts.values()
            for entry in part.translation.unsupported
        ]


def make_plan(request: Request, *, force_scale: bool = False) -> Plan:
    """Decide scale, device, experiment and environments for `request`.

    With `force_scale` a scale that this machine is too small for is taken all the same (to look at it).

    Raises:
        UserError: a name, key or value that does not exist or does not fit.
    """
    suite = load_suite(request.suite)
    memory = min((gpu["memory_bytes"] for gpu in visible_devices() if gpu["memory_bytes"]), default=None)
    scale, reason = choose_scale(suite, visible_count(), memory, request.scale, force=force_scale)
    device = request.device or ("cuda" if suite.scales[scale].devices and (default_device() == "cuda" or force_scale) else "cpu")  # type: ignore[index]
    variants = _variants(suite, scale, request.variants)
    experiments = {variant: build_experiment(suite, scale, request.overrides, variant) for variant in variants or [""]}
    for experiment in experiments.values():
        if experiment.model.shape:
            find_shape(experiment.model.shape)
    experiment = next(iter(experiments.values()))
    if request.repeats < 1:
        raise UserError(f"--repeats {request.repeats}: give at least 1")
    names = _real_frameworks(experiment, device) if ALL in request.frameworks else list(dict.fromkeys(request.frameworks))
    if ALL in request.frameworks and (broken := broken_adapters()):
        raise UserError(f"--framework all: adapter {'; adapter '.join(f'{name}: {why}' for name, why in broken.items())}")
    if not names:
        raise UserError("no framework is installed: an adapter package must provide one (rlmbench doctor)")
    if request.python and len(names) > 1:
        raise UserError("--python names one framework's interpreter: give one --framework with it")
    if request.ray_address:
        _check_ray(request.ray_address, names)
    files = _native_files(request.native, names)
    each = {}
    for variant, one in experiments.items():
        parts = {name: _part(name, one, device, files.get(name)) for name in names}
        asked = replace(request, variants=(variant,)) if variant else request
        each[variant] = Plan(asked, suite.name, scale, reason, device, one, parts, (), variant=variant)
    order = [
        (name, variant)
        for variant, plan in each.items()
        for name, part in plan.parts.items()
        if not (variant and part.translation.unsupported)
    ]
    cells = tuple(Cell(name, repeat, variant) for (name, variant), repeat in interleave(order, request.repeats))
    plan = replace(next(iter(each.values())), request=request, cells=cells)
    if variants:
        plan = replace(plan, variant="", variants=each, left_out=tuple(line for one in each.values() for line in _left_out(one)))
    return replace(plan, then=_profile_pass(plan, files)) if request.profile else plan


def _variants(suite: Suite, scale: str, asked: Sequence[str]) -> list[str]:
    """The variants to run, in the suite's order; none where it is no sweep.

    Raises:
        UserError: one that the suite does not have.
    """
    known = list(suite.variants_at(scale))
    for name in asked:
        if name not in known:
            has = f"{suite.name} has {', '.join(known)}" if known else f"{suite.name} is no sweep, it has none"
            raise UserError(f"--variant {name}: unknown variant{did_you_mean(name, known)}; {has}")
    return [name for name in known if not asked or name in asked]


def _left_out(plan: Plan) -> list[str]:
    """The variant's cells that a framework cannot run, a line each with the first reason."""
    found = [(part, part.translation.unsupported) for part in plan.parts.values()]
    return [
        f"{part.framework} cannot run {plan.suite} {plan.variant}: {entries[0].field} = {entries[0].value!r}: {entries[0].reason}"
        for part, entries in found
        if entries
    ]


def _profile_pass(plan: Plan, files: Mapping[str, Path]) -> Plan:
    """One more run of each framework, which ends a step after the last one that it traces.

    Raises:
        UserError: a step that the runs do not have.
    """
    measure, request = plan.experiment.measurement, plan.request
    steps = tuple(sorted(set(request.profile_steps))) or (measure.warmup_steps + 1,)
    for step in steps:
        if not 1 <= step <= measure.steps:
            raise UserError(f"--profile-steps {step}: the runs have steps 1 to {measure.steps}")
    last = max(min(steps[-1] + 1, measure.steps), measure.warmup_steps + 1)
    shorter = measure.model_copy(update={"steps": last, "probe": True})
    experiment = plan.experiment.model_copy(update={"measurement": shorter})
    parts = {name: _part(name, experiment, plan.device, files.get(name)) for name in plan.parts}
    cells = tuple(dict.fromkeys(replace(cell, repeat=0) for cell in plan.cells))
    each = {variant: replace(_profile_pass(one, files), variants={}) for variant, one in plan.variants.items()}
    plan = replace(plan, variants=each)
    return replace(plan, experiment=experiment, parts=parts, cells=cells, profile=Profile(steps, request.profile_with))


def _real_frameworks(experiment: Experiment, device: str) -> list[str]:
    """What ``all`` stands for: every installed framework, without what only simulates one."""
    return [name for name, adapter in installed_adapters().items() if not adapter.translate(experiment, device).simulated]


def _native_files(given: Sequence[str], names: Sequence[str]) -> dict[str, Path]:
    """Framework -> its ``--native`` file, from FILE (for a single framework) and FRAMEWORK=FILE."""
    files: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals:
            if len(names) > 1:
                raise UserError(f"--native {text}: which framework's? Write --native FRAMEWORK={text} ({', '.join(names)})")
            name, path = names[0], text
        if name not in names:
            raise UserError(f"--native {text}: {name} is not among the frameworks of this run ({', '.join(names)})")
        if name in files:
            raise UserError(f"--native {text}: {name} already has {files[name]}; put all settings in one file")
        files[name] = Path(path)
    return files


def _part(name: str, experiment: Experiment, device: str, native_file: Path | None) -> Part:
    adapter = find_adapter(name)
    translation = adapter.translate(experiment, device)
    if native_file:
        settings = read_native(native_file, dotted=any("." in key for key in translation.native))
        translation = tuned(translation, settings, adapter.reserved_keys(), native_file.name)
    return Part(name, adapter, translation, find_environment(adapter, translation.environment, device), native_file is not None)


def find_environment(adapter: Adapter, name: str, device: str) -> EnvironmentSpec:
    """The adapter's environment called `name` for `device`.

    Raises:
        UserError: it has none.
    """
    for spec in adapter.environments():
        if spec.name == name and spec.device == device:
            return spec
    have: Sequence[Any] = [f"{spec.name} ({spec.device})" for spec in adapter.environments()] or ["none"]
    raise UserError(f"{adapter.name} has no environment {name} for {device}; it has {', '.join(have)}")


def _check_ray(address: str, names: Sequence[str]) -> None:
    """Refuse --ray-address where it would mean nothing.

    Raises:
        UserError: not an address, or a framework without Ray.
    """
    check_address(address)
    without = [name for name in names if not find_adapter(name).uses_ray]
    if without:
        raise UserError(f"--ray-address: {', '.join(without)} does not use Ray; name only frameworks that do with --framework")


def check_devices(plan: Plan) -> None:
    """Refuse more devices than this machine has; on a CPU ranks share the cores, and no device is counted.

    Raises:
        UserError: too few GPUs.
    """
    needed = max(devices_needed(one, framework) for one in plan.each for framework in one.parts)
    if plan.device == "cuda" and needed > visible_count():
        there, reason = gpus(), gpus().reason
        fewer = why_fewer()
        hidden = f", {fewer}" if fewer else ""
        raise UserError(
            f"the experiment needs {_gpus(needed)}, this machine has {_gpus(len(there.devices))}{hidden}{f' ({reason})' if reason else ''}: "
            "choose a smaller --scale, or lower parallelism.data or placement.rollout_devices with --set"
        )


def devices_needed(plan: Plan, framework: str) -> int:
    """Devices that a run of `framework` holds."""
    from rlmbench.costmodel.stages import devices_held

    return devices_held(plan.experiment, plan.parts[framework].translation.traits)


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count or 'no'} GPUs"
