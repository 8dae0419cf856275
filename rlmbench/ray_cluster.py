"""The Ray cluster of a run: one of its own, or an existing one that the user named with ``--ray-address``.

For adapters whose framework uses Ray. Nothing here imports Ray: it says what ``ray.init`` and the processes around it are
given (Ray 2.60: ``ray/_private/worker.py``, ``init``).

A run's own cluster is started by ``ray.init`` inside the run's process tree, so that the supervisor ends all of it; an
existing one is never joined by accident, whatever ``RAY_ADDRESS`` or ``/tmp/ray/ray_current_cluster`` say. In an existing
cluster nothing is inherited: variables and interpreter travel in Ray's runtime environment.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlmbench.adapter import RunInputs
from rlmbench.errors import UserError

LONGEST_FOLDER = 43
"""Characters. A Unix socket's path may have 107, and Ray's own part below its folder takes up to 64."""
OBJECT_STORE_BYTES = 300_000_000
"""Shared memory of a CPU run's cluster; Ray would take 30% of the machine's memory."""

COMMON = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
    # Ray starts a worker for each CPU ahead of time; with a runtime environment, which both frameworks set, none is ever used.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}


@dataclass(frozen=True)
class RayCluster:
    """How the processes of a run come to Ray.

    `init` are arguments for ``ray.init``. `env` are variables for the process that calls it; with them a ``ray.init()``
    without arguments, too, comes to the right cluster, though to one with Ray's defaults for the rest. `scratch` are
    folders to remove after the run.
    """

    init: Mapping[str, Any]
    env: Mapping[str, str]
    scratch: tuple[Path, ...] = ()


def ray_cluster(inputs: RunInputs, env: Mapping[str, str], *, logical_cpus: int, logical_gpus: int) -> RayCluster:
    """The cluster for a run with `inputs`; `env` is the adapter's own environment for the process that calls ``ray.init``.

    On a CPU the run's own cluster is told of `logical_cpus` and `logical_gpus`, whatever the machine has: frameworks
    reserve them without using them. On a GPU Ray counts what there is. An existing cluster has what its owner gave it.
    """
    if inputs.ray_address is not None:
        return _existing(inputs.ray_address, inputs, env)
    folder = cluster_folder(inputs.run_dir.name)
    init: dict[str, Any] = {"address": "local", "include_dashboard": False, "_temp_dir": str(folder)}
    # Should rlmbench itself run as a job of some cluster: that job's runtime environment is not for this one.
    variables = {**COMMON, "RAY_ADDRESS": "local", "RAY_TMPDIR": str(folder), "RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}
    if inputs.device == "cpu":
        init |= {"num_cpus": logical_cpus, "num_gpus": logical_gpus, "object_store_memory": OBJECT_STORE_BYTES}
        # Ray hands out as many GPUs as are visible, so they are named although there are none.
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(logical_gpus)))
    return RayCluster(init, variables, (folder,))


def cluster_folder(run_id: str) -> Path:
    """Where the sockets and logs of a run's own cluster go: outside the run's folder, whose path may be too long for a socket."""
    name = f"rlmbench-ray-{os.getpid()}-{run_id[:15]}"
    folder = Path(tempfile.gettempdir()) / name
    return folder if len(str(folder)) <= LONGEST_FOLDER else Path("/tmp") / name


def _existing(address: str, inputs: RunInputs, env: Mapping[str, str]) -> RayCluster:
    """A cluster of somebody else's: its workers get our variables and our interpreter from the job's runtime environment.

    It is handed over as Ray's own job submission does it, by ``RAY_JOB_CONFIG_JSON_ENV_VAR``; what the framework itself puts
    into its runtime environment is laid over it. Which devices a worker sees is for that cluster to say.
    """
    workers = {key: value for key, value in {**inputs.env, **env}.items() if key != "CUDA_VISIBLE_DEVICES" and not key.startswith("RAY_")}
    job = {"runtime_env": {"env_vars": workers, "py_executable": shlex.quote(str(inputs.python))}}
    variables = {
        **COMMON,
        "RAY_ADDRESS": address,
        "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(job),
        "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
    }
    return RayCluster({"address": address}, variables)


def check_address(address: str) -> None:
    """Refuse what does not name one cluster: a run must say which it used, and hooks need a driver of the run's own.

    Raises:
        UserError: not of the form HOST:PORT.
    """
    if address.startswith("ray://"):
        raise UserError(f"--ray-address {address}: the driver runs here, not behind Ray's client; give HOST:PORT of the cluster's head")
    if not re.fullmatch(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}", address):
        raise UserError(f"--ray-address {address}: give HOST:PORT of the cluster's head, as `ray start --head` prints it")
