"""The one interface between rlmbench and a training framework.

An adapter is a package that names an object with this interface in the entry-point group ``rlmbench.adapters``.
It runs in rlmbench's own process, so it may not import the framework: it only *translates* an experiment into the
framework's configuration, with a ledger that says for every field how faithfully, and says which processes to start.
What runs inside those processes lives in a folder the adapter puts on their ``PYTHONPATH``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol

from rlmbench.errors import UserError, did_you_mean
from rlmbench.experiment import Experiment

ENTRY_POINT_GROUP = "rlmbench.adapters"


class Fidelity(StrEnum):
    """How a framework honours one field of the experiment."""

    EXACT = "exact"
    APPROXIMATED = "approximated"
    UNSUPPORTED = "unsupported"
    CHANGED = "changed"
    """Set by the user's own file (``--native``), in the tuned division."""


@dataclass(frozen=True)
class LedgerEntry:
    """One field of the experiment and what became of it.

    `field` is the dotted name (``optimization.group_size``), `value` what was asked for, `native_key` and
    `native_value` what the framework is given (None where rlmbench itself sees to it), `reason` why the fidelity is
    what it is; it may be empty for an exact one-to-one key.
    """

    field: str
    value: Any
    fidelity: Fidelity
    native_key: str | None = None
    native_value: Any = None
    reason: str = ""


@dataclass(frozen=True)
class Translation:
    """An experiment in a framework's own terms. `native` is JSON-serializable, as the framework takes it.

    `expected_facts` is what every process that states such a fact from inside the run must say (``world_size``: 2):
    a framework may start something else than it was asked for, and the audit then fails the run.
    `untested` names each part of the translation that the adapter's authors have never run, a line each.
    `traits` is what the framework does by itself, that no field names (``old_logprob``: a forward of its own): names and
    what they change stand in `rlmbench/comparison/knowledge.py`, and a comparison shows where two frameworks differ.
    `simulated` is empty for a real framework. Else it says what stands in for one, a line; every output then says so, the run has
    no model (`RunInputs.model_dir` holds none, and prompts are cut into words), and ``--framework all`` leaves it out.
    """

    framework: str
    environment: str
    native: Mapping[str, Any]
    ledger: tuple[LedgerEntry, ...]
    expected_facts: Mapping[str, Any] = field(default_factory=dict)
    untested: tuple[str, ...] = ()
    traits: Mapping[str, str] = field(default_factory=dict)
    simulated: str = ""

    @property
    def unsupported(self) -> list[LedgerEntry]:
        return [entry for entry in self.ledger if entry.fidelity is Fidelity.UNSUPPORTED]


@dataclass(frozen=True)
class Process:
    """One process to start. `argv[0]` is an absolute path; `env` is laid over the environment that rlmbench passes on.

    A process with `ready_url` is a server: the next one starts when an HTTP GET there answers 200. The last process
    of a launch is the one whose end is the end of the run.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    ready_url: str | None = None
    ready_timeout_s: float = 300.0


@dataclass(frozen=True)
class Launch:
    """The processes of one run, in starting order, and folders outside the run's own that are removed when it has ended."""

    processes: tuple[Process, ...]
    scratch: tuple[Path, ...] = ()


@dataclass(frozen=True)
class RunInputs:
    """What rlmbench prepared for a run before asking for its launch.

    `run_dir` is the run's own folder; the adapter may write ``run_dir / "job.json"``, below ``run_dir / "native"``, and
    below ``run_dir / "scratch"``, which is removed when the run ends.
    `model_dir` holds config, weights, tokenizer. `plan_path` is the workload plan (see docs/records.md), one row per
    step and prompt. `python` is the interpreter of the framework's environment, `device` is "cpu" or "cuda".
    `ray_address` names an existing Ray cluster (HOST:PORT) that the user wants the run to join. `env` are the variables
    that rlmbench lays under each process's own, for processes that do not inherit them.
    """

    run_dir: Path
    model_dir: Path
    plan_path: Path
    python: Path
    device: str
    ray_address: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EnvironmentSpec:
    """One virtual environment an adapter needs: `lock_dir` holds the files that `rlmbench.environment` builds it from."""

    name: str
    device: str
    lock_dir: Path
    summary: str
    check_imports: tuple[str, ...]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class NativeMetric:
    """One figure that the framework logs itself, in words, and which of rlmbench's it belongs beside.

    `meaning`: what it measures, and why it differs from ours. `canonical`: the figure of ours that it comes nearest to
    (``rlmbench.metrics.native``), None where there is none. `sanity`: which of ``rlmbench.metrics.learning.NATIVE_SANITY`` it
    gives; of several such keys the first that was logged is taken.
    """

    meaning: str
    canonical: str | None = None
    sanity: str | None = None


