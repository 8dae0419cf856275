"""From looks to lines to tables: what the collector writes is what rlmbench.records reads."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pynvml
import pytest

from rlmbench.collectors.__main__ import main, run
from rlmbench.collectors.capability import Capability
from rlmbench.collectors.devices import DeviceLost, DeviceProcess, Limits
from rlmbench.collectors.lines import COLUMNS, Lines, node_name, path_of
from rlmbench.collectors.nvidia import NvidiaDriver
from rlmbench.collectors.sampler import Sampler
from rlmbench.records.samples import lines_of
from rlmbench.records.schema import SAMPLE_COLUMNS
from rlmbench.records.tables import Tables, tables_from_events
from tests.unit.collectors.nvml_double import h100, library, v100


class Invented:
    """A device of a vendor that does not exist, and its driver."""

    name = "Invented"

    def __init__(self, uuid: str = "INV-1") -> None:
        self.uuid = uuid
        self.calls: list[str] = []
        self.lost = False

    def capabilities(self) -> list[Capability]:
        return []

    def devices(self) -> list[Invented]:
        return [self]

    def sample(self) -> Mapping[str, Any]:
        if self.lost:
            raise DeviceLost("it fell off the bus")
        self.calls.append("sample")
        return {"memory_used_bytes": 5, "power_w": 70.5}

    def slow_sample(self) -> Mapping[str, Any]:
        self.calls.append("slow")
        return {"pcie_rx_bytes_per_s": 1.5}

    def processes(self) -> list[DeviceProcess]:
        self.calls.append("processes")
        return [DeviceProcess(4, 100), DeviceProcess(5, None)]

    def limits(self) -> Limits:
        return Limits(None)

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The sampler's clock, in seconds, as a list of one that a test may set."""
    now = [1000.0]
    monkeypatch.setattr("rlmbench.collectors.sampler.time.monotonic", lambda: now[0])
    monkeypatch.setattr("rlmbench.collectors.sampler.time.monotonic_ns", lambda: int(now[0] * 1e9))
    return now


def read(run_dir: Path) -> Tables:
    return tables_from_events(run_dir)


def sampler_in(run_dir: Path, *drivers: Any, interval_s: float = 0.1) -> Sampler:
    (run_dir / "collector").mkdir()
    lines = Lines(path_of(run_dir / "collector"))
    lines.begin(interval_s, cores=2)
    return Sampler(lines, interval_s, drivers)


def test_the_columns_are_those_of_the_tables() -> None:
    for table, columns in COLUMNS.items():
        assert [*columns] == [column for column in SAMPLE_COLUMNS[table] if column not in ("node", "t_ns")], table


def test_what_is_dear_is_looked_at_rarely(tmp_path: Path, clock: list[float]) -> None:
    device = Invented()
    sampler = sampler_in(tmp_path, device)
    for tick in range(100):
        clock[0] = 1000.0 + tick / 10
        sampler.tick()
    sampler.end()
    # 10 s: every tick, every second, every 5 s
    assert {call: device.calls.count(call) for call in device.calls} == {"sample": 100, "slow": 10, "processes": 2}
    tables = read(tmp_path)
    assert len(tables.node_samples) == len(tables.tree_samples) == len(tables.device_samples) == 100
    assert tables.device_samples["pcie_rx_bytes_per_s"].notna().sum() == 10
    assert tables.device_samples["t_ns"].tolist()[:2] == [1000_000_000_000, 1000_100_000_000]
    assert tables.device_samples["device"].unique().tolist() == ["INV-1"]
    assert tables.device_processes[["pid", "memory_used_bytes"]].astype(object).fillna(-1).to_numpy().tolist() == [[4, 100], [5, -1]] * 2
    [collector] = tables.collectors.to_dict("records")
    assert (collector["ticks"], collector["late_ticks"], collector["interval_s"], collector["damaged_lines"]) == (100, 0, 0.1, 0)
    assert collector["cpu_s"] > 0
    assert (collector["host"], collector["pid"]) == (os.uname().nodename, os.getpid())


