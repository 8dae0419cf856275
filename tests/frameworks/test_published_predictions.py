"""Predictions against the published runs (results/reference): what docs/plan.md says of how wrong they may be."""

from __future__ import annotations

from pathlib import Path

import pytest

import rlmbench
from rlmbench.costmodel.devices import Ceiling
from rlmbench.costmodel.prediction import Prediction, predict
from rlmbench.costmodel.work import verl_flops
from rlmbench.records import Run
from rlmbench.workload.shapes import SHAPES

REFERENCE = Path(__file__).parents[2] / "results" / "reference"


def published() -> dict[str, Path]:
    """A run of each framework on each suite, all of them on a CPU."""
    return {f"{run.parent.name}-{run.name.split('-')[2]}": run for run in sorted(REFERENCE.glob("*/*-tiny-r0"))}


@pytest.mark.parametrize("path", published().values(), ids=list(published()))
def test_bounds_hold_and_estimates_are_as_near_as_is_said(path: Path) -> None:
    run = rlmbench.load(path)
    summary = rlmbench.summarize(run)
    found, measured = _predicted(run), summary.efficiency
    assert measured is not None and summary.step_s.mean is not None and found.least_step_s is not None
    assert 2 <= summary.step_s.mean / found.least_step_s <= 60
    assert measured.step_model_flops == pytest.approx(sum(stage.model_flops for stage in found.stages.values()), rel=0.1)
    seconds = {stage: of.seconds for stage, of in measured.stages.items()}
    assert set(found.stages) - {"weight_sync"} == set(seconds)
    assert all((found.stages[stage].least_s or 0) < of for stage, of in seconds.items())
    held = max(of.total_bytes for of in found.memory.values())
    assert summary.memory.run_peak_pss_bytes is not None
    assert 0.5 <= summary.memory.run_peak_pss_bytes / held <= 2


def test_verls_own_mfu_follows_from_its_record_within_1_percent() -> None:
    """As verl 0.9.1 counts (workers/engine_workers.py): per mini-batch, its FLOPs over the worker's seconds and 448 GFLOP/s, the peak of any CPU in
    verl's table; then the mean. Lengths and seconds are rlmbench's, the logged figure verl's."""
    run = rlmbench.load(published()["gsm8k_grpo-verl"])
    shape, update = SHAPES["tiny"], run.spans[run.spans["stage"] == "actor_update"].sort_values("start_ns")
    logged = run.native[run.native["key"] == "perf/mfu/actor"].set_index("step")["value"]
    assert len(logged) == 5
    for step, value in logged.items():
        spans, samples = update[update["step"] == step], run.samples[run.samples["step"] == step]
        begins = spans[spans["name"] == "forward_backward_batch"]["start_ns"]
        ends = spans[spans["name"] == "optimizer_step"]["end_ns"]
        rates = []
        for (_, mini_batch), begin, end in zip(samples.groupby("update"), begins, ends, strict=True):
            tokens = mini_batch["prompt_tokens"] + mini_batch["response_tokens"]
            rates.append(verl_flops(shape, int(tokens.sum()), int((tokens**2).sum())) / ((end - begin) / 1e9 * 448e9))
        assert sum(rates) / len(rates) == pytest.approx(value, rel=0.01)


def _predicted(run: Run) -> Prediction:
    """As before the run, by today's model: from its manifest, with the ceilings that were measured on its machine."""
    manifest, experiment = run.manifest, run.experiment
    weights = manifest.expected_facts.get("weights_dtype")
    (rates,) = manifest.ceilings
    dtype = "bfloat16" if weights == "bfloat16" else experiment.model.dtype
    ceiling = Ceiling("measured", "cpu", rates["flops_per_s"][dtype], rates["bytes_per_s"], "")
    shape = SHAPES[experiment.model.shape or ""]
    return predict(experiment, shape, manifest.model_dump(), ceiling, float(manifest.host["memory_bytes"]), one_machine=True)
