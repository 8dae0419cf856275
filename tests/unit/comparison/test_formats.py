"""Terminal, Markdown, JUnit, JSON and the single line show the same numbers, and whatever stands in a record stays text."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from xml.etree import ElementTree as Xml

import pytest
import synthetic_run
from altered_records import HOST, OF_VERL, TRL, compared, repeated, waiting
from rich.console import Console

from rlmbench.comparison.figures import Comparison
from rlmbench.report.comparison.junit import junit
from rlmbench.report.comparison.markdown import markdown
from rlmbench.report.comparison.terminal import print_comparison
from rlmbench.report.comparison.words import one_line

HOSTILE = "<script>alert(1)</script> | `code` @everyone [bold]x[/bold] \x1b[31m\x00\nsecond"


@pytest.fixture(scope="module")
def comparison(records):
    """Three configurations: TRL; verl, a third slower; an older TRL of which one run failed, and two are too few for a verdict."""
    older = {**TRL, "packages": {**TRL["packages"], "trl": "1.15.0"}}
    failure = {**synthetic_run.FAILURE.model_dump(mode="json"), "message": HOSTILE}
    return compared(
        *repeated(records.altered(traits={"padding": "a|b"}), 5, speed=1.5),
        *repeated(records.altered(traits={"padding": "c"}, **OF_VERL), 5),
        *repeated(records.altered(environment=older), 2, speed=0.5),
        records.altered(environment=older, status="failed", failure=failure),
    )


def terminal(comparison, width=100):
    out = io.StringIO()
    print_comparison(comparison, Console(file=out, width=width, markup=False, highlight=False))
    return out.getvalue()


def joined(text):
    """Without line breaks and rules, as one reads on."""
    return " ".join(re.sub(r"[─\n]", " ", text).split())


def figures_of(comparison):
    """What every format must show, from the numbers themselves, written by hand here and not by the words module."""
    shown = [three_digits(one.tokens_per_s.value) for one in comparison.configurations]
    for pair in comparison.pairs:
        shown.append(f"{pair.speed.ratio:.2f}x the tokens/s of {pair.b} (95% interval {pair.speed.low:.2f}x to {pair.speed.high:.2f}x")
        shown.append(f"p {pair.speed.p:.2g}, {pair.speed.runs_a} and {pair.speed.runs_b} runs")
    return shown


def headline_figures(comparison):
    return [
        text
        for one in comparison.configurations
        for text in (
            three_digits(one.step_s.value),
            f"{three_digits(one.tokens_per_s.low)} to {three_digits(one.tokens_per_s.high)}",
            f"{one.run_spread:.1%}",
            f"{one.peak_bytes / 2**30:.2f} GiB",
            f"{one.runs_ok}/{len(one.runs)}",
        )
    ]


def three_digits(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def test_the_comparison_is_what_was_made(comparison):
    assert [one.name for one in comparison.configurations] == ["TRL 1.16.0", "verl 0.9.1", "TRL 1.15.0"]
    speeds = {(pair.a, pair.b): (pair.speed.verdict, pair.speed.ratio) for pair in comparison.pairs}
    assert speeds["A", "B"] == ("faster", pytest.approx(1.5))
    # 5 and 2 runs can be dealt in 21 ways: p is 2 / 21 at best.
    assert speeds["A", "C"] == ("too few runs", pytest.approx(3 * 1.02 / 1.005))
    assert comparison.worst == "comparable with reservations"


def test_every_format_shows_the_same_numbers(comparison):
    texts = {
        "terminal": joined(terminal(comparison)),
        "narrow": joined(terminal(comparison, 80)),
        "markdown": markdown(comparison).replace("\\", ""),
        "junit": " ".join(text for text in Xml.fromstring(junit(comparison)).itertext())
        + " ".join(element.get("value") for element in Xml.fromstring(junit(comparison)).iter("property")),
        "line": one_line(comparison),
    }
    for name, text in texts.items():
        for figure in figures_of(comparison) + ([] if name == "line" else headline_figures(comparison)):
            assert figure in text, (name, figure)
    for name in ("terminal", "narrow", "markdown"):
        for one in comparison.configurations:
            for stage in one.stages.values():
                if stage.seconds >= 0.0005:
                    assert f"{stage.seconds:.3f} ({stage.share:.1%})" in texts[name]
    again = Comparison.model_validate(json.loads(json.dumps(comparison.model_dump(mode="json"))))
    assert again == comparison


def test_memory_has_one_unit_wherever_configurations_stand_beside_each_other(comparison):
    first, *others = comparison.configurations
    small = first.model_copy(update={"peak_bytes": 652 * 2**20})
    beside = comparison.model_copy(update={"configurations": [small, *others]})
    for text in (joined(terminal(beside)), markdown(beside), junit(beside).decode()):
        assert "0.637 GiB" in text and f"{others[0].peak_bytes / 2**30:.2f} GiB" in text and "MiB" not in text


def test_every_reason_and_difference_is_in_every_long_format(comparison):
    cases = Xml.fromstring(junit(comparison)).iter("system-out")
    texts = [joined(terminal(comparison, 400)), markdown(comparison).replace("\\", ""), " ".join(case.text for case in cases)]
    for pair in comparison.pairs:
        assert pair.reasons
        for text in texts:
            assert all(reason.sentence.replace("~", "") in text for reason in pair.reasons)
            assert all(difference.subject in text and difference.b in text for difference in pair.differences)


def test_stage_seconds_add_up_to_the_step(comparison):
    for one in comparison.configurations:
        total = sum(stage.seconds for stage in one.stages.values()) + one.unattributed_s
        assert total == pytest.approx(one.step_s.value, rel=1e-6)


@pytest.fixture(scope="module")
def overlapping(records):
    """verl's critic is updated beside its actor, for 0.2 s of every step: the step is no longer for it. TRL does one thing at a time."""
    other = records.plain("verl")
    steps = [
        step.model_copy(update={"stages_s": {**step.stages_s, "critic_update": 0.2}, "overlap_s": 0.2}) for step in other.summary.steps
    ]
    shares = {**other.summary.stages_share, "critic_update": 0.1}
    beside = dataclasses.replace(other, summary=other.summary.model_copy(update={"steps": steps, "stages_share": shares}))
    return [*repeated(records.plain(), 2, speed=2), *repeated(beside, 2, spread=0)]


