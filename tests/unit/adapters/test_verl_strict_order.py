"""Plan order, dealt out to ranks such that each optimizer step holds the next samples of the plan."""

from __future__ import annotations

import sys

import pytest

from rlmbench.probe import INJECT as PROBE
from rlmbench_verl.adapter import INJECT

ROWS = {"a": 0, "b": 1, "c": 2, "d": 3}


@pytest.fixture
def plan_order(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(PROBE), str(INJECT), *sys.path])
    from rlmbench_verl_worker.strict import plan_order

    return plan_order


def test_one_rank_trains_in_plan_order(plan_order):
    keys = ["b_1_0", "a_0_0", "b_0_0", "a_1_0"]
    assert [keys[place] for place in plan_order(keys, ROWS.get, 2, 1)] == ["a_0_0", "a_1_0", "b_0_0", "b_1_0"]


def test_two_ranks_share_each_mini_batch(plan_order):
    keys = [f"{uid}_{session}_0" for uid in "dcba" for session in (1, 0)]
    dealt = [keys[place] for place in plan_order(keys, ROWS.get, 4, 2)]
    first, second = dealt[:4], dealt[4:]
    # Two mini-batches of four samples (a and b, then c and d), of which each rank holds two.
    assert first == ["a_0_0", "a_1_0", "c_0_0", "c_1_0"]
    assert second == ["b_0_0", "b_1_0", "d_0_0", "d_1_0"]


def test_a_last_mini_batch_may_be_short(plan_order):
    keys = [f"{uid}_0_0" for uid in "cab"]
    assert [keys[place] for place in plan_order(keys, ROWS.get, 2, 1)] == ["a_0_0", "b_0_0", "c_0_0"]