def test_devices_take_turns_with_what_is_dear(tmp_path: Path, clock: list[float]) -> None:
    devices = [Invented(f"INV-{number}") for number in range(3)]
    sampler = sampler_in(tmp_path, *devices)
    at_once = []
    for tick in range(50):
        clock[0] = 1000.0 + tick / 10
        before = sum(device.calls.count("processes") for device in devices)
        sampler.tick()
        at_once.append(sum(device.calls.count("processes") for device in devices) - before)
    assert at_once[:4] == [1, 1, 1, 0]
    assert sum(at_once) == 3


def test_a_lost_device_is_left_out_and_said_once(tmp_path: Path, clock: list[float]) -> None:
    lost, other, odd = Invented("INV-1"), Invented("INV-2"), Invented("INV-3")
    sampler = sampler_in(tmp_path, lost, other, odd)
    sampler.tick()
    lost.lost = True
    odd.sample = lambda: {}["unforeseen"]  # type: ignore[method-assign]
    for _ in range(3):
        clock[0] += 0.1
        sampler.tick()
    sampler.end()
    tables = read(tmp_path)
    assert tables.device_samples.groupby("device").size().to_dict() == {"INV-1": 1, "INV-2": 4, "INV-3": 1}
    said = tables.capabilities[["device", "name", "available", "reason"]].to_numpy().tolist()
    assert said == [["INV-1", "device", False, "it fell off the bus"], ["INV-3", "device", False, "unexpected KeyError: 'unforeseen'"]]


def test_two_gpus_through_nvml(tmp_path: Path, clock: list[float]) -> None:
    first, second = h100(), v100()
    first.processes = [(11, 7 << 30)]
    sampler = sampler_in(tmp_path, NvidiaDriver(library(first, second)))
    sampler.tick()
    sampler.end()
    samples = read(tmp_path).device_samples.set_index("device")
    assert samples.loc["GPU-h100", "sm_active"] == pytest.approx(0.91)
    assert samples["sm_active"].isna().tolist() == [False, True]
    assert samples["energy_j"].tolist() == [12_345.678] * 2
    assert read(tmp_path).device_processes["pid"].tolist() == [11]


def test_a_gpu_that_is_lost_or_hides_its_processes_costs_nothing_else(tmp_path: Path, clock: list[float]) -> None:
    lost, hiding = h100(), v100()
    hiding.refuses["nvmlDeviceGetComputeRunningProcesses"] = pynvml.NVML_ERROR_NO_PERMISSION
    sampler = sampler_in(tmp_path, NvidiaDriver(library(lost, hiding)))
    sampler.tick()
    lost.refuses = dict.fromkeys(("nvmlDeviceGetMemoryInfo", "nvmlGpmSampleFree"), pynvml.NVML_ERROR_GPU_IS_LOST)
    for number in range(4):
        hiding.millijoules = 5_000 + number  # reset with the driver: it begins anew
        clock[0] += 0.1
        sampler.tick()
    sampler.end()
    tables = read(tmp_path)
    assert tables.device_samples.groupby("device").size().to_dict() == {"GPU-h100": 1, "GPU-v100": 5}
    assert tables.capabilities[["device", "name", "reason"]].to_numpy().tolist() == [
        ["GPU-h100", "device", "NVML: GPU is lost; reset it (nvidia-smi --gpu-reset), or restart the machine"]
    ]
    assert len(tables.device_processes) == 0
    energy = tables.device_samples[tables.device_samples["device"] == "GPU-v100"]["energy_j"].tolist()
    assert energy == [12_345.678, 5.0, 5.001, 5.002, 5.003]  # as it was read; metrics.readings leaves the fall out


