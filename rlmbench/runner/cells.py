"""What a command asks for, as cells: one framework, at one scale, once. Everything that can be wrong is found here,
before anything starts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlmbench.adapter import Adapter, EnvironmentSpec, Translation, broken_adapters, find_adapter, installed_adapters
from rlmbench.environment import default_device, devices
from rlmbench.errors import UserError
from rlmbench.experiment import Experiment
from rlmbench.experiment.load import build_experiment, load_suite
from rlmbench.experiment.scale import choose_scale
from rlmbench.ray_cluster import check_address
from rlmbench.runner.schedule import interleave
from rlmbench.runner.tuned import read_native, tuned
from rlmbench.workload.shapes import find_shape

ALL = "all"
RESULTS, REPORTS = "results", "reports"


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

    def command(self) -> str:
        """The command line that asks for this."""
        words = ["rlmbench", "run", self.suite]
        for framework in self.frameworks:
            words += ["--framework", framework]
        if self.scale != "auto":
            words += ["--scale", self.scale]
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
    """One run to make."""

    framework: str
    repeat: int


@dataclass(frozen=True)
class Plan:
    """A request with everything decided. `cells` are in the order in which they run."""

    request: Request
    suite: str
    scale: str
    scale_reason: str
    device: str
    experiment: Experiment
    parts: dict[str, Part] = field(repr=False)
    cells: tuple[Cell, ...]

    @property
    def refusals(self) -> list[str]:
        """Why the frameworks cannot run this, a line each."""
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
    gpus = devices()
    memory = min((gpu["memory_bytes"] for gpu in gpus), default=None)
    scale, reason = choose_scale(suite, len(gpus), memory, request.scale, force=force_scale)
    device = request.device or ("cuda" if suite.scales[scale].devices and (default_device() == "cuda" or force_scale) else "cpu")  # type: ignore[index]
    experiment = build_experiment(suite, scale, request.overrides)
    if experiment.model.shape:
        find_shape(experiment.model.shape)
    if request.repeats < 1:
        raise UserError(f"--repeats {request.repeats}: give at least 1")
    names = list(installed_adapters()) if ALL in request.frameworks else list(dict.fromkeys(request.frameworks))
    if ALL in request.frameworks and (broken := broken_adapters()):
        raise UserError(f"--framework all: adapter {'; adapter '.join(f'{name}: {why}' for name, why in broken.items())}")
    if not names:
        raise UserError("no framework is installed: an adapter package must provide one (rlmbench doctor)")
    if request.python and len(names) > 1:
        raise UserError("--python names one framework's interpreter: give one --framework with it")
    if request.ray_address:
        _check_ray(request.ray_address, names)
    files = _native_files(request.native, names)
    parts = {name: _part(name, experiment, device, files.get(name)) for name in names}
    cells = tuple(Cell(framework, repeat) for framework, repeat in interleave(names, request.repeats))
    return Plan(request, suite.name, scale, reason, device, experiment, parts, cells)


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
    if plan.device == "cuda" and plan.experiment.devices > len(devices()):
        raise UserError(
            f"the experiment needs {_gpus(plan.experiment.devices)}, this machine has {_gpus(len(devices()))}: "
            "choose a smaller --scale, or lower parallelism.data or placement.rollout_devices with --set"
        )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count or 'no'} GPUs"
