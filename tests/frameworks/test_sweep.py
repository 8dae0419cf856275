"""A sweep with a real framework: each variant its own run, the shape that the cost model predicts, and a resume that repeats nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import rlmbench
from rlmbench.whatif import Assumptions, Question, what_if
from rlmbench.whatif.sweep import rows
from tests.frameworks.conftest import Result, run_command, settings

ASKED = ("response_length_sweep", "--framework", "trl", "--scale", "tiny")
VARIANTS = ("--variant", "tokens64", "--variant", "tokens256", *settings(measurement__steps=3))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Result:
    result = run_command(tmp_path_factory.mktemp("sweep"), (*ASKED, *VARIANTS))
    assert result.returncode == 0, result.stderr[-4000:]
    return result


def test_each_variant_is_a_run_of_its_own_length(sweep: Result) -> None:
    assert sweep.document is not None
    runs = sweep.document["runs"]
    assert [(run["variant"], run["status"], run["audit"]["ok"]) for run in runs] == [("tokens64", "ok", True), ("tokens256", "ok", True)]
    assert [(run["lengths"]["minimum"], run["lengths"]["maximum"]) for run in runs] == [(64, 64), (256, 256)]
    assert [rlmbench.load(sweep.folder / run["path"]).manifest.variant for run in runs] == ["tokens64", "tokens256"]
    assert all(f"-{run['variant']}-r0" in run["id"] for run in runs)
    assert "Work of the updates, over the first variant's" in sweep.stderr


def test_products_grow_with_tokens_and_attention_with_their_square(sweep: Result) -> None:
    """By hand, of what reached the loss: linear FLOPs as sum(m), attention as sum(m^2); and training does take longer."""
    assert sweep.document is not None
    records = [rlmbench.load(sweep.folder / run["path"]) for run in sweep.document["runs"]]
    short, long = rows([(record, rlmbench.summarize(record)) for record in records])
    measured = [record.samples[record.samples["step"] > 1] for record in records]
    sums = [(of["prompt_tokens"] + of["response_tokens"]).sum() for of in measured]
    squares = [((of["prompt_tokens"] + of["response_tokens"]) ** 2).sum() for of in measured]
    assert short.linear_flops and long.linear_flops and short.attention_flops and long.attention_flops
    assert long.linear_flops / short.linear_flops == pytest.approx(sums[1] / sums[0])
    assert long.attention_flops / short.attention_flops == pytest.approx(squares[1] / squares[0])
    assert squares[1] / squares[0] > 2 * sums[1] / sums[0]
    assert long.stages_s["training"] > short.stages_s["training"] and long.stages_s["generation"] > short.stages_s["generation"]


def test_a_resume_finds_both_finished(sweep: Result) -> None:
    again = run_command(sweep.folder, ("response_length_sweep", "--resume"))
    assert again.returncode == 0 and again.document is not None and sweep.document is not None
    assert [run["id"] for run in again.document["runs"]] == [run["id"] for run in sweep.document["runs"]]


SCHEDULES = """\
stages:
  generation: {seconds: 0.35}
"""


def test_the_reference_frameworks_placements_are_predicted_within_2_percent(tmp_path: Path) -> None:
    """Three real schedules of one script. The co-located run predicts the others, once the 20 ms are set that rollouts take to load weights:
    they add to the trainer's 30 ms in turn, and one step off they are what the slower side, the rollouts, spends on the sync. The
    asynchronous run predicts itself and the others with nothing set: its rollouts' spans tell both."""
    (tmp_path / "script.yaml").write_text(SCHEDULES)
    asked = ("placement_sweep", "--framework", "reference", "--scale", "tiny", "--native", "script.yaml")
    result = run_command(tmp_path, (*asked, *settings(placement__rollout_engine="auto", measurement__steps=8)))
    assert result.returncode == 0 and result.document is not None, result.stderr[-4000:]
    runs = {run["variant"]: run for run in result.document["runs"]}
    records = {variant: rlmbench.load(tmp_path / run["path"]) for variant, run in runs.items()}
    for source, variant, mode, assumed in (
        ("colocated", "colocated", "colocated", []),
        ("colocated", "disaggregated", "disaggregated", ["sync_s=0.05"]),
        ("colocated", "one_step_off", "bounded_asynchrony", ["sync_s=0.02", "rollout_refill=false"]),
        ("one_step_off", "colocated", "colocated", []),
        ("one_step_off", "disaggregated", "disaggregated", []),
        ("one_step_off", "one_step_off", "bounded_asynchrony", []),
    ):
        split = None if mode == "colocated" else (1, 1)
        question = Question((mode,), 1 if split is None else 2, split, assumptions=Assumptions().with_settings(assumed))
        (predicted,) = what_if(records[source], rlmbench.summarize(records[source]), question).predictions
        assert predicted.step_s == pytest.approx(runs[variant]["step_s"]["median"], rel=0.02), (source, variant)
