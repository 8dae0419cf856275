"""From a record to predictions, guidelines and their texts, on synthetic runs."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

import synthetic_run

from rlmbench.cli.main import main
from rlmbench.cli.whatif import MODES as MODES_IN_HELP
from rlmbench.errors import UserError
from rlmbench.metrics import RunSummary, summarize
from rlmbench.metrics.figures import Guideline
from rlmbench.records import Run, load
from rlmbench.records.vocabulary import CPU_LABEL
from rlmbench.report.advice import advice_section, print_advice
from rlmbench.report.parts import Note
from rlmbench.report.parts import Table as PageTable
from rlmbench.report.sweep import print_sweep
from rlmbench.report.whatif import print_what_if, what_if_parts
from rlmbench.whatif import MODES, Assumptions, Question, WhatIf, document, inputs_from_run, what_if, whatif_schema, whatif_schema_text
from rlmbench.whatif.guidelines import NAMES, RULES, Facts, advised, guidelines
from rlmbench.whatif.published import outcomes
from rlmbench.whatif.result import PUBLISHED_ERRORS
from rlmbench.whatif.sweep import rows

DOCS = Path(__file__).parents[3] / "docs" / "whatif.md"
REFERENCE = DOCS.parents[1] / "results" / "reference" / "gsm8k_grpo"
Recorded = tuple[Run, RunSummary]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    run = synthetic_run.write_run(tmp_path_factory.mktemp("whatif"))
    return run, summarize(run)


def test_inputs_are_the_measured_steps_to_the_second(recorded: Recorded) -> None:
    run, summary = recorded
    inputs = inputs_from_run(run, summary)
    steps = [step for step in summary.steps if step.excluded is None]
    assert inputs.step_s.tolist() == [step.step_s for step in steps]
    assert [int(lengths.sum()) for lengths in inputs.lengths] == [step.response_tokens for step in steps]
    parts = [
        inputs.generation_s,
        *inputs.assessment_s.values(),
        *inputs.training_s.values(),
        inputs.sync_s,
        inputs.switch_s,
        inputs.other_s,
    ]
    assert np.sum(parts, axis=0) == pytest.approx(inputs.step_s)
    assert (inputs.mode, inputs.devices, inputs.replicas, inputs.is_static) == ("colocated", 2, 2, True)


def test_the_run_itself_is_given_back(recorded: Recorded) -> None:
    """In the mean over steps with the run's own lengths and variation; no stage is lost or counted twice."""
    found = what_if(*recorded, Question(modes=("colocated",), steps=2000))
    assert found.replay.step_s == pytest.approx(found.measured_step_s, rel=1e-9)
    assert found.predictions[0].ratio == pytest.approx(1, rel=1e-9)
    assert found.best == "colocated" and found.devices == 2


@cache
def reference(framework: str) -> Recorded:
    run = load(next(REFERENCE.glob(f"*-{framework}-tiny-r0")))
    return run, summarize(run)


def of_reference(framework: str, question: Question) -> WhatIf:
    return what_if(*reference(framework), question)


def printed(found: WhatIf, width: int = 300) -> str:
    out = io.StringIO()
    print_what_if(found, Console(file=out, width=width))
    return out.getvalue()


def test_more_devices_are_no_gain_of_a_mode() -> None:
    """TRL on one device: on two, one step off (max(generation, work) of a device each) is faster than the run was, and slower than staying co-located,
    which halves all but a part of the generation."""
    found = of_reference("trl", Question(devices=2))
    of = {one.mode: one for one in found.predictions}
    together, ahead = of["colocated"], of["one_step_off"]
    assert found.own is not None and (found.own.mode, found.own.layout.devices) == ("colocated", 2)
    assert together.own_ratio == pytest.approx(1)
    assert ahead.ratio == pytest.approx(ahead.step_s / found.measured_step_s) and ahead.ratio < 0.8
    assert ahead.own_ratio == pytest.approx(ahead.step_s / together.step_s) and ahead.own_ratio > 1.3
    (row,) = [line.split() for line in printed(found).splitlines() if line.startswith(" one step off")]
    assert row[3:7] == ["1:1", f"{ahead.step_s:.3f}", f"{ahead.p90_s:.3f}", f"{ahead.own_ratio:.2f}"]
    best = of[found.best]
    told = f"best:     {found.best} 1:1 on 2 devices: {best.step_s * 1e3:.0f} ms a step, {best.step_s / together.step_s:.2f}x of colocated on the same "
    assert told + f"devices, {best.ratio:.2f}x of the step measured on 1 device" in printed(found)
    (answer,) = document([found])["whatif"]
    assert answer["own"]["step_s"] == together.step_s
    assert {one["mode"]: one["own_ratio"] for one in answer["predictions"]} == {mode: one.own_ratio for mode, one in of.items()}


