"""A ratio with and without the time that a configuration only waits. Records are SYNTHETIC: the waits are planted."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from altered_records import OF_VERL, kinds, only_pair, repeated, sentence, waiting

from rlmbench.comparison import compare, evidence_of, find_runs, gated
from rlmbench.comparison.wording import about, ratio
from rlmbench.report.comparison import words
from rlmbench.runner.execute import summarized

PUBLISHED = Path(__file__).parents[3] / "results" / "reference" / "gsm8k_grpo"


def polling(records, *, fast=False, way="every 2 s"):
    experiment = records.plain().manifest.experiment
    asked = {**experiment, "placement": {**experiment.get("placement", {}), "fast_rollout_poll": fast}}
    return records.altered(traits={"rollout_poll": way}, experiment=asked, **OF_VERL)


def test_the_ratio_without_a_planted_wait_is_that_of_the_runs_as_they_were(records):
    trl, verl = records.plain(), records.plain("verl")
    pair = only_pair(repeated(trl, 4, speed=1.6), repeated(waiting(verl, 0.5)))
    assert pair.speed.ratio == pytest.approx(3.2)
    assert pair.speed.without_waits.ratio == pytest.approx(1.6) and pair.speed.without_waits.of == pytest.approx({"B": 0.5})
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"waiting"})
    step_s = 2 * sum(1 / (1 + 0.01 * place) for place in range(4)) / 4 * verl.summary.step_s.mean
    told = f"B waits for {step_s / 2:.3f} s (50.0%) of its {step_s:.3f} s step"
    assert sentence(pair, "waiting") == f"{told}: without the wait A would have about 1.6x the tokens/s of B, not 3.20x"


def test_a_wait_below_a_tenth_of_a_step_is_no_reservation(records):
    trl, verl = records.plain(), records.plain("verl")
    small = only_pair(repeated(trl), repeated(waiting(verl, 0.09)))
    assert (small.reasons, small.speed.without_waits) == ([], None)
    assert kinds(only_pair(repeated(trl), repeated(waiting(verl, 0.11)))) == {"waiting"}


def test_both_may_wait(records):
    """As fast without their waits, A waits for a fifth of its step and B for a half: A seems 0.8 / 0.5 = 1.6 times as fast."""
    trl, verl = (waiting(records.plain(name), share) for name, share in (("trl", 0.2), ("verl", 0.5)))
    pair = only_pair(repeated(trl), repeated(verl))
    assert (pair.speed.ratio, pair.speed.without_waits.ratio) == (pytest.approx(1.6), pytest.approx(1.0))
    assert sentence(pair, "waiting").endswith(": without these waits A would have about 1.0x the tokens/s of B, not 1.60x")
    assert words.without_waits(pair.speed) == "about 1.0x without A's wait of 20.0% of a step and B's wait of 50.0% of a step"


@pytest.mark.parametrize(
    ("fast", "way", "cause"),
    [
        (False, "every 2 s", ", by its poll for finished rollouts every 2 s (placement.fast_rollout_poll=true shortens it)"),
        (True, "every 10 ms", ""),  # the setting is made already: something else makes it wait
        (False, "none", ""),
    ],
)
def test_the_setting_that_shortens_a_wait_is_named_where_it_is_known_and_not_yet_made(records, fast, way, cause):
    pair = only_pair(repeated(records.plain(), 4, speed=2), repeated(waiting(polling(records, fast=fast, way=way), 0.5)))
    said = sentence(pair, "waiting")
    assert f" s step{cause}: without the wait A" in said
    assert ("fast_rollout_poll" in said) == bool(cause)


def test_where_no_ratio_is_named_the_wait_gives_none(records):
    unproven = waiting(records.plain("verl"), 0.5)
    unproven = dataclasses.replace(unproven, summary=unproven.summary.model_copy(update={"audit": None}))
    pair = only_pair(repeated(records.plain(), 4, speed=2), repeated(unproven))
    assert (pair.verdict, pair.speed, pair.reasons[0].kind) == ("not comparable", None, "audit")
    assert sentence(pair, "waiting").endswith(" s step")


def test_the_published_runs_by_hand():
    """(2.919 - 1.486) s of verl's step over 0.896 s of TRL's: 1.60; over OpenRLHF's 0.945 s: 1.52."""
    compared = compare(evidence_of(run, summarized(run)) for run in find_runs([str(PUBLISHED)], "elsewhere"))
    shown = {(pair.a, pair.b): pair.speed.without_waits for pair in compared.pairs}
    assert shown["A", "B"] is None
    assert (shown["A", "C"].ratio, shown["B", "C"].ratio) == (pytest.approx(1.60, abs=0.01), pytest.approx(1.52, abs=0.01))
    line = words.one_line(compared)
    assert "; about 1.6x without C's wait of 50.9% of a step" in line and "; about 1.5x without C's wait of 50.9% of a step" in line
    assert "C (3.27x, 95% interval 2.92x to 3.53x; about 1.6x without C's wait of 50.9% of a step)" in words.lead(compared)


def test_a_ratio_reads_alike_wherever_it_stands(records):
    """The gate's sentence, and what is said of its pair: `0.87x to 1.047x` beside `0.866x to 1.047x` are two texts for one interval."""
    shown = {
        0.3064: "0.306x",
        0.8664: "0.866x",
        1.0466: "1.047x",
        1.0996: "1.100x",
        1.149: "1.15x",
        3.268: "3.27x",
        12.34: "12.3x",
        123.4: "123x",
    }
    assert {value: ratio(value) for value in shown} == shown
    assert [about(value) for value in (0.3064, 0.98, 1.04, 1.604, 12.3)] == [
        "about 0.31x",
        "about 0.98x",
        "about 1.0x",
        "about 1.6x",
        "about 12x",
    ]
    for speed in (0.93, 0.4, 2.0):
        runs = [*repeated(records.plain(), 4), *repeated(records.plain("verl"), 4, speed=speed, spread=0.03)]
        compared = gated(compare(runs, baseline="trl"))
        (pair,), (judged,) = compared.pairs, compared.gate.pairs
        interval = f"(95% interval {ratio(pair.speed.low)} to {ratio(pair.speed.high)}, p "
        assert interval in judged.sentence and interval in words.speed_sentence(pair, compared)
        assert f" {ratio(pair.speed.ratio)} " in judged.sentence and f" {ratio(pair.speed.ratio)} " in words.speed_sentence(pair, compared)


def test_programs_get_the_figure_too(records):
    compared = compare([*repeated(records.plain(), 4, speed=2), *repeated(waiting(records.plain("verl"), 0.5))])
    (pair,) = json.loads(compared.model_dump_json())["pairs"]
    assert pair["speed"]["without_waits"]["of"].keys() == {"B"}
