"""Idle time, hosts, devices and energy of a run: the rows that terminal and page share, and the page's chapters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from rlmbench.metrics.summary import driver_of
from rlmbench.records.frames import plain_rows
from rlmbench.report import charts, counters, numbers
from rlmbench.report.palette import in_order, style_of
from rlmbench.report.parts import Cell, Chart, Facts, Folded, Group, Line, Note, Part, Section, Table, columns, line

if TYPE_CHECKING:
    from rlmbench.metrics.figures import (
        Amount,
        CollectorFigures,
        DeviceFigures,
        DeviceStage,
        HostFigures,
        Level,
        ProcessFigures,
        RunSummary,
    )
    from rlmbench.records import Run

FIVE_NAMES = (
    ("no_kernel", "of the devices' time, with no kernel and no copy, by traces"),
    ("exposed_communication", "of the devices' time, with nothing but communication, by traces"),
    ("low_sm", "of the devices' multiprocessor time, not active, by their own counters"),
    ("role_waiting", "of the steps' time, with no stage of the role, by spans"),
    ("cpu_idle", "of the hosts' core time, not used by the run's processes"),
)
"""Idle time is five figures, never one: names, and of what each is a share."""
NO_READING = "–"
FEW_DEVICES = 2
"""So many devices have a table and a list each; of more there is one table, and each one's stages are shown on demand."""
LEGEND = (
    "–: no reading lies in the stage. ~: it is shorter than the time between two readings of the counter, so the figure is interpolated."
)


def idle_rows(summary: RunSummary) -> list[tuple[str, str, str]]:
    """Name, figure or why it is absent, and of what it is a share; empty where no step was measured."""
    idle = summary.idle
    if idle is None:
        return []
    waiting = ", ".join(f"{role.role} {numbers.share(role.role_waiting)}" for role in idle.roles)
    texts = {
        name: numbers.share(getattr(idle, name), summary.absent.get(f"idle.{name}")) for name, _ in FIVE_NAMES if name != "role_waiting"
    }
    texts["role_waiting"] = waiting or numbers.absent(summary.absent.get("idle.roles"))
    return [(name, texts[name], of_what + (_others(summary) if name == "cpu_idle" else "")) for name, of_what in FIVE_NAMES]


def _others(summary: RunSummary) -> str:
    """What of the cores' time that the run left was taken by others: such a machine is not idle."""
    known = [(host.others_cpu_cores, host.cores) for host in summary.host if host.others_cpu_cores is not None and host.cores]
    if not known:
        return ""
    share = sum(others for others, _ in known) / sum(cores for _, cores in known)
    return f"; {numbers.share(share)} of it all was used by others"


def energy_text(summary: RunSummary) -> str | None:
    """The run's energy in a line; None where it is absent."""
    energy = summary.energy
    if energy is None:
        return None
    devices = "1 device" if energy.devices == 1 else f"{energy.devices} devices"
    text = f"{numbers.joules(energy.j_per_step.value)} per step of {devices}"
    if energy.j_per_1000_response_tokens is not None:
        text += f", {numbers.joules(energy.j_per_1000_response_tokens)} per 1,000 response tokens"
    return f"{text} ({SOURCES[energy.source]})"


SOURCES = {
    "counter": "the device's energy counter",
    "power": "the integral of power readings",
    "both": "counters, or power where there is none",
}


def collector_text(collector: CollectorFigures) -> str:
    """What collecting on one node cost, and how finely it looked."""
    share = numbers.share(collector.cpu_share, "it was ended before it could say")
    late = "" if collector.late_ticks is None else f", {collector.late_ticks:,} late"
    return f"{share} of one core; {collector.readings:,} readings{late}, one every {numbers.seconds(collector.resolution_s)}"


def amount_text(amount: Amount | None, form: Callable[[float], str]) -> str:
    """A counter's gain; one that no whole stretch between readings supports is marked as an interpolation."""
    return NO_READING if amount is None else about(amount, form(amount.value))


def bounds_text(amount: Amount | None, form: Callable[[float], str]) -> str:
    """Between which values the gain lies, whatever happened between two readings."""
    return NO_READING if amount is None else f"{form(amount.low)} to {form(amount.high)}"


def share_text(value: float | None) -> str:
    return NO_READING if value is None else numbers.share(value)


