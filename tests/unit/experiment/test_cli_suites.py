"""`rlmbench suites`: prints, exit codes, and JSON on the last line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from rlmbench.cli.suites import app
from rlmbench.errors import UserError
from rlmbench.experiment import Experiment
from rlmbench.experiment.load import load_suite


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def last_json(result: Result) -> dict:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def test_list_names_every_suite() -> None:
    text = run("list")
    assert text.exit_code == 0 and "longtail_grpo          GRPO with a long tail" in text.stdout
    listed = {entry["name"]: entry for entry in last_json(run("list", "--json"))["suites"]}
    assert listed["gsm8k_grpo"]["scales"]["base"] == {"devices": 8, "device_memory_gib": 80.0}


def test_list_shows_a_broken_suite_beside_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "broken.yaml").write_text("- not a suite")
    monkeypatch.chdir(tmp_path)
    text = run("list")
    assert text.exit_code == 0 and "broken" in text.stdout and "not valid: suites/broken.yaml:1: a suite is a mapping" in text.stdout
    assert "gsm8k_grpo" in text.stdout
    listed = {entry["name"]: entry for entry in last_json(run("list", "--json"))["suites"]}
    assert listed["broken"]["title"] is None and len(listed["broken"]["problems"]) == 1


def test_show_prints_the_scales_and_sources() -> None:
    text = run("show", "gsm8k_grpo").stdout
    assert "base   8     qwen2.5-7b     1024 x 5" in text
    assert "arXiv 2402.03300" in text
    assert last_json(run("show", "gsm8k_grpo", "--json"))["sources"] == load_suite("gsm8k_grpo").sources


def test_show_lists_the_variants_of_a_sweep() -> None:
    assert "  tiny: group2, group4, group8\n" in run("show", "group_size_sweep").stdout
    assert last_json(run("show", "group_size_sweep", "--json"))["variants"]["tiny"] == ["group2", "group4", "group8"]
    assert "Variants" not in run("show", "gsm8k_grpo").stdout


def test_show_at_a_scale_prints_the_whole_experiment() -> None:
    text = run("show", "gsm8k_grpo", "--scale", "tiny", "--set", "optimization.group_size=8").stdout
    assert text.startswith("# gsm8k_grpo at tiny: samples_per_step 64, updates_per_step 4, devices 1\n")
    shown = Experiment.model_validate(yaml.safe_load(text))
    assert shown.optimization.group_size == 8
    assert shown.model == load_suite("gsm8k_grpo").experiment_at("tiny").model
    answer = last_json(run("show", "gsm8k_grpo", "--scale", "tiny", "--set", "optimization.group_size=8", "--json"))
    assert answer["samples_per_step"] == 64 and answer["experiment"] == shown.model_dump(mode="json")


def test_show_refuses_a_typo_and_a_setting_without_scale() -> None:
    result = run("show", "gsm8k_grpo", "--scale", "tiny", "--set", "optimization.grup_size=8")
    assert isinstance(result.exception, UserError)
    assert str(result.exception) == "--set optimization.grup_size: unknown key (did you mean 'group_size'?)"
    assert run("show", "gsm8k_grpo", "--set", "optimization.group_size=8").exit_code == 2


def test_validate_is_green_for_the_shipped_suites() -> None:
    result = run("validate")
    assert result.exit_code == 0 and result.stdout.count(": ok") == 9
    assert last_json(run("validate", "gsm8k_grpo", "--json"))["ok"] is True


def test_validate_prints_every_problem_and_exits_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("nam: x\ntitle: 3\n")
    result = run("validate", "bad.yaml")
    assert result.exit_code == 2 and result.stdout == ""
    assert "bad.yaml:1: nam: unknown key (did you mean 'name'?)" in result.stderr
    assert "bad.yaml:2: title: should be a valid string, not 3" in result.stderr
    answer = run("validate", "bad.yaml", "gsm8k_ppo", "--json")
    assert answer.exit_code == 2
    report = json.loads(answer.stdout.splitlines()[-1])
    assert report["ok"] is False and [suite["ok"] for suite in report["suites"]] == [False, True]


def test_validate_without_any_suite_is_not_green(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlmbench.experiment.load.suite_files", dict)
    assert run("validate").exit_code == 2


def test_schema_prints_the_schema() -> None:
    assert json.loads(run("schema").stdout)["properties"]["experiment"]["$ref"] == "#/$defs/Experiment"


def test_shapes_lists_sizes() -> None:
    assert "qwen2.5-0.5b" in run("shapes").stdout
    sizes = {shape["name"]: shape["parameters"] for shape in last_json(run("shapes", "--json"))["shapes"]}
    assert sizes["qwen2.5-0.5b"] == 494_032_768  # the model card's 0.49B, counted by safetensors


def test_the_module_costs_no_heavy_import() -> None:
    code = "import sys, rlmbench.cli.suites; print(sorted({'pydantic', 'yaml', 'pandas', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
