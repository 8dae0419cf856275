"""rlmbench's own definitions, on traces small enough to calculate by hand (docs/traces.md). Times are in us; results in ns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlmbench.traces import CpuUsage, DeviceUsage, Trace, read_trace
from tests.unit.traces.trace_files import BACKWARD, NCCL, call, copy, event, kernel, on_device, operator, stage, step, write


def read(tmp_path: Path, events: list[dict[str, Any]], **metadata: Any) -> Trace:
    return read_trace(write(tmp_path / "t.json", events, **metadata))


def only_device(trace: Trace) -> DeviceUsage:
    assert trace.cpu is None
    (device,) = trace.devices
    return device


def test_classes_overlap_and_gaps_at_both_ends(tmp_path: Path) -> None:
    #        0    10   20   30   40   50   60
    # compute      |---------|
    # communication     |---------|
    # copy                        |----|        (touches communication's end)
    trace = read(tmp_path, [step(1, 0, 60), kernel(10, 30), kernel(20, 40, NCCL, stream=40), copy(40, 50, stream=24)])
    usage = only_device(trace).usage
    assert (trace.window_source, trace.window_ns) == ("steps", 60_000)
    assert (usage.window_ns, usage.busy_ns, usage.events) == (60_000, 40_000, 3)
    assert (usage.compute_ns, usage.communication_ns, usage.copy_ns) == (20_000, 20_000, 10_000)
    assert (usage.only_compute_ns, usage.only_communication_ns, usage.only_copy_ns, usage.mixed_ns) == (10_000, 10_000, 10_000, 10_000)
    assert usage.exposed_communication_ns == 10_000
    assert usage.no_kernel == pytest.approx(20 / 60)
    assert usage.exposed_communication == pytest.approx(10 / 60)


def test_a_copy_does_not_hide_communication(tmp_path: Path) -> None:
    usage = only_device(read(tmp_path, [kernel(0, 10, NCCL), copy(0, 10, stream=24)])).usage
    assert usage.exposed_communication_ns == 10_000
    assert (usage.only_communication_ns, usage.mixed_ns) == (0, 10_000)


def test_without_steps_the_window_is_first_to_last_device_event(tmp_path: Path) -> None:
    trace = read(tmp_path, [operator(0, 500), kernel(100, 110), kernel(150, 160)])
    assert (trace.window_source, trace.start_ns, trace.end_ns) == ("events", 100_000, 160_000)
    assert only_device(trace).usage.no_kernel == pytest.approx(40 / 60)


def test_the_window_spans_all_steps_and_each_step_stands_for_itself(tmp_path: Path) -> None:
    trace = read(tmp_path, [step(4, 20, 30), step(3, 0, 15), kernel(5, 25), kernel(29, 50)])
    assert [(one.number, one.start_ns, one.duration_ns) for one in trace.steps] == [(3, 0, 15_000), (4, 20_000, 10_000)]
    device = only_device(trace)
    assert (device.usage.window_ns, device.usage.busy_ns, device.usage.events) == (30_000, 21_000, 2)  # the last runs on behind the window
    assert [(usage.busy_ns, usage.events) for usage in device.steps] == [(10_000, 1), (6_000, 2)]


def test_devices_are_apart(tmp_path: Path) -> None:
    names = [{"id": 0, "name": "H100"}, {"id": 1, "name": "H200"}]
    trace = read(
        tmp_path, [step(1, 0, 100), kernel(0, 30), kernel(10, 60, device=1), kernel(20, 70, device=1, stream=8)], deviceProperties=names
    )
    first, second = trace.devices
    assert (first.device, first.name, first.streams, first.usage.busy_ns) == ("0", "H100", 1, 30_000)
    assert (second.device, second.name, second.streams, second.usage.busy_ns) == ("1", "H200", 2, 60_000)


def test_a_wait_drawn_on_a_stream_is_no_work(tmp_path: Path) -> None:
    trace = read(tmp_path, [kernel(0, 10), on_device("cuda_sync", "Stream Sync", 10, 90), kernel(90, 100)])
    usage = only_device(trace).usage
    assert (usage.window_ns, usage.busy_ns, usage.events) == (100_000, 20_000, 2)


@pytest.mark.parametrize(
    ("name", "communicates"),
    [
        (NCCL, True),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", True),
        ("nccl:_all_gather_base", True),
        ("rcclDevKernel_Generic", True),
        ("void mscclpp::allreduce7<__half>(mscclpp::DeviceHandle*)", True),
        ("oneccl_allreduce_large_kernel", True),
        ("void vllm::cross_device_reduce_1stage<c10::BFloat16, 8>(vllm::RankData*)", True),
        ("void sglang::cross_device_reduce_2stage<half, 4>(int)", True),
        ("void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<2>(int)", True),
        ("nvshmemi_proxy_quiet", True),
        ("multimem_all_reduce_kernel<c10::BFloat16, 4>", True),
        ("void deep_ep::intranode::dispatch<8>(int4*)", True),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn", False),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)", False),
        ("compute_nccl_like_statistics_kernel(float*)", False),
        ("void cub::DeviceReduceKernel<int>(int)", False),
        ("void at::native::CatArrayBatchedCopy<int>(int)", False),
    ],
)  # fmt: skip
def test_which_kernels_communicate(tmp_path: Path, name: str, communicates: bool) -> None:
    usage = only_device(read(tmp_path, [kernel(0, 10, name)])).usage
    assert (usage.communication_ns, usage.compute_ns) == ((10_000, 0) if communicates else (0, 10_000))


@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "xpu_runtime", "privateuse1_runtime", "Runtime"])
@pytest.mark.parametrize(
    "launch", ["cudaLaunchKernel", "cuLaunchKernelEx", "hipLaunchKernel", "hipExtModuleLaunchKernel", "urEnqueueKernelLaunch"]
)
def test_a_stage_owns_what_it_launched_whenever_that_ran(tmp_path: Path, category: str, launch: str) -> None:
    events = [stage("generation", 0, 10), stage("reward", 10, 20), call(5, 1, launch, cat=category), call(15, 2, launch, cat=category)]
    events += [kernel(8, 18, correlation=1), kernel(18, 40, correlation=2)]
    generation, reward = only_device(read(tmp_path, events)).stages
    assert (generation.stage, generation.count, generation.attribution) == ("generation", 1, "launch")
    assert (generation.during.window_ns, generation.during.busy_ns) == (10_000, 2_000)
    assert (generation.launched.window_ns, generation.launched.busy_ns, generation.launched.no_kernel) == (None, 10_000, None)
    assert (reward.during.busy_ns, reward.launched.busy_ns, reward.launched.events) == (10_000, 22_000, 1)


def test_the_inner_annotation_owns_the_moment_and_a_thread_of_its_own_goes_to_the_process(tmp_path: Path) -> None:
    events = [
        stage("actor_update", 0, 100),
        stage("weight_sync", 40, 60),
        call(50, 1),
        call(70, 2, tid=BACKWARD),
        call(50, 3, tid=BACKWARD),
    ]
    events += [kernel(200, 201, correlation=1), kernel(300, 304, correlation=2), kernel(400, 408, correlation=3)]
    update, sync = only_device(read(tmp_path, events)).stages
    assert (update.during.window_ns, sync.during.window_ns) == (80_000, 20_000)
    assert (update.launched.busy_ns, sync.launched.busy_ns) == (4_000, 9_000)


def test_repeated_annotations_are_one_stage(tmp_path: Path) -> None:
    events = [stage("reward", 0, 10), stage("reward", 20, 30), kernel(5, 25)]
    (reward,) = only_device(read(tmp_path, events)).stages
    assert (reward.count, reward.during.window_ns, reward.during.busy_ns, reward.during.events) == (2, 20_000, 10_000, 1)


def test_without_launches_the_profilers_own_intervals_on_the_stream_decide(tmp_path: Path) -> None:
    events = [stage("generation", 0, 10), kernel(5, 15), kernel(20, 23), kernel(21, 30, stream=8)]
    events += [event("gpu_user_annotation", "rlmbench:generation", 4.999, 25, 0, 7)]
    (generation,) = only_device(read(tmp_path, events)).stages
    assert generation.attribution == "gpu annotation"
    assert (generation.launched.busy_ns, generation.launched.events) == (13_000, 2)


def test_neither_launches_nor_intervals_leave_a_stage_without_launched_work(tmp_path: Path) -> None:
    (generation,) = only_device(read(tmp_path, [stage("generation", 0, 10), kernel(5, 15)])).stages
    assert (generation.attribution, generation.launched.events, generation.during.busy_ns) == ("none", 0, 5_000)


def test_graph_launches_without_kernels_make_the_figures_unreliable(tmp_path: Path) -> None:
    events = [call(0, 1, "cudaGraphLaunch"), call(5, 2, "cudaGraphLaunch"), kernel(1, 2, correlation=1), kernel(3, 4, correlation=1)]
    trace = read(tmp_path, events)
    device = only_device(trace)
    assert (trace.graph_launches, trace.empty_graph_launches, trace.launches) == (2, 1, 2)
    assert not device.reliable
    assert device.reason == "1 of 2 graph launches have no kernel in the trace: what their graphs ran is missing"


def test_graph_launches_with_their_kernels_are_reliable(tmp_path: Path) -> None:
    device = only_device(read(tmp_path, [call(0, 1, "hipGraphLaunch"), kernel(1, 2, correlation=1), kernel(3, 4, correlation=1)]))
    assert (device.reliable, device.reason) == (True, "")


@pytest.mark.parametrize(("lost", "reliable"), [(1, True), (2, False)])
def test_more_than_one_in_a_hundred_launches_without_a_kernel_is_unreliable(tmp_path: Path, lost: int, reliable: bool) -> None:
    events = [call(i, i) for i in range(100)] + [kernel(i, i + 0.5, correlation=i) for i in range(100 - lost)]
    trace = read(tmp_path, events)
    assert trace.lost_launches == lost
    assert only_device(trace).reliable is reliable


def test_launches_that_a_graph_captures_start_nothing_and_are_not_lost(tmp_path: Path) -> None:
    capture = [call(10, 50, "cudaStreamBeginCapture"), *(call(11 + i, 51 + i) for i in range(5)), call(20, 60, "cudaStreamEndCapture")]
    trace = read(tmp_path, [call(0, 1), *capture, call(30, 2), kernel(1, 2, correlation=1), kernel(31, 32, correlation=2)])
    assert (trace.launches, trace.lost_launches) == (2, 0)


def test_a_trace_without_a_device_says_so_and_gives_operators_instead_of_zeros(tmp_path: Path) -> None:
    events = [
        step(1, 0, 100), stage("generation", 0, 40), stage("actor_update", 50, 100),
        operator(10, 30), operator(12, 20), operator(25, 28),   # the outer one counts
        operator(60, 80), operator(70, 90, tid=BACKWARD),
    ]  # fmt: skip
    trace = read(tmp_path, events)
    assert trace.devices == ()
    assert trace.cpu is not None
    assert trace.cpu.reason.startswith("no device in this trace: ")
    assert trace.cpu.threads == 2
    assert trace.cpu.usage == CpuUsage(window_ns=100_000, operator_ns=60_000, any_operator_ns=50_000)
    assert trace.cpu.steps == (trace.cpu.usage,)
    generation, update = trace.cpu.stages
    assert (generation.stage, generation.usage) == ("generation", CpuUsage(40_000, 20_000, 20_000))
    assert (update.usage, update.usage.no_operator) == (CpuUsage(50_000, 40_000, 30_000), pytest.approx(0.4))


def test_an_empty_trace_has_no_shares(tmp_path: Path) -> None:
    trace = read(tmp_path, [])
    assert trace.cpu is not None
    assert (trace.window_ns, trace.cpu.usage.no_operator) == (0, None)


def test_what_the_header_states(tmp_path: Path) -> None:
    trace = read(tmp_path, [kernel(0, 1)], distributedInfo={"rank": 3, "world_size": 8}, baseTimeNanoseconds=1790857026000000000)
    assert (trace.rank, trace.world_size, trace.base_ns) == (3, 8, 1790857026000000000)
