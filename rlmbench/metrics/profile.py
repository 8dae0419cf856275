"""What the traces of a profile pass show: per process, device and stage, and per device over all processes that used it.

Sources: the traces below `<run>/traces`, read by `rlmbench.traces`, and what each process said of its trace (fact `torch_trace`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlmbench.errors import UserError
from rlmbench.records.frames import plain_rows
from rlmbench.records.store import TRACES

if TYPE_CHECKING:
    from rlmbench.records.store import Run
    from rlmbench.traces import CpuStage, CpuUsage, DeviceUsage, StageUsage, Usage

HOOK = "torch_profiler"


@dataclass(frozen=True)
class TracedStage:
    """One stage of a process in its trace: a moment belongs to the innermost annotation. Seconds are while it was open.

    With a device `no_kernel` and `exposed_communication` are shares of `seconds`, and the seconds of kernels and copies are unions that
    may overlap. Without one `operator_s` are the CPU operators of all threads.
    """

    stage: str
    count: int
    seconds: float
    no_kernel: float | None = None
    exposed_communication: float | None = None
    compute_s: float | None = None
    communication_s: float | None = None
    copy_s: float | None = None
    operator_s: float | None = None


@dataclass(frozen=True)
class TracedDevice:
    """One device, as the kernels of one process show it. `index` is torch's, `device` the UUID where the process told it, else the index.

    `problem`: why no_kernel is an upper bound only, such as CUDA graphs whose kernels the trace lacks.
    """

    device: str
    index: str
    window_s: float
    no_kernel: float | None
    exposed_communication: float | None
    compute_s: float
    communication_s: float
    copy_s: float
    stages: list[TracedStage]
    problem: str | None = None


@dataclass(frozen=True)
class ProfiledDevice:
    """One device over all processes that used it: from their first step's begin to their last one's end."""

    device: str
    workers: list[str]
    window_s: float
    no_kernel: float | None
    exposed_communication: float | None
    compute_s: float
    communication_s: float
    copy_s: float
    problem: str | None = None


@dataclass(frozen=True)
class TracedCpu:
    """A process whose trace holds no device. `operator_s`: CPU operators over all threads, nested ones once."""

    reason: str
    window_s: float
    operator_s: float
    no_operator: float | None
    stages: list[TracedStage]


@dataclass(frozen=True)
class TracedWorker:
    """One process with a trace. `via`: who ran the profiler, "probe". `stopping_s`: what it took to stop it and to write the file."""

    worker: str
    role: str | None
    rank: int | None
    pid: int | None
    file: str
    via: str
    steps: list[int]
    bytes: int
    uncompressed_bytes: int
    stopping_s: float
    devices: list[TracedDevice] = field(default_factory=list)
    cpu: TracedCpu | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Untraced:
    """A process without the trace that it should have, and why."""

    process: str
    reason: str


@dataclass(frozen=True)
class ProfileFigures:
    """A profile pass: `steps` that were to be traced, `extras` beside operators and kernels, every process that took part."""

    steps: list[int]
    extras: list[str]
    bytes: int
    workers: list[TracedWorker]
    devices: list[ProfiledDevice]
    missing: list[Untraced]

    def mean(self, name: str) -> float | None:
        """The mean of `no_kernel` or `exposed_communication` over devices; None where one of them is not known."""
        values = [None if device.problem else getattr(device, name) for device in self.devices]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known and len(known) == len(values) else None


def profile_figures(run: Run) -> ProfileFigures | None:
    """The figures of a profile run; None for one that measured."""
    record = run.manifest.profile
    if record is None:
        return None
    about = {process: (role, rank, pid) for process, role, rank, pid in plain_rows(run.processes, "process", "role", "rank", "pid")}
    told = [
        (process, json.loads(text)) for process, name, text in plain_rows(run.facts, "process", "name", "value") if name == "torch_trace"
    ]
    workers = [_worker(run.path / TRACES, about.get(process, (None, None, None)), trace) for process, trace in told]
    return ProfileFigures(
        steps=list(record.steps),
        extras=list(record.extras),
        bytes=sum(worker.bytes for worker in workers),
        devices=_devices(run.path, workers),
        workers=sorted(workers, key=lambda worker: (worker.worker, worker.file)),
        missing=_missing(run, {process for process, _ in told}),
    )


def _devices(folder: Path, workers: Sequence[TracedWorker]) -> list[ProfiledDevice]:
    """Each device once. Where only one process used it, its figures are those of that trace. A trace that cannot be read may miss on any."""
    from rlmbench.traces.shared import read_shared

    unread = next((f"the trace of {worker.worker} could not be read" for worker in workers if worker.problem), None)
    users: dict[str, list[tuple[TracedWorker, TracedDevice]]] = {}
    for worker in workers:
        for device in worker.devices:
            users.setdefault(device.device, []).append((worker, device))
    found = []
    for name, used in sorted(users.items()):
        usage = read_shared([(folder / worker.file, device.index) for worker, device in used])
        problem = next((device.problem for _, device in used if device.problem), unread)
        names = list(dict.fromkeys(worker.worker for worker, _ in used))
        found.append(ProfiledDevice(name, names, **_figures(usage), problem=problem))
    return found


def _missing(run: Run, traced: set[str]) -> list[Untraced]:
    """Processes whose profiler was refused or never stopped."""
    said: dict[str, str] = {}
    for process, name, attached, reason in plain_rows(run.hooks, "process", "name", "attached", "reason"):
        if name == HOOK and not attached:
            said[process] = reason or "unknown"
        elif name == HOOK and process not in traced:
            said.setdefault(process, "the process ended before its trace was written")
    return [Untraced(process, reason) for process, reason in sorted(said.items())]


def _worker(folder: Path, about: tuple[str | None, int | None, int | None], told: Mapping[str, Any]) -> TracedWorker:
    from rlmbench.traces import read_trace

    role, rank, pid = about
    worker = TracedWorker(
        worker=str(told["file"]).partition(".")[0],
        role=role,
        rank=rank,
        pid=pid,
        file=f"{TRACES}/{told['file']}",
        via=told["via"],
        steps=list(told["steps"]),
        bytes=told["bytes"],
        uncompressed_bytes=told["uncompressed_bytes"],
        stopping_s=told["stopping_s"],
    )
    try:
        trace = read_trace(folder / told["file"])
    except UserError as error:  # removed since, as traces are large, or cut off
        return _with(worker, problem=str(error))
    if trace.cpu is not None:
        cpu = trace.cpu
        stages = [_cpu_stage(stage) for stage in cpu.stages]
        usage: CpuUsage = cpu.usage
        return _with(worker, cpu=TracedCpu(cpu.reason, usage.window_ns / 1e9, usage.operator_ns / 1e9, usage.no_operator, stages))
    uuids = told.get("device_uuids", {})
    return _with(worker, devices=[_device(device, uuids.get(device.device, device.device)) for device in trace.devices])


def _with(worker: TracedWorker, **changes: Any) -> TracedWorker:
    return TracedWorker(**{**vars(worker), **changes})


def _device(device: DeviceUsage, name: str) -> TracedDevice:
    usage = device.usage
    return TracedDevice(
        device=name,
        index=device.device,
        **_figures(usage),
        stages=[_device_stage(stage) for stage in device.stages],
        problem=device.reason or None,
    )


def _device_stage(stage: StageUsage) -> TracedStage:
    during = stage.during
    shares = {"no_kernel": during.no_kernel, "exposed_communication": during.exposed_communication}
    return TracedStage(_stage_name(stage.stage), stage.count, (during.window_ns or 0) / 1e9, **shares, **_seconds(during))


def _figures(usage: Usage) -> dict[str, Any]:
    shares = {"no_kernel": usage.no_kernel, "exposed_communication": usage.exposed_communication}
    return {"window_s": (usage.window_ns or 0) / 1e9, **shares, **_seconds(usage)}


def _seconds(usage: Usage) -> dict[str, float]:
    return {
        "compute_s": usage.compute_ns / 1e9,
        "communication_s": usage.communication_ns / 1e9,
        "copy_s": usage.copy_ns / 1e9,
    }


def _cpu_stage(stage: CpuStage) -> TracedStage:
    return TracedStage(_stage_name(stage.stage), stage.count, stage.usage.window_ns / 1e9, operator_s=stage.usage.operator_ns / 1e9)


def _stage_name(name: str) -> str:
    return name.removeprefix("rlmbench:")
