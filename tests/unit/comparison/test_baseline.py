"""Regressions against a baseline, many configurations, and speed at equal tokens where lengths were natural. Records are SYNTHETIC."""

from __future__ import annotations

import dataclasses
import io
import json
import random
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import synthetic_run
from altered_records import HOST, OF_VERL, TRL, VERL, repeated
from rich.console import Console

from rlmbench.cli.main import main
from rlmbench.comparison import compare, compare_against, gated, parse_fail_on
from rlmbench.errors import UserError
from rlmbench.metrics import summarize, write_summary
from rlmbench.records import load
from rlmbench.report.comparison import words
from rlmbench.report.comparison.junit import junit
from rlmbench.report.comparison.markdown import markdown
from rlmbench.report.comparison.terminal import print_comparison

# --- lengths left to the model ------------------------------------------------------------------------------------


def natural(evidence, *, longer=1.0, slower=1.0, seed=0, runs=4):
    """Runs whose lengths nobody planned: steps of other tokens, and seconds of a fixed part plus a part for each token."""
    draw = random.Random(seed)
    made = []
    for place in range(runs):
        steps, rates, longest = [], [], {}
        for step in evidence.summary.steps * 3:
            tokens = round(longer * (step.prompt_tokens + 300 * draw.uniform(0.5, 1.5)))
            seconds = slower * (1.0 + tokens / 1000) * draw.gauss(1, 0.01)
            steps.append(step.model_copy(update={"step": len(steps) + 1, "prompt_tokens": 0, "response_tokens": tokens, "step_s": seconds}))
            rates.append((tokens, seconds))
            longest[len(steps)] = round(longer * draw.uniform(50, 90))
        rate = sum(tokens for tokens, _ in rates) / sum(seconds for _, seconds in rates)
        summary = evidence.summary
        planned = summary.audit.planned.model_copy(update={"response_tokens": None})
        changes = {
            "id": f"{evidence.id}-{place}",
            "steps": steps,
            "throughput": summary.throughput.model_copy(update={"step_tokens_per_s": rate}),
            "audit": summary.audit.model_copy(update={"planned": planned}),
        }
        made.append(dataclasses.replace(evidence, summary=summary.model_copy(update=changes), longest_response=longest))
    return made


def pair_of(first, second):
    (pair,) = compare([*first, *second]).pairs
    return pair


def test_longer_responses_alone_are_no_difference(records):
    pair = pair_of(natural(records.plain()), natural(records.plain("verl"), longer=1.5, seed=1))
    assert pair.speed.verdict == "no difference shown" and pair.speed.low < 1 < pair.speed.high
    made = pair.speed.adjustment
    assert max(made.tokens_a, made.tokens_b) / min(made.tokens_a, made.tokens_b) == pytest.approx(1.5, rel=0.1)
    assert made.unadjusted_ratio > 1.1 and set(made.slopes) == {"tokens of a step", "longest response of a step"}
    slope = made.slopes["tokens of a step"]
    assert 0 < slope.low < slope.value < slope.high < 1
    (reason,) = [reason for reason in pair.reasons if reason.kind == "natural_lengths"]
    assert reason.sentence.endswith("speeds are compared at equal tokens")
    assert "at equal tokens of a step" in words.speed_sentence(pair, compare([*natural(records.plain())]))


def test_a_real_difference_is_told_at_equal_tokens(records):
    pair = pair_of(natural(records.plain()), natural(records.plain("verl"), longer=1.5, slower=1.2, seed=1))
    speed = pair.speed
    ratio = speed.ratio if speed.verdict == "faster" else 1 / speed.ratio
    assert speed.verdict in ("faster", "slower") and ratio == pytest.approx(1.2, abs=0.04)


