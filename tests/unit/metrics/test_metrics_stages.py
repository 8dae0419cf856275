import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmbench.metrics.stages import (
    Segment,
    StepStages,
    Window,
    _flatten,
    check_identity,
    generation_ns,
    innermost_segments,
    merged,
    part_of,
    stage_breakdown,
    union_ns,
    union_of,
    worker_busy,
)
from rlmbench.records.clocks import clock_offsets_ns


def test_union_counts_common_time_once():
    assert union_ns([]) == 0
    assert union_ns([(0, 10), (5, 20), (30, 40), (32, 35)]) == 30  # 0-20 and 30-40
    assert union_ns([(10, 20), (0, 10)]) == 20


INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted).map(tuple), max_size=8)


@settings(max_examples=100, deadline=None)
@given(INTERVALS, st.integers(0, 60), st.integers(0, 60))
def test_a_part_of_a_union_is_the_union_of_the_parts(intervals, start, end):
    assert part_of(union_of(intervals), start, end) == merged(intervals, start, end)


def test_a_part_of_a_union_by_hand():
    union = union_of([(30, 40), (0, 10), (5, 20), (50, 60)])
    assert union == [(0, 20), (30, 40), (50, 60)]
    assert part_of(union, 15, 35) == [(15, 20), (30, 35)]
    assert part_of(union, 20, 30) == part_of([], 0, 9) == union_of([]) == []


def test_nested_spans_give_their_innermost_stage(tables_of, span):
    tables = tables_of(span("generation", 0, 100), span("reward", 40, 60), span("wait", 50, 55))
    assert innermost_segments(tables.spans) == [
        Segment(0, 40, "generation", None),
        Segment(40, 50, "reward", None),
        Segment(50, 55, "wait", None),
        Segment(55, 60, "reward", None),
        Segment(60, 100, "generation", None),
    ]


def test_a_substage_reaches_into_spans_of_its_own_stage_only(tables_of, span):
    tables = tables_of(
        span("actor_update", 0, 100, substage="forward"),
        span("actor_update", 10, 20),
        span("wait", 30, 40),
        span("actor_update", 50, 60, substage="optimizer"),
    )
    parts = stage_breakdown(innermost_segments(tables.spans), [Window(1, 0, 100)])[0]
    assert parts.substages_ns == {("actor_update", "forward"): 80, ("actor_update", "optimizer"): 10}  # 100 - 10 wait - 10 optimizer
    assert parts.stages_ns == {"actor_update": 90, "wait": 10}


def test_spans_that_meet_or_start_together(tables_of, span):
    tables = tables_of(span("data", 0, 10), span("generation", 10, 30), span("reward", 10, 20, id=11))
    parts = stage_breakdown(innermost_segments(tables.spans), [Window(1, 0, 30)])[0]
    assert parts.stages_ns == {"data": 10, "reward": 10, "generation": 10}
    assert (parts.overlap_ns, parts.unattributed_ns) == (0, 0)


def test_stages_that_run_at_once_on_two_threads_both_count_and_overlap_is_its_own_figure(tables_of, span):
    tables = tables_of(span("generation", 10, 60, thread=1), span("reward", 40, 80, thread=2), span("reward", 50, 70, thread=3))
    parts = stage_breakdown(innermost_segments(tables.spans), [Window(1, 0, 100)])[0]
    assert parts.stages_ns == {"generation": 50, "reward": 40}
    assert parts.overlap_ns == 20  # 40 to 60; reward beside reward is no overlap of stages
    assert parts.unattributed_ns == 30  # 0-10 and 80-100
    assert parts.coverage == pytest.approx(0.7)
    assert check_identity(parts) is None  # 90 + 30 - 20 = 100


