"""verl 0.9.1 without a GPU. verl imports this module itself (VERL_USE_EXTERNAL_MODULES); on a GPU it is not named.

First verl's own registries: a platform called "cpu". Then, each with the file it answers, what no registry reaches:

1. ``torch.cpu`` has no memory counters, but ``verl/utils/profiler/performance.py`` and the engine workers read
   ``torch.<device>.max_memory_allocated()`` and others. They get the process's resident set. Can go when verl asks its
   platform instead.
2. ``verl/utils/distributed.py`` joins "cpu:gloo" and the platform's backend to "cpu:gloo,cpu:gloo", which torch refuses.
3. ``verl/workers/rollout/vllm_rollout/__init__.py`` asks for a distribution named vllm: `rlmbench_shims.vllm_cpu`.
4. ``verl/workers/engine/fsdp/transformer_impl.py`` pins the reference model's memory, which needs an accelerator.
5. ``verl/utils/model.py`` loads the critic with flash_attention_2 whatever the configuration says.
6. ``vllm/v1/engine/async_llm.py`` (0.32) renamed an argument of `pause_generation` that verl (for 0.24) still passes.
"""

import contextlib
import inspect
import os
import resource

import torch
import torch.distributed
import torch.distributed.fsdp
from rlmbench_probe import after_import, replace
from verl.plugin.platform import PlatformBase, PlatformRegistry

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(*args, **kwargs):
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def peak_resident_bytes(*args, **kwargs):
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def nothing(*args, **kwargs):
    return None


def memory_info(*args, **kwargs):
    return os.sysconf("SC_AVPHYS_PAGES") * PAGE, os.sysconf("SC_PHYS_PAGES") * PAGE


COUNTERS = {
    "memory_allocated": resident_bytes,
    "memory_reserved": resident_bytes,
    "max_memory_allocated": peak_resident_bytes,
    "max_memory_reserved": peak_resident_bytes,
    "reset_peak_memory_stats": nothing,
    "empty_cache": nothing,
    "ipc_collect": nothing,
    "mem_get_info": memory_info,
    "get_device_name": lambda *args, **kwargs: "CPU",
    "manual_seed": torch.manual_seed,
    "manual_seed_all": torch.manual_seed,
    "get_rng_state": lambda *args, **kwargs: torch.get_rng_state(),
    "set_rng_state": lambda state, *args, **kwargs: torch.set_rng_state(state),
}
for _name, _function in COUNTERS.items():
    if not hasattr(torch.cpu, _name):
        setattr(torch.cpu, _name, _function)


@PlatformRegistry.register(platform="cpu")
class CPUPlatform(PlatformBase):
    """One device that is no accelerator; Ray hands out logical GPUs in its place."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = torch.cpu

    def is_available(self):
        return True

    def current_device(self):
        return torch.device("cpu")

    def device_count(self):
        return 1

    def set_device(self, device_index):
        return None

    def synchronize(self, device_index=None):
        return None

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        return None

    def empty_cache(self):
        return None

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        return None

    def profiler_stop(self):
        return None

    def ray_resource_name(self):
        return "GPU"  # logical ones: ray_init.num_gpus

    def ray_noset_envvars(self):
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self):
        return False  # weights then travel through shared memory

    def cudart(self):
        return None


def one_backend_per_device(original):
    def init_process_group(backend=None, *args, **kwargs):
        if isinstance(backend, str) and "," in backend:
            backend = ",".join(dict.fromkeys(backend.split(",")))
        return original(backend, *args, **kwargs)

    return init_process_group


def unpinned(original):
    class CPUOffloadPolicy(original):
        def __init__(self, pin_memory=False):
            super().__init__(pin_memory=False)

    return CPUOffloadPolicy


def without_flash_attention(module):
    def make(original):
        def from_pretrained(cls, *args, **kwargs):
            if kwargs.get("attn_implementation") == "flash_attention_2":
                kwargs["attn_implementation"] = "sdpa"
            return original(cls, *args, **kwargs)

        return from_pretrained

    replace(module._BaseAutoModelClass, "from_pretrained", make)


def old_pause_argument(module):
    if "wait_for_inflight_requests" in inspect.signature(module.AsyncLLM.pause_generation).parameters:
        return

    def make(original):
        async def pause_generation(self, *args, wait_for_inflight_requests=None, **kwargs):
            if wait_for_inflight_requests is not None:
                kwargs.setdefault("mode", "wait" if wait_for_inflight_requests else "abort")
            return await original(self, *args, **kwargs)

        return pause_generation

    replace(module.AsyncLLM, "pause_generation", make)


replace(torch.distributed, "init_process_group", one_backend_per_device)
replace(torch.distributed.fsdp, "CPUOffloadPolicy", unpinned)
after_import("transformers.models.auto.auto_factory", without_flash_attention)
after_import("vllm.v1.engine.async_llm", old_pause_argument)