def test_ticks_that_were_missed_are_counted_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick takes 0.35 s of a 0.1 s interval once: three are missed, and the next one comes half an interval late."""
    now = [0.0]
    reader, writer = os.pipe()
    monkeypatch.setattr("rlmbench.collectors.__main__.time.monotonic", lambda: now[0])
    ticked: list[float] = []

    class Slow:
        late_ticks = 0

        def tick(self) -> None:
            ticked.append(round(now[0], 3))
            now[0] += 0.36 if len(ticked) == 2 else 0.01
            if len(ticked) == 4:
                os.close(writer)

        def add_root(self, pid: int) -> None:
            raise AssertionError("nobody named one")

    def select(descriptors: list[int], _write: list[int], _error: list[int], timeout: float) -> tuple[list[int], list[int], list[int]]:
        now[0] += timeout
        return (descriptors if len(ticked) == 4 else [], [], [])

    monkeypatch.setattr("rlmbench.collectors.__main__.select.select", select)
    slow = Slow()
    run(slow, 0.1, reader)  # type: ignore[arg-type]
    os.close(reader)
    assert ticked == [0.0, 0.1, 0.46, 0.5]
    assert slow.late_ticks == 3


def test_the_program_samples_until_its_input_ends(tmp_path: Path) -> None:
    (tmp_path / "collector").mkdir()
    arguments = ["collectors", str(tmp_path / "collector"), "interval_s=0.02", "unseen=elsewhere"]
    code = f"import runpy, sys; sys.argv = {arguments!r}; runpy.run_module('rlmbench.collectors', run_name='__main__')"
    heavy = "import atexit, sys; atexit.register(lambda: print(sorted({'pandas', 'numpy', 'pydantic', 'typer', 'psutil', 'pynvml'} & set(sys.modules))))"
    process = subprocess.Popen([sys.executable, "-P", "-c", f"{heavy}; {code}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(f"root {os.getpid()}\n")
    process.stdin.flush()
    path = path_of(tmp_path / "collector")
    while not path.exists() or sum(b'"rows"' in line for line in lines_of(path)) < 3:
        assert process.poll() is None
        time.sleep(0.01)  # leaves it the processor
    out, _ = process.communicate()  # closes its input
    assert (process.returncode, out) == (0, "[]\n")
    tables = read(tmp_path)
    assert tables.collectors["end_ns"].notna().tolist() == [True]
    assert tables.capabilities.set_index("name").loc["host.tree", "reason"] == "elsewhere"


def test_a_full_disk_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Lines, "begin", full)
    monkeypatch.setattr("rlmbench.collectors.__main__._die_with_parent", lambda: None)
    monkeypatch.setattr("rlmbench.collectors.__main__.signal.signal", lambda *_: None)
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == "samples cannot be written: No space left on device\n"


def test_a_hosts_name_as_a_file() -> None:
    assert node_name("gpu-01.cluster/a b") == "gpu-01.cluster-a-b"


def test_lines_are_compact_json(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "a.jsonl.gz")
    lines.rows(5, {"node_samples": [(1.0, 2, None)]})
    lines.close()
    assert json.loads(gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes())) == {
        "ev": "rows",
        "t_ns": 5,
        "tables": {"node_samples": [[1.0, 2, None]]},
    }


def test_what_was_flushed_survives_a_kill_and_an_hour_of_eight_gpus_is_small(tmp_path: Path) -> None:
    """The raw lines of such an hour are 80 MB or more: 28 kB a second."""
    path, chance = tmp_path / "a.jsonl.gz", random.Random(0)
    lines = Lines(path)
    plain = 0
    for tick in range(100):
        for number in range(8):
            noise = [chance.randrange(10**6) for _ in range(4)]
            values = [
                f"GPU-{number}",
                70 << 30,
                0.97,
                600 + noise[0] / 1e4,
                1e6 + tick * 60 + noise[1] / 1e3,
                1_980_000_000,
                2_619_000_000,
                "",
            ]
            values += [55.0, noise[2] / 7, noise[3] / 7, None, None, 0.91 + noise[0] / 1e8, 0.4 + noise[1] / 1e8, 0.5, 0.6]
            lines.rows(tick, {"device_samples": [values]})
            plain += len(json.dumps(values))
        if tick % 10 == 9:
            lines.flush()
    lines.rows(100, {})  # and is killed before the next flush
    assert [json.loads(line)["t_ns"] for line in lines_of(path)] == [tick for tick in range(100) for _ in range(8)]
    assert path.stat().st_size < plain / 2