def peak_text(level: Level | None) -> str:
    """The peak of a gauge in bytes, and its mean where that differs."""
    if level is None:
        return NO_READING
    peak, mean = numbers.size(level.peak), numbers.size(level.mean)
    return peak if peak == mean else f"{peak} ({mean})"


def watts_text(level: Level | None) -> str:
    return NO_READING if level is None else f"{level.mean:,.0f} W"


def about(amount: Amount | None, text: str) -> str:
    """`text` with a mark where it is an interpolation alone."""
    return text if amount is None or amount.resolved or text.startswith("<") else f"~{text}"


def cores_text(amount: Amount | None, seconds: float) -> str:
    """How many cores were in use on average."""
    return about(amount, numbers.significant(amount.value / seconds)) if amount is not None and seconds else NO_READING


# --- the page ------------------------------------------------------------------------------------------------------


def idle_section(summary: RunSummary) -> Section:
    """Idle time by its five names, then role by role and device by device."""
    intro = (
        "Idle time has five names, since they are five figures: a device may run kernels and still have most of it idle, or wait while "
        "the host works. None is derived from another."
    )
    idle = summary.idle
    if idle is None:
        parts: tuple[Part, ...] = (Note(f"Absent: {summary.absent.get('idle', numbers.DEFAULT_REASON)}."),)
        return Section("idle", "Idle time", "Idle", intro, parts)
    rows = tuple(line(Cell(name, code=True), share, of_what) for name, share, of_what in idle_rows(summary))
    found: list[Part] = [Table("Idle time over the measured steps, by name", columns("name", "share", "of what"), rows, prose=True)]
    if idle.roles:
        headings = columns("role", "#processes", "#busy, s", "role_waiting", "#bubbles a step", "#longest, s")
        lines = tuple(
            line(
                role.role,
                str(role.processes),
                numbers.fixed_seconds(role.busy_s),
                Cell(numbers.share(role.role_waiting), bar=role.role_waiting),
                numbers.significant(role.bubbles.per_step),
                numbers.fixed_seconds(role.bubbles.longest_s) if role.bubbles.per_step else NO_READING,
            )
            for role in idle.roles
        )
        found.append(Table("Waiting by role, means of a measured step (bubbles: stretches of 1 ms or longer)", headings, lines))
    if idle.devices:
        headings = columns(
            "device", "node", "role_waiting", "#bubbles a step", "#longest, s", "low_sm", "no_kernel", "exposed_communication"
        )
        lines = tuple(
            line(
                Cell(one.device, code=True),
                one.node or "",
                share_text(one.role_waiting),
                NO_READING if one.bubbles is None else numbers.significant(one.bubbles.per_step),
                NO_READING if one.bubbles is None else numbers.fixed_seconds(one.bubbles.longest_s),
                *[share_text(value) for value in (one.low_sm, one.no_kernel, one.exposed_communication)],
            )
            for one in idle.devices
        )
        found.append(Table("Idle time of each device", headings, lines))
    if idle.tail is not None:
        tail = f"{numbers.seconds(idle.tail.tail_s)} of a step, {numbers.share(idle.tail.tail_share)} of generation"
        found.append(Note(f"The end of generation, with fewer than a tenth of a step's samples unfinished: {tail}."))
    elif "idle.tail" in summary.absent:
        found.append(Note(f"The end of generation: {numbers.absent(summary.absent['idle.tail'])}."))
    return Section("idle", "Idle time", "Idle", intro, tuple(found))


def resources_section(summary: RunSummary, run: Run | None = None) -> Section:
    """CPU, memory and I/O of each node and process; memory, activity, clocks and energy of each device; what collecting cost.

    With `run`, the readings themselves are drawn over time.
    """
    parts: list[Part] = []
    if run is not None and summary.steps and (drawn := _over_time(run)):
        parts.append(Group(tuple(drawn)))
    for host in summary.host:
        parts += _host_parts(host)
    if not summary.host:
        parts.append(Note(f"Host: {numbers.absent(summary.absent.get('host'))}."))
    if summary.processes:
        parts.append(Folded(_process_table(summary.processes)))
    if len(summary.devices) > FEW_DEVICES:
        parts.append(_devices_table(summary.devices))
    for device in summary.devices:
        parts += _device_parts(device, folded=len(summary.devices) > FEW_DEVICES)
    if not summary.devices and "devices" in summary.absent and summary.absent["devices"] != summary.absent.get("host"):
        parts.append(Note(f"Devices: {numbers.absent(summary.absent['devices'])}."))
    if summary.devices:
        parts += _energy_parts(summary)
    if summary.collectors:
        rows = tuple((f"collector on {one.node}", collector_text(one)) for one in summary.collectors)
        parts.append(Facts("What collecting cost", rows))
    intro = (
        "What the collector saw from outside while the measured steps ran. A stage has what was used while it ran, so what stages that "
        f"run at once used is counted in each. Counters are interpolated between their readings, within the bounds beside them. {LEGEND}"
    )
    return Section("resources", "Hosts, devices and energy", "Resources", intro, tuple(parts))


