"""Kineto's categories, and names of launches and of communication kernels.

Categories are kineto's own (libkineto/src/ActivityType.cpp), which CUDA, ROCm and XPU share; the capitalised ones are those of
torch before 1.13. ROCm's launches are called hip*, XPU's ur*/ze*, and stand in the same or in analogous categories.
"""

from __future__ import annotations

import re
from enum import IntEnum


class Kind(IntEnum):
    """What an event is to this reader."""

    SKIP = 0
    KERNEL = 1
    MEMCPY = 2
    MEMSET = 3
    SYNC = 4
    """A wait drawn on a stream (cuda_sync): no work, but HolisticTraceAnalysis counts it as a device event."""
    RUNTIME = 5
    ANNOTATION = 6
    DEVICE_ANNOTATION = 7
    OPERATOR = 8
    OLD_RUNTIME = 9
    """A call of the runtime in a trace of torch before 1.13."""


KINDS: dict[bytes, Kind] = {
    b"kernel": Kind.KERNEL,
    b"Kernel": Kind.KERNEL,
    b"mtia_ccp_events": Kind.KERNEL,
    b"gpu_memcpy": Kind.MEMCPY,
    b"Memcpy": Kind.MEMCPY,
    b"gpu_memset": Kind.MEMSET,
    b"Memset": Kind.MEMSET,
    b"cuda_sync": Kind.SYNC,
    b"cuda_runtime": Kind.RUNTIME,
    b"cuda_driver": Kind.RUNTIME,
    b"hip_runtime": Kind.RUNTIME,
    b"xpu_runtime": Kind.RUNTIME,
    b"xpu_driver": Kind.RUNTIME,
    b"mtia_runtime": Kind.RUNTIME,
    b"privateuse1_runtime": Kind.RUNTIME,
    b"privateuse1_driver": Kind.RUNTIME,
    b"Runtime": Kind.OLD_RUNTIME,
    b"user_annotation": Kind.ANNOTATION,
    b"gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    b"cpu_op": Kind.OPERATOR,
    b"Operator": Kind.OPERATOR,
    b"python_function": Kind.SKIP,
    b"Trace": Kind.SKIP,
    b"overhead": Kind.SKIP,
    b"cpu_instant_event": Kind.SKIP,
    b"cuda_profiler_range": Kind.SKIP,
}
"""Of ``"ph": "X"`` events. A category that is not here is skipped."""

RUNTIME_KINDS = (Kind.RUNTIME, Kind.OLD_RUNTIME)
DEVICE_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.SYNC)

GRAPH_LAUNCH = re.compile(rb"(?:cuda|cu|hip|ur|ze)\w*Graph\w*Launch|(?:cuda|cu|hip)GraphLaunch")
KERNEL_LAUNCH = re.compile(rb"(?:cuda|cu|hip|ur|ze|musa|cnrt|aclrt)\w*Launch")
COPY_LAUNCH = re.compile(rb"(?:cuda|cu|hip|ur|ze|musa|cnrt|aclrt)\w*Mem(?:ory)?(?:cpy|set|Copy|Set|ory)")

COMMUNICATION = re.compile(
    rb"(?:void )?(?:"
    rb"nccl|rccl|ncclx|mscclpp|msccl|oneccl|ccl_|hccl|cncl|nvshmem|rocshmem|xccl"  # a collective library's kernels begin with its name
    rb"|deep_ep::|vllm::cross_device_reduce|sglang::cross_device_reduce|aiter::cross_device_reduce|c10d::symmetric_memory"
    rb")"
    rb"|.*(?:cross_device_reduce|(?:one|two)_shot_all_reduce|multimem_all_reduce|multimem_all_gather|all_reduce_kernel|allreduce_kernel"
    rb"|allreduce_fusion_kernel|all_gather_kernel|allgather_kernel|reduce_scatter_kernel|all_to_all_kernel|alltoall_kernel|userbuffers)",
    re.IGNORECASE,
)
"""Kernels that move data between devices: NCCL (``ncclDevKernel_*``, ``ncclKernel_*``, ``nccl:*``), RCCL, oneCCL, MSCCL(++), NVSHMEM,
DeepEP, and the custom all-reduces of vLLM, SGLang, TensorRT-LLM, Transformer Engine and torch's symmetric memory."""


def is_communication(name: bytes) -> bool:
    """Whether a kernel of this name communicates, by our definition (docs/traces.md)."""
    return COMMUNICATION.match(name) is not None
