"""`rlmbench compare` as its users call it, and which runs a name stands for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from altered_records import TRL, VERL
from jsonschema import Draft202012Validator

from rlmbench.cli.main import main
from rlmbench.comparison import comparison_schema, comparison_schema_text, evidence_of, find_runs
from rlmbench.errors import UserError
from rlmbench.runner.execute import summarized

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def results(tmp_path_factory, records):
    """Two runs of either framework, and a third TRL run of another suite."""
    folder = tmp_path_factory.mktemp("compare") / "results"
    for place, (suite, framework, environment) in enumerate(
        [
            ("gsm8k_grpo", "trl", TRL),
            ("gsm8k_grpo", "verl", VERL),
            ("gsm8k_grpo", "verl", VERL),
            ("gsm8k_grpo", "trl", TRL),
            ("gsm8k_ppo", "trl", TRL),
        ]
    ):
        records.kept_at(folder / suite / f"2026-{place}-{framework}", suite=suite, framework=framework, environment=environment)
    return folder


@pytest.fixture
def command(results, monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.chdir(results.parent)
        code = main(["compare", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def names(runs):
    return sorted(run.id for run in runs)


def test_what_a_name_stands_for(results):
    of_suite = ["2026-0-trl", "2026-1-verl", "2026-2-verl", "2026-3-trl"]
    assert names(find_runs(["gsm8k_grpo"], results)) == of_suite
    assert names(find_runs([str(results / "gsm8k_grpo")], "elsewhere")) == of_suite
    assert names(find_runs([str(results)], "elsewhere")) == sorted([*of_suite, "2026-4-trl"])
    assert names(find_runs(["2026-0", "2026-0-trl", "gsm8k_grpo/2026-1-verl"], results)) == ["2026-0-trl", "2026-1-verl"]
    suite_file = str(Path(__file__).parents[3] / "suites" / "gsm8k_grpo")
    assert names(find_runs([suite_file], results)) == names(find_runs([suite_file + ".yaml"], results)) == of_suite
    assert names(find_runs([str(results / "gsm8k_ppo" / "2026-4-trl")], "elsewhere")) == ["2026-4-trl"]


def test_a_profile_run_is_found_by_its_own_name_only_and_never_compared(written, results, tmp_path):
    shutil.copytree(results, tmp_path / "all")
    run = tmp_path / "all" / "gsm8k_grpo" / "2027-trl-profile"
    shutil.copytree(written, run)
    manifest = json.loads((run / "manifest.json").read_text())
    later = {"times": {**manifest["times"], "created_unix_s": 9e9}, "campaign_id": "20261130-120000-000"}
    (run / "manifest.json").write_text(json.dumps({**manifest, **later, "pass": "profile", "profile": {"steps": [2]}}))
    assert names(find_runs([str(tmp_path / "all")], "elsewhere")) == names(find_runs([str(results)], "elsewhere"))
    assert names(find_runs(["gsm8k_grpo"], tmp_path / "all")) == names(find_runs(["gsm8k_grpo"], results))
    (latest,) = find_runs(["latest"], tmp_path / "all")
    assert latest.measures
    (found,) = find_runs(["2027-trl-profile"], tmp_path / "all")
    assert not found.measures
    with pytest.raises(UserError, match="2027-trl-profile: a profile run"):
        evidence_of(found, summarized(found))


def test_a_name_that_stands_for_nothing(results, tmp_path):
    with pytest.raises(UserError, match=r"unknown run 'gsm8k_gpro'.*did you mean 'gsm8k_grpo'"):
        find_runs(["gsm8k_gpro"], results)
    with pytest.raises(UserError, match="no runs there"):
        find_runs([str(tmp_path)], results)


def test_a_suite_in_the_terminal(command):
    code, out, err = command("gsm8k_grpo")
    assert (code, err) == (0, "")
    assert out.startswith("gsm8k_grpo at tiny: 2 configurations, 4 runs")
    assert "comparable with reservations" in out and "few runs: 2 of A and 2 of B ended well" in " ".join(out.split())


def test_figures_that_another_version_kept_are_taken_again(command, results):
    before = command("gsm8k_grpo", "--line")[1]
    kept = results / "gsm8k_grpo" / "2026-0-trl" / "summary.json"
    kept.write_text(json.dumps({"schema_version": 1, "runs": [{"id": "of another shape"}]}))
    assert command("gsm8k_grpo", "--line")[1] == before
    kept.unlink()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"runs": []}', "damaged (holds no run's figures)"),
        ("3", "damaged (holds no run's figures)"),
        ('{"runs"', "damaged (line 1, column 8)"),
    ],
)
def test_figures_that_are_damaged_are_taken_again_and_a_line_says_so(command, results, content, message):
    before = command("gsm8k_grpo", "--line")[1]
    kept = results / "gsm8k_grpo" / "2026-0-trl" / "summary.json"
    kept.write_text(content)
    told = command("gsm8k_grpo", "--line")
    kept.unlink()
    assert told == (0, before, f"warning: {kept}: {message}; the figures are taken again from the tables\n")


def test_every_damaged_run_is_named(command, results):
    runs = [results / "gsm8k_grpo" / name for name in ("2026-0-trl", "2026-1-verl")]
    before = [(run / "manifest.json").read_bytes() for run in runs]
    for run in runs:
        (run / "manifest.json").write_text('{"run_id"\n"')
    told = {tuple(command("gsm8k_grpo", *more)) for more in ([], ["--campaign", "latest"], ["--since", "7d"])}
    for run, content in zip(runs, before, strict=True):
        (run / "manifest.json").write_bytes(content)
    fix = "damaged (line 2, column 1); take another copy of this run, or leave it out"
    assert told == {(2, "", "".join(f"error: {run / 'manifest.json'}: {fix}\n" for run in runs))}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("plan.json", "null", "not a workload plan"),
        ("plan.json", '{"mode": "replay", "group_size": 2, "rows": [{"row": 0}]}', "not a workload plan"),
        ("plan.json", "[", "damaged (line 1, column 2); take another copy of this run, or leave it out"),
        ("manifest.json", "{}", "take another copy of this run, or leave it out"),
        ("manifest.json", '{\n "run_id":', "damaged (line 2, column 11); take another copy of this run, or leave it out"),
        ("manifest.json", "", "damaged (it is empty); take another copy of this run, or leave it out"),
    ],
)
def test_a_damaged_file_is_one_line_with_its_place_and_the_fix(command, results, name, content, message):
    path = results / "gsm8k_grpo" / "2026-0-trl" / name
    before = path.read_bytes() if path.is_file() else None
    path.write_text(content)
    code, out, err = command("gsm8k_grpo", "--line")
    path.unlink() if before is None else path.write_bytes(before)
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert err.startswith(f"error: {path}: ") and message in err


def test_json_is_what_its_schema_says(command):
    code, out, _ = command("gsm8k_grpo", "--json")
    document = json.loads(out.splitlines()[-1])
    Draft202012Validator(comparison_schema()).validate(document)
    assert (code, document["schema_version"], len(document["pairs"])) == (0, 1, 1)


def test_the_committed_schema_is_that_of_the_code():
    assert (DOCS / "comparison.schema.json").read_text() == comparison_schema_text()


def test_strict_fails_on_what_may_not_be_compared(command):
    assert command("gsm8k_grpo", "--strict")[0] == 0  # reservations pass
    code, out, _ = command("2026-0-trl", "2026-1-verl", "--strict", "--line")
    assert (code, out.count("\n")) == (4, 1)
    assert "A v B: not comparable, too few runs to say who is faster" in out
    assert command("2026-0-trl", "2026-1-verl")[0] == 0
    assert command("2026-0-trl", "2026-3-trl", "--strict")[0] == 4  # one configuration: nothing was compared
    assert command(".", "--results", "results", "--strict")[0] == 2


def test_nothing_on_both_sides_is_wrong_usage_without_a_gate_and_not_judged_with_one(command):
    sides = ("2026-0-trl", "--against", "2026-1-verl")
    code, out, err = command(*sides)
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert err.startswith("error: --against: B (verl") and err.endswith("at tiny; run it, too\n")
    code, out, err = command(*sides, "--fail-on", "slower", "--line")
    assert (code, out.count("\n"), err.count("\n")) == (4, 1, 2) and "has vanished" in err and "has no counterpart" in err
    code, _, err = command(*sides, "--fail-on", "slower", "--allow-missing", "--line")
    assert (code, err) == (4, "--fail-on: nothing stands beside the baseline: there is nothing to compare it with\n")


def test_markdown_and_junit(command, tmp_path):
    path = tmp_path / "new" / "compare.xml"
    code, out, _ = command("gsm8k_grpo", "--markdown", "--junit", str(path))
    assert code == 0 and out.startswith("### gsm8k")
    assert b'<testsuite name="gsm8k_grpo at tiny' in path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gsm8k_grpo", "--json", "--line"), "give one of --json, --markdown and --line"),
        (("gsm8k_grpo", "--minimum-effect", "3"), "such as 0.03 for 3%"),
        ((), "Missing argument"),
        (("gsm8k_grpo", "--junit", "/proc/none/x.xml"), "cannot be written"),
    ],
)
def test_wrong_usage_is_one_line(command, arguments, message):
    code, _, err = command(*arguments)
    assert code == 2
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err


def test_help_shows_examples(command):
    code, out, _ = command("--help")
    assert code == 0 and "rlmbench compare gsm8k_grpo" in out and "--strict" in out