def test_the_page_says_the_same_with_its_reservations() -> None:
    run = load(next(REFERENCE.glob("*-trl-tiny-r0")))
    shown, *notes, _ = what_if_parts(run, summarize(run))
    assert isinstance(shown, PageTable) and [column.title for column in shown.columns][3] == "of colocated there"
    ahead = next(row.cells for row in shown.lines if row.cells[0].text == "one_step_off")
    assert ahead[3].text == "1.33x"  # 0.742 s over 0.558 s, as the terminal has them
    told = [note.text for note in notes if isinstance(note, Note)]
    assert told[0].startswith("Best: combined 1:1 on 2 devices: ") and "of colocated on the same devices" in told[0]
    assert told[1].startswith("CPU: orchestration, not GPU throughput") and "docs/whatif.md" in told[2]


def test_a_divided_run_is_compared_with_itself_in_its_own_split(tmp_path: Path) -> None:
    """On its own devices the run as it was (1:2); on others, where no split is its own, the best one. Without a replica for it there is no ratio."""
    run = synthetic_run.write_run(tmp_path)
    place = run.experiment.placement.model_copy(update={"mode": "disaggregated", "rollout_devices": 1})
    run.experiment = run.experiment.model_copy(update={"placement": place})
    summary = summarize(run)
    same, more, fewer = (what_if(run, summary, Question(devices=count, steps=20)) for count in (3, 12, 1))
    assert same.own is not None and (same.own.layout.rollout, same.own.layout.training) == (1, 2)
    assert same.own.step_s == pytest.approx(same.measured_step_s)
    (best,) = [one for one in more.predictions if one.mode == "disaggregated"]
    assert more.own is not None and (more.own.layout.rollout, more.own.step_s) == (best.layout.rollout, best.step_s)
    assert best.own_ratio == 1
    assert fewer.own is None and {one.own_ratio for one in fewer.predictions} == {None}
    assert "No ratio: disaggregated, as the run ran, does not fit these devices." in " ".join(printed(fewer).split())


def test_how_far_it_is_to_be_trusted_is_said(recorded: Recorded, tmp_path: Path) -> None:
    """The range of errors is that of the published pairs, all of them predicted too slow; seconds of a CPU are no GPU's."""
    errors = [one.error for one in outcomes()]
    assert len(errors) == 6 and f"predicted {min(errors):.0%} to {max(errors):.0%} too slow (docs/whatif.md)" in PUBLISHED_ERRORS
    asked = Question(("colocated",), steps=20)
    on_cpu, on_gpu = (
        what_if(run, summarize(run), asked)
        for run in (
            recorded[0],
            synthetic_run.write_run(tmp_path, changes={"environment": None, "devices": [{"name": "any", "memory_bytes": 80 << 30}]}),
        )
    )
    assert on_cpu.notes[:2] == (f"{CPU_LABEL}, and so is what follows from it", PUBLISHED_ERRORS)
    assert on_gpu.notes[0] == PUBLISHED_ERRORS and not any("CPU" in note for note in on_gpu.notes)
    assert f"note:     {PUBLISHED_ERRORS}" in printed(on_cpu)