def test_three_stages_at_once_overlap_twice(tables_of, span):
    tables = tables_of(span("generation", 0, 10, thread=1), span("reward", 0, 10, thread=2), span("wait", 0, 10, thread=3))
    parts = stage_breakdown(innermost_segments(tables.spans), [Window(1, 0, 10)])[0]
    assert (parts.overlap_ns, parts.unattributed_ns) == (20, 0)  # 30 + 0 - 20 = 10


def test_a_span_across_steps_counts_in_each_for_its_part(tables_of, span):
    tables = tables_of(span("weight_sync", 90, 320), span("data", 350, 1000))
    windows = [Window(1, 100, 200), Window(2, 200, 300), Window(3, 300, 400)]
    steps = stage_breakdown(innermost_segments(tables.spans), windows)
    assert [step.stages_ns for step in steps] == [{"weight_sync": 100}, {"weight_sync": 100}, {"weight_sync": 20, "data": 50}]
    assert [step.unattributed_ns for step in steps] == [0, 0, 30]


def test_a_group_of_stages_is_their_union(tables_of, span):
    tables = tables_of(span("reward", 0, 40, thread=1), span("old_logprob", 20, 50, thread=2), span("actor_update", 50, 90))
    parts = stage_breakdown(innermost_segments(tables.spans), [Window(1, 0, 100)])[0]
    assert parts.groups_ns == {"assessment": 50, "training": 40}


def test_a_step_without_spans_is_unattributed(tables_of):
    parts = stage_breakdown(innermost_segments(tables_of().spans), [Window(1, 0, 100)])[0]
    assert (parts.stages_ns, parts.unattributed_ns, parts.coverage) == ({}, 100, 0)


def test_identity_names_the_step_and_both_sums():
    broken = StepStages(step=7, step_ns=100, stages_ns={"reward": 60}, substages_ns={}, groups_ns={}, overlap_ns=10, unattributed_ns=40)
    assert check_identity(broken) == "step 7: stages + unattributed - overlap are 90 ns, but the step took 100 ns"


@st.composite
def nested_spans(draw):
    """Properly nested spans on up to 3 threads, times below 40."""
    spans = []

    def fill(thread, start, end, depth):
        while start < end and depth < 4 and draw(st.booleans()):
            begin = draw(st.integers(start, end - 1))
            finish = draw(st.integers(begin + 1, end))
            spans.append((thread, begin, finish, draw(st.sampled_from("abc")), depth))
            fill(thread, begin, finish, depth + 1)
            start = finish

    for thread in range(draw(st.integers(1, 3))):
        fill(thread, 0, 40, 0)
    return spans


@settings(max_examples=50, deadline=None)
@given(nested_spans())
def test_figures_equal_a_count_of_every_nanosecond(spans):
    segments = []
    for thread in range(3):
        own = sorted((span for span in spans if span[0] == thread), key=lambda span: (span[1], -span[2], span[4]))
        _flatten(((start, end, stage, None) for _, start, end, stage, _ in own), segments)
    parts = stage_breakdown(segments, [Window(1, 5, 35)])[0]

    running = []  # the set of innermost stages in each nanosecond, by brute force
    for now in range(5, 35):
        open_spans = [[span for span in spans if span[0] == thread and span[1] <= now < span[2]] for thread in range(3)]
        running.append({max(on_thread, key=lambda span: span[4])[3] for on_thread in open_spans if on_thread})

    assert parts.stages_ns == {stage: count for stage in "abc" if (count := sum(stage in now for now in running))}
    assert parts.unattributed_ns == sum(not now for now in running)
    assert parts.overlap_ns == sum(max(len(now) - 1, 0) for now in running)
    assert check_identity(parts) is None