def test_the_lead_says_who_is_slower_at_equal_tokens(records):
    """Twice the tokens over the same fixed part: the most tokens/s, and yet slower for the same tokens. The third is as the second."""
    plain, slow = natural(records.plain()), natural(records.plain("verl"), longer=2.0, slower=1.2, seed=1)
    other = dataclasses.replace(records.plain(), manifest=records.plain().manifest.model_copy(update={"framework": "other"}))
    found = compare([*plain, *slow, *natural(other, seed=2)])
    assert found.configurations[0].framework == "verl"
    beside = next(pair.speed for pair in found.pairs if pair.a == "A" and pair.b == "B")
    assert beside.verdict == "slower" and beside.ratio == pytest.approx(1 / 1.2, abs=0.04) and beside.adjustment.unadjusted_ratio > 1
    assert words.lead(found).startswith(f"A (verl 0.9.1) is slower than B ({beside.ratio:.3f}x at equal tokens, 95% interval ")


def test_replayed_lengths_need_no_adjustment(records):
    assert pair_of(repeated(records.plain()), repeated(records.plain("verl"), speed=1.2)).speed.adjustment is None


# --- against a baseline -------------------------------------------------------------------------------------------


def test_the_same_configuration_before_and_after(records):
    """Alike in every setting and version, they are still two sides, and the verdict is about the new one."""
    before, after = repeated(records.plain(), 4), repeated(records.plain(), 4, speed=0.9)
    compared = gated(compare_against(before, after))
    (pair,) = compared.pairs
    assert [one.name for one in compared.configurations] == ["TRL 1.16.0, baseline", "TRL 1.16.0, new"]
    assert (compared.baseline, pair.a, pair.b, pair.speed.verdict) == (["A"], "B", "A", "slower")
    assert pair.speed.ratio == pytest.approx(0.9)
    assert compared.gate.outcome == "slower"
    assert compared.gate.pairs[0].sentence.startswith("B is slower than the baseline A: 0.900x its tokens/s (95% interval 0.8")


def test_what_passes_says_what_it_could_have_missed(records):
    compared = gated(compare_against(repeated(records.plain(), 4), repeated(records.plain(), 4, speed=0.99), 0.05))
    (judged,) = compared.gate.pairs
    assert (judged.outcome, compared.gate.outcome) == ("passed", "passed")
    assert "is not shown to be slower than the baseline A by 5% or more: 0.990x its tokens/s" in judged.sentence
    assert judged.sentence.endswith("is not ruled out")


def test_what_passes_says_which_runs_it_could_not_count(records):
    """Half of the new runs crashed; those that did not are as fast. `rlmbench run` has said so by its exit code; the gate's sentence does, too."""
    crashed = records.altered(status="failed", failure=synthetic_run.FAILURE.model_dump(mode="json"))
    compared = gated(compare_against(repeated(records.plain(), 4), [*repeated(records.plain(), 4), crashed]))
    assert compared.gate.outcome == "passed"
    assert compared.gate.pairs[0].sentence.endswith("; 1 of 5 runs of B did not end well and are left out (1 failed: out_of_memory_host)")


def test_a_loss_below_the_share_passes_and_above_it_does_not(records):
    for share, outcome in ((0.03, "slower"), (0.15, "passed")):
        compared = gated(compare_against(repeated(records.plain(), 4), repeated(records.plain(), 4, speed=0.9), share))
        assert compared.gate.outcome == outcome


@pytest.mark.parametrize("after", [1, 2])
def test_too_few_runs_do_not_pass(records, after):
    compared = gated(compare_against(repeated(records.plain(), 4), repeated(records.plain(), after, speed=0.5)))
    assert compared.gate.outcome == "not judged"


def test_each_has_its_own_counterpart(records):
    before = [*repeated(records.plain(), 2), *repeated(records.plain("verl"), 2, speed=3)]
    after = [*repeated(records.plain("verl"), 2, speed=2), *repeated(records.plain(), 2)]
    compared = compare_against(before, after)
    frameworks = [tuple(compared.configuration(key).framework for key in (pair.a, pair.b)) for pair in compared.pairs]
    assert frameworks == [("verl", "verl"), ("trl", "trl")]


