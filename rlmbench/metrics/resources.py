"""What the collectors' samples say of a run: hosts, processes, devices, energy, and the idle time that follows from them.

Everything here is null or empty for a record without samples, and `reasons` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlmbench.metrics.attribution import Attribution
from rlmbench.metrics.devices import device_figures, energy_figures, mean_over
from rlmbench.metrics.figures import CollectorFigures, DeviceFigures, DeviceIdle, Energy, HostFigures, ProcessFigures
from rlmbench.metrics.host import cpu_idle_of, host_figures, process_figures
from rlmbench.metrics.profile import ProfileFigures
from rlmbench.metrics.readings import readings_of
from rlmbench.metrics.stages import Window
from rlmbench.records.frames import plain_rows

if TYPE_CHECKING:
    from rlmbench.records.tables import Tables

NO_COLLECTOR = "no collector ran beside the run: it was switched off, or the record is older than collectors"
NO_STEP = "no step was measured"
NO_DEVICE = "no device was sampled"
ON_CPU = "the run was made for a CPU, and held no device"


@dataclass(frozen=True)
class Resources:
    """Figures from samples, and of what is absent the reason by figure."""

    host: list[HostFigures] = field(default_factory=list)
    processes: list[ProcessFigures] = field(default_factory=list)
    devices: list[DeviceFigures] = field(default_factory=list)
    energy: Energy | None = None
    collectors: list[CollectorFigures] = field(default_factory=list)
    cpu_idle: float | None = None
    low_sm: float | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)


def device_idle(devices: Sequence[DeviceFigures], profile: ProfileFigures | None) -> list[DeviceIdle]:
    """Idle time of each device, as far as spans, samples and, of a profile pass, traces show it."""
    sampled = {one.device: one for one in devices}
    traced = {one.device: one for one in profile.devices if not one.problem} if profile else {}
    found = []
    for name in (*sampled, *(name for name in traced if name not in sampled)):
        one, trace = sampled.get(name), traced.get(name)
        found.append(
            DeviceIdle(
                device=name,
                node=one.node if one else None,
                role_waiting=one.role_waiting if one else None,
                bubbles=one.bubbles if one else None,
                low_sm=one.low_sm if one else None,
                no_kernel=trace.no_kernel if trace else None,
                exposed_communication=trace.exposed_communication if trace else None,
            )
        )
    return found


def resources(
    tables: Tables, driver: str | None, windows: Sequence[Window], response_tokens: int | None, *, on_cpu: bool = False
) -> Resources:
    """The figures of the measured steps `windows`, in which the trained samples had `response_tokens`. `on_cpu`: it held no device."""
    collectors = [] if tables.collectors.empty else collector_figures(tables)
    if tables.collectors.empty or driver is None or not windows:
        why = NO_COLLECTOR if tables.collectors.empty else NO_STEP
        return Resources(collectors=collectors, reasons=dict.fromkeys((*_ALL, *(() if collectors else ("collectors",))), why))
    run = Attribution(tables, driver, windows)
    host, measured = host_figures(run), device_figures(run)
    devices = [one.figures for one in measured]
    found = Resources(
        host=host,
        processes=process_figures(run, devices),
        devices=devices,
        energy=energy_figures(measured, response_tokens, run.steps),
        collectors=collectors,
        cpu_idle=cpu_idle_of(host, run.seconds / run.steps),
        low_sm=mean_over(one.low_sm for one in devices),
    )
    return Resources(**{**vars(found), "reasons": _reasons(found, tables, ON_CPU if on_cpu else NO_DEVICE)})


_ALL = ("host", "processes", "devices", "energy", "idle.cpu_idle", "idle.low_sm")


def collector_figures(tables: Tables) -> list[CollectorFigures]:
    """What each node's collector cost, and how finely it looked."""
    rows = plain_rows(tables.collectors, "node", "mono_ns", "end_ns", "interval_s", "cpu_s", "late_ticks")
    return [_collector(tables, *row) for row in rows]


def _collector(
    tables: Tables, node: str, mono_ns: int | None, end_ns: int | None, interval_s: float | None, cpu_s: float | None, late: int | None
) -> CollectorFigures:
    ticks = readings_of(tables.node_samples[tables.node_samples["node"] == node], "t_ns")
    times = ticks.times_ns
    last_ns = end_ns or (int(times[-1]) if len(times) else None)
    ran_s = (last_ns - mono_ns) / 1e9 if last_ns is not None and mono_ns is not None else None
    return CollectorFigures(
        node=node,
        interval_s=interval_s,
        resolution_s=ticks.resolution_s,
        readings=len(times),
        late_ticks=late,
        cpu_share=cpu_s / ran_s if cpu_s is not None and ran_s else None,
    )


def _reasons(found: Resources, tables: Tables, no_device: str) -> dict[str, str]:
    """The first reason that applies to each absent figure."""
    refused: dict[str, str] = {}
    missing = tables.capabilities[~tables.capabilities["available"]]
    for name, reason in plain_rows(missing, "name", "reason"):
        refused.setdefault(name, reason or "not available here")
    no_device = refused.get("nvml", no_device)
    few = "too few readings within the measured steps"
    cores_known = all(one.cores for one in found.host)
    absent = {
        "host": (not found.host, "the clock of no collector could be tied to the driver's"),
        "processes": (not found.processes, "no process of the probe was among the collectors' readings"),
        "devices": (not found.devices, no_device),
        "energy": (found.energy is None, refused.get("energy", few) if found.devices else no_device),
        "idle.cpu_idle": (found.cpu_idle is None, few if cores_known else "how many cores a node has is not known"),
        "idle.low_sm": (found.low_sm is None, refused.get("gpm.sm_active", few) if found.devices else no_device),
    }
    return {figure: reason for figure, (is_absent, reason) in absent.items() if is_absent}
