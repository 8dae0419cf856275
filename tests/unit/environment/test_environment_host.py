"""Facts about the machine, against values worked out by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlmbench.environment import host
from rlmbench.environment.doctor import examine
from rlmbench.environment.host import CgroupLimits, Nvml, cgroup_limits, cpu_model, default_device, parse_bytes, parse_cpu_max


@pytest.mark.parametrize(
    ("text", "cores"),
    [("50000 100000\n", 0.5), ("800000 100000", 8.0), ("max 100000\n", None), ("-1\n 100000\n", None), (None, None), ("", None)],
)
def test_cpu_quota(text: str | None, cores: float | None) -> None:
    assert parse_cpu_max(text) == cores


@pytest.mark.parametrize(("text", "limit"), [("1073741824\n", 1 << 30), ("max\n", None), ("9223372036854771712\n", None), (None, None)])
def test_memory_limit(text: str | None, limit: int | None) -> None:
    assert parse_bytes(text) == limit


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_tightest_limit_of_a_group_and_its_parents_counts(tmp_path: Path) -> None:
    _write(tmp_path / "cgroup.controllers", "cpu memory")
    _write(tmp_path / "job" / "memory.max", "2147483648")
    _write(tmp_path / "job" / "cpu.max", "max 100000")
    _write(tmp_path / "job" / "step" / "memory.max", "4294967296")
    _write(tmp_path / "job" / "step" / "cpu.max", "400000 100000")
    assert cgroup_limits(tmp_path, "0::/job/step\n") == CgroupLimits(memory_bytes=2 << 30, cpus=4.0)
    assert cgroup_limits(tmp_path, "0::/\n") == CgroupLimits()


def test_version_1_groups(tmp_path: Path) -> None:
    _write(tmp_path / "memory" / "job" / "memory.limit_in_bytes", "1073741824\n")
    _write(tmp_path / "cpu" / "job" / "cpu.cfs_quota_us", "150000\n")
    _write(tmp_path / "cpu" / "job" / "cpu.cfs_period_us", "100000\n")
    assert cgroup_limits(tmp_path, "4:memory:/job\n3:cpu,cpuacct:/job\n") == CgroupLimits(memory_bytes=1 << 30, cpus=1.5)


def test_no_groups_is_a_reason_and_not_a_zero(tmp_path: Path) -> None:
    limits = cgroup_limits(tmp_path / "nowhere", "0::/\n")
    assert (limits.memory_bytes, limits.cpus) == (None, None)
    assert limits.reason


def test_cpu_model() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: Some CPU: 9000\nmodel name\t: Other\n") == "Some CPU: 9000"
    assert cpu_model("processor : 0\n") is None


def _fake_nvml(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> None:
    class NVMLError(Exception):
        pass

    gpu = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.10",
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: "GPU-1",
        "nvmlDeviceGetName": lambda handle: b"Fast GPU",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=80 << 30),
    }
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=NVMLError, **{**gpu, **functions}))
    host.nvml.cache_clear()


@pytest.fixture(autouse=True)
def _ask_nvml_again() -> Any:
    yield
    host.nvml.cache_clear()


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_nvml(monkeypatch)
    assert host.devices() == [{"uuid": "GPU-1", "name": "Fast GPU", "memory_bytes": 80 << 30, "driver": "580.10"}]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert default_device() == "cuda"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert default_device() == "cpu"


def test_without_nvml_there_is_a_reason_and_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise sys.modules["pynvml"].NVMLError("NVML Shared Library Not Found")

    _fake_nvml(monkeypatch, nvmlInit=fail)
    assert host.nvml() == Nvml(False, "NVML: NVML Shared Library Not Found")
    assert host.devices() == []
    assert default_device() == "cpu"
    facts = {fact.name: fact for fact in examine([])}
    assert facts["gpus"].as_dict() == {"name": "gpus", "available": False, "value": None, "reason": "without NVML none can be counted"}
    assert facts["torch_profiler"].value is None
    assert all((fact.value is None) == (not fact.available) and (fact.reason is None) == fact.available for fact in facts.values())


def test_host_facts_of_this_machine() -> None:
    facts = host.host_facts()
    total_kib = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert facts["memory_bytes"] == total_kib * 1024
    assert 1 <= facts["cores"] <= facts["cores_total"]
    assert len(facts["load"]) == 3
