"""Samples of two nodes and a device attributed to a run's stages, by hand (docs/metrics.md has the same example).

The driver runs on node one: in each of two steps of 1 s, from 10 s on, 600 ms of generation and 300 ms of actor_update. An engine runs on
node two, whose clock is 5 s ahead, and generates in these 600 ms; its device takes 300 W meanwhile, and 100 W else.
"""

import dataclasses

import pandas as pd
import pytest

from rlmbench.metrics.figures import RunSummary
from rlmbench.metrics.profile import ProfiledDevice, ProfileFigures
from rlmbench.metrics.resources import NO_COLLECTOR, ON_CPU, device_idle, resources
from rlmbench.metrics.stages import Window
from rlmbench.records.schema import SAMPLE_COLUMNS
from rlmbench.records.tables import Sampled

S, MS = 1_000_000_000, 1_000_000
WINDOWS = [Window(1, 10 * S, 11 * S), Window(2, 11 * S, 12 * S)]
TIMES_MS = range(9000, 13001, 100)
AHEAD_MS = 5000


def sampled(**tables):
    """Rows of the collectors' tables, each a dictionary; columns that a row does not name are null."""

    def read(name):
        columns = SAMPLE_COLUMNS[name]
        rows = [[row.get(column) for column in columns] for row in tables.get(name, ())]
        return pd.DataFrame(rows, columns=list(columns)).astype({column: kind.dtype for column, kind in columns.items()})

    return Sampled(read)


def process(pid, host, boot, mono_s, role):
    clocks = {"boot_id": boot, "mono_ns": mono_s * S, "real_ns": 1000 * S, "argv": ["x"]}
    about = {"schema": 1, "pid": pid, "ppid": 0, "rank": 0, "local_rank": 0, "world_size": 1, "role": role, "host": host}
    return {"ev": "process", **about, **clocks}


def driver_events(span):
    yield process(1, "one", "b1", 0, "driver")
    for window in WINDOWS:
        at = window.start_ns
        yield span("generation", at, at + 600 * MS, step=window.step, awaits=None)
        yield span("actor_update", at + 600 * MS, at + 900 * MS, step=window.step)
        yield {"ev": "step", "step": window.step, "start_ns": at, "end_ns": window.end_ns, "probe_ns": 1}