def test_nothing_in_common_fails_the_gate_even_where_missing_is_allowed(records):
    compared = compare_against(repeated(records.plain(), 2), repeated(records.plain("verl"), 2))
    assert [one.sentence for one in compared.alone] == [
        "A (TRL 1.16.0, baseline) has vanished: no new run is of trl with gsm8k_grpo at tiny",
        "B (verl 0.9.1, new) has no counterpart: no run of the baseline is of verl with gsm8k_grpo at tiny",
    ]
    for allow_missing, outcome, failed in ((False, "missing", 2), (True, "not judged", 1)):
        judged = gated(compared, allow_missing=allow_missing)
        root = ElementTree.fromstring(junit(judged))
        assert (judged.gate.outcome, len(root.findall(".//testcase[@classname='not slower']/failure"))) == (outcome, failed)
        for text in (words.one_line(judged), markdown(judged), told(judged)):
            assert "nothing stands beside the baseline" in text and "of one configuration" not in text


def test_a_gate_with_the_baseline_alone_fails_in_junit_too(records):
    compared = gated(compare(repeated(records.plain(), 4), baseline="trl"))
    (failure,) = ElementTree.fromstring(junit(compared)).findall(".//failure")
    assert (compared.gate.outcome, failure.get("type")) == ("not judged", "not judged")
    assert failure.get("message") == "nothing stands beside the baseline: there is nothing to compare it with"


def test_one_configuration_of_each_of_three_suites_is_not_told_as_one(records):
    others = [records.altered(suite=suite) for suite in ("gsm8k_ppo", "gsm8k_rloo")]
    compared = compare([records.plain(), *others])
    assert words.nothing_to_compare(compared) == "no two of the 3 configurations are of one suite and scale: there is nothing to compare"


@pytest.fixture(scope="module")
def vanished(records):
    """The baseline has TRL and verl; of the new runs, which are as fast, only TRL is left."""
    before = [*repeated(records.plain(), 4), *repeated(records.plain("verl"), 4, speed=0.5)]
    return compare_against(before, repeated(records.plain(), 4))


GONE = "B (verl 0.9.1, baseline) has vanished: no new run is of verl with gsm8k_grpo at tiny"


def test_what_has_vanished_fails_the_gate_in_every_format(vanished):
    compared = gated(vanished)
    assert ([pair.outcome for pair in compared.gate.pairs], compared.gate.outcome) == (["passed"], "missing")
    assert [(one.key, one.sentence) for one in compared.gate.missing] == [("B", GONE)]
    line = words.one_line(compared)
    assert line.startswith(f"regression gate (slower by 3% or more): missing; {GONE}; gsm8k") and "\n" not in line
    assert f"- **missing**: {GONE}" in plain_markdown(compared) and f"missing: {GONE}" in told(compared)
    (case,) = ElementTree.fromstring(junit(compared)).findall(".//testcase[@name='B (verl 0.9.1, baseline)']")
    assert (case.get("classname"), case.find("failure").get("message")) == ("not slower", GONE)
    document = compared.model_dump(mode="json")
    assert document["gate"]["outcome"] == "missing" and document["gate"]["missing"] == document["alone"] == [{"key": "B", "sentence": GONE}]


def test_what_has_vanished_may_be_allowed_and_is_told_all_the_same(vanished):
    compared = gated(vanished, allow_missing=True)
    assert (compared.gate.outcome, compared.gate.missing) == ("passed", [])
    assert (
        GONE in words.one_line(compared) and f"- **allowed**: {GONE}" in plain_markdown(compared) and f"allowed: {GONE}" in told(compared)
    )
    root = ElementTree.fromstring(junit(compared))
    assert root.get("failures") == "0" and GONE in [output.text for output in root.iter("system-out")]


def test_without_a_gate_what_has_vanished_is_told(vanished):
    for text in (words.one_line(vanished), plain_markdown(vanished), told(vanished)):
        assert GONE in text
    assert "missing" not in told(vanished)


def plain_markdown(compared):
    return markdown(compared).replace("\\", "")


def told(compared):
    """The terminal's text as one line."""
    out = io.StringIO()
    print_comparison(compared, Console(file=out, width=200, markup=False, highlight=False))
    return " ".join(out.getvalue().split())


