from __future__ import annotations

import pandas as pd

from rlmbench.metrics.stages import Window
from rlmbench.report import timeline
from rlmbench.report.timeline import lay_out

MS = 1_000_000
COLUMNS = ("process", "thread", "stage", "substage", "name", "start_ns", "end_ns")


def _spans(*rows: tuple) -> pd.DataFrame:
    frame = pd.DataFrame([(p, t, stage, sub, name, start * MS, end * MS) for p, t, stage, sub, name, start, end in rows], columns=COLUMNS)
    return frame.assign(awaits=None)


PROCESSES = pd.DataFrame({"process": ["a", "b"], "rank": pd.array([0, 1], dtype="Int64"), "role": ["driver", "worker"]})


def test_nested_spans_lie_below_and_are_cut_at_the_step() -> None:
    spans = _spans(
        ("a", 1, "generation", None, "generate", 90, 130),
        ("a", 1, "actor_update", None, "update", 130, 220),
        ("a", 1, "actor_update", "forward", "f", 131, 150),
        ("a", 1, "actor_update", "backward", "b", 150, 190),
        ("b", 7, "wait", None, "wait", 100, 110),
        ("b", 7, "reward", None, "outside", 300, 310),
    )
    drawn = lay_out(spans, PROCESSES, [Window(1, 100 * MS, 200 * MS)], {}, "a")
    assert drawn.lanes == ("rank 0 · driver", "", "rank 1 · worker")
    assert [(bar.lane, bar.depth, bar.name, bar.start_ms, bar.end_ms) for bar in drawn.steps[1]] == [
        (0, 0, "generate", 0, 30),
        (0, 0, "update", 30, 100),
        (1, 1, "f", 31, 50),
        (1, 1, "b", 50, 90),
        (2, 0, "wait", 0, 10),
    ]
    assert drawn.steps[1][2].substage == "forward"


def test_processes_of_another_node_are_moved_to_the_drivers_clock() -> None:
    spans = _spans(("a", 1, "data", None, "d", 100, 110), ("b", 1, "data", None, "d", 1105, 1115))
    drawn = lay_out(spans, PROCESSES, [Window(1, 100 * MS, 200 * MS)], {"b": -1000 * MS}, "a")
    assert [(bar.lane, bar.start_ms, bar.end_ms) for bar in drawn.steps[1]] == [(0, 0, 10), (1, 5, 15)]


def test_the_shortest_spans_and_the_last_threads_are_left_out_and_counted(monkeypatch) -> None:
    monkeypatch.setattr(timeline, "MOST_SPANS", 2)
    monkeypatch.setattr(timeline, "MOST_THREADS", 1)
    spans = _spans(*[("a", 1, "data", None, str(i), 100 + 10 * i, 101 + 11 * i) for i in range(4)], ("b", 1, "wait", None, "w", 100, 200))
    drawn = lay_out(spans, PROCESSES, [Window(1, 100 * MS, 200 * MS)], {}, "a")
    assert [bar.name for bar in drawn.steps[1]] == ["2", "3"]
    assert drawn.left_out == {1: 2}
    assert drawn.threads_left_out == 1


def test_a_thread_of_the_warm_up_alone_gives_way_to_one_of_every_step(monkeypatch) -> None:
    """Thread 1 of b works in step 1 only, thread 2 in both: a line for thread 1 would be empty in step 2."""
    monkeypatch.setattr(timeline, "MOST_THREADS", 2)
    spans = _spans(
        ("a", 1, "generation", None, "generate", 100, 300),
        ("b", 1, "startup", None, "import", 110, 120),
        ("b", 2, "generation", None, "early", 120, 130),
        ("b", 2, "generation", None, "late", 220, 230),
    )
    drawn = lay_out(spans, PROCESSES, [Window(1, 100 * MS, 200 * MS), Window(2, 200 * MS, 300 * MS)], {}, "a")
    assert drawn.lanes == ("rank 0 · driver", "rank 1 · worker")
    assert [bar.name for step in (1, 2) for bar in drawn.steps[step] if bar.lane == 1] == ["early", "late"]
    assert drawn.threads_left_out == 1


def test_what_the_driver_only_awaits_is_drawn_as_the_wait_that_it_is() -> None:
    """A poll from 10 to 90 ms for samples that another process generates from 20 to 50: it waits for 10 and for 40 ms."""
    spans = _spans(("a", 1, "generation", None, "poll", 10, 90), ("b", 7, "generation", None, "decode", 20, 50))
    spans.loc[0, "awaits"] = "generation reward"
    bars = lay_out(spans, PROCESSES, [Window(1, 0, 100 * MS)], {}, "a").steps[1]
    assert [(bar.depth, bar.stage, bar.start_ms, bar.end_ms) for bar in bars if bar.lane < 2] == [
        (0, "generation", 10, 90),
        (1, "wait", 10, 20),
        (1, "wait", 50, 90),
    ]
