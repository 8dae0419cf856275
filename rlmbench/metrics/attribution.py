"""Which samples belong to what: nodes and devices to processes, and through their spans to stages, on the driver's clock."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from rlmbench.metrics.idle import at_work
from rlmbench.metrics.stages import Interval, Segment, Window, gaps, merged, part_of, union_of
from rlmbench.records.clocks import clock_offsets_ns, node_offsets_ns
from rlmbench.records.frames import plain_rows

if TYPE_CHECKING:
    import pandas as pd

    from rlmbench.records.tables import Tables

Stretches = list[Interval]
BoundBy = Literal["pid", "fact", "driver"]


@dataclass(frozen=True)
class Binding:
    """A device and the run's processes on it; `by` says how that is known (`rlmbench.metrics.figures.DeviceFigures.bound_by`)."""

    node: str
    device: str
    processes: tuple[str, ...]
    by: BoundBy


class Attribution:
    """The measured steps of one run, and who was at work where in them."""

    def __init__(self, tables: Tables, driver: str, windows: Sequence[Window]) -> None:
        self.tables = tables
        self.driver = driver
        self.windows = windows
        self.steps = len(windows)
        self.measured: Stretches = (
            merged(((window.start_ns, window.end_ns) for window in windows), windows[0].start_ns, windows[-1].end_ns) if windows else []
        )
        self.seconds = sum(end - start for start, end in self.measured) / 1e9
        self.shift_ns = node_offsets_ns(tables.collectors, tables.processes, driver)

    @cached_property
    def node_of(self) -> dict[str, str]:
        """Process -> the node whose collector sampled it. With one collector, processes that name no host are its."""
        hosts = {host: node for node, host in plain_rows(self.tables.collectors, "node", "host")}
        only = next(iter(hosts.values())) if len(hosts) == 1 else None
        rows = plain_rows(self.tables.processes, "process", "host")
        found = {process: hosts.get(host, only if host is None else None) for process, host in rows}
        return {process: node for process, node in found.items() if node is not None}

    @cached_property
    def _segments(self) -> dict[str, list[Segment]]:
        return at_work(self.tables.spans, clock_offsets_ns(self.tables.processes, self.driver))

    def stages(self, processes: Iterable[str]) -> dict[str, Stretches]:
        """Stage -> the parts of the measured steps in which any of `processes` runs it. Two stages at once both have the time."""
        by_stage: dict[str, Stretches] = defaultdict(list)
        for process in processes:
            for start, end, stage, _ in self._segments.get(process, ()):
                by_stage[stage].append((start, end))
        found = {stage: self._measured_part(intervals) for stage, intervals in by_stage.items()}
        return {stage: stretches for stage, stretches in found.items() if stretches}

    def _measured_part(self, intervals: Stretches) -> Stretches:
        union = union_of(intervals)
        return [part for stretch in self.measured for part in part_of(union, *stretch)]

    def without(self, stages: Mapping[str, Stretches]) -> Stretches:
        """The parts of the measured steps in which none of `stages` runs."""
        running = union_of([interval for stretches in stages.values() for interval in stretches])
        return [gap for stretch in self.measured for gap in gaps(part_of(running, *stretch), *stretch)]

    def shared(self, stages: Mapping[str, Stretches]) -> list[Stretches]:
        """Where stages run at once: where at least two do, where at least three do, and so on. What lies there is counted in each."""
        edges = sorted((at, change) for stretches in stages.values() for start, end in stretches for at, change in ((start, 1), (end, -1)))
        levels: dict[int, Stretches] = defaultdict(list)
        running, since = 0, 0
        for at_ns, change in edges:  # of equal times, ends come first
            for beside in range(2, running + 1):
                if since < at_ns:
                    levels[beside].append((since, at_ns))
            running, since = running + change, at_ns
        return list(levels.values())

    @cached_property
    def bindings(self) -> list[Binding]:
        """The devices that the run held, by node and device.

        Those on which its processes were seen, by pid or by their own fact `device_uuid`; if there is none, every device that was
        sampled, with the stages of the driver. Where the ids that a device lists may be those of a container's machine, and so stand for
        other processes here, what a process states counts alone.
        """
        sampled = self.tables.device_samples[["node", "device"]].drop_duplicates()
        by_pid, by_fact = self._seen_by_pid(), self._stated()
        said = self.tables.capabilities
        doubtful = set(said.loc[(said["name"] == "device_processes.ids") & ~said["available"], "node"])
        stating = {process for processes in by_fact.values() for process in processes}
        found, unbound = [], []
        for node, device in sorted(plain_rows(sampled, "node", "device")):
            seen, stated = by_pid.get((node, device), set()), by_fact.get(device, set())
            seen = seen - stating if node in doubtful else seen
            if seen or stated:
                found.append(Binding(node, device, tuple(sorted(seen | stated)), "pid" if seen else "fact"))
            else:
                unbound.append(Binding(node, device, (), "driver"))
        return found or unbound

    def _seen_by_pid(self) -> dict[tuple[str, str], set[str]]:
        """Device -> processes of the run that it listed."""
        known = self.tables.processes.dropna(subset=["pid"]).sort_values("mono_ns", kind="stable")  # of one pid the last
        process_of = {(self.node_of.get(process), pid): process for process, pid in plain_rows(known, "process", "pid")}
        seen: dict[tuple[str, str], set[str]] = defaultdict(set)
        listed = self.tables.device_processes[["node", "device", "pid"]].drop_duplicates()
        for node, device, pid in plain_rows(listed, "node", "device", "pid"):
            if (node, pid) in process_of:
                seen[node, device].add(process_of[node, pid])
        return seen

    def _stated(self) -> dict[str, set[str]]:
        """Device -> processes that say it is theirs."""
        facts = self.tables.facts
        stated: dict[str, set[str]] = defaultdict(set)
        for process, text in plain_rows(facts[facts["name"] == "device_uuid"], "process", "value"):
            value = json.loads(text)
            for device in value if isinstance(value, list) else [value]:
                stated[str(device)].add(process)
        return stated

    def devices_of(self, process: str) -> list[str]:
        """The devices that a process is bound to."""
        return [binding.device for binding in self.bindings if process in binding.processes]

    def stages_on(self, binding: Binding) -> dict[str, Stretches]:
        """The stages of a device: those of its processes, or else the driver's."""
        return self.stages(binding.processes or (self.driver,))

    def stages_at(self, node: str) -> dict[str, Stretches]:
        """The stages of a node: those of all its processes."""
        return self.stages(process for process, at in self.node_of.items() if at == node)

    def of(self, frame: pd.DataFrame, node: str, device: str | None = None) -> pd.DataFrame:
        """The samples of one node or device."""
        here = frame["node"] == node
        return frame[here] if device is None else frame[here & (frame["device"] == device)]


def seconds_of(stretches: Collection[Interval]) -> float:
    return sum(end - start for start, end in stretches) / 1e9
