"""Runs one TRL trainer on the planned dataset: ``python train.py`` with RLMBENCH_JOB naming the job file."""

import importlib.util
import os
import sys


def main():
    # Above all: imported as a package, not as files beside this one.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from rlmbench_plan import job

    this = job()
    if this.algorithm == "ppo":
        from rlmbench_trl_worker.ppo import build
    else:
        from rlmbench_trl_worker.group import build
    trainer = build(this)
    this.trainer_object = trainer
    trainer.train()
    if not this.trainer.get("use_vllm"):  # vLLM destroys its own groups at exit, and trips over ours
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()


def load_verifier(path):
    """rlmbench's verifier, a standard-library module, by its file: rlmbench itself is not installed here."""
    spec = importlib.util.spec_from_file_location("rlmbench_verifier", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
