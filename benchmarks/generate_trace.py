"""Invented torch.profiler traces, laid out byte by byte as kineto writes them, with their ground truth.

    python benchmarks/generate_trace.py OUT.json[.gz] MEGABYTES [--devices 2] [--layout older] [--seed 1]

The truth is counted here by a sweep over all edges, in plain integers, and shares no code with the reader. Kernel and operator names, arguments and their
lengths are like those of a GRPO step with vLLM and FSDP; durations are random.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMPUTE, COMMUNICATION, COPY = 1, 2, 4

BFLOAT, NATIVE = "c10::BFloat16", "at::native"
FUNCTORS = (
    "CUDAFunctor_add",
    "(anonymous namespace)::silu_kernel",
    "bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}",
)
FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<{}, {}, 64, 4, false, false, cutlass::bfloat16_t> >(flash::Flash_fwd_params)"
COMPUTE_NAMES = [
    *(
        f"void {NATIVE}::vectorized_elementwise_kernel<{vector}, {NATIVE}::{functor}<{BFLOAT}>, std::array<char*, {count}ul> >"
        f"(int, {NATIVE}::{functor}<{BFLOAT}>, std::array<char*, {count}ul>)"
        for vector in (4, 8)
        for count in (2, 3)
        for functor in FUNCTORS
    ),
    *(
        f"ampere_bf16_s16816gemm_bf16_{rows}x{columns}_ldg8_f2f_stages_{depth}x{stages}_tn"
        for rows in (64, 128, 256)
        for columns in (64, 128)
        for depth in (32, 64)
        for stages in (3, 4)
    ),
    *(FLASH.format(head, block) for head in (64, 128) for block in (64, 128)),
    *(
        f"void vllm::{name}_kernel<{BFLOAT}, {block}, true>({BFLOAT}*, {BFLOAT} const*, long const*, int)"
        for name in ("rms_norm", "rotary_embedding", "reshape_and_cache_flash")
        for block in (64, 128)
    ),
    *(f"triton_poi_fused__to_copy_add_mul_rsqrt_{number}" for number in range(40)),
    "compute_nccl_like_statistics_kernel(float*)",  # mentions a library, and does not communicate
]
COMMUNICATION_NAMES = [
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclWorkElem)",
    "nccl:_all_gather_base",
    "void mscclpp::allreduce7<__half>(mscclpp::DeviceHandle*)",
    "oneccl_allreduce_kernel<float>",
    "void vllm::cross_device_reduce_2stage<c10::BFloat16, 8>(vllm::RankData*, vllm::RankSignals, vllm::Signal*, c10::BFloat16*, int, int)",
    "nvshmemi_collective_kernel",
]
COPY_NAMES = [
    ("gpu_memcpy", "Memcpy DtoD (Device -> Device)"),
    ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)"),
    ("gpu_memset", "Memset (Device)"),
]
OPERATORS = [
    "aten::linear",
    "aten::addmm",
    "aten::mul",
    "aten::_to_copy",
    "aten::empty_strided",
    "aten::scaled_dot_product_attention",
    "aten::silu",
    "autograd::engine::evaluate_function: MmBackward0",
    "torch::autograd::AccumulateGrad",
    "aten::cat",
    "vllm::unified_attention_with_output",
]
STAGES = [
    ("generation", 0.42),
    ("reward", 0.04),
    ("old_logprob", 0.10),
    ("reference_logprob", 0.10),
    ("advantage", 0.02),
    ("actor_update", 0.27),
    ("weight_sync", 0.05),
]
PID, MAIN, BACKWARD = 2910249, 2910249, 2919752
STREAMS = (7, 24, 40)

ARGS = '"args": {{\n      {args}\n    }}\n  }}'
EVENT = {
    "torch 2.13": '\n  {{\n    "ph": "X",\n    "cat": "{cat}",\n    "name": "{name}",\n    "pid": {pid},\n    "tid": {tid},\n'
    '    "ts": {ts},\n    "dur": {dur}\n    ,\n    ' + ARGS,
    "older": '\n  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n    "ts": {ts}, "dur": {dur},\n    '
    + ARGS,
}
FLOW = {
    "torch 2.13": '\n  {{\n    "ph": "{ph}",\n    "id": {id},\n    "pid": {pid},\n    "tid": {tid},\n    "ts": {ts},\n'
    '    "cat": "ac2g",\n    "name": "ac2g"\n    {bind}\n  }}',
    "older": '\n  {{\n    "ph": "{ph}", "id": {id}, "pid": {pid}, "tid": {tid}, "ts": {ts},\n    "cat": "ac2g", "name": "ac2g"{bind}\n  }}',
}
LABEL = {
    "torch 2.13": '\n  {{\n    "ph": "M",\n    "name": "{name}",\n    "ts": {ts},\n    "pid": {pid},\n    "tid": 0,\n    ' + ARGS,
    "older": '\n  {{\n    "name": "{name}", "ph": "M", "ts": {ts}, "pid": {pid}, "tid": 0,\n    ' + ARGS,
}
INSTANT = '\n  {{\n    "ph": "i",\n    \n    "s": "g",\n    "name": "{name}",\n    "pid": "",\n    "tid": "",\n    "ts": {ts}\n    \n  }}'
HEAD = """\
{{
    "schemaVersion": 1,
    "deviceProperties": [{devices}],
    "distributedInfo": {{"backend": "nccl", "rank": 0, "world_size": 8}},
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": [
    """


@dataclass
class Sizes:
    """Total ns by what ran at once: a bit for each of COMPUTE, COMMUNICATION, COPY."""

    by_mask: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    window_ns: int = 0
    events: int = 0

    def figures(self) -> dict[str, int]:
        """Under the names of `rlmbench.traces.Usage`."""

        def total(include: Iterable[int]) -> int:
            return sum(self.by_mask[mask] for mask in include)

        return {
            "busy_ns": total(range(1, 8)),
            "compute_ns": total(m for m in range(8) if m & COMPUTE),
            "communication_ns": total(m for m in range(8) if m & COMMUNICATION),
            "copy_ns": total(m for m in range(8) if m & COPY),
            "exposed_communication_ns": total(m for m in range(8) if m & COMMUNICATION and not m & COMPUTE),
            "only_compute_ns": self.by_mask[COMPUTE],
            "only_communication_ns": self.by_mask[COMMUNICATION],
            "only_copy_ns": self.by_mask[COPY],
            "events": self.events,
        }


@dataclass
class Planted:
    """The truth: figures of each device, over the steps' span, per step, and per stage while it was open and by what it launched."""

    events: int
    window: tuple[int, int]
    steps: list[tuple[int, int, int]]
    devices: dict[int, dict[str, Any]]
    graph_launches: int
    empty_graph_launches: int


def sweep(events: list[tuple[int, int, int]], windows: dict[Any, list[tuple[int, int]]]) -> dict[Any, Sizes]:
    """What runs at once in each set of windows. `events` are (start, end, class)."""
    edges: list[tuple[int, int, Any]] = []
    for start, end, which in events:
        edges += [(start, 1, which), (end, -1, which)]
    for name, parts in windows.items():
        for start, end in parts:
            edges += [(start, 1, (name,)), (end, -1, (name,))]
    edges.sort(key=lambda edge: edge[0])
    running, open_windows = {COMPUTE: 0, COMMUNICATION: 0, COPY: 0}, dict.fromkeys(windows, 0)
    found = {name: Sizes() for name in windows}
    before = 0
    for at, change, what in edges:
        if at > before:
            mask = sum(which for which, count in running.items() if count)
            for name, count in open_windows.items():
                if count:
                    found[name].by_mask[mask] += at - before
                    found[name].window_ns += at - before
            before = at
        if isinstance(what, tuple):
            open_windows[what[0]] += change
        else:
            running[what] += change
    for name, parts in windows.items():
        found[name].events = sum(any(start < b and a < end for a, b in parts) for start, end, _ in events) if len(parts) < 50 else -1
    return found


def microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03}"


class Generator:
    """Writes one file. `grid_ns` rounds all times: on 125 ns every time is exact in the doubles that other readers use."""

    def __init__(
        self,
        *,
        seed: int = 0,
        devices: int = 1,
        layout: str = "torch 2.13",
        base_ns: int = 4458676416431000,
        grid_ns: int = 1,
        empty_graphs: int = 0,
    ) -> None:
        self.random = random.Random(seed)
        self.devices, self.layout, self.grid_ns, self.empty_graphs = devices, layout, grid_ns, empty_graphs
        self.base_ns = base_ns // 1_000_000 * 1_000_000
        self.now = self.base_ns + 1_000_000
        self.ids = self.correlation = 1000
        self.count = 0
        self.cpu: list[str] = []
        self.late: list[str] = []
        self.free = {(device, stream): self.base_ns for device in range(devices) for stream in STREAMS}
        self.kernels: dict[int, list[tuple[int, int, int, str]]] = {device: [] for device in range(devices)}
        self.stages: list[tuple[str, int, int]] = []
        self.steps: list[tuple[int, int, int]] = []
        self.graphs = self.empty = 0

    def write(self, path: Path, megabytes: float, steps: int = 3) -> Planted:
        with gzip.open(path, "wt", compresslevel=5) if path.suffix == ".gz" else path.open("w", buffering=1 << 20) as file:
            file.write(self._head())
            for number, text in enumerate(self._texts(megabytes * 1e6, steps)):
                file.write("," + text if number else text)
            file.write('\n  ],\n    "traceName": "rank0.pt.trace.json"\n}\n')
        return self._truth()

    def _texts(self, size: float, steps: int) -> Iterator[str]:
        """Blocks of events, without the comma between them."""
        yield from self._metadata()
        for step in range(steps):
            begin, first_kernel = self.now, {device: len(events) for device, events in self.kernels.items()}
            for stage, share in STAGES:
                yield from self._stage(stage, size / steps * share)
            self._event(
                "user_annotation",
                f"ProfilerStep#{step + 2}",
                PID,
                MAIN,
                begin - 4000,
                self.now - begin + 8000,
                self._ids(),
            )
            for device, events in self.kernels.items():
                self._drawn(f"ProfilerStep#{step + 2}", device, events[first_kernel[device] :])
            self.steps.append((step + 2, begin - 4000, self.now + 4000))
            self.now += 16_000
            yield from self._flush()
        yield self._instant("Record Window End", self.now)

    def _stage(self, stage: str, size: float) -> Iterator[str]:
        begin, written = self.now, 0
        thread = BACKWARD if stage == "actor_update" else MAIN
        first_kernel = {device: len(self.kernels[device]) for device in self.kernels}
        while written < size:
            for _ in range(20):
                self._operator_with_work(stage, thread)
            self._wait_for_devices()
            for text in self._flush():
                written += len(text)
                yield text
        end = self.now + 4000
        self.now = end + self._round(self.random.randint(20_000, 300_000))
        self._event(
            "user_annotation",
            f"rlmbench:{stage}",
            PID,
            MAIN,
            begin,
            end - begin,
            self._ids(),
        )
        for device, events in self.kernels.items():
            self._drawn(f"rlmbench:{stage}", device, events[first_kernel[device] :])
        self.stages.append((stage, begin, end))

    def _drawn(self, name: str, device: int, events: list[tuple[int, int, int, str]]) -> None:
        """An annotation's image on a device, from the first event that was launched in it to the last."""
        if events:
            start, end = events[0][0], events[-1][1]
            self._event("gpu_user_annotation", name, device, STREAMS[0], start, end - start, f'"External id": {self.ids}')

    def _operator_with_work(self, stage: str, thread: int) -> None:
        chance, depth = self.random, self.random.choice((2, 3, 3, 4, 4))
        begin, length, first = self.now, self._round(chance.randint(9000, 42_000)), chance.randrange(len(OPERATORS))
        for level in range(depth):
            self.ids += 1
            self._event("cpu_op", OPERATORS[(first + level * 7) % len(OPERATORS)], PID, thread, begin + level * 1000, length - level * 2000 + 6000,
                        self._ids(sequence=True))  # fmt: skip
        device, at, roll = chance.randrange(self.devices), begin + 4000, chance.random()
        if roll < 0.04 and stage not in ("generation", "reward"):
            self.ids += 1
            self._event(
                "cpu_op" if roll < 0.02 else "user_annotation",
                "nccl:all_reduce",
                PID,
                thread,
                at - 1000,
                6000,
                self._ids(),
            )
            self._launch(
                device, 40, "kernel", chance.choice(COMMUNICATION_NAMES), COMMUNICATION, chance.randint(40_000, 900_000), at, thread
            )
        elif roll < 0.12:
            self._launch(device, chance.choice((7, 7, 24)), *chance.choice(COPY_NAMES), COPY, chance.randint(1200, 60_000), at, thread)
        elif roll < 0.13 and stage == "generation":
            self._graph(device, at, thread)
        else:
            name = COMPUTE_NAMES[min(len(COMPUTE_NAMES) - 1, int(chance.expovariate(1 / 40)))]
            self._launch(device, 7, "kernel", name, COMPUTE, int(chance.lognormvariate(9.6, 1.0)) + 1200, at, thread)
        self.now = begin + length + 8000 + (self._round(chance.randint(1, 400) * 1000) if chance.random() < 0.02 else 0)
        if chance.random() < 0.002:
            self.ids += 1
            self._event(
                "cpu_op",
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                PID,
                thread,
                self.now,
                20_000,
                self._ids(),
            )
            self.now += 24_000

    def _launch(self, device: int, stream: int, category: str, name: str, which: int, length: int, at: int, thread: int) -> None:
        self.correlation += self.random.choice((1, 1, 2, 3))
        call = {"kernel": ("cudaLaunchKernel", 211), "gpu_memcpy": ("cudaMemcpyAsync", 41), "gpu_memset": ("cudaMemsetAsync", 51)}[category]
        category_of_call = "cuda_runtime"
        if name.startswith("triton"):
            call, category_of_call = ("cuLaunchKernel", 307), "cuda_driver"
        took = self._round(self.random.randint(2800, 9000))
        self._event(
            category_of_call,
            call[0],
            PID,
            thread,
            at,
            took,
            f'"External id": {self.ids},"cbid": {call[1]}, "correlation": {self.correlation}',
        )
        self._flow("s", self.correlation, PID, thread, at)
        self._device_event(device, stream, category, name, which, length, at + took)
        if self.random.random() < 0.9:
            self.correlation += 1
            other, number = self.random.choice(
                (("cudaStreamIsCapturing", 317), ("cudaEventRecord", 135), ("cudaEventQuery", 136), ("cudaFuncGetAttributes", 15))
            )
            self._event(
                "cuda_runtime",
                other,
                PID,
                thread,
                at - 2000,
                1000,
                f'"External id": {self.ids},"cbid": {number}, "correlation": {self.correlation}',
            )

    def _graph(self, device: int, at: int, thread: int) -> None:
        self.correlation += 1
        self.graphs += 1
        self._event(
            "cuda_runtime",
            "cudaGraphLaunch",
            PID,
            thread,
            at,
            6000,
            f'"External id": {self.ids},"cbid": 311, "correlation": {self.correlation}',
        )
        if self.empty < self.empty_graphs:
            self.empty += 1
            return
        for _ in range(self.random.randint(3, 9)):
            self._device_event(device, 7, "kernel", self.random.choice(COMPUTE_NAMES), COMPUTE, self.random.randint(1500, 9000), at + 6000)

    def _device_event(self, device: int, stream: int, category: str, name: str, which: int, length: int, after: int) -> None:
        chance, length = self.random, max(self._round(length), 1000)
        start = max(after + self._round(chance.randint(800, 3500)), self.free[device, stream] + self._round(chance.randint(900, 1600)))
        self.free[device, stream] = start + length
        ids = f'"External id": {self.ids}'
        if category == "kernel":
            args = (
                f'{ids},"queued": 0, "device": {device}, "context": 1, "stream": {stream}, "correlation": {self.correlation}, '
                f'"registers per thread": {chance.choice((32, 96, 255))}, "shared memory": {chance.choice((0, 1024, 87568))}, '
                f'"blocks per SM": {chance.random() * 40:.6f}, "warps per SM": {chance.random() * 200:.6f}, '
                f'"grid": [{chance.randint(1, 2048)}, 1, 1], "block": [{chance.choice((32, 128, 512))}, 1, 1], '
                f'"est. achieved occupancy %": {chance.randint(0, 100)}, '
                '"occupancy": {"activeBlocksPerMultiprocessor": 3, "limitingFactors": "WARPS|REGS", "allocatedSharedMemPerBlock": 1024}, "graph id": 0'
            )
            if which == COMMUNICATION:
                args += ', "Collective name": "allreduce", "In msg nelems": 4194304, "Out msg nelems": 4194304, "Group size": 8, "dtype": "BFloat16"'
        else:
            args = (
                f'{ids},"device": {device}, "context": 1, "stream": {stream}, "correlation": {self.correlation}, '
                f'"bytes": {chance.randint(4, 1 << 24)}, "memory bandwidth (GB/s)": {chance.random() * 1500:.6f}'
            )
        self._event(category, name, device, stream, start, length, args)
        self._flow("f", self.correlation, device, stream, start)
        self.kernels[device].append((start, start + length, which, self._stage_now()))

    def _stage_now(self) -> str:
        return STAGES[len(self.stages) % len(STAGES)][0]

    def _wait_for_devices(self) -> None:
        behind = max(self.free.values()) - self.now
        if behind > 3_000_000:
            self.correlation += 1
            self._event(
                "cuda_runtime",
                "cudaStreamSynchronize",
                PID,
                MAIN,
                self.now,
                behind,
                f'"External id": {self.ids},"cbid": 131, "correlation": {self.correlation}',
            )
            self.now += behind + 4000

    def _round(self, ns: int) -> int:
        return ns // self.grid_ns * self.grid_ns

    def _ids(self, *, sequence: bool = False) -> str:
        number = f'"Sequence number": {self.ids // 5}, "Fwd thread id": 0, ' if sequence else ""
        return f'"External id": {self.ids},"Record function id": {self.ids}, {number}"Ev Idx": {self.ids}'

    def _flush(self) -> Iterator[str]:
        """As kineto does: what the CPU did first, then the runtime's and the device's events."""
        for buffer in (self.cpu, self.late):
            if buffer:
                self.count += len(buffer)
                yield ",".join(buffer)
                buffer.clear()

    def _event(self, category: str, name: str, pid: int, tid: int, start: int, length: int, args: str) -> None:
        buffer = self.cpu if category in ("cpu_op", "user_annotation") else self.late
        ids = {"cat": category, "name": name, "pid": pid, "tid": tid}
        buffer.append(EVENT[self.layout].format(**ids, ts=microseconds(start), dur=microseconds(length), args=args))

    def _flow(self, phase: str, number: int, pid: int, tid: int, at: int) -> None:
        bind = ', "bp": "e"' if phase == "f" else ""
        self.late.append(FLOW[self.layout].format(ph=phase, id=number, pid=pid, tid=tid, ts=microseconds(at), bind=bind))

    def _head(self) -> str:
        listed = (
            f'{{"id": {index}, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85045673984, "numSms": 132}}'
            for index in range(self.devices)
        )
        return HEAD.format(devices=", ".join(listed))

    def _metadata(self) -> Iterator[str]:
        self.count += 1 + self.devices
        ts = microseconds(self.base_ns)
        yield LABEL[self.layout].format(name="process_name", ts=ts, pid=PID, args='"name": "python"')
        for device in range(self.devices):
            yield LABEL[self.layout].format(name="process_labels", ts=ts, pid=device, args=f'"labels": "GPU {device}"')

    def _instant(self, name: str, at: int) -> str:
        self.count += 1
        return INSTANT.format(name=name, ts=microseconds(at))

    def _truth(self) -> Planted:
        window = (self.steps[0][1], self.steps[-1][2])
        windows: dict[Any, list[tuple[int, int]]] = {"window": [window]}
        for number, begin, end in self.steps:
            windows["step", number] = [(begin, end)]
        for stage, begin, end in self.stages:
            windows.setdefault(("stage", stage), []).append((begin, end))
        devices = {}
        for device, kernels in self.kernels.items():
            found = sweep([event[:3] for event in kernels], windows)
            forever = {"all": [(0, 1 << 62)]}
            launched = {
                stage: sweep([event[:3] for event in kernels if event[3] == stage], forever)["all"].figures() for stage, _ in STAGES
            }
            devices[device] = {
                "usage": found["window"].figures(),
                "steps": [found["step", number].figures() for number, _, _ in self.steps],
                "during": {stage: found["stage", stage].figures() for stage, _ in STAGES},
                "wall_ns": {stage: found["stage", stage].window_ns for stage, _ in STAGES},
                "launched": launched,
            }
        return Planted(self.count, window, self.steps, devices, self.graphs, self.empty)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("megabytes", type=float)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layout", choices=("torch 2.13", "older"), default="torch 2.13")
    options = parser.parse_args()
    truth = Generator(seed=options.seed, devices=options.devices, layout=options.layout).write(options.path, options.megabytes)
    print(json.dumps({"events": truth.events, "devices": truth.devices}, indent=1))


if __name__ == "__main__":
    main()
