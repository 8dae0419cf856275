"""A driver that polls for finished work is waiting once nobody works any more."""

from __future__ import annotations

import pandas as pd

from rlmbench.metrics.stages import Window, awaited, innermost_segments, stage_breakdown


def spans(*rows):
    frame = pd.DataFrame(rows, columns=["process", "thread", "start_ns", "end_ns", "stage", "substage", "awaits"])
    return frame.astype({"awaits": "string", "substage": "string"})


def breakdown(driver, others, window, offsets=None):
    overlays, beside = awaited(driver, others, offsets or {})
    (step,) = stage_breakdown([*innermost_segments(driver, overlays), *beside], [window])
    return step


def test_the_poll_interval_after_the_work_is_a_wait():
    """The driver awaits generation from 100 to 300; two workers generate from 110 to 180 and from 170 to 200.

    By hand: generation 110-200 = 90, wait 100-110 and 200-300 = 110; together the 200 of the span. The reward was not awaited.
    """
    driver = spans(("driver", 1, 100, 300, "generation", None, "generation"), ("driver", 1, 300, 320, "data", None, None))
    others = spans(
        ("a", 1, 110, 180, "generation", None, None),
        ("b", 1, 170, 200, "generation", None, None),
        ("b", 1, 220, 260, "reward", None, None),
    )
    assert awaited(driver, others, {}) == ([(1, 100, 110, "wait"), (1, 200, 300, "wait")], [])
    step = breakdown(driver, others, Window(1, 100, 320))
    assert step.stages_ns == {"generation": 90, "wait": 110, "data": 20}
    assert (step.overlap_ns, step.unattributed_ns) == (0, 0)


def test_an_awaited_reward_overlaps_generation_and_counts_once():
    """The driver awaits both from 100 to 300. Generation 110-200; rewards 150-160 and 155-170 (two workers), then 190-230.

    By hand: reward is 150-170 and 190-230, so 60, of which 20 + 10 beside generation; generation 90; wait 100-110 and
    230-300 = 80. 90 + 60 + 80 less the overlap of 30 is the span's 200.
    """
    driver = spans(("driver", 1, 100, 300, "generation", None, "generation reward"))
    others = spans(
        ("a", 1, 110, 200, "generation", None, None),
        ("b", 1, 150, 160, "reward", None, None),
        ("c", 1, 155, 170, "reward", None, None),
        ("b", 1, 190, 230, "reward", None, None),
        ("b", 1, 400, 500, "reward", None, None),
    )
    step = breakdown(driver, others, Window(1, 100, 300))
    assert step.stages_ns == {"generation": 90, "reward": 60, "wait": 80}
    assert (step.overlap_ns, step.unattributed_ns) == (30, 0)


def test_what_the_driver_does_itself_while_it_awaits_stays_its_own():
    """It fetches more prompts from 220 to 240, inside a wait."""
    driver = spans(("driver", 1, 100, 300, "generation", None, "generation"), ("driver", 1, 220, 240, "data", None, None))
    step = breakdown(driver, spans(("a", 1, 100, 200, "generation", None, None)), Window(1, 100, 300))
    assert step.stages_ns == {"generation": 100, "wait": 80, "data": 20}


def test_workers_on_another_clock_are_shifted():
    driver = spans(("driver", 1, 100, 300, "generation", None, "generation"))
    others = spans(("far", 1, 1100, 1250, "generation", None, None))
    assert awaited(driver, others, {"far": -1000}) == ([(1, 250, 300, "wait")], [])


def test_without_workers_everything_awaited_is_a_wait():
    driver = spans(("driver", 1, 100, 300, "generation", None, "generation reward"))
    assert awaited(driver, spans(), {}) == ([(1, 100, 300, "wait")], [])


def test_other_ranks_that_await_the_same_do_not_run_it():
    """Two ranks await one rollout that generates from 110 to 180: the second rank's span is no generation either."""
    driver = spans(("driver", 1, 100, 300, "generation", None, "generation"))
    others = spans(("rank-1", 1, 100, 300, "generation", None, "generation"), ("rollout", 1, 110, 180, "generation", None, None))
    step = breakdown(driver, others, Window(1, 100, 300))
    assert step.stages_ns == {"generation": 70, "wait": 130}
    assert (step.overlap_ns, step.unattributed_ns) == (0, 0)