def test_what_stages_at_once_count_twice_is_taken_off(overlapping):
    found = compared(*overlapping)
    first, second = found.configurations
    assert (first.overlap_s, second.overlap_s) == (0.0, pytest.approx(0.2))
    total = sum(stage.seconds for stage in second.stages.values()) + second.unattributed_s - second.overlap_s
    assert total == pytest.approx(second.step_s.value, rel=1e-6)
    row = f"-0.200 (-{0.2 / second.step_s.value:.1%})"
    assert f"counted twice {row} -0.200 step" in joined(terminal(found)) and f"| counted twice |  | {row} | -0.200 |" in markdown(found)
    assert "counted twice" not in terminal(compared(*overlapping[:2]))


def test_every_format_says_what_a_ratio_is_without_a_wait(records):
    """TRL does 3 steps while verl does 1, of which it waits half: without that TRL would have half of 3 times the tokens/s."""
    polls = {"traits": {"rollout_poll": "every 2 s"}, **OF_VERL}
    trl, verl = records.altered(traits={"rollout_poll": "none"}), waiting(records.altered(**polls), 0.5)
    found = compared(*repeated(trl, 4, speed=1.5), *repeated(verl, 4))
    beside = "; about 1.5x without B's wait of 5"
    assert found.pairs[0].speed.without_waits.ratio == pytest.approx(1.5, rel=0.01)
    own = f"B's wait of {found.pairs[0].speed.without_waits.of['B']:.1%} of a step"
    texts = [joined(terminal(found)), joined(terminal(found, 40)), markdown(found), one_line(found), junit(found).decode()]
    for text in texts:
        assert beside in text.replace("&#x27;", "'") and own in text, text
    (reason,) = [reason.sentence for reason in found.pairs[0].reasons if reason.kind == "waiting"]
    assert reason.startswith("B waits for ") and reason.endswith(": without the wait A would have about 1.5x the tokens/s of B, not 3.00x")
    for text in (joined(terminal(found)), markdown(found).replace("\\", ""), junit(found).decode()):
        assert reason in text
    first = joined("\n".join(terminal(found, 80).splitlines()[:20]))
    assert reason in first, "before what else is said against them"


def test_what_one_configurations_own_runs_say_against_it_is_in_every_format(records):
    """With nothing beside it no pair tells that the machine was busy; and one of a suite of its own is in no pair either."""
    busy = {"host": {**HOST, "load": [1.8, 1.8, 1.8]}}
    alone = [records.altered(**busy), *repeated(records.plain(), 1)]
    sentence = "the machine was busy when 1 of 2 runs of A began: load per core up to 0.90"
    found = compared(*alone)
    assert found.pairs == [] and [reason.kind for reason in found.configurations[0].reasons] == ["load"]
    for text in (joined(terminal(found)), joined(terminal(found, 40)), markdown(found), one_line(found), junit(found).decode()):
        assert sentence in text
    assert f"  ! A: {sentence}" in terminal(found, 200) and f"- **reservation** (A): {sentence}" in markdown(found)
    beside = compared(
        *repeated(records.plain(), 4, speed=3), *repeated(records.plain("verl"), 4, speed=2), *repeated(other_suite(records, busy), 4)
    )
    told = "the machine was busy when 4 of 4 runs of C began: load per core up to 0.90"
    assert [(pair.a, pair.b) for pair in beside.pairs] == [("A", "B")]
    for text in (joined(terminal(beside)), markdown(beside), one_line(beside)):
        assert told in text