def test_a_poll_that_every_mode_keeps_is_named_and_can_be_left_out() -> None:
    """verl's driver waits for its replay buffer's poll: seconds of the stage `wait` in the record, nothing else runs meanwhile."""
    (path,) = REFERENCE.glob("*-verl-tiny-r0")
    steps = json.loads((path / "summary.json").read_text())["runs"][0]["steps"]
    waited_s = fmean(step["stages_s"]["wait"] for step in steps if step["excluded"] is None)
    found = of_reference("verl", Question(devices=16))
    (note,) = [note for note in found.notes if "waits" in note]
    assert note.startswith(
        f"in every mode {waited_s:.3g} s of a step are kept in which the driver waits for its poll for finished rollouts (every 2 s), "
    )
    assert "placement.fast_rollout_poll=true" in note and "--assume waiting_s=0" in note
    asked = Assumptions().with_settings(["waiting_s=0"])
    without = of_reference("verl", Question(devices=16, assumptions=asked))
    assert not any("waits" in note for note in without.notes)
    kept, left = ({one.mode: one.step_s for one in one.predictions} for one in (found, without))
    assert kept["colocated"] - left["colocated"] == pytest.approx(waited_s)
    advice = next(one for one in guidelines(*reference("verl")) if one.name == "waiting_driver")
    assert without.replay.step_s == pytest.approx(advice.predicted_step_s, rel=1e-3)  # the same run without its waiting
    assert "with what is assumed of it" in printed(without)
    half = of_reference("verl", Question(("colocated",), devices=16, assumptions=Assumptions().with_settings(["waiting_s=0.5"])))
    assert half.predictions[0].step_s == pytest.approx(left["colocated"] + 0.5)
    assert not any("waits" in note for note in of_reference("trl", Question(devices=2)).notes)


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (80, "mode split step s p90 ratio tok/s waiting stale memory"),
        (60, "mode split step s ratio waiting stale"),
        (40, "mode split step s ratio"),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_and_whole_words(width: int, columns: str) -> None:
    lines = printed(of_reference("verl", Question(devices=16)), width).splitlines()
    assert max(map(len, lines)) <= width
    (first,) = [place for place, line in enumerate(lines) if line.split() == columns.split()]
    table = lines[first + 2 : lines.index("", first)] if "" in lines[first:] else lines[first + 2 :]
    words = {word for line in table for word in line[: lines[first].index("split")].split()}
    assert {word for mode in MODES for word in mode.split("_")} <= words
    assert ("Too narrow here for p90, tok/s" in " ".join(" ".join(lines).split())) == (width < 80)


def test_memory_of_a_layout_that_did_not_run_is_the_cost_models(tmp_path: Path) -> None:
    """Qwen2.5-0.5B, 494,032,768 parameters, bfloat16 (no facts: asked for): a rollout device holds no training state."""
    run = synthetic_run.write_run(tmp_path, changes={"devices": [{"name": "any", "memory_bytes": 80 << 30}]})
    found = what_if(run, summarize(run), Question(modes=("one_step_off", "colocated"), split=(2, 6), steps=20))
    apart, together = found.predictions
    weights, reserved, cache = 2 * 494_032_768, 2 << 30, (256 + 256) * 12_288
    assert apart.memory_source == "cost model"
    assert apart.memory_bytes["rollout"] == weights + reserved + cache
    assert apart.memory_bytes["training"] > 16 * 494_032_768 + weights + reserved
    assert together.memory_bytes["all"] >= apart.memory_bytes["training"]


def test_where_memory_comes_from_is_said_of_each_mode(tmp_path: Path) -> None:
    """The cost model has no partial co-location: of that mode the run's own peaks stand there."""
    run = synthetic_run.write_run(tmp_path, changes={"devices": [{"name": "any", "memory_bytes": 80 << 30}]})
    summary = summarize(run)

    def caption(*modes: str) -> str:
        out = io.StringIO()
        print_what_if(what_if(run, summary, Question(modes, steps=20)), Console(file=out, width=300))
        return " ".join(out.getvalue().split())

    assert "by the cost model (of partially colocated the run's own peaks, not rescaled)." in caption("one_step_off", "partially_colocated")
    assert "by the cost model." in caption("one_step_off")
    assert "Memory: the run's own peaks in the role's stages, not rescaled." in caption("partially_colocated")