class Adapter(Protocol):
    """What a framework's package provides. `uses_ray` says whether `launch` heeds `RunInputs.ray_address`."""

    name: str
    uses_ray: bool

    def environments(self) -> Iterable[EnvironmentSpec]:
        """Every environment the adapter may ask for, by name and device."""

    def translate(self, experiment: Experiment, device: str) -> Translation:
        """The experiment in the framework's terms. Never raises for an experiment the framework cannot express:
        the ledger holds UNSUPPORTED entries then, and the caller refuses before anything starts."""

    def launch(self, translation: Translation, experiment: Experiment, inputs: RunInputs) -> Launch:
        """Write what the framework's processes read and say how to start them."""

    def reserved_keys(self) -> Iterable[str]:
        """Native keys that `launch` sets for itself, which a user's ``--native`` file may not: whole keys, or beginnings
        that end in a dot."""

    def probe_path(self) -> Path:
        """The folder with the package that runs inside the framework's processes, for their PYTHONPATH."""

    def probe_module(self) -> str:
        """The module in that folder whose ``hooks()`` names the patch points, and ``role()`` the process's part in the run."""

    def native_metrics(self) -> Mapping[str, NativeMetric]:
        """The framework's own figures worth showing, by their key in its log."""


QUIET: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}
"""For the processes of any framework: no look at a hub, no word to anybody, no threads of a tokenizer that forks, output as it comes."""

METHODS = ("environments", "translate", "launch", "reserved_keys", "probe_path", "probe_module", "native_metrics")


def installed_adapters() -> dict[str, Adapter]:
    """Every installed adapter by name; what cannot be loaded is left out (`broken_adapters` says why)."""
    return {name: found for name, found in _installed().items() if not isinstance(found, str)}


def broken_adapters() -> dict[str, str]:
    """Name -> why an installed adapter cannot be used."""
    return {name: found for name, found in _installed().items() if isinstance(found, str)}


def find_adapter(name: str) -> Adapter:
    """The adapter called `name`.

    Raises:
        UserError: no such adapter is installed, or it cannot be loaded.
    """
    points = _points()
    if name not in points:
        known = sorted(points)
        raise UserError(f"unknown framework {name!r}{did_you_mean(name, known)}; installed adapters: {', '.join(known) or 'none'}")
    found = _load(points[name])
    if isinstance(found, str):
        raise UserError(f"adapter {name}: {found}")
    return found


def _installed() -> dict[str, Adapter | str]:
    return {name: _load(point) for name, point in _points().items()}


@cache
def _points() -> dict[str, EntryPoint]:
    """The installed adapters' entry points by name. Finding them means looking into every installed package."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _load(point: EntryPoint) -> Adapter | str:
    """The adapter object, or why there is none: an adapter is somebody else's code, and may do anything when it is imported."""
    try:
        found = point.load()
    except Exception as error:  # noqa: BLE001
        return f"{point.value} cannot be loaded: {type(error).__name__}: {error}"
    lacking = [name for name in METHODS if not callable(getattr(found, name, None))]
    lacking += [name for name in ("name", "uses_ray") if not hasattr(found, name)]
    return f"{point.value} lacks {', '.join(lacking)} (docs/adapters.md)" if lacking else found