DRAWN = (
    ("chart-cpu", "CPU of the run", "CPU in use", "cores", 1.0),
    ("chart-host-memory", "RSS of the run", "Host memory: resident sets of the run's processes", "GiB", 1 / 1024**3),
    ("chart-device-power", "power", "Device power", "W", 1.0),
    ("chart-device-memory", "memory in use", "Device memory in use", "GiB", 1 / 1024**3),
    ("chart-device-sm", "SM active", "SM active", "%", 100.0),
)
"""Counter tracks (`rlmbench.report.counters`) that the page draws: id, counter, title, unit, and what its values are multiplied with."""
MOST_DRAWN_POINTS = 300
MOST_LINES = 8
MOST_RULES = 60


def _over_time(run: Run) -> list[Chart]:
    """The readings of nodes and devices from the first step to the last, a line each."""
    driver = driver_of(run.processes, run.steps, run.spans)
    steps = sorted(plain_rows(run.steps[run.steps["process"] == driver], "start_ns", "end_ns"))
    origin, end = steps[0][0], steps[-1][1]
    tracks = counters.tracks(run, driver, MOST_DRAWN_POINTS, (origin, end))
    starts = [(start - origin) / 1e9 for start, _ in steps] if len(steps) <= MOST_RULES else []
    found = []
    for id_, counter, title, unit, scale in DRAWN:
        of_device = id_.startswith("chart-device")
        lines = {
            track.name: [((at - origin) / 1e9, value * scale) for at, value in track.counters[counter][1]]
            for track in tracks
            if counter in track.counters and track.name.startswith("device") == of_device
        }
        lines = {name: points for name, points in lines.items() if len(points) > 1}
        if lines:
            found.append(_time_chart(id_, title, unit, lines, starts))
    return found


def _time_chart(id_: str, title: str, unit: str, lines: dict[str, list[tuple[float, float]]], starts: list[float]) -> Chart:
    keys = list(lines)[:MOST_LINES]
    rows: list[charts.Row] = [{"t": round(at, 3), "value": float(f"{value:.4g}"), "key": key} for key in keys for at, value in lines[key]]
    table = Table(
        f"{title}, {unit}",
        columns("of", "#lowest", "#mean", "#highest"),
        tuple(
            line(key, *[numbers.plain(value) for value in (min(values), sum(values) / len(values), max(values))])
            for key, points in lines.items()
            if (values := [value for _, value in points])
        ),
    )
    about = f"From the first step to the last; vertical lines are where steps begin{'' if starts else ' (too many to draw)'}."
    if len(lines) > len(keys):
        about += f" Drawn are {len(keys)} of {len(lines)}."
    legend = tuple(zip(keys, charts.TIME_COLOURS, strict=False)) if len(keys) > 1 else ()
    return Chart(id_, title, about, charts.over_time(rows, unit, keys, starts), table, legend)


