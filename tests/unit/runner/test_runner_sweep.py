"""Sweeps: a suite's variants as cells of their own, interleaved as repeats are."""

from __future__ import annotations

import pytest

from rlmbench.errors import UserError
from rlmbench.report.ledger import plan_document
from rlmbench.runner.cells import Cell, Request, make_plan


def test_each_variant_is_a_cell_in_alternating_order() -> None:
    plan = make_plan(Request("group_size_sweep", ("trl",), "tiny", repeats=2))
    there, back = ["group2", "group4", "group8"], ["group8", "group4", "group2"]
    assert list(plan.cells) == [Cell("trl", 0, name) for name in there] + [Cell("trl", 1, name) for name in back]
    assert [one.experiment.optimization.group_size for one, _ in plan.passes] == [2, 4, 8, 8, 4, 2]
    assert [one.parts["trl"].translation.native["num_generations"] for one, _ in plan.passes] == [2, 4, 8, 8, 4, 2]
    assert {one.variant for one in plan.each} == set(there) and not plan.refusals


def test_a_suite_without_a_sweep_has_one_plan() -> None:
    plan = make_plan(Request("gsm8k_grpo", ("trl",), "tiny"))
    assert plan.passes == [(plan, Cell("trl", 0))] and plan.each == [plan] and plan.variants == {}


def test_some_variants_are_asked_for_by_name_and_said_again() -> None:
    request = Request("group_size_sweep", ("trl",), "tiny", variants=("group8", "group2"))
    plan = make_plan(request)
    assert [cell.variant for cell in plan.cells] == ["group2", "group8"]
    assert "--variant group8 --variant group2" in plan.request.command()
    assert [one.request.command() for one, _ in plan.passes] == [
        f"rlmbench run group_size_sweep --framework trl --scale tiny --variant {name}" for name in ("group2", "group8")
    ]


def test_unknown_variants_are_refused() -> None:
    with pytest.raises(UserError, match=r"--variant group3: unknown variant .* group_size_sweep has group2, group4, group8"):
        make_plan(Request("group_size_sweep", ("trl",), "tiny", variants=("group3",)))
    with pytest.raises(UserError, match="gsm8k_grpo is no sweep, it has none"):
        make_plan(Request("gsm8k_grpo", ("trl",), "tiny", variants=("group2",)))


def test_what_a_framework_cannot_run_is_left_out_and_said() -> None:
    plan = make_plan(Request("placement_sweep", ("trl", "openrlhf"), "tiny"))
    assert [(cell.framework, cell.variant) for cell in plan.cells] == [
        ("trl", "colocated"), ("openrlhf", "colocated"), ("trl", "disaggregated"), ("openrlhf", "disaggregated"), ("openrlhf", "one_step_off"),
    ]  # fmt: skip
    (line,) = plan.left_out
    assert line.startswith("trl cannot run placement_sweep one_step_off: placement.mode = 'async'") and not plan.refusals
    alone = make_plan(Request("placement_sweep", ("trl",), "tiny", variants=("one_step_off",)))
    assert alone.cells == () and alone.refusals == list(alone.left_out)


def test_settings_of_the_command_line_win_over_a_variant() -> None:
    plan = make_plan(Request("group_size_sweep", ("trl",), "tiny", overrides=("measurement.steps=3",), variants=("group2",)))
    assert plan.passes[0][0].experiment.measurement.steps == 3


def test_the_profile_pass_traces_each_variant_once() -> None:
    plan = make_plan(Request("group_size_sweep", ("trl",), "tiny", repeats=2, profile=True))
    assert plan.then is not None
    traced = plan.passes[6:]
    assert [(cell.variant, cell.repeat) for _, cell in traced] == [("group2", 0), ("group4", 0), ("group8", 0)]
    assert [one.experiment.optimization.group_size for one, _ in traced] == [2, 4, 8]
    assert all(one.profile is not None for one, _ in traced)


def test_a_dry_run_tells_of_every_variant() -> None:
    document = plan_document(make_plan(Request("placement_sweep", ("trl",), "tiny"), force_scale=True))
    assert {name: one["experiment"]["placement"]["mode"] for name, one in document["variants"].items()} == {
        "colocated": "colocated", "disaggregated": "disaggregated", "one_step_off": "async",
    }  # fmt: skip
    assert len(document["left_out"]) == 1 and len(document["cells"]) == 2
