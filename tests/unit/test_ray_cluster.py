"""Which Ray cluster a run uses. What Ray does with it was read in Ray 2.60: ``ray/_private/worker.py``, ``services.py``."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from rlmbench.adapter import RunInputs
from rlmbench.errors import UserError
from rlmbench.ray_cluster import check_address, ray_cluster
from rlmbench.runner.cells import Request, make_plan

RUN = Path("/somewhere/results/gsm8k_grpo/20261130-163923-verl-tiny-r0")
CPU = RunInputs(
    RUN, RUN / "model", RUN / "plan.json", Path("/env/bin/python"), "cpu", env={"PYTHONPATH": "/probe", "CUDA_VISIBLE_DEVICES": ""}
)
OWN = {"RLMBENCH_JOB": "/job.json", "RAY_USAGE_STATS_ENABLED": "1", "TOKENIZERS_PARALLELISM": "false"}


def test_a_cluster_of_the_runs_own_is_not_found_by_others_nor_joins_theirs() -> None:
    cluster = ray_cluster(CPU, OWN, logical_cpus=16, logical_gpus=2)
    (folder,) = cluster.scratch
    # "local" starts a cluster whatever RAY_ADDRESS or /tmp/ray/ray_current_cluster say, for a bare ray.init() too.
    assert (cluster.init["address"], cluster.env["RAY_ADDRESS"]) == ("local", "local")
    assert cluster.init["_temp_dir"] == cluster.env["RAY_TMPDIR"] == str(folder) != "/tmp/ray"
    assert cluster.init["include_dashboard"] is False
    assert (cluster.init["num_cpus"], cluster.init["num_gpus"], cluster.env["CUDA_VISIBLE_DEVICES"]) == (16, 2, "0,1")


def test_on_a_gpu_ray_counts_what_there_is() -> None:
    cluster = ray_cluster(replace(CPU, device="cuda"), OWN, logical_cpus=16, logical_gpus=2)
    assert not {"num_cpus", "num_gpus", "object_store_memory"} & set(cluster.init)
    assert "CUDA_VISIBLE_DEVICES" not in cluster.env


@pytest.mark.parametrize("temp", ["/tmp", "/a/very/long/folder/for/temporary/files/of/one/user"])
def test_sockets_have_short_paths(temp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: temp)
    monkeypatch.setattr("os.getpid", lambda: 4194303)  # the highest there is
    (folder,) = ray_cluster(CPU, {}, logical_cpus=1, logical_gpus=1).scratch
    assert len(f"{folder}/session_2026-11-30_16-43-54_474382_4194303/sockets/plasma_store") <= 107  # unix(7), without the final NUL


def test_workers_of_an_existing_cluster_get_what_they_cannot_inherit() -> None:
    cluster = ray_cluster(replace(CPU, ray_address="head:6379"), OWN, logical_cpus=16, logical_gpus=2)
    assert cluster.init == {"address": "head:6379"}  # Ray refuses num_cpus and the like there
    assert (cluster.scratch, cluster.env["RAY_ADDRESS"]) == ((), "head:6379")
    runtime = json.loads(cluster.env["RAY_JOB_CONFIG_JSON_ENV_VAR"])["runtime_env"]
    assert runtime == {
        "env_vars": {"PYTHONPATH": "/probe", "RLMBENCH_JOB": "/job.json", "TOKENIZERS_PARALLELISM": "false"},
        "py_executable": "/env/bin/python",
    }
    assert cluster.env["RAY_OVERRIDE_JOB_RUNTIME_ENV"] == "1"  # what the framework sets itself wins, as it does in a cluster of our own
    spaced = ray_cluster(replace(CPU, ray_address="head:6379", python=Path("/my env/bin/python")), OWN, logical_cpus=1, logical_gpus=1)
    assert json.loads(spaced.env["RAY_JOB_CONFIG_JSON_ENV_VAR"])["runtime_env"]["py_executable"] == "'/my env/bin/python'"


@pytest.mark.parametrize("address", ["head:6379", "10.0.0.1:6379", "my-head.example.org:6379", "[::1]:6379"])
def test_an_address_names_one_cluster(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize("address", ["auto", "local", "", "head", "ray://head:10001", "head:6379/x", "head: 6379"])
def test_what_names_no_cluster_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="--ray-address"):
        check_address(address)


def test_a_framework_without_ray_refuses_the_option() -> None:
    with pytest.raises(UserError, match="--ray-address: trl does not use Ray"):
        make_plan(Request("gsm8k_grpo", ("trl",), scale="tiny", ray_address="head:6379"))
    request = Request("gsm8k_grpo", ("verl",), scale="tiny", ray_address="head:6379")
    assert make_plan(request).parts["verl"].adapter.uses_ray
    assert request.command() == "rlmbench run gsm8k_grpo --framework verl --scale tiny --ray-address head:6379"