def engine_events(span, pid=7):
    yield process(pid, "two", "b2", AHEAD_MS // 1000, "engine")
    for window in WINDOWS:
        at = window.start_ns + AHEAD_MS * MS
        yield span("generation", at, at + 600 * MS, step=0)


def joules(time_ms):
    """Energy since 9 s of a device that takes 300 W from 10.0 to 10.6 s and from 11.0 to 11.6 s, and 100 W else."""
    hot = sum(min(max(time_ms - start, 0), 600) for start in (10_000, 11_000))
    return 100 * (time_ms - 9000) / 1000 + 200 * hot / 1000


def collectors():
    about = {"interval_s": 0.1, "damaged_lines": 0, "late_ticks": 2}
    return [
        {
            "node": "n1",
            "host": "one",
            "boot_id": "b1",
            "mono_ns": 9 * S,
            "real_ns": 1009 * S,
            "cores": 2,
            "cpu_s": 0.04,
            "end_ns": 13 * S,
            **about,
        },
        {"node": "n2", "host": "two", "boot_id": "b2", "mono_ns": 5 * S, "real_ns": 1000 * S, "cores": 4, **about},
    ]


def host_samples():
    """One core and a half of node one's two and a quarter by others; one of node two's four. 1 GB, and 10 MB more per second."""
    tree, node = [], []
    for name, shift, cores in (("n1", 0, 1.5), ("n2", AHEAD_MS, 1.0)):
        for time in TIMES_MS:
            seconds = (time - 9000) / 1000
            at = {"node": name, "t_ns": (time + shift) * MS}
            memory = {"rss_bytes": round(1e9 + 1e7 * seconds), "pss_bytes": 8 * 10**8 if time == 10_700 else None}
            tree.append({**at, "processes": 3, "cpu_s": cores * seconds, **memory, "read_bytes": round(4000 * seconds)})
            node.append({**at, "cpu_busy_s": (cores + 0.25) * seconds, "memory_used_bytes": 2 * 10**9, "load_1min": 1.5})
    return {"tree_samples": tree, "node_samples": node}


def device_samples(device="gpu-a", **changed):
    for time in TIMES_MS:
        hot = 0 < (time - 10_000) % 1000 <= 600 and 10_000 < time <= 12_000
        values = {
            "memory_used_bytes": 5 * 10**9 if hot else 3 * 10**9, "nvml_kernel_present": 1.0 if hot else 0.0, "energy_j": joules(time),
            "power_w": 300.0 if hot else 100.0, "sm_active": 0.75 if hot else 0.25, "tensor_active": 0.5 if hot else 0.0, "sm_clock_hz": 1_980_000_000 if hot else 345_000_000,
            "throttle_reasons": "sw_power_cap,hw_thermal" if time == 10_300 else "sw_power_cap" if hot else "idle", "temperature_c": 40.0 + (time == 11_500),
        }  # fmt: skip
        yield {"node": "n2", "device": device, "t_ns": (time + AHEAD_MS) * MS, **values, **changed}


def listed(pid=7, device="gpu-a"):
    return [
        {"node": "n2", "device": device, "t_ns": (time + AHEAD_MS) * MS, "pid": pid, "memory_used_bytes": 10**9} for time in (9500, 11_500)
    ]


@pytest.fixture
def run(tables_of, span):
    """run(device_samples=..., ...): the tables of both processes with these samples."""

    def make(engine=True, **tables):
        files = {"driver-1": list(driver_events(span)), **({"engine-7": list(engine_events(span))} if engine else {})}
        return dataclasses.replace(tables_of(files), sampled=sampled(**{"collectors": collectors(), **host_samples(), **tables}))

    return make


def figures_of(tables, response_tokens=400):
    return resources(tables, "driver-1", WINDOWS, response_tokens)


def test_cpu_seconds_of_each_node_and_stage(run):
    found = figures_of(run())
    one, two = found.host
    assert (one.node, one.cores, one.processes) == ("n1", 2, 3)
    assert (one.cpu_s.value, one.cpu_idle, one.others_cpu_cores) == pytest.approx((1.5, 0.25, 0.25))
    assert (two.cpu_s.value, two.cpu_idle) == pytest.approx((1.0, 0.75))
    assert found.cpu_idle == pytest.approx(1 - 2.5 / 6)
    update = one.stages["actor_update"]
    assert (update.seconds, update.cpu_s.value, update.cpu_idle) == pytest.approx((0.3, 0.45, 0.25))
    assert set(two.stages) == {"generation"}  # its own processes' stages alone
    assert one.read_bytes == pytest.approx(4000)


def test_host_memory_of_each_stage_and_its_growth(run):
    one = figures_of(run()).host[0]
    assert (one.pss_bytes.peak, one.pss_bytes.readings) == (8e8, 1)
    assert one.stages["actor_update"].pss_bytes.mean == 8e8
    assert one.stages["generation"].pss_bytes is None  # read only once, in the update
    assert one.stages["actor_update"].rss_bytes.peak == pytest.approx(1e9 + 1e7 * 2.8)  # at 11.8 s, before the update's end at 11.9
    assert one.rss_growth_bytes_per_step is None  # of two steps no slope
    assert (one.load_1min.mean, one.memory_used_bytes.peak) == (1.5, 2e9)


def test_energy_of_each_stage_on_another_nodes_clock(run):
    """60% of a step at 300 W and the rest at 100 W: 180 and 40 J. On its own clock, all of it lies 5 s later."""
    found = figures_of(run(device_samples=list(device_samples()), device_processes=listed()))
    (device,) = found.devices
    assert (device.device, device.processes, device.bound_by, device.energy_source) == ("gpu-a", ["engine-7"], "pid", "counter")
    assert device.stages["generation"].energy_j.value == pytest.approx(180)
    assert (device.energy_j.value, device.energy_resolution_s) == pytest.approx((220, 0.1))
    energy = found.energy
    assert (energy.source, energy.devices, energy.j_per_step.value) == ("counter", 1, pytest.approx(220))
    assert (energy.stages_j["generation"].value, energy.no_stage_j.value, energy.overlap_j) == pytest.approx((180, 40, 0))
    assert energy.j_per_1000_response_tokens == pytest.approx(1100)  # 440 J for 400 tokens
    assert device.role_waiting == pytest.approx(0.4)


def test_an_energy_counter_that_is_renewed_rarely_resolves_no_finer(run):
    """Renewed every 500 ms, read every 100: the update's 300 ms, 600 to 900, hold no renewal. A step still takes 220 J."""
    samples = [{**row, "energy_j": joules((row["t_ns"] // MS - AHEAD_MS) // 500 * 500)} for row in device_samples()]
    (device,) = figures_of(run(engine=False, device_samples=samples)).devices
    assert (device.energy_j.value, device.energy_resolution_s) == pytest.approx((220, 0.5))
    update = device.stages["actor_update"].energy_j
    assert (update.value, update.low, update.resolved) == (pytest.approx(0.3 / 0.5 * 70), 0, False)  # of 150 and 70 J a half step each


def test_gauges_of_a_device(run):
    (device,) = figures_of(run(device_samples=list(device_samples()), device_processes=listed())).devices
    generation = device.stages["generation"]
    assert (generation.low_sm, generation.tensor_active, generation.nvml_kernel_present) == pytest.approx((0.25, 0.5, 1.0))
    assert device.low_sm == pytest.approx(1 - (0.6 * 0.75 + 0.4 * 0.25))
    assert (generation.memory_used_bytes.peak, device.memory_used_bytes.readings) == (5e9, 20)
    assert (device.sm_clock_min_hz, device.sm_clock_median_hz, device.temperature_max_c) == (345e6, 1.98e9, 41)
    assert device.throttled_share == pytest.approx(0.05)  # one of 20 readings; at the power limit is no fault
    assert device.power_capped_share == pytest.approx(0.6)
    assert set(device.throttle_reasons) == {"idle", "hw_thermal", "sw_power_cap"}
    assert device.pcie_rx_bytes_per_s is None
    assert device.dram_active is None


def test_without_an_energy_counter_power_is_integrated_and_it_says_so(run):
    samples = [{**row, "energy_j": None, "power_w": 200.0} for row in device_samples()]
    found = figures_of(run(device_samples=samples, device_processes=listed()))
    assert (found.energy.source, found.devices[0].energy_source) == ("power", "power")
    assert (found.energy.j_per_step.value, found.energy.stages_j["generation"].value) == pytest.approx((200, 120))


def test_a_mig_device_has_no_energy_and_its_collector_says_why(run):
    samples = list(device_samples(energy_j=None, power_w=None, sm_active=None))
    refused = [
        {"node": "n2", "device": "gpu-a", "available": False, "name": name, "reason": "not on MIG"} for name in ("energy", "gpm.sm_active")
    ]
    found = figures_of(run(device_samples=samples, device_processes=listed(), capabilities=refused))
    assert (found.energy, found.low_sm, found.devices[0].energy_j, found.devices[0].energy_source) == (None, None, None, None)
    assert (found.reasons["energy"], found.reasons["idle.low_sm"]) == ("not on MIG", "not on MIG")
    assert found.devices[0].stages["generation"].memory_used_bytes.peak == 5e9


def test_a_stage_without_a_reading_of_its_device_is_null_and_not_0(run):
    """Read at whole seconds only: none lies in the update's 600 to 900 ms. Its energy is an interpolation, and says so."""
    samples = [row for row in device_samples() if row["t_ns"] % S == 0]
    (device,) = figures_of(run(engine=False, device_samples=samples)).devices
    update = device.stages["actor_update"]
    assert (device.bound_by, device.processes) == ("driver", [])
    assert (update.memory_used_bytes, update.low_sm, update.power_w) == (None, None, None)
    assert (update.energy_j.value, update.energy_j.low, update.energy_j.high) == pytest.approx((66, 0, 220))
    assert not update.energy_j.resolved


def test_only_devices_of_the_runs_processes_count(run):
    both = [*device_samples(), *device_samples("gpu-b")]
    assert [one.device for one in figures_of(run(device_samples=both, device_processes=listed())).devices] == ["gpu-a"]
    assert [one.device for one in figures_of(run(device_samples=both, device_processes=listed(99))).devices] == ["gpu-a", "gpu-b"]


def test_a_process_states_its_device_where_pids_cannot_be_seen(tables_of, span):
    stated = {"ev": "fact", "name": "device_uuid", "value": "gpu-b"}
    tables = tables_of({"driver-1": list(driver_events(span)), "engine-7": [*engine_events(span), stated]})
    both = [*device_samples(), *device_samples("gpu-b")]
    found = figures_of(dataclasses.replace(tables, sampled=sampled(collectors=collectors(), device_samples=both)))
    assert [(one.device, one.bound_by, one.processes) for one in found.devices] == [("gpu-b", "fact", ["engine-7"])]


@pytest.mark.parametrize(("ids_are_ours", "bound"), [(True, [("gpu-a", "pid"), ("gpu-b", "fact")]), (False, [("gpu-b", "fact")])])
def test_what_a_process_states_counts_alone_where_pids_may_be_another_containers(tables_of, span, ids_are_ours, bound):
    """gpu-a lists number 7, which in a container may be anybody's; process 7 of the run says that gpu-b is its own."""
    stated = {"ev": "fact", "name": "device_uuid", "value": "gpu-b"}
    tables = tables_of({"driver-1": list(driver_events(span)), "engine-7": [*engine_events(span), stated]})
    ids = [{"node": "n2", "device": None, "name": "device_processes.ids", "available": ids_are_ours, "reason": None}]
    both = [*device_samples(), *device_samples("gpu-b")]
    rows = sampled(collectors=collectors(), device_samples=both, device_processes=listed(), capabilities=ids)
    found = figures_of(dataclasses.replace(tables, sampled=rows))
    assert [(one.device, one.bound_by) for one in found.devices] == bound


def on_devices(tables_of, span, engine, **device_of_pid):
    """Both processes on devices of node two, the driver awaiting the engine's generation: pid_7="gpu-a", ..."""
    awaiting = [{**event, "awaits": "generation"} if event.get("stage") == "generation" else event for event in driver_events(span)]
    tables = tables_of({"driver-1": [{**awaiting[0], "host": "two"}, *awaiting[1:]], "engine-7": engine})
    rows = [row for device in ("gpu-a", "gpu-b") for row in device_samples(device)]
    seen = [row for pid, device in device_of_pid.items() for row in listed(int(pid.removeprefix("pid_")), device)]
    return figures_of(dataclasses.replace(tables, sampled=sampled(collectors=collectors(), device_samples=rows, device_processes=seen)))


def test_a_disaggregated_layout_waits_by_device(tables_of, span):
    """The engine's works 600 ms of a step, the trainer's 300: waits of 40% and 70%, in one bubble from 600 ms on, and in two around the update."""
    found = on_devices(tables_of, span, list(engine_events(span)), pid_7="gpu-a", pid_1="gpu-b")
    assert [one.role_waiting for one in found.devices] == pytest.approx([0.4, 0.7])
    assert [(one.bubbles.per_step, one.bubbles.longest_s) for one in found.devices] == [(1, pytest.approx(0.4)), (1.5, pytest.approx(0.7))]
    assert [set(one.stages) for one in found.devices] == [{"generation"}, {"actor_update"}]


def test_a_colocated_layout_shares_its_device(tables_of, span):
    found = on_devices(tables_of, span, list(engine_events(span)), pid_7="gpu-a", pid_1="gpu-a")
    (device,) = found.devices
    assert (device.role_waiting, device.processes) == (pytest.approx(0.1), ["driver-1", "engine-7"])
    assert found.energy.no_stage_j.value == pytest.approx(10)  # the last 100 ms at 100 W


def test_an_asynchronous_layout_counts_what_stages_share_in_each(tables_of, span):
    """The engine generates without a pause, also during the updates on its device: from 600 to 900 ms at 100 W both have 30 J."""
    events = [process(7, "two", "b2", AHEAD_MS // 1000, "engine"), span("generation", 15 * S, 17 * S, step=0)]
    energy = on_devices(tables_of, span, events, pid_7="gpu-a", pid_1="gpu-a").energy
    assert (energy.stages_j["generation"].value, energy.stages_j["actor_update"].value) == pytest.approx((220, 30))
    assert (energy.overlap_j, energy.no_stage_j.value, energy.j_per_step.value) == pytest.approx((30, 0, 220))


def test_each_process_has_its_own_figures(run):
    rows = [
        {
            "node": "n2",
            "t_ns": (time + AHEAD_MS) * MS,
            "pid": 7,
            "start_ticks": 1,
            "cpu_s": 0.5 * time / 1000,
            "rss_bytes": 10**8,
            "threads": 4,
        }
        for time in range(9000, 13_001, 1000)
    ]
    before = {"node": "n2", "t_ns": 4 * S, "pid": 7, "start_ticks": 0, "cpu_s": 100.0, "rss_bytes": 1, "threads": 99}
    found = figures_of(run(process_samples=[before, *rows], device_samples=list(device_samples()), device_processes=listed()))
    (engine,) = found.processes
    assert (engine.process, engine.role, engine.node, engine.devices) == ("engine-7", "engine", "n2", ["gpu-a"])
    assert (engine.cpu_s.value, engine.rss_bytes.peak, engine.threads) == (pytest.approx(0.5), 1e8, 4)
    assert engine.device_memory_bytes.peak == 1e9
    # alone on its device, it has all of its energy: 220 J a step, of which generation 180 (docs/metrics.md)
    assert engine.energy_j.value == pytest.approx(220)
    assert {name: (stage.seconds, stage.energy_j.value) for name, stage in engine.stages.items()} == {
        "generation": (0.6, pytest.approx(180))
    }


def test_each_ranks_peaks_of_memory_and_no_energy_of_a_device_that_it_shares(tables_of, span):
    at = WINDOWS[0].start_ns + AHEAD_MS * MS
    peaks = {"rss_peak_bytes": 5, "torch_allocated_peak_bytes": 7, "torch_reserved_peak_bytes": 9}
    files = {"driver-1": list(driver_events(span))}
    for pid in (7, 8):
        files[f"engine-{pid}"] = [
            process(pid, "two", "b2", AHEAD_MS // 1000, "engine"),
            span("generation", at, at + 600 * MS, step=0, **{name: value * pid for name, value in peaks.items()}),
        ]
    seen = [{"node": "n2", "t_ns": (9500 + AHEAD_MS) * MS, "pid": pid, "start_ticks": pid} for pid in (7, 8)]
    tables = dataclasses.replace(
        tables_of(files),
        sampled=sampled(
            collectors=collectors(), process_samples=seen, device_samples=list(device_samples()), device_processes=[*listed(7), *listed(8)]
        ),
    )
    first, second = figures_of(tables).processes
    assert (first.devices, first.energy_j, first.stages["generation"].energy_j) == (["gpu-a"], None, None)
    assert first.stages["generation"].peak_bytes == {name: value * 7 for name, value in peaks.items()}
    assert second.stages["generation"].peak_bytes == {name: value * 8 for name, value in peaks.items()}
    assert (first.stages["generation"].seconds, set(first.stages)) == (0.3, {"generation"})  # in one of two steps


def test_a_processes_memory_on_two_devices_that_are_read_in_turn_is_their_sum(run):
    """1 GB on one and, read 100 ms later, 2 and then 4 GB on the other: 3 GB at 9.6 s, before the first measured step, and 5 at 11.6 s."""
    second = [
        {**row, "device": "gpu-b", "t_ns": row["t_ns"] + 100 * MS, "memory_used_bytes": size * 10**9}
        for row, size in zip(listed(), (2, 4), strict=True)
    ]
    found = figures_of(
        run(
            process_samples=[{"node": "n2", "t_ns": (9000 + AHEAD_MS) * MS, "pid": 7, "start_ticks": 1}],
            device_samples=[*device_samples(), *device_samples("gpu-b")],
            device_processes=[*listed(), *second],
        )
    )
    (engine,) = found.processes
    assert engine.devices == ["gpu-a", "gpu-b"]
    memory = engine.device_memory_bytes
    assert (memory.peak, memory.mean, memory.readings) == (5e9, 4e9, 1)  # between two readings the mean of both


def test_a_node_whose_cores_are_not_known_leaves_cpu_idle_open_and_says_so(run):
    unknown = [{**about, "cores": None if about["node"] == "n2" else 2} for about in collectors()]
    found = figures_of(run(collectors=unknown))
    assert [one.cpu_idle for one in found.host] == [pytest.approx(0.25), None]
    assert (found.cpu_idle, found.reasons["idle.cpu_idle"]) == (None, "how many cores a node has is not known")


def test_a_process_that_started_python_anew_stands_once(tables_of, span):
    """Two files of events of one pid: the first is what Ray starts its workers with."""
    first = process(7, "two", "b2", AHEAD_MS // 1000, "worker")
    tables = tables_of(
        {"driver-1": list(driver_events(span)), "engine-7": list(engine_events(span)), "worker-7": [{**first, "mono_ns": 4 * S}]}
    )
    rows = [{"node": "n2", "t_ns": (time + AHEAD_MS) * MS, "pid": 7, "start_ticks": 1, "cpu_s": time / 1000} for time in (9000, 13_000)]
    found = figures_of(dataclasses.replace(tables, sampled=sampled(collectors=collectors(), process_samples=rows)))
    assert [(one.process, one.role, one.cpu_s.value) for one in found.processes] == [("engine-7", "engine", pytest.approx(1))]


def test_a_devices_idle_time_joins_spans_samples_and_traces_by_its_uuid(run):
    """gpu-a was sampled and traced, gpu-c only traced, and the trace of gpu-b is incomplete."""
    both = [*device_samples(), *device_samples("gpu-b")]
    devices = figures_of(run(device_samples=both, device_processes=listed(99))).devices
    traced = [ProfiledDevice(name, ["w"], 1.0, share, 0.125, 0.5, 0.25, 0.0, problem) for name, share, problem in (
        ("gpu-a", 0.5, None), ("gpu-b", 0.75, "its kernels are missing"), ("gpu-c", 0.25, None))]  # fmt: skip
    profile = ProfileFigures(steps=[2], extras=[], bytes=1, workers=[], devices=traced, missing=[])
    a, b, c = device_idle(devices, profile)
    assert (a.device, a.no_kernel, a.exposed_communication, a.low_sm) == ("gpu-a", 0.5, 0.125, pytest.approx(0.45))
    assert (b.device, b.no_kernel, b.low_sm) == ("gpu-b", None, pytest.approx(0.45))
    assert (c.device, c.node, c.no_kernel, c.low_sm, c.role_waiting) == ("gpu-c", None, 0.25, None, None)
    assert [one.no_kernel for one in device_idle(devices, None)] == [None, None]


def test_what_collecting_cost(run):
    one, two = figures_of(run()).collectors
    assert (one.cpu_share, one.resolution_s, one.readings, one.late_ticks) == (pytest.approx(0.01), pytest.approx(0.1), 41, 2)
    assert two.cpu_share is None


def test_a_record_without_samples_keeps_working(tables_of, span):
    found = figures_of(tables_of(*driver_events(span)))
    assert (found.host, found.devices, found.energy, found.collectors, found.cpu_idle) == ([], [], None, [], None)
    assert set(found.reasons) == {"host", "processes", "devices", "energy", "collectors", "idle.cpu_idle", "idle.low_sm"}
    assert set(found.reasons.values()) == {NO_COLLECTOR}
    assert {"host", "processes", "devices", "energy", "collectors"} <= set(RunSummary.model_fields)


def test_samples_of_a_host_alone_say_why_there_is_no_device(run):
    found = figures_of(run(capabilities=[{"node": "n1", "name": "nvml", "available": False, "reason": "no NVIDIA driver here"}]))
    assert resources(run(), "driver-1", WINDOWS, 1, on_cpu=True).reasons["energy"] == ON_CPU
    assert found.reasons == {
        "processes": "no process of the probe was among the collectors' readings", **dict.fromkeys(("devices", "energy", "idle.low_sm"), "no NVIDIA driver here"),
    }  # fmt: skip