def test_worker_busy_is_minimum_mean_median_and_maximum_over_the_processes_of_a_role(tables_of, span):
    tables = tables_of(
        {
            "rank-0": [span("actor_update", 0, 100), span("generation", 100, 200)],
            "rank-1": [span("actor_update", 0, 60), span("wait", 20, 40, id=2)],
            "rank-2": [span("actor_update", 0, 70)],
            "engine": [span("generation", 100, 150)],
            "elsewhere": [span("actor_update", 0, 200)],
        }
    )
    roles = {"rank-0": "trainer", "rank-1": "trainer", "rank-2": "trainer", "engine": "engine"}
    busy = worker_busy(tables.spans, roles, {}, [Window(1, 0, 200)])[1]
    update = busy["actor_update", "trainer"]
    assert (update.minimum_s, update.mean_s, update.median_s, update.maximum_s) == pytest.approx((40e-9, 70e-9, 70e-9, 100e-9))
    assert update.skew == pytest.approx(0.3)  # (100 - 70) / 100
    assert busy["generation", "trainer"].processes == 1, "a process that never generates is not an idle generator"
    assert busy["generation", "engine"].maximum_s == pytest.approx(50e-9)
    assert set(busy) == {("actor_update", "trainer"), ("generation", "engine"), ("generation", "trainer"), ("wait", "trainer")}


def test_who_only_awaits_a_stage_is_not_busy_with_it(tables_of, span):
    tables = tables_of({"rank-0": [span("generation", 0, 90, awaits="generation")], "rollout": [span("generation", 10, 60)]})
    busy = worker_busy(tables.spans, {"rank-0": "trainer", "rollout": "rollout"}, {}, [Window(1, 0, 100)])[1]
    assert set(busy) == {("generation", "rollout")}
    assert busy["generation", "rollout"].maximum_s == pytest.approx(50e-9)


def one_step_off(tables_of, span):
    """A rollout that generates for step 2 while step 1 trains, 40 to 130, and for step 3 from 130 to 190."""
    return tables_of(
        {
            "driver": [span("actor_update", 0, 90), span("generation", 100, 130, step=2, awaits="generation")],
            "rollout": [span("generation", 40, 130, step=2), span("generation", 130, 190, step=3)],
        }
    )


def test_in_an_asynchronous_run_generation_belongs_to_the_step_that_consumes_it(tables_of, span):
    spans, windows = one_step_off(tables_of, span).spans, [Window(1, 0, 100), Window(2, 100, 200)]
    roles = {"driver": "trainer", "rollout": "rollout"}
    by_step = worker_busy(spans, roles, {}, windows, asynchronous=True)
    assert [by_step[step]["generation", "rollout"].maximum_s for step in (1, 2)] == pytest.approx([0, 90e-9])
    by_time = worker_busy(spans, roles, {}, windows)
    assert [by_time[step]["generation", "rollout"].maximum_s for step in (1, 2)] == pytest.approx([60e-9, 90e-9])  # 30 of them for step 3


def test_generations_own_time_is_not_what_the_driver_awaits_of_it(tables_of, span):
    """Of steps 2 and 3: 90 and 60, of which the driver awaited 30."""
    assert generation_ns(one_step_off(tables_of, span).spans, {}, [2, 3]) == 150


def test_another_nodes_clock_is_moved_by_its_pair(tables_of, span):
    def process(boot, mono_ns, real_ns):
        return {"ev": "process", "boot_id": boot, "mono_ns": mono_ns, "real_ns": real_ns, "argv": []}

    tables = tables_of(
        {
            "driver": [process("a", 100, 5100)],
            "same-node": [process("a", 900, 5901)],
            "other-node": [process("b", 2000, 5200), span("generation", 2010, 2030)],
        }
    )
    # real - mono is 5000 on the driver and 3200 on the other node: its 2010 is real 5210, the driver's 210.
    offsets = clock_offsets_ns(tables.processes, "driver")
    assert offsets == {"driver": 0, "same-node": 0, "other-node": -1800}
    busy = worker_busy(tables.spans, {"other-node": "engine"}, offsets, [Window(1, 200, 220)])[1]
    assert busy["generation", "engine"].maximum_s == pytest.approx(10e-9)  # 210 to 230, cut at 220
