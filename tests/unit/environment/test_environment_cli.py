"""`rlmbench env` and `rlmbench doctor` over a toy adapter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import rlmbench.adapter
from rlmbench.adapter import EnvironmentSpec
from rlmbench.cli import doctor, env
from rlmbench.collectors.capability import Capability
from rlmbench.collectors.nvidia import NvidiaDriver
from rlmbench.collectors.sampler import host_capabilities
from rlmbench.environment import Environment, folder_of
from rlmbench.environment.cache import finish
from rlmbench.environment.doctor import _SAMPLED, examine
from rlmbench.errors import EXIT_ENVIRONMENT, EXIT_USAGE, EnvironmentFailure, UserError
from tests.unit.collectors.nvml_double import h100, library

MakeSpec = Callable[..., EnvironmentSpec]


@pytest.fixture
def built(make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy's environment in a cache of its own, as a finished folder without any package in it."""
    spec = make_spec()
    monkeypatch.setenv("RLMBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rlmbench.adapter, "installed_adapters", lambda: {"toy": SimpleNamespace(environments=lambda: [spec])})
    folder = folder_of(spec)
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text("")
    finish(folder, Environment(python, "ab" * 32, {"toyframework": "1.2.0"}, "3.11.7", build_s=1.5))
    return python


def test_list_as_json(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.list_environments(as_json=True)
    [row] = json.loads(capsys.readouterr().out)["environments"]
    assert (row["framework"], row["name"], row["device"], row["state"]) == ("toy", "toy", "cpu", "built")
    assert row["python"] == str(built)
    assert row["packages"] == {"toyframework": "1.2.0"}
    assert row["size_bytes"] > 0


def test_absent_is_null(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (built.parent.parent / "rlmbench-environment.json").unlink()
    env.list_environments(as_json=True)
    [row] = json.loads(capsys.readouterr().out)["environments"]
    assert row["state"] == "half-built"
    assert (row["python"], row["size_bytes"], row["packages"]) == (None, None, None)
    with pytest.raises(EnvironmentFailure, match="not built: rlmbench env create toy --name toy --device cpu") as caught:
        env.path("toy", device="cpu")
    assert caught.value.exit_code == EXIT_ENVIRONMENT


def test_path(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.path("toy", device="cpu")
    assert capsys.readouterr().out == f"{built}\n"


@pytest.mark.parametrize(
    ("framework", "name", "device", "message"),
    [
        ("tyo", None, "cpu", "unknown framework 'tyo' (did you mean 'toy'?); known: toy"),
        ("toy", "toi", "cpu", "toy has no environment 'toi' (did you mean 'toy'?); it has toy"),
        ("toy", None, "gpu", "toy has no environment for device 'gpu' (did you mean 'cpu'?); it has cpu"),
    ],
)
@pytest.mark.usefixtures("built")
def test_unknown_names_are_refused_with_the_nearest(framework: str, name: str | None, device: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        env.path(framework, name, device)
    assert str(caught.value) == message
    assert caught.value.exit_code == EXIT_USAGE


def test_doctor_as_json(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doctor.doctor(as_json=True)
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["adapters"] == ["toy"]
    assert report["environments"][0]["python"] == str(built)
    assert all((fact["value"] is None) == (not fact["available"]) for fact in report["facts"])
    assert {"gpus", "torch_profiler", "collector nvml", "subreaper", "collector host.pss", "cgroup_memory_limit_bytes", "chromium"} <= {
        f["name"] for f in report["facts"]
    }


def test_what_collectors_cannot_sample_is_listed_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [
        Capability("nvml", True, "driver 570.86.15"),
        Capability("energy", False, "NVML: Not Supported", "GPU-1"),
        Capability("power", True, None, "GPU-1"),
    ]
    facts = {fact.name: fact for fact in examine([], told)}
    assert facts["collector nvml"].shown == "driver 570.86.15"
    assert (facts["collector energy GPU-1"].available, facts["collector energy GPU-1"].reason) == (False, "NVML: Not Supported")
    assert (facts["collector power GPU-1"].available, facts["collector power GPU-1"].value) == (True, "sampled")
    assert facts["collector power GPU-1"].shown == "watts"
    [absent] = [fact for fact in examine([], [Capability("nvml", False, "no driver")]) if fact.name == "collector nvml"]
    assert absent.reason == "no driver. Without it no memory, power, energy, clocks, traffic or GPM of a device is sampled"


def test_every_thing_that_a_collector_tells_of_is_explained() -> None:
    told = [*host_capabilities(), *NvidiaDriver(library(h100())).capabilities(), *NvidiaDriver(library(h100())).devices()[0].capabilities()]
    assert {one.name for one in told} - {"nvml"} == set(_SAMPLED)


@pytest.mark.usefixtures("built")
def test_doctors_framework_needs_ceilings_and_a_name_that_exists() -> None:
    with pytest.raises(UserError, match="give --ceilings with it"):
        doctor.doctor(framework="toy")
    with pytest.raises(UserError, match="unknown framework 'tyo'"):
        doctor.doctor(framework="tyo", ceilings=True)
