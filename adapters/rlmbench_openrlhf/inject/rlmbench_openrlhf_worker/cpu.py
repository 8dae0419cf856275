"""OpenRLHF 0.11.2 without a GPU: what is changed, and the file it answers. On a GPU nothing of it is installed.

1. ``openrlhf/trainer`` calls `torch.cuda.current_device`, `set_device`, `synchronize` and `current_stream` whatever the
   device is. They do nothing here; the device is "cpu", which ``trainer/ppo_utils/replay_buffer.py`` writes into "cuda:{}".
2. ``openrlhf/utils/deepspeed/deepspeed.py`` makes its device mesh for "cuda".
3. ``openrlhf/utils/distributed_util.py`` sends weights through vLLM's PyNccl, which switches itself off without NCCL: a gloo
   group takes its place, as ``trainer/ray/vllm_worker_wrap.py`` receives them into memory on "cuda".
4. ``vllm/platforms/cpu.py`` refuses sleep mode, though its worker has a sleep that does nothing (``v1/worker/cpu_worker.py``).
   Only with --vllm.enable_sleep does anybody ask.
5. vLLM's packed weights: `rlmbench_shims.vllm_cpu`.
"""

from datetime import timedelta

from rlmbench_probe import after_import, replace

TIMEOUT = timedelta(seconds=300)


def install():
    after_import("torch", device_calls)
    after_import("openrlhf.utils.deepspeed.deepspeed", mesh)
    after_import("openrlhf.utils.distributed_util", weight_group)
    after_import("openrlhf.trainer.ray.vllm_worker_wrap", weight_receiver)
    after_import("vllm.platforms.cpu", sleep_mode)


class Device(str):
    """ "cpu" as a device, "0" where it is written into a device's name such as "cuda:0"."""

    def __format__(self, spec):
        return "0"


def device_calls(torch):
    """A function of its own for each: torch.compile tells torch's functions apart by identity."""
    replace(torch.cuda, "current_device", lambda original: lambda: Device("cpu"))
    replace(torch.cuda, "set_device", lambda original: lambda device: None)
    replace(torch.cuda, "synchronize", lambda original: lambda device=None: None)
    replace(torch.cuda, "current_stream", lambda original: lambda device=None: None)


def mesh(module):
    def make(original):
        def init_device_mesh(device_type, *args, **kwargs):
            return original("cpu" if device_type == "cuda" else device_type, *args, **kwargs)

        return init_device_mesh

    replace(module, "init_device_mesh", make)


def weight_group(module):
    replace(module, "stateless_init_process_group", lambda original: gloo_group)


def gloo_group(master_address, master_port, rank, world_size, device):
    return WeightGroup(master_address, master_port, rank, world_size)


class WeightGroup:
    """The two methods of a PyNcclCommunicator that OpenRLHF uses, over a gloo group of its own."""

    def __init__(self, host, port, rank, world_size):
        import torch.distributed as distributed

        self.store = distributed.TCPStore(host, port, world_size, rank == 0, timeout=TIMEOUT)
        self.group = distributed.ProcessGroupGloo(self.store, rank, world_size, TIMEOUT)

    def broadcast(self, tensor, src, stream=None):
        import torch
        from torch.distributed import BroadcastOptions

        options = BroadcastOptions()
        options.rootRank, options.rootTensor = src, 0
        # As bytes: gloo does not know every type of number.
        self.group.broadcast([tensor.detach().contiguous().view(-1).view(torch.uint8)], options).wait()


def weight_receiver(module):
    def make(original):
        def update_weight(self, name, dtype, shape, empty_cache=False):
            import torch

            assert dtype == self.model_config.dtype, f"mismatch dtype: src {dtype}, dst {self.model_config.dtype}"
            weight = torch.empty(shape, dtype=dtype)
            self._model_update_group.broadcast(weight, src=0)
            self.model_runner.model.load_weights(weights=[(name, weight)])

        return update_weight

    replace(module.WorkerWrap, "update_weight", make)


def sleep_mode(module):
    replace(module.CpuPlatform, "is_sleep_mode_available", lambda original: lambda self: True)