def _host_parts(host: HostFigures) -> list[Part]:
    stages = in_order(set(host.stages))
    largest = max((amount.value for stage in stages if (amount := host.stages[stage].cpu_s) is not None), default=0) or 1
    lines = []
    for stage in stages:
        one, style = host.stages[stage], style_of(stage)
        share = None if one.cpu_s is None else min(1.0, one.cpu_s.value / largest)
        lines.append(
            line(
                Cell(style.label, colour=style.colour),
                numbers.fixed_seconds(one.seconds),
                Cell(amount_text(one.cpu_s, numbers.fixed_seconds), style.colour, share),
                bounds_text(one.cpu_s, numbers.fixed_seconds),
                cores_text(one.cpu_s, one.seconds),
                about(one.cpu_s, share_text(one.cpu_idle)),
                peak_text(one.rss_bytes),
                peak_text(one.pss_bytes),
            )
        )
    lines.append(
        line(
            "whole step",
            "",
            amount_text(host.cpu_s, numbers.fixed_seconds),
            bounds_text(host.cpu_s, numbers.fixed_seconds),
            "",
            share_text(host.cpu_idle),
            peak_text(host.rss_bytes),
            peak_text(host.pss_bytes),
        )
    )
    heads = columns(
        "stage", "#seconds", "CPU seconds", "#at least, at most", "#cores", "#cpu_idle", "#RSS: peak (mean)", "#PSS: peak (mean)"
    )
    cores = f"{host.cores} cores" if host.cores else "cores not known"
    rows = [
        ("used by others", "n/a" if host.others_cpu_cores is None else f"{numbers.cores(host.others_cpu_cores)} cores, on average"),
        (
            "load",
            "n/a"
            if host.load_1min is None
            else f"{numbers.significant(host.load_1min.mean)} (highest {numbers.significant(host.load_1min.peak)})",
        ),
        ("memory in use on the node", "n/a" if host.memory_used_bytes is None else peak_text(host.memory_used_bytes)),
        ("read, written per step", f"{numbers.size(host.read_bytes)}, {numbers.size(host.write_bytes)}"),
        (
            "context switches per step",
            f"{numbers.count(host.voluntary_switches)} of its own, {numbers.count(host.involuntary_switches)} forced",
        ),
        ("growth of RSS per step", growth_text(host.rss_growth_bytes_per_step)),
        ("growth of PSS per step", growth_text(host.pss_growth_bytes_per_step)),
    ]
    processes = "" if not host.processes else ", one process" if host.processes == 1 else f", up to {host.processes} processes at once"
    return [
        Table(f"Host {host.node}, {cores}: the run's processes in a measured step", heads, tuple(lines)),
        Facts(f"Host {host.node}{processes}", tuple(rows)),
    ]


def growth_text(growth: object) -> str:
    """A slope in bytes with its interval."""
    from rlmbench.metrics.statistics import Estimate

    if not isinstance(growth, Estimate):
        return numbers.absent("fewer than 3 measured steps with a reading")
    signed = [
        ("-" if value < 0 else "+") + numbers.size(abs(value)) for value in (growth.value, growth.low, growth.high) if value is not None
    ]
    bounds = f" (95% interval {signed[1]} to {signed[2]})" if len(signed) == 3 else ""
    return f"{signed[0]}{bounds}" + (": it grows" if growth.low is not None and growth.low > 0 else "")


def _process_table(processes: Sequence[ProcessFigures]) -> Table:
    energy = any(one.energy_j is not None for one in processes)
    lines = tuple(
        line(
            f"{one.role or 'process'}{'' if one.rank is None else f' rank {one.rank}'}",
            str(one.pid),
            one.node,
            ", ".join(one.devices) or "none",
            amount_text(one.cpu_s, numbers.fixed_seconds),
            peak_text(one.rss_bytes),
            peak_text(one.device_memory_bytes),
            numbers.size(one.read_bytes),
            numbers.size(one.write_bytes),
            *([amount_text(one.energy_j, numbers.joules)] if energy else []),
        )
        for one in processes
    )
    heads = columns(
        "process",
        "#pid",
        "node",
        "devices",
        "#CPU seconds a step",
        "#RSS: peak (mean)",
        "#device memory",
        "#read a step",
        "#written a step",
        *(["#energy a step"] if energy else []),
    )
    return Table("Each process that the probe entered", heads, lines)


def _devices_table(devices: Sequence[DeviceFigures]) -> Table:
    """All devices at a glance, where they are many."""
    lines = tuple(
        line(
            Cell(one.device, code=True),
            one.node,
            peak_text(one.memory_used_bytes),
            amount_text(one.energy_j, numbers.joules),
            watts_text(one.power_w),
            *map(share_text, (one.nvml_kernel_present, one.low_sm, one.role_waiting, one.throttled_share)),
            numbers.clock(one.sm_clock_median_hz),
        )
        for one in devices
    )
    heads = columns(
        "device", "node", "#memory: peak (mean)", "#energy", "#power", "#nvml_kernel_present", "#low_sm", "#role_waiting", "#throttled", "#SM clock"
    )  # fmt: skip
    return Table("Devices in a measured step", heads, lines)


