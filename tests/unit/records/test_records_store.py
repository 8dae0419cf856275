import json
import subprocess
import sys

import pytest

import rlmbench
from rlmbench.errors import UserError
from rlmbench.records import find_run, list_runs, load


def test_load_reads_manifest_plan_summary_and_frames(make_run):
    folder = make_run("gsm8k_grpo", "run-1")
    plan = {"mode": "replay", "group_size": 1, "rows": []}
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "summary.json").write_text('{"schema_version": 1, "runs": [{"id": "run-1"}]}')
    (folder / "probe").mkdir()
    (folder / "probe" / "driver-1.jsonl").write_text('{"ev": "step", "step": 1, "start_ns": 1, "end_ns": 4, "probe_ns": 1}\n')

    run = rlmbench.load(folder)

    assert (run.id, run.manifest.suite, run.plan, run.summary) == ("run-1", "gsm8k_grpo", plan, {"id": "run-1"})
    assert run.steps["end_ns"].tolist() == [4]
    assert len(run.spans) == len(run.samples) == len(run.updates) == len(run.native) == 0


def test_a_run_killed_early_has_no_plan_and_no_summary(make_run):
    run = load(make_run("gsm8k_grpo", "run-1", status="interrupted") / "manifest.json")
    assert (run.plan, run.summary) == (None, None)


def test_an_experiment_of_another_version_is_a_users_error(make_run):
    with pytest.raises(UserError, match=r"manifest.json: experiment\.\w+"):
        _ = load(make_run("gsm8k_grpo", "run-1")).experiment


def test_a_damaged_plan_names_its_file(make_run):
    folder = make_run("gsm8k_grpo", "run-1")
    (folder / "plan.json").write_text("{")
    with pytest.raises(UserError, match=r"plan.json: damaged \(line 1, column 2\); take another copy"):
        _ = load(folder).plan


def test_a_folder_of_runs_is_answered_with_its_newest_run(make_run):
    folder = make_run("gsm8k_grpo", "run-b", created_unix_s=1.0).parent
    make_run("gsm8k_grpo", "run-a", created_unix_s=2.0)
    with pytest.raises(UserError) as refused:
        load(folder)
    assert str(refused.value).endswith(f"holds manifest.json; name one of the 2 below it, such as {folder / 'run-a'}")


def test_load_suggests_the_nearest_run(make_run):
    folder = make_run("gsm8k_grpo", "run-0001")
    with pytest.raises(UserError, match=r"no run there.*did you mean 'run-0001'"):
        load(folder.parent / "run-0002")


def test_runs_are_listed_by_creation_and_a_damaged_one_too(make_run, tmp_path):
    make_run("gsm8k_grpo", "z-first", created_unix_s=1000.0)
    make_run("gsm8k_ppo", "a-second", created_unix_s=2000.0)
    damaged = make_run("gsm8k_ppo", "broken")
    (damaged / "manifest.json").write_text("{")
    (tmp_path / "results" / "gsm8k_grpo" / "campaigns").mkdir()
    runs = list_runs(tmp_path / "results")
    assert [run.id for run in runs] == ["z-first", "a-second", "broken"]
    with pytest.raises(UserError):
        _ = runs[-1].manifest


def test_find_by_id_prefix_path_and_latest(make_run, tmp_path):
    results = tmp_path / "results"
    first = make_run("gsm8k_grpo", "20250101-trl-aaaa", created_unix_s=1.0)
    make_run("gsm8k_grpo", "20250102-trl-bbbb", created_unix_s=2.0)
    assert find_run("20250101-trl-aaaa", results).path == first
    assert find_run("20250101", results).path == first
    assert find_run("gsm8k_grpo/20250101-trl-aaaa", results).path == first
    assert find_run(first, results).path == first
    assert find_run("latest", results).id == "20250102-trl-bbbb"


def test_an_exact_id_beats_the_longer_ones_that_begin_with_it(make_run, tmp_path):
    make_run("s", "run-1")
    make_run("s", "run-10")
    assert find_run("run-1", tmp_path / "results").id == "run-1"


@pytest.mark.parametrize(
    ("name", "says"),
    [("2025", "ambiguous"), ("20250101-tlr-aaaa", "did you mean '20250101-trl-aaaa'"), ("some/where", "no run there")],
)
def test_a_run_that_is_not_found_is_one_line(make_run, tmp_path, name, says):
    make_run("gsm8k_grpo", "20250101-trl-aaaa")
    make_run("gsm8k_grpo", "20250102-trl-bbbb")
    with pytest.raises(UserError) as caught:
        find_run(name, tmp_path / "results")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_latest_without_any_run_says_so(tmp_path):
    with pytest.raises(UserError, match="no runs there yet"):
        find_run("latest", tmp_path / "results")


def test_a_suite_in_place_of_a_run_is_answered_with_its_newest_run(make_run, tmp_path):
    make_run("gsm8k_grpo", "20250101-trl-aaaa")
    make_run("gsm8k_grpo", "20250102-trl-bbbb")
    with pytest.raises(
        UserError, match=r"'gsm8k_grpo' is a suite in .*, not a run; name one of the 2 below it, such as .*20250102-trl-bbbb$"
    ):
        find_run("gsm8k_grpo", tmp_path / "results")


def test_importing_rlmbench_imports_nothing_heavy():
    code = "import json, sys, rlmbench; rlmbench.load; print(json.dumps(sorted(m for m in sys.modules if '.' not in m)))"
    modules = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert not {"pandas", "numpy", "pyarrow", "pydantic"} & set(modules)
