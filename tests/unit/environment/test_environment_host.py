"""Facts about the machine, against values worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from rlmbench.collectors import nvidia
from rlmbench.collectors.nvidia import NvidiaDriver
from rlmbench.environment import host
from rlmbench.environment.doctor import examine
from rlmbench.environment.host import CgroupLimits, cgroup_limits, cpu_model, default_device, parse_bytes, parse_cpu_max
from tests.unit.collectors.nvml_double import Gpu, h100, library, mig, v100


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


@pytest.fixture(autouse=True)
def _ask_again() -> Any:
    host.gpus.cache_clear()
    yield
    host.gpus.cache_clear()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A machine with these GPUs, and CUDA_VISIBLE_DEVICES as `visible`."""

    def make(*found: Gpu, visible: str | None = None, order: str | None = None, init_error: int | None = None) -> None:
        double = library(*found, init_error=init_error)
        monkeypatch.setattr(nvidia, "open_driver", lambda visible=None, probe=True: NvidiaDriver(double, visible, probe=probe))
        for name, value in (("CUDA_VISIBLE_DEVICES", visible), ("CUDA_DEVICE_ORDER", order)):
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, value)
        host.gpus.cache_clear()

    return make


def uuids() -> list[str]:
    return [device["uuid"] for device in host.visible_devices()]


def test_devices(machine: Callable[..., None]) -> None:
    machine(h100())
    assert host.devices() == [{"uuid": "GPU-h100", "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30, "driver": "570.86.15"}]
    assert (host.gpus().reason, default_device(), uuids()) == (None, "cuda", ["GPU-h100"])


@pytest.mark.parametrize(
    ("visible", "order", "seen", "count"),
    [
        (None, None, ["GPU-h100", "GPU-v100"], 2),
        ("", None, [], 0),
        ("-1", None, [], 0),
        ("NoDevFiles", None, [], 0),  # what Slurm sets for a job without GPUs
        ("GPU-v100", None, ["GPU-v100"], 1),
        (" GPU-v1 , GPU-h", None, ["GPU-v100", "GPU-h100"], 2),
        ("GPU-v100,GPU-none,GPU-h100", None, ["GPU-v100"], 1),  # CUDA: only those before an invalid one
        ("1", None, ["GPU-h100", "GPU-v100"], 1),  # CUDA's 1 may be either of two unlike GPUs
        ("1", "PCI_BUS_ID", ["GPU-v100"], 1),
        ("1,0", "PCI_BUS_ID", ["GPU-v100", "GPU-h100"], 2),
        ("0,2,-1,1", "PCI_BUS_ID", ["GPU-h100"], 1),
        ("2", "PCI_BUS_ID", [], 0),
        ("0,0", "PCI_BUS_ID", [], 0),  # torch: "Repeated ordinal results in empty set"
        ("GPU-h100,GPU-h1", None, [], 0),
        ("GPU-v100,GPU-", None, ["GPU-v100"], 1),  # the beginning of both is neither
    ],
)
def test_cuda_visible_devices(machine: Callable[..., None], visible: str | None, order: str | None, seen: list[str], count: int) -> None:
    machine(h100(), v100(), visible=visible, order=order)
    assert (uuids(), host.visible_count(), default_device()) == (seen, count, "cuda" if count else "cpu")
    assert len(host.devices()) == 2  # the machine is the same


def test_an_index_among_gpus_that_are_alike_is_known_and_among_slices_it_is_not(machine: Callable[..., None]) -> None:
    other = h100()
    other.uuid = "GPU-other"
    machine(h100(), other, visible="1")
    assert uuids() == ["GPU-other"]
    machine(mig(), visible="0")  # CUDA's 0 is the GPU, whose first slice a process gets
    assert uuids() == ["MIG-1", "MIG-2"]
    assert host.visible_count() == 1
    machine(mig(), visible="MIG-2")
    assert (uuids(), host.visible_devices()[0]["memory_bytes"]) == (["MIG-2"], 40 << 30)


def test_memory_that_a_gpu_shares_with_the_host_is_unknown(machine: Callable[..., None]) -> None:
    gpu = h100()
    gpu.refuses = {"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED}
    machine(gpu)
    assert host.devices()[0]["memory_bytes"] is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "NVML: NVML Shared Library Not Found; install NVIDIA's driver"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "NVML: RM has detected an NVML/RM version mismatch.; restart the machine"),
    ],
)
def test_without_nvml_there_is_a_reason_and_no_device(machine: Callable[..., None], code: int, words: str) -> None:
    machine(init_error=code)
    assert (host.devices(), default_device()) == ([], "cpu")
    assert str(host.gpus().reason).startswith(words)
    facts = {fact.name: fact for fact in examine([])}
    assert facts["gpus"].as_dict() == {"name": "gpus", "available": False, "value": None, "reason": host.gpus().reason}
    assert facts["torch_profiler"].value is None
    assert all((fact.value is None) == (not fact.available) and (fact.reason is None) == fact.available for fact in facts.values())


def test_a_driver_without_gpus_and_one_whose_gpu_is_lost_say_so(machine: Callable[..., None]) -> None:
    machine()
    assert host.gpus().reason == "the driver is loaded but shows no GPU; in a container, is one given to it (--gpus all)?"
    lost = h100()
    lost.refuses = {"nvmlDeviceGetUUID": pynvml.NVML_ERROR_GPU_IS_LOST}
    machine(lost)
    assert host.gpus().reason == "device 0 in NVML's order: NVML: GPU is lost; reset it (nvidia-smi --gpu-reset), or restart the machine"


def test_what_cuda_visible_devices_hides_is_told(machine: Callable[..., None]) -> None:
    machine(h100(), v100(), visible="GPU-v100")
    [found] = [fact for fact in examine([]) if fact.name == "gpus"]
    assert found.shown == "2: NVIDIA H100 80GB HBM3, Tesla V100-SXM2-32GB, of which CUDA_VISIBLE_DEVICES leaves 1"


@pytest.mark.parametrize("visible", [None, "MIG-1,MIG-2"])
def test_of_slices_a_process_sees_one(machine: Callable[..., None], visible: str | None) -> None:
    """MIG User Guide: "a single CUDA process can only enumerate a single MIG device"."""
    machine(mig(), visible=visible)
    assert (len(host.devices()), host.visible_count()) == (2, 1)
    [found] = [fact for fact in examine([]) if fact.name == "gpus"]
    assert found.shown.endswith(", of which CUDA gives a process only one MIG slice")
    machine(mig(), visible="")
    assert (host.visible_count(), host.why_fewer()) == (0, "of which CUDA_VISIBLE_DEVICES leaves none")


def test_host_facts_of_this_machine() -> None:
    facts = host.host_facts()
    total_kib = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert facts["memory_bytes"] == total_kib * 1024
    assert 1 <= facts["cores"] <= facts["cores_total"]
    assert len(facts["load"]) == 3