def _device_parts(device: DeviceFigures, *, folded: bool) -> list[Part]:
    def cells(of: DeviceFigures | DeviceStage) -> tuple[str, ...]:
        active = (of.nvml_kernel_present, of.low_sm, of.tensor_active, of.dram_active)
        return (
            peak_text(of.memory_used_bytes),
            amount_text(of.energy_j, numbers.joules),
            bounds_text(of.energy_j, numbers.significant),
            watts_text(of.power_w),
            *map(share_text, active),
        )

    def lines() -> Iterable[Line]:
        for stage in in_order(set(device.stages)):
            of, style = device.stages[stage], style_of(stage)
            yield line(Cell(style.label, colour=style.colour), numbers.fixed_seconds(of.seconds), *cells(of))
        yield line("whole step", "", *cells(device))

    heads = columns(
        "stage", "#seconds", "#memory: peak (mean)", "#energy", "#at least, at most, J", "#power", "#nvml_kernel_present", "#low_sm",
        "#tensor active", "#memory active",
    )  # fmt: skip
    seen = "1 process" if len(device.processes) == 1 else f"{len(device.processes)} processes"
    bound = {
        "pid": f"with the stages of {seen} seen on it",
        "fact": f"with the stages of {seen} that said so",
        "driver": "with the driver's stages, since no process could be tied to it",
    }
    rows = [
        ("throttled", throttled_text(device)),
        ("SM clock", f"{numbers.clock(device.sm_clock_median_hz)} (lowest {numbers.clock(device.sm_clock_min_hz)})"),
        ("temperature", "n/a" if device.temperature_max_c is None else f"at most {device.temperature_max_c:,.0f} °C"),
        ("PCIe in, out", f"{_rate(device.pcie_rx_bytes_per_s)}, {_rate(device.pcie_tx_bytes_per_s)}"),
        ("NVLink in, out per step", f"{numbers.size(device.nvlink_rx_bytes)}, {numbers.size(device.nvlink_tx_bytes)}"),
        ("NVLink in, out (GPM)", f"{_rate(device.nvlink_rx_bytes_per_s)}, {_rate(device.nvlink_tx_bytes_per_s)}"),
        ("growth of memory per step", growth_text(device.memory_growth_bytes_per_step)),
    ]
    table = Table(f"Device {device.device} on {device.node}, {bound[device.bound_by]}: in a measured step", heads, tuple(lines()))
    return [Folded(table)] if folded else [table, Facts(f"Device {device.device}", tuple(rows))]


def throttled_text(device: DeviceFigures) -> str:
    """How long a device was slowed down, and what it gave as reasons for its clock."""
    reasons = ", ".join(
        f"{name} {numbers.share(share)}" for name, share in sorted(device.throttle_reasons.items(), key=lambda item: -item[1])
    )
    return numbers.share(device.throttled_share) + (f" (reasons for its clock: {reasons})" if reasons else "")


def _rate(value: float | None) -> str:
    return numbers.absent() if value is None else f"{numbers.size(value)}/s"


def _energy_parts(summary: RunSummary) -> list[Part]:
    energy = summary.energy
    if energy is None:
        return [Note(f"Energy: {numbers.absent(summary.absent.get('energy'))}.")]
    text = energy_text(summary)
    stages = in_order(set(energy.stages_j))
    found: list[Part] = [Note(f"Energy: {text}.")]
    if stages:
        table = Table(
            "Energy per step and stage",
            columns("stage", "#energy", "#at least, at most, J", "#share"),
            (
                *[
                    line(
                        Cell(style_of(stage).label, colour=style_of(stage).colour),
                        amount_text(energy.stages_j[stage], numbers.joules),
                        bounds_text(energy.stages_j[stage], numbers.significant),
                        numbers.share(energy.stages_j[stage].value / energy.j_per_step.value if energy.j_per_step.value else None),
                    )
                    for stage in stages
                ],
                line(
                    "no stage on the device",
                    amount_text(energy.no_stage_j, numbers.joules),
                    bounds_text(energy.no_stage_j, numbers.significant),
                    "",
                ),
                line("whole step", amount_text(energy.j_per_step, numbers.joules), bounds_text(energy.j_per_step, numbers.significant), ""),
            ),
        )
        rows: list[charts.Row] = [{"stage": stage, "joules": energy.stages_j[stage].value} for stage in stages]
        most = max(stages, key=lambda stage: energy.stages_j[stage].value)
        about = f"Most goes to {style_of(most).label}: {numbers.joules(energy.stages_j[most].value)}."
        found.append(Chart("chart-energy", "Energy per stage", about, charts.energy(rows), table))
    return found