def test_a_critic_on_devices_of_its_own_is_counted(tmp_path: Path) -> None:
    """2 ranks of the actor, 2 of its critic, 1 rollout: 5 devices, in rates as in predictions; 4 of them train, two for each model."""
    gpu = {"name": "any", "memory_bytes": 80 << 30}
    run = synthetic_run.write_run(tmp_path, changes={"traits": {"critic_devices": "its own, as many as the actor's"}, "devices": [gpu]})
    place = run.experiment.placement.model_copy(update={"mode": "disaggregated", "rollout_devices": 1})
    run.experiment = run.experiment.model_copy(update={"placement": place})
    summary = summarize(run)
    inputs = inputs_from_run(run, summary)
    assert summary.throughput is not None and summary.throughput.devices == inputs.devices == 5
    assert (inputs.rollout_devices, inputs.training_devices) == (1, 4)
    found = what_if(run, summary, Question(("disaggregated",), steps=20, split=(1, 4)))
    assert found.replay.step_s == pytest.approx(found.measured_step_s) == pytest.approx(found.predictions[0].step_s)


def test_a_run_that_failed_or_was_slowed_down_is_told_as_such(recorded: Recorded) -> None:
    run, summary = recorded
    asked = Question(("colocated",), steps=20)
    failed = what_if(run, summary.model_copy(update={"status": "failed", "failure_class": "audit"}), asked)
    assert failed.notes[0].startswith("the run did not end well: failed (audit); ")
    slowed = what_if(run, summary.model_copy(update={"status": "ok", "run_pass": "profile"}), asked)
    assert slowed.notes[0].startswith("torch.profiler slowed this run")


def test_what_cannot_be_told_is_said(recorded: Recorded) -> None:
    run, summary = recorded
    found = what_if(run, summary, Question(devices=1))
    assert set(found.impossible) >= {"disaggregated", "one_step_off"} and "at least two devices" in found.impossible["one_step_off"]
    with pytest.raises(UserError, match=r"--mode one_step: unknown mode \(did you mean 'one_step_off'\?\)"):
        what_if(run, summary, Question(modes=("one_step",)))
    with pytest.raises(UserError, match="no measured step with a generation stage"):
        inputs_from_run(run, summary.model_copy(update={"lengths": None}))
    with pytest.raises(UserError, match="it ended before it had measured a step"):
        inputs_from_run(run, summary.model_copy(update={"steps": [step for step in summary.steps if step.excluded]}))
    silent = load(run.path)
    silent.tables = replace(
        run.tables, samples=run.samples.assign(response_tokens=run.samples["response_tokens"].where(run.samples["step"] != 3, 0))
    )
    with pytest.raises(UserError, match="all responses of step 3 are empty"):
        inputs_from_run(silent, summary)
    uneven = load(run.path)
    uneven.experiment = run.experiment.model_copy(
        update={"parallelism": run.experiment.parallelism.model_copy(update={"data": 3, "rollout_tensor": 2})}
    )
    with pytest.raises(UserError, match="3 rollout devices are no whole number of replicas of 2"):
        inputs_from_run(uneven, summary)
    assert {one.step_s for one in guidelines(uneven, summary)} == {None}
    untrained = {stage: seconds for stage, seconds in summary.stages_s.items() if stage != "actor_update"}
    with pytest.raises(UserError, match="no measured step with an update of the policy"):
        inputs_from_run(run, summary.model_copy(update={"stages_s": untrained}))


