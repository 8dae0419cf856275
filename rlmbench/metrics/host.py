"""CPU, memory, I/O and context switches of the run on each node, and of each of its processes.

Source: `tree_samples`, `node_samples` and `process_samples`; definitions: docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlmbench.metrics.attribution import Attribution, Stretches, seconds_of
from rlmbench.metrics.figures import Amount, DeviceFigures, HostFigures, HostStage, Level, ProcessFigures, ProcessStage
from rlmbench.metrics.memory import peaks_by_stage
from rlmbench.metrics.readings import Gains, Readings, gained, gains_of, growth, level, readings_of, together
from rlmbench.records.frames import plain_rows

if TYPE_CHECKING:
    import pandas as pd

BUSY_SHARE = 0.25
"""Share of a node's cores that others may keep busy before and during a measurement."""
COUNTED = ("read_bytes", "write_bytes", "voluntary_switches", "involuntary_switches")


def host_figures(run: Attribution) -> list[HostFigures]:
    """Each node that has a collector, by name; nothing of nodes whose clock is not known."""
    rows = plain_rows(run.tables.collectors, "node", "cores")
    return [_node(run, node, cores) for node, cores in sorted(rows) if node in run.shift_ns]


def cpu_idle(cpu_s: Amount | None, cores: int | None, seconds: float) -> float | None:
    """1 - CPU seconds / (cores x seconds), at least 0: what the kernel charges in ticks may exceed a short window."""
    if cpu_s is None or not cores or not seconds:
        return None
    return max(0.0, 1 - cpu_s.value / (cores * seconds))


def cpu_idle_of(nodes: Sequence[HostFigures], step_s: float) -> float | None:
    """The same over all nodes; None unless each is known."""
    cores = [node.cores for node in nodes]
    used = [node.cpu_s.value for node in nodes if node.cpu_s is not None]
    total = sum(count for count in cores if count)
    if not nodes or not all(cores) or len(used) < len(nodes) or not step_s:
        return None
    return max(0.0, 1 - sum(used) / (total * step_s))


def _node(run: Attribution, node: str, cores: int | None) -> HostFigures:
    shift = run.shift_ns[node]
    tree, whole = run.of(run.tables.tree_samples, node), run.of(run.tables.node_samples, node)
    cpu = gains_of(readings_of(tree, "cpu_s", shift))
    rss, pss = readings_of(tree, "rss_bytes", shift), readings_of(tree, "pss_bytes", shift)
    step_s = run.seconds / run.steps if run.steps else 0.0
    cpu_s = gained(cpu, run.measured, run.steps)
    busy_s = gained(gains_of(readings_of(whole, "cpu_busy_s", shift)), run.measured, run.steps)
    processes = readings_of(tree, "processes", shift)
    return HostFigures(
        node=node,
        cores=cores,
        processes=_most(processes, run.measured),
        cpu_s=cpu_s,
        cpu_idle=cpu_idle(cpu_s, cores, step_s),
        others_cpu_cores=max(0.0, busy_s.value - cpu_s.value) / step_s if busy_s and cpu_s and step_s else None,
        load_1min=level(readings_of(whole, "load_1min", shift), run.measured),
        memory_used_bytes=level(readings_of(whole, "memory_used_bytes", shift), run.measured),
        rss_bytes=level(rss, run.measured),
        pss_bytes=level(pss, run.measured),
        rss_growth_bytes_per_step=growth(rss, run.windows),
        pss_growth_bytes_per_step=growth(pss, run.windows),
        stages={stage: _stage(stretches, cores, cpu, rss, pss, run.steps) for stage, stretches in run.stages_at(node).items()},
        **_counted(tree, shift, run),
    )


def _stage(stretches: Stretches, cores: int | None, cpu: Gains, rss: Readings, pss: Readings, steps: int) -> HostStage:
    seconds, cpu_s = seconds_of(stretches) / steps, gained(cpu, stretches, steps)
    return HostStage(
        seconds=seconds,
        cpu_s=cpu_s,
        cpu_idle=cpu_idle(cpu_s, cores, seconds),
        rss_bytes=level(rss, stretches),
        pss_bytes=level(pss, stretches),
    )


def _counted(samples: pd.DataFrame, shift_ns: int, run: Attribution) -> dict[str, float | None]:
    found = {name: gained(gains_of(readings_of(samples, name, shift_ns)), run.measured, run.steps) for name in COUNTED}
    return {name: amount.value if amount is not None else None for name, amount in found.items()}


