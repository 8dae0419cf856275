"""A driver that polls for finished work is waiting once nobody works any more."""

from __future__ import annotations

import pandas as pd

from rlmbench.metrics.stages import Window, innermost_segments, stage_breakdown, waits


def spans(*rows):
    frame = pd.DataFrame(rows, columns=["process", "thread", "start_ns", "end_ns", "stage", "substage", "awaits"])
    return frame.astype({"awaits": "string", "substage": "string"})


def test_the_poll_interval_after_the_work_is_a_wait():
    """The driver awaits generation from 100 to 300; two workers generate from 110 to 180 and from 170 to 200.

    By hand: generation 110-200 = 90, wait 100-110 and 200-300 = 110; together the 200 of the span.
    """
    driver = spans(("driver", 1, 100, 300, "generation", None, "generation"), ("driver", 1, 300, 320, "data", None, None))
    others = spans(
        ("a", 1, 110, 180, "generation", None, None),
        ("b", 1, 170, 200, "generation", None, None),
        ("b", 1, 220, 260, "reward", None, None),
    )
    found = waits(driver, others, {})
    assert found == [(1, 100, 110), (1, 200, 300)]
    (step,) = stage_breakdown(innermost_segments(driver, found), [Window(1, 100, 320)])
    assert step.stages_ns == {"generation": 90, "wait": 110, "data": 20}
    assert (step.overlap_ns, step.unattributed_ns) == (0, 0)


def test_workers_on_another_clock_are_shifted():
    driver = spans(("driver", 1, 100, 300, "generation", None, "generation"))
    others = spans(("far", 1, 1100, 1250, "generation", None, None))
    assert waits(driver, others, {"far": -1000}) == [(1, 250, 300)]


def test_without_workers_everything_awaited_is_a_wait():
    driver = spans(("driver", 1, 100, 300, "generation", None, "generation"))
    assert waits(driver, spans(), {}) == [(1, 100, 300)]