def test_the_command_prints_every_assumption_and_one_json_object(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(recorded[0].path)
    assert main(["whatif", path, "--devices", "8", "--steps", "50", "--assume", "latency_share=0.25"]) == 0
    text = capsys.readouterr().out
    assert all(f"{name} = " in text for name in Assumptions.model_fields) and "latency_share = 0.25" in text
    asked = ["--split", "2:6", "--mode", "one_step_off", "--steps", "50", "--assume", "stream_parts=.inf", "--json"]
    assert main(["whatif", path, *asked]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    Draft202012Validator(whatif_schema()).validate(printed)
    (answer,) = printed["whatif"]
    assert printed["schema_version"] == 1 and [one["layout"]["rollout"] for one in answer["predictions"]] == [2]
    told = {one["name"]: one["value"] for one in answer["assumptions"]}
    assert set(told) == set(Assumptions.model_fields)
    assert (told["stream_parts"], told["roles_apart"], told["sync_s"], told["training_efficiency"]) == ("inf", False, None, 1.0)


def test_the_published_schema_is_the_code_s(recorded: Recorded) -> None:
    """And it would notice a figure that is missing, of another type, or of a later version."""
    schema = whatif_schema()
    Draft202012Validator.check_schema(schema)
    assert DOCS.with_name("whatif.schema.json").read_text() == whatif_schema_text(), (
        "run: python -c 'from rlmbench.whatif import whatif_schema_text; print(whatif_schema_text(), end=\"\")' > docs/whatif.schema.json"
    )
    made = document([what_if(*recorded, Question(devices=1, steps=20))])  # modes that are split are impossible on one
    validator = Draft202012Validator(schema)
    assert validator.is_valid(made) and made["whatif"][0]["impossible"]
    (one,) = made["whatif"]
    for wrong in (
        {**made, "schema_version": 2},
        {**made, "whatif": [{key: value for key, value in one.items() if key != "replay"}]},
        {**made, "whatif": [{**one, "measured_step_s": "2 s"}]},
    ):
        assert not validator.is_valid(wrong)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--split", "4"], "--split 4: give rollout and training devices as in 4:12"),
        (["--split", "0:2"], "--split 0:2: give rollout"),
        (["--split", "2:2", "--devices", "8"], "--split 2:2: these are 4 devices, --devices says 8"),
        (["--split", "²:2"], "--split ²:2: give rollout"),
        (["--assume", "sync_s=.inf"], "--assume sync_s=.inf: "),
        (["--split", "-1:3"], "--split -1:3: give rollout"),
        (["--assume", "speed=2"], "--assume speed=2: unknown assumption; write NAME=VALUE; names are latency_share, "),
        (["--assume", "latency=2"], "--assume latency=2: unknown assumption (did you mean 'latency_share'?); "),
        (["--assume", "latency_share="], "--assume latency_share=: no value; write latency_share=VALUE"),
        (["--assume", "latency_share"], "--assume latency_share: no value; write latency_share=VALUE"),
        (["--assume", "latency_share=nan"], "--assume latency_share=nan: Input should be a finite number"),
        (["--assume", "token_exponent=.nan"], "--assume token_exponent=.nan: Input should be a finite number"),
        (["--assume", "training_efficiency=1e-300"], "--assume training_efficiency=1e-300: Input should be greater than or equal to 0.01"),
        (["--assume", "tensor_efficiency=0"], "--assume tensor_efficiency=0: Input should be greater than or equal to 0.01"),
        (["--assume", "rollout_engine=vllm"], "--assume rollout_engine=vllm: Input should be 'continuous' or 'static'"),
        (["--split", "9" * 5000 + ":1"], "9:1: more than 10,000,000 devices"),
        (["--split", "00:2"], "--split 00:2: give rollout"),
        (["--assume", "sync_s=2026-99-99"], "--assume sync_s=2026-99-99: not a value"),
        (["--assume", "sync_s=" + "9" * 5000], "9: not a value"),
        (["--assume", "sync_s=true"], "--assume sync_s=true: should be a number, not true or false"),
        (["--assume", "sync_s={a"], "--assume sync_s={a: not a value"),
        (["--mode", "async"], "--mode async: unknown mode"),
        (["--assume", "sync_s=-1"], "--assume sync_s=-1: "),
        (["--assume", "reshard_s=1e308"], "--assume reshard_s=1e308: "),
        (["--devices", "0"], "Invalid value for '--devices'"),
        (["--devices", "-1"], "Invalid value for '--devices'"),
        (["--devices", "100000000"], "Invalid value for '--devices'"),
        (["--staleness", "1000000"], "Invalid value for '--staleness'"),
        (["--split", "99999999:1"], "--split 99999999:1: more than 10,000,000 devices"),
        (["--staleness", "300"], "--staleness 300: so many steps only fill the pipeline; simulate --steps 604 or more"),
        (["--tensor", "3", "--devices", "2", "--mode", "disaggregated"], "at least 4 devices (one replica, and one that trains), not 2"),
        (["--tensor", "3", "--devices", "2"], "no mode can be simulated: 2 rollout devices do not hold whole replicas of 3; "),
    ],
)
def test_wrong_words_are_refused(recorded: Recorded, words: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(recorded[0].path), *words]) == 2
    out, err = capsys.readouterr()
    assert message in err and err.startswith("error: ") and err.count("\n") == 1 and not out