def _most(readings: Readings, stretches: Stretches) -> int | None:
    found = level(readings, stretches)
    return int(found.peak) if found is not None else None


def process_figures(run: Attribution, devices: Sequence[DeviceFigures]) -> list[ProcessFigures]:
    """Each process of the probe that a collector saw, in the order in which they began. `devices` are those of the run.

    A process that starts Python anew, as Ray's workers do, has two files of events and one pid: the latter stands for it.
    """
    known = run.tables.processes.dropna(subset=["pid"]).sort_values("mono_ns", kind="stable")
    found: dict[tuple[str, int, int], ProcessFigures] = {}
    for process, role, rank, pid, began_ns in plain_rows(known, "process", "role", "rank", "pid", "mono_ns"):
        node = run.node_of.get(process)
        if node not in run.shift_ns:
            continue
        samples = run.of(run.tables.process_samples, node)
        samples = _same_process(samples[samples["pid"] == pid], began_ns)
        if len(samples):
            figures = _process(run, node, process, role, rank, pid, samples)
            found[node, pid, int(samples["start_ticks"].iloc[0])] = _by_stage(run, figures, devices)
    return list(found.values())


def _by_stage(run: Attribution, figures: ProcessFigures, devices: Sequence[DeviceFigures]) -> ProcessFigures:
    """The figures with energy and, by stage, energy and peaks of memory: of one rank. Devices that it shares are nobody's own."""
    process = figures.process
    own = [one for one in devices if process in one.processes]
    alone = bool(own) and all(one.processes == [process] for one in own)
    in_stages = run.stages([process])
    spans = run.tables.spans
    peaks = peaks_by_stage(spans[spans["process"] == process], [window.step for window in run.windows]) if in_stages else {}
    stages = {
        stage: ProcessStage(
            seconds=seconds_of(stretches) / run.steps,
            energy_j=together([one.stages[stage].energy_j for one in own]) if alone else None,
            peak_bytes=peaks.get(stage, {}),
        )
        for stage, stretches in in_stages.items()
    }
    return figures.model_copy(update={"energy_j": together([one.energy_j for one in own]) if alone else None, "stages": stages})


def _process(
    run: Attribution, node: str, process: str, role: str | None, rank: int | None, pid: int, samples: pd.DataFrame
) -> ProcessFigures:
    shift = run.shift_ns[node]
    devices = run.devices_of(process)
    return ProcessFigures(
        process=process,
        role=role,
        rank=rank,
        pid=pid,
        node=node,
        devices=devices,
        cpu_s=gained(gains_of(readings_of(samples, "cpu_s", shift)), run.measured, run.steps),
        rss_bytes=level(readings_of(samples, "rss_bytes", shift), run.measured),
        pss_bytes=level(readings_of(samples, "pss_bytes", shift), run.measured),
        threads=_most(readings_of(samples, "threads", shift), run.measured),
        device_memory_bytes=_device_memory(run, node, pid, devices),
        **_counted(samples, shift, run),
    )


def _same_process(samples: pd.DataFrame, began_ns: int | None) -> pd.DataFrame:
    """Of several processes that had this pid one after another, the one that lived when the probe entered (same boot as the node)."""
    if samples["start_ticks"].nunique() < 2:
        return samples
    last_seen = samples.groupby("start_ticks")["t_ns"].max()
    alive = last_seen[last_seen >= began_ns] if began_ns is not None else last_seen
    return samples[samples["start_ticks"] == (alive if len(alive) else last_seen).idxmin()]


def _device_memory(run: Attribution, node: str, pid: int, devices: Sequence[str]) -> Level | None:
    """Over its devices, as each lists it. They are read in turn: at each turn of the last one, with what the others said before."""
    if not devices:
        return None
    listed = run.of(run.tables.device_processes, node)
    own = listed[(listed["pid"] == pid) & listed["device"].isin(list(devices))].dropna(subset=["memory_used_bytes"])
    if own.empty:
        return None
    last = own.groupby("device")["t_ns"].min().idxmax()
    by_device = own.pivot_table(index="t_ns", columns="device", values="memory_used_bytes", aggfunc="sum").astype("float64")
    together = by_device.ffill()[by_device[last].notna()].sum(axis=1).rename("memory_used_bytes").reset_index()
    return level(readings_of(together, "memory_used_bytes", run.shift_ns[node]), run.measured)
