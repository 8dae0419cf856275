from __future__ import annotations

import pytest

from rlmbench.records.vocabulary import STAGES as VOCABULARY
from rlmbench.report.palette import HATCH, STAGES, SUBSTAGE_TINTS, contrast, in_order, ink_on, style_of, tint


def test_every_stage_of_the_records_has_its_own_colour_in_the_order_of_a_step() -> None:
    names = [style.name for style in STAGES]
    assert names[: len(VOCABULARY)] == list(VOCABULARY)
    colours = [style.colour for style in STAGES]
    assert len(set(colours)) == len(colours)


def test_a_gap_is_hatched_and_comes_last_and_an_unknown_stage_keeps_its_name() -> None:
    assert style_of("unattributed").colour == HATCH
    assert style_of("tea_break").label == "tea break"
    assert in_order({"unattributed", "tea_break", "actor_update", "generation"}) == [
        "generation",
        "actor_update",
        "tea_break",
        "unattributed",
    ]


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)  # WebAIM's contrast checker
    assert tint("#0072B2", 1) == "#FFFFFF"
    assert tint("#0072B2", 0) == "#0072B2"
    assert tint("#204060", -0.5) == "#102030"


@pytest.mark.parametrize("stage", [style for style in STAGES if style.colour != HATCH], ids=lambda style: style.name)
def test_names_inside_bars_read_well(stage) -> None:
    for amount in (
        0,
        *({"generation": [0.4], "actor_update": SUBSTAGE_TINTS.values(), "critic_update": SUBSTAGE_TINTS.values()}.get(stage.name, [])),
    ):
        colour = tint(stage.colour, amount)
        assert contrast(ink_on(colour), colour) >= 4.5