def test_one_of_several_settings_has_vanished_and_one_is_new(records):
    """Asked for with two seeds before; of the new runs one is as before, and a suite of its own is new."""
    experiment = synthetic_run.experiment(4, 4, 2, 1)
    experiment["measurement"]["seed"] = 7
    seven = records.altered(experiment=experiment)
    ppo = records.altered(suite="gsm8k_ppo")
    compared = gated(compare_against([*repeated(records.plain(), 2), *repeated(seven, 2)], [*repeated(seven, 2), *repeated(ppo, 2)]))
    of = {one.key: one for one in compared.configurations}
    told = {of[one.key].name: one.sentence.split(")", 1)[1] for one in compared.gate.missing}
    assert told == {
        "TRL 1.16.0, measurement.seed=0, baseline": " has vanished: no new run was asked for with its settings",
        "TRL 1.16.0, gsm8k_ppo at tiny, new": " has no counterpart: no run of the baseline is of trl with gsm8k_ppo at tiny",
    }


def test_a_suite_without_the_baseline_is_not_passed_over(records):
    """--baseline trl, and verl alone ran gsm8k_ppo: nobody knows whether it is slower there."""
    runs = [*repeated(records.plain(), 4), *repeated(records.plain("verl"), 4), *repeated(records.altered(suite="gsm8k_ppo", **OF_VERL), 4)]
    compared = gated(compare(runs, baseline="trl"))
    assert compared.gate.outcome == "missing"
    (one,) = compared.alone
    assert one.sentence == f"{one.key} (verl 0.9.1, gsm8k_ppo at tiny) stands beside nothing: trl has no run of gsm8k_ppo at tiny"


def test_a_baseline_among_the_configurations(records):
    runs = [*repeated(records.plain(), 4), *repeated(records.plain("verl"), 4, speed=1.5)]
    for name in ("trl", "TRL 1.16", "B", "b"):
        compared = compare(runs, baseline=name)
        assert [(pair.a, pair.b, pair.speed.verdict) for pair in compared.pairs] == [("A", "B", "faster")]
        assert compared.configuration("B").name == "TRL 1.16.0, baseline"
    assert [pair.speed.verdict for pair in compare(runs, baseline="verl").pairs] == ["slower"]
    with pytest.raises(UserError) as raised:
        compare(runs, baseline="vel")
    assert str(raised.value) == (
        "--baseline vel: no such configuration (did you mean 'verl'?); there are A (verl 0.9.1), B (TRL 1.16.0); "
        "give a letter, a framework, or a name or its beginning"
    )


def test_a_baseline_must_be_one(records):
    runs = []
    for seed in range(3):
        experiment = synthetic_run.experiment(4, 4, 2, 1)
        experiment["measurement"]["seed"] = seed
        runs += repeated(records.altered(experiment=experiment), 2, speed=1 + seed / 10)
    with pytest.raises(UserError, match="3 configurations of one suite are called so"):
        compare(runs, baseline="trl")
    compared = compare(runs, baseline="C")
    assert [(pair.a, pair.b) for pair in compared.pairs] == [("A", "C"), ("B", "C")]
    assert words.lead(compared).startswith("Beside C (TRL 1.16.0, measurement.seed=0, baseline), ")


@pytest.mark.parametrize(("text", "share"), [("slower", None), ("slower:5%", 0.05), ("slower:0.05", 0.05), ("slower:2.5%", 0.025)])
def test_the_share(text, share):
    assert parse_fail_on(text) == (share if share is None else pytest.approx(share))


@pytest.mark.parametrize("text", ["", "faster", "slower:", "slower:x", "slower:5", "slower:100%", "slower:-1%"])
def test_a_share_that_is_none(text):
    with pytest.raises(UserError, match="--fail-on"):
        parse_fail_on(text)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("slower:5", "; did you mean slower:5%?"),
        ("slower:200%", ", such as slower:5%"),
        ("slower:100", ", such as slower:5%"),
    ],
)
def test_no_share_is_proposed_that_would_be_refused_again(text, fix):
    with pytest.raises(UserError) as refused:
        parse_fail_on(text)
    assert str(refused.value) == f"--fail-on {text}: the share must be below 100%{fix}"