def other_suite(records, manifest):
    return records.altered(suite="gsm8k_ppo", **manifest)


def test_a_failed_run_is_a_row_of_every_format(comparison):
    for text in (joined(terminal(comparison)), markdown(comparison)):
        assert "failed: out of memory (host)" in text
    suite = Xml.fromstring(junit(comparison)).find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("16", "1")  # 3 pairs, 13 runs
    assert suite.find("testcase/failure").get("type") == "out_of_memory_host"


def test_what_stands_in_a_record_stays_text(comparison):
    text = markdown(comparison)
    assert "<script>" not in text and "@everyone" not in text and "\\`code\\`" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) in (4, 5, 7, 9) for row in rows), "no cell opens another"
    assert "\x1b" not in text and "\x1b" not in terminal(comparison)
    document = junit(comparison)
    assert b"\x1b" not in document and b"\x00" not in document
    Xml.fromstring(document)
    assert "[bold]x[/bold]" in joined(terminal(comparison))


def test_one_line_is_one_line_whatever_a_framework_is_called(records):
    line = one_line(compared(*repeated(records.altered(framework=HOSTILE), 2), *repeated(records.plain("verl"), 2)))
    assert "second" in line and line.isprintable()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_terminal_stays_within_its_width_and_every_row_keeps_its_name(comparison, width):
    lines = terminal(comparison, width).splitlines()
    assert max(len(line) for line in lines) <= width
    for one in comparison.configurations:
        rows = [line.split() for line in lines if line.startswith(f" {one.key} ")]
        cells = " ".join(" ".join(row) for row in rows)
        for figure in (f"{one.runs_ok}/{len(one.runs)}", three_digits(one.step_s.value), f"{one.run_spread:.1%}", "GiB"):
            assert figure in cells, (one.key, figure)
    tables = [place for place, line in enumerate(lines) if set(line) == {" ", "─"}]
    for place in tables:  # every row below a rule begins with its name
        below = lines[place + 1 :]
        rows = below[: next(end for end, line in enumerate(below) if not line.strip())]
        assert rows and all(line[1] != " " for line in rows), rows


def test_the_answer_stands_in_the_first_screen(records):
    """May I compare, who is faster, where does the time go: two configurations within 40 lines of 80 columns."""
    two = compared(
        *repeated(records.altered(traits={"padding": "this"}), 5, speed=1.5),
        *repeated(records.altered(traits={"padding": "that"}, **OF_VERL), 5),
    )
    first = joined("\n".join(terminal(two, 80).splitlines()[:40]))
    needed = ["comparable with reservations", "A is faster: 1.50x the tokens/s of B", "tok/s", "Where a step's time goes", "actor update"]
    for text in [*needed, "In what they differ", "work padding in training: A this; B that"]:
        assert text in first


def test_a_pair_that_may_not_be_compared_claims_no_speed(records):
    other = records.plain("verl")
    unproven = dataclasses.replace(other, summary=other.summary.model_copy(update={"audit": None}))
    refused = compared(*repeated(records.plain(), 4, speed=3), *repeated(unproven))
    assert refused.worst == "not comparable"
    for text in (joined(terminal(refused)), markdown(refused), one_line(refused), junit(refused).decode()):
        assert "no speed is claimed" in text and "the tokens/s of" not in text
    suite = Xml.fromstring(junit(refused)).find("testsuite")
    assert suite.find("testcase/failure").get("type") == "not comparable"


def test_one_configuration_has_nothing_beside_it(records):
    alone = compared(*repeated(records.plain(), 3))
    assert alone.pairs == [] and alone.worst is None
    for text in (joined(terminal(alone)), markdown(alone), one_line(alone)):
        assert "all 3 runs are of one configuration" in text
    assert alone.configurations[0].tokens_per_s.over == "runs"


def test_a_single_runs_interval_says_that_it_is_over_steps(records):
    alone = compared(records.plain())
    assert (alone.configurations[0].tokens_per_s.over, alone.configurations[0].run_spread) == ("steps", None)
    assert "(steps of 1 run)" in joined(terminal(alone))


def test_a_difference_of_three_is_told_once(records):
    older = {**TRL, "packages": {**TRL["packages"], "trl": "1.15.0"}}
    three = compared(
        *repeated(records.altered(traits={"padding": "this"}), 2, speed=3),
        *repeated(records.altered(traits={"padding": "that"}, **OF_VERL), 2, speed=2),
        *repeated(records.altered(traits={"padding": "this"}, environment=older), 2),
    )
    text = joined(terminal(three))
    assert text.count("padding in training: ") == 1
    assert "work padding in training: A and C this; B that" in text