def test_steps_that_no_memory_holds_are_refused(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The synthetic run's steps have as many samples as its plan says; a hundred of them are one too many here."""
    run, summary = recorded
    samples = run.experiment.samples_per_step
    monkeypatch.setattr("rlmbench.whatif.result.MOST_RESPONSES", 100 * samples - 1)
    with pytest.raises(UserError, match=rf"--steps 100: each has {samples} responses, .* simulate 99 steps at most"):
        what_if(run, summary, Question(("colocated",), steps=100))
    assert what_if(run, summary, Question(("colocated",), steps=99)).predictions


def test_help_names_every_mode() -> None:
    assert MODES_IN_HELP.split(", ") == list(MODES)


@pytest.mark.parametrize("run", sorted(REFERENCE.glob("*-r0")), ids=lambda path: path.name.split("-")[2])
@pytest.mark.parametrize("words", [[], ["--devices", "10000000", "--staleness", "3"], ["--devices", "1"]], ids=["as it ran", "most", "one"])
def test_json_of_real_runs_keeps_to_the_published_schema(run: Path, words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    """TRL, verl, OpenRLHF. The measured step is the mean that the record itself holds, and a run in turn is given back."""
    assert main(["whatif", str(run), "--steps", "60", *words, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    printed = json.loads(line)
    Draft202012Validator(json.loads(DOCS.with_name("whatif.schema.json").read_text())).validate(printed)
    (told,) = printed["whatif"]
    steps = json.loads((run / "summary.json").read_text())["runs"][0]["steps"]
    mean = fmean(step["step_s"] for step in steps if step["excluded"] is None)
    assert told["measured_step_s"] == pytest.approx(mean)
    assert told["replay"]["step_s"] == pytest.approx(mean)
    assert len(told["predictions"]) + len(told["impossible"]) == len(MODES)


def remove(name: str) -> Callable[[Path], None]:
    return lambda run: (run / name).unlink()


def cut(name: str) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[:200])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("manifest.json"), "no run there: a run's folder holds manifest.json"),
        (cut("manifest.json"), "manifest.json: damaged (line 1, column 201); take another copy"),
        (cut("spans.parquet"), "spans.parquet: damaged, and there are no raw events to derive it from; take another copy of this run"),
        *(
            (remove(f"{table}.parquet"), f"{table}.parquet is missing or has no rows, though steps were measured; take another copy")
            for table in ("processes", "spans", "steps", "samples")
        ),
    ],
)
def test_a_damaged_copy_is_one_line(
    damage: Callable[[Path], None], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a published run, which has no events to derive its tables from again."""
    run = Path(shutil.copytree(next(REFERENCE.glob("*-verl-*")), tmp_path / "copy"))
    damage(run)
    assert main(["whatif", str(run)]) == 2
    out, err = capsys.readouterr()
    assert message in err and err.startswith("error: ") and err.count("\n") == 1 and not out


def test_published_errors_stand_in_the_docs_as_they_are() -> None:
    text = DOCS.read_text()
    for one in outcomes():
        row = (
            f"| {one.pair.name} | {one.pair.inputs.step_s[0]:,.1f} | {one.split} | {one.predicted_s:,.1f} | "
            f"{one.low_s:,.1f} to {one.high_s:,.1f} | {one.pair.published_s:,.1f} | {one.error:+.0%} |"
        )
        assert row in text, row


def test_thresholds_and_assumptions_in_the_docs_are_the_codes() -> None:
    text = DOCS.read_text()
    for rule in RULES:
        shown = f"{rule.threshold:.0%}" if rule.threshold < 1 else f"{rule.threshold:g}"
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {rule.name} |")]
        assert row.endswith(f"| {shown} |"), row
    assert all(f"| {name} |" in text for name in Assumptions.model_fields)


def one_guideline(found: Sequence[Guideline], name: str) -> Guideline:
    return next(one for one in found if one.name == name)


def test_guidelines_carry_their_figure_and_a_simulated_consequence(recorded: Recorded) -> None:
    """Padding 41.3% of the computed tokens: without it training and log-probs take 1 - 0.413 of their seconds, by hand."""
    run, summary = recorded
    found = guidelines(run, summary)
    padding = one_guideline(found, "padding")
    share = summary.padding["actor_update"].padding_share
    assert padding.triggered and padding.value == share
    inputs = inputs_from_run(run, summary)
    kept = {stage: 1 - (tokens.padding_share or 0) for stage, tokens in summary.padding.items()}
    saved = sum(seconds.mean() * (1 - kept.get(role, 1)) for role, seconds in {**inputs.training_s, **inputs.assessment_s}.items())
    assert padding.step_s is not None and padding.predicted_step_s is not None
    assert padding.step_s - padding.predicted_step_s == pytest.approx(saved, rel=0.05)
    reward = one_guideline(found, "reward_on_the_critical_path")
    assert not reward.triggered and 0 < reward.value < reward.threshold and reward.prediction is None
    assert [one.triggered for one in found] == sorted((one.triggered for one in found), reverse=True)


def test_no_figure_no_guideline(recorded: Recorded) -> None:
    run, summary = recorded
    assert {"critic_share", "weight_sync_share", "waiting_driver", "staleness_without_correction"}.isdisjoint(
        one.name for one in guidelines(run, summary)
    )
    assert guidelines(run, summary.model_copy(update={"measured_steps": 0})) == []


def steps_with(summary: RunSummary, *stages_s: dict[str, float], step_s: float = 2.0) -> RunSummary:
    """Measured steps of `step_s` with these stages, besides a quarter each of generation and update."""
    (one, *_) = [step for step in summary.steps if step.excluded is None]
    trained = {"generation": 0.5, "actor_update": 0.5}
    told = [one.model_copy(update={"stages_s": trained | of_step, "step_s": step_s}) for of_step in stages_s]
    return summary.model_copy(update={"steps": [*[step for step in summary.steps if step.excluded], *told]})


def test_each_trigger_by_hand(recorded: Recorded) -> None:
    run, summary = recorded
    inputs = inputs_from_run(run, summary)

    def value(name: str, stages_s: dict[str, float] | None = None, **changes: Any) -> float | None:
        told = steps_with(summary, stages_s) if stages_s is not None else summary
        return NAMES[name].value(Facts(run, told, replace(inputs, **changes), ""))

    assert value("critic_share", {"values": 0.1, "critic_update": 0.4}) == 0.25
    assert value("weight_sync_share", {"weight_sync": 0.22}) == 0.11 and value("weight_sync_share", {}) is None
    assert value("switching_share", {"offload": 0.08, "onload": 0.1}) == pytest.approx(0.09)
    assert value("waiting_driver", {"wait": 1.0}) == 0.5
    assert value("recomputed_log_probs", {"old_logprob": 0.14}) == 0.07  # one update per step
    assert value("long_tail", lengths=(np.array([10, 10, 10, 90]), np.array([10, 30]))) == pytest.approx((3 + 1.5) / 2)
    assert value("disaggregated_without_overlap") is None
    # Apart, in turn: the rollout device waits for all but generation.
    waits = value("disaggregated_without_overlap", mode="disaggregated", rollout_devices=1, training_devices=1)
    assert waits == pytest.approx(1 - inputs.generation_s.mean() / inputs.step_s.mean(), abs=0.03)
    assert value("tensor_parallel_where_it_fits") is None


def test_one_odd_step_triggers_no_advice(recorded: Recorded) -> None:
    """Sync takes 2%, 4%, 90% and 6% of four steps of 2 s: 25.5% of all the time, but (4 + 6) / 2 = 5% of the median step, below 10%."""
    run, summary = recorded
    odd = steps_with(summary, *({"weight_sync": seconds} for seconds in (0.04, 0.08, 1.8, 0.12)))
    found = one_guideline(guidelines(run, odd.model_copy(update={"measured_steps": 4})), "weight_sync_share")
    assert found.value == pytest.approx(0.05) and not found.triggered
    late = steps_with(summary, {}, {}, {"weight_sync": 1.8})  # a step without the stage spent nothing in it
    assert NAMES["weight_sync_share"].value(Facts(run, late, None, "")) == 0.0


def test_rollouts_that_run_ahead_need_their_old_log_probs(tmp_path: Path) -> None:
    """The policy that is updated is not the one that generated: that they could be spared would be wrong."""
    run = synthetic_run.write_run(tmp_path)
    summary = steps_with(summarize(run), {"old_logprob": 0.6})
    ahead = load(run.path)
    ahead.experiment = run.experiment.model_copy(update={"placement": run.experiment.placement.model_copy(update={"mode": "async"})})
    rule = NAMES["recomputed_log_probs"]
    assert rule.value(Facts(run, summary, None, "")) == 0.3
    assert rule.value(Facts(ahead, summary, None, "")) is None


def test_guidelines_are_shown_with_figure_threshold_and_prediction(recorded: Recorded) -> None:
    summary = advised(*recorded)
    out = io.StringIO()
    print_advice(summary, Console(file=out, width=200))
    text = " ".join(out.getvalue().split())
    assert "share of padding among the tokens that the update computed 41.3%, threshold 20.0%; predicted: " in text
    assert "guidelines: not triggered: reward_on_the_critical_path 2.2% of 5.0%" in text
    assert "predicted with ideal scaling" in text
    none = summary.model_copy(update={"guidelines": [one.model_copy(update={"triggered": False}) for one in summary.guidelines or []]})
    out = io.StringIO()
    print_advice(none, Console(file=out, width=200))
    assert out.getvalue().startswith("guidelines: none is triggered: ")
    assert "padding" in str(advice_section(summary).parts[0]) and "not looked at" in str(advice_section(recorded[1]).parts[0])


def test_a_sweep_is_shown_with_the_work_of_each_variant(tmp_path: Path) -> None:
    """Twice as many samples in the second: twice the tokens, the linear work with them; seconds as the synthetic run has them."""
    runs = [
        synthetic_run.write_run(tmp_path, f"synthetic-{name}", group_size=size, changes={"variant": name})
        for name, size in (("small", 2), ("large", 4))
    ]
    found = rows([(run, summarize(run)) for run in runs])
    small, large = found
    assert (small.variant, large.variant) == ("small", "large")
    assert (
        small.linear_flops and large.linear_flops and large.linear_flops / small.linear_flops == pytest.approx(large.tokens / small.tokens)
    )
    assert small.predicted_s == pytest.approx(small.step_s, rel=0.03)
    assert large.predicted["training"] == pytest.approx(small.stages_s["training"] * large.tokens / small.tokens, rel=0.03)
    out = io.StringIO()
    print_sweep(found, Console(file=out, width=80))
    lines = out.getvalue().splitlines()
    assert any(
        line.split()[:4] == ["TRL", "large", f"{large.tokens / small.tokens:.2f}x", f"{large.tokens / small.tokens:.2f}x"] for line in lines
    )
    assert max(map(len, lines)) <= 80


def test_a_sweeps_odd_runs_are_left_out_or_told_as_far_as_they_go(tmp_path: Path) -> None:
    """One variant lost a sample of a step, another has no measured step, a third no samples: none of them ends the table."""
    first = synthetic_run.write_run(tmp_path, "synthetic-first", changes={"variant": "first"})
    lost = synthetic_run.write_run(tmp_path, "synthetic-lost", changes={"variant": "lost"}, lost_in_step=3)
    told = [(run, summarize(run).model_copy(update={"status": "ok"})) for run in (first, lost)]
    unmeasured = told[0][1].model_copy(update={"variant": "unmeasured", "measured_steps": 0, "steps": []})
    bare = load(first.path)
    bare.tables = replace(first.tables, samples=first.samples.iloc[:0])
    found = rows([*told, (first, unmeasured), (bare, told[0][1].model_copy(update={"variant": "bare"}))])
    assert [row.variant for row in found] == ["first", "lost", "bare"]
    assert found[1].predicted_s is not None and found[1].predicted_s < found[0].step_s * 1.05
    assert (found[2].predicted_s, found[2].linear_flops) == (None, None)