def test_formats_tell_the_gate(records):
    compared = gated(compare_against(repeated(records.plain(), 4), repeated(records.plain(), 4, speed=0.9)))
    sentence = compared.gate.pairs[0].sentence
    assert words.one_line(compared).startswith("regression gate (slower by 3% or more): slower; ")
    assert f"- **slower**: {sentence}" in markdown(compared)
    root = ElementTree.fromstring(junit(compared))
    (case,) = root.findall(".//testcase[@classname='not slower']")
    assert case.find("failure").get("message") == sentence and root.get("failures") == "1"


# --- many configurations ------------------------------------------------------------------------------------------


def test_of_many_configurations_each_is_compared_with_the_fastest(records):
    """13 of one suite: 12 pairs instead of 78, and it says so. Copies differ only in their seed."""
    plain, runs = records.plain(), []
    for place in range(13):
        measurement = {**plain.experiment["measurement"], "seed": place}
        one = dataclasses.replace(plain, experiment={**plain.experiment, "measurement": measurement})
        runs += repeated(one, 2, speed=1 + place / 10)
    compared = compare(runs)
    assert {pair.a for pair in compared.pairs} == {"A"} and len(compared.pairs) == 12
    assert compared.pairs_left_out == 66
    assert "Of 78 pairs the 12 with the fastest of each suite are told" in words.left_out(compared)
    assert words.left_out(compare(runs, baseline="B")) is None
    assert compared.configuration("A").name == "TRL 1.16.0, measurement.seed=12"


def test_lists_of_many_are_cut_off_and_say_so(records, monkeypatch):
    monkeypatch.setattr(words, "MOST_LINES", 2)
    plain, runs = records.plain(), []
    for place in range(4):
        measurement = {**plain.experiment["measurement"], "seed": place}
        one = dataclasses.replace(plain, experiment={**plain.experiment, "measurement": measurement})
        runs += repeated(one, 2, speed=1 + place / 10)
    made = markdown(compare(runs))
    assert "... and 4 more verdicts: --json prints all" in made and made.count("- **A v ") == 2
    assert "more reasons" in made and "4 more pairs with their differences" in made


def test_a_section_that_one_left_out_is_named_once(records):
    """Without replay there is no list of what replay would have been."""
    plain = records.plain()
    left_out = {**plain.experiment, "workload": {**plain.experiment["workload"], "replay": None}}
    compared = compare([*repeated(plain, 2), *repeated(dataclasses.replace(plain, experiment=left_out), 2)])
    assert sorted(one.name for one in compared.configurations) == ["TRL 1.16.0", "TRL 1.16.0, replay=null"]


# --- as its users call it -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory, written):
    """Two campaigns of TRL, the later 20% slower, and one of verl before them; four runs each."""
    folder = tmp_path_factory.mktemp("gate") / "results"
    summary = summarize(load(written))
    for begun, campaign, framework, environment, factor in (
        (1_700_000_000, "20260101-000000-001", "verl", VERL, 1.0),
        (1_700_100_000, "20260102-000000-001", "trl", TRL, 1.0),
        (1_700_200_000, "20260103-000000-001", "trl", TRL, 0.8),
    ):
        for place in range(4):
            run = folder / "gsm8k_grpo" / f"{campaign}-{place}"
            shutil.copytree(written, run, ignore=shutil.ignore_patterns("probe", "logs"))
            manifest = json.loads((run / "manifest.json").read_text())
            changes = {"framework": framework, "environment": environment, "host": HOST, "run_id": run.name, "campaign_id": campaign}
            times = {**manifest["times"], "created_unix_s": begun + place}
            (run / "manifest.json").write_text(json.dumps({**manifest, **changes, "times": times}))
            rate = summary.throughput.step_tokens_per_s * factor * (1 + place / 100)
            rates = summary.throughput.model_copy(update={"step_tokens_per_s": rate})
            write_summary(run, summary.model_copy(update={"id": run.name, "framework": framework, "throughput": rates}))
    return folder


