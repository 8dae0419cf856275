"""Several runs side by side: what reached the loss of each, step by step."""

from __future__ import annotations

import pytest
from rich.console import Console

from rlmbench.metrics.work import work_digest
from rlmbench.report.agreement import agreement, print_agreement


def test_a_digest_is_of_the_samples_whatever_their_order():
    a, b = ("p", 10, 5), ("q", 10, 5)
    assert work_digest([a, b]) == work_digest([b, a])
    assert len({work_digest(one) for one in ([a, b], [a, a], [a], [("p", 5, 10), b], [])}) == 5


@pytest.fixture
def summary(finished):
    return finished[1]


def of(summary, framework, **changed):
    steps = [step.model_copy(update=changed) if step.step == 2 else step for step in summary.steps]
    return summary.model_copy(update={"framework": framework, "id": f"run-of-{framework}", "steps": steps})


def printed(*summaries):
    console = Console(width=140, record=True)
    print_agreement(summaries, console)
    return console.export_text()


def test_runs_that_agree(summary):
    text = printed(of(summary, "trl"), of(summary, "verl"), of(summary, "openrlhf"))
    assert text.count("all 3") == len(summary.steps)
    assert "TRL, verl, OpenRLHF: the same prompts with the same token counts in every step" in text


def test_the_run_that_did_otherwise_is_named(summary):
    runs = (of(summary, "trl"), of(summary, "verl", work_digest="ffffffff"), of(summary, "openrlhf"))
    assert [(one.step, [run.framework for run in one.others]) for one in agreement(runs)][:3] == [(1, []), (2, ["verl"]), (3, [])]
    text = printed(*runs)
    assert "2 of 3: not verl (run-of-verl)" in text
    assert "in every step" not in text


def test_a_missing_step_and_another_count_are_no_agreement(summary):
    short = summary.model_copy(update={"steps": summary.steps[:1]})
    assert agreement([summary, summary, short])[1].others == (short,)
    assert agreement([summary, summary, of(summary, "verl", optimizer_steps=9)])[1].others[0].framework == "verl"


def test_nothing_is_said_of_one_run_or_of_different_suites(summary):
    assert printed(summary) == ""
    assert printed(summary, summary.model_copy(update={"suite": "gsm8k_ppo"})) == ""
