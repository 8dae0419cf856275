"""Weight sync from the trainer to a vLLM server without NCCL: through a folder, and the server reloads it.

Answers ``trl/generation/vllm_client.py`` (1.16), whose communicator exists for CUDA, XPU and NPU only. The time it takes is
that of a file, not of an interconnect; the ledger says so. Not active on a GPU.
"""

import os
import shutil

from rlmbench_plan import job
from rlmbench_probe import after_import


def install():
    """Takes effect when TRL's client is imported."""
    after_import("trl.generation.vllm_client", _through_a_folder)


def _through_a_folder(module):
    module.VLLMClient.init_communicator = lambda self, device=0: None
    module.VLLMClient.update_named_params = _update_named_params


def _update_named_params(self, metadata, named_params):
    """`named_params` yields (name, tensor); the server's ``reload_weights`` reads them back from the folder."""
    from safetensors.torch import save_file

    folder = os.path.join(job().trainer["output_dir"], "weight_sync")
    if not os.path.isdir(folder):
        shutil.copytree(job().model_dir, folder, ignore=shutil.ignore_patterns("*.safetensors*"))
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in named_params}
    save_file(weights, os.path.join(folder, "model.safetensors"))
    request = {"method": "reload_weights", "kwargs": {"weights_path": folder}, "timeout": 120}
    response = self.session.post(f"{self.base_url}/collective_rpc", json=request)
    if response.status_code != 200:
        raise RuntimeError(f"the server did not take the weights: {response.status_code} {response.text[:300]}")