@pytest.fixture
def command(results, monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.chdir(results.parent)
        code = main(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


FIRST, SECOND = "20260102-000000-001", "20260103-000000-001"


def test_exit_codes(command):
    code, out, err = command("compare", FIRST, "--against", SECOND, "--fail-on", "slower:5%", "--line")
    assert code == 5 and out.startswith("regression gate (slower by 5% or more): slower; ")
    assert err.startswith("--fail-on: B is slower than the baseline A: 0.800x")
    assert command("compare", SECOND, "--against", FIRST, "--fail-on", "slower")[0] == 0
    assert command("compare", "--against", FIRST, SECOND, "--fail-on", "slower")[0] == 0
    assert command("compare", SECOND, "--fail-on", "slower", "--against", FIRST)[0] == 0
    code, _, err = command("compare", FIRST, "--against", f"gsm8k_grpo/{SECOND}-0", "--fail-on", "slower")
    assert code == 4 and "was not judged" in err
    assert command("compare", FIRST, "--against", SECOND)[0] == 0  # without --fail-on it only tells
    assert command("compare", "20260101-000000-001", SECOND, "--baseline", "verl", "--fail-on", "slower")[0] == 5


def test_a_vanished_framework_fails_the_gate(command):
    """verl and TRL before, TRL alone now, and faster."""
    arguments = ("compare", "20260101-000000-001", SECOND, "--against", FIRST, "--fail-on", "slower", "--line")
    code, out, err = command(*arguments)
    assert code == 4 and "missing" in out
    assert err == (
        "--fail-on: A (verl 0.9.1, baseline) has vanished: no new run is of verl with gsm8k_grpo at tiny; "
        "run it, too, or accept it with --allow-missing\n"
    )
    assert command(*arguments, "--allow-missing")[0] == 0


def test_a_run_is_never_compared_with_itself_or_counted_twice(command, results):
    code, _, err = command("compare", "gsm8k_grpo", "--against", SECOND, "--fail-on", "slower")
    assert code == 2 and f"{SECOND}-0 and 3 more would be compared with itself" in err and err.count("\n") == 1
    copies = results.parent / "copies"
    shutil.copytree(results / "gsm8k_grpo", copies)
    assert "12 runs" in command("compare", "gsm8k_grpo", str(copies))[1]
    shutil.rmtree(copies)


def test_a_gate_holds_when_nobody_reads_on(results):
    """As in `rlmbench compare ... | head -1`: the output is cut off, the verdict is not."""
    command = [sys.executable, "-m", "rlmbench", "compare", FIRST, "--against", SECOND, "--fail-on", "slower"]
    done = subprocess.Popen(command, cwd=results.parent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    done.stdout.close()
    assert done.wait(timeout=600) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((FIRST, "--fail-on", "slower"), "slower than what?"),
        ((FIRST, "--against", SECOND, "--baseline", "trl"), "give one of --against and --baseline"),
        ((FIRST, "--against", SECOND, "--fail-on", "slower:5%", "--minimum-effect", "0.01"), "contradict each other"),
        ((FIRST, "--against", SECOND, "--allow-missing"), "give --fail-on, too"),
        ((FIRST, "--against", f"gsm8k_grpo/{SECOND}-0", f"gsm8k_grpo/{SECOND}-1"), f"gsm8k_grpo/{SECOND}-1 would be part of the baseline"),
        ((FIRST, "--against", "gsm8k_gpro"), "did you mean 'gsm8k_grpo'"),
        (("gsm8k_grpo", "--campaign", "20260109-000000-001"), "known: 20260101-000000-001, 20260102-000000-001, 20260103-000000-001"),
        (("gsm8k_grpo", "--since", "yesterday"), "give a date or time in UTC"),
        (("gsm8k_grpo", "--since", "1h"), "no run since then; the latest was begun 2023-11-17T05:46 UTC"),
    ],
)
def test_wrong_usage_is_one_line(command, arguments, message):
    code, _, err = command("compare", *arguments)
    assert code == 2 and err.startswith("error: ") and err.count("\n") == 1 and message in err


def test_which_runs(command):
    assert "12 runs" in command("compare", "gsm8k_grpo")[1]
    assert "4 runs" in command("compare", "gsm8k_grpo", "--campaign", "latest")[1].splitlines()[0]
    assert "4 runs" in command("compare", FIRST)[1].splitlines()[0]
    assert "8 runs" in command("compare", "gsm8k_grpo", "--since", "2023-11-16")[1].splitlines()[0]
