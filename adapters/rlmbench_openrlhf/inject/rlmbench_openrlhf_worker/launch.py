"""Starts OpenRLHF's Ray trainer: ``python -m rlmbench_openrlhf_worker.launch FLAGS`` with RLMBENCH_JOB naming the job file.

OpenRLHF's own main calls a bare ``ray.init()``, which joins any cluster that it finds, and leaves it alone when Ray has
been initialized already. So Ray is started here, and what would end in a wait without end or in a strange error is refused.
"""

import os
import runpy
import sys
from importlib.metadata import version

from rlmbench_plan import job

from rlmbench_openrlhf_worker import operators

MAIN = "openrlhf.cli.train_ppo_ray"


def main():
    installed = version("openrlhf").partition("+")[0]
    if installed != job().version:
        sys.exit(f"RuntimeError: OpenRLHF {installed} is installed, but flags and hooks are those of {job().version}")
    # torch looks for ninja on the PATH when it loads DeepSpeed's operators, here and in the actors; it is a package of this environment.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    if os.environ.get("RLMBENCH_DEVICE") == "cpu":
        operators.compile_once()
    import ray

    # The variables that OpenRLHF's own main hands to its actors.
    defaults = {"TOKENIZERS_PARALLELISM": "true", "NCCL_DEBUG": "WARN", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}
    variables = {name: os.environ.get(name, value) for name, value in defaults.items()}
    # No address, so that a rollout actor names this cluster to vLLM (``trainer/ray/vllm_engine.py``, `_configure_vllm_env`).
    variables |= {"RAY_ADDRESS": "", "PATH": os.environ["PATH"]}
    ray.init(**job().ray_init, runtime_env={"env_vars": variables})
    devices = int(ray.cluster_resources().get("GPU", 0))
    if devices < job().devices:
        sys.exit(
            f"RuntimeError: this experiment needs {job().devices} devices, but Ray has {devices}: OpenRLHF would wait for them for ever"
        )
    sys.argv[0] = MAIN
    runpy.run_module(MAIN, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
