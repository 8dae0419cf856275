import json
from pathlib import Path

import jsonschema
import pytest

from rlmbench.metrics import check_invariants, document, json_schema, schema_text, summarize, write_summary
from rlmbench.records.store import Run, load

SCHEMA_FILE = Path(__file__).parents[3] / "docs" / "summary.schema.json"


@pytest.fixture(scope="module")
def summary(unchanged_run):
    return summarize(unchanged_run)


def test_what_ran_and_how_it_ended(summary):
    assert (summary.id, summary.suite, summary.scale, summary.framework) == ("synthetic-run", "gsm8k_grpo", "tiny", "trl")
    assert (summary.status, summary.failure_class, summary.wall_s) == ("ok", None, 16.0)
    assert (summary.planned_steps, summary.completed_steps, summary.measured_steps) == (4, 4, 3)
    assert (summary.audit.ok, summary.violations, summary.damaged_lines) == (True, [], 0)


def test_the_first_step_is_excluded_with_its_reason(summary):
    assert [(step.step, step.reason) for step in summary.excluded_steps] == [(1, "warm-up")]


def test_time_of_the_measured_steps(summary):
    assert (summary.step_s.median, summary.step_s.min, summary.step_s.max) == (1.0, 1.0, 1.0)
    assert summary.stages_s == pytest.approx({"data": 0.05, "generation": 0.5, "reward": 0.05, "actor_update": 0.35, "bookkeeping": 0.04})
    assert summary.stages_share == pytest.approx(
        {"data": 0.05, "generation": 0.5, "reward": 0.05, "actor_update": 0.35, "bookkeeping": 0.04}
    )
    assert summary.substages_s == pytest.approx(
        {"generation.decode": 0.4, "actor_update.forward": 0.1, "actor_update.backward": 0.2, "actor_update.optimizer": 0.05}
    )
    assert (summary.unattributed_s, summary.overlap_s) == (pytest.approx(0.01), 0.0)
    assert (summary.coverage.min, summary.coverage.median, summary.coverage.steps) == (pytest.approx(0.99), pytest.approx(0.99), 3)
    assert summary.probe_overhead == pytest.approx(0.002)


def test_throughput_counts_the_measured_steps_only(summary):
    # Rows 2 to 7: 2 x (12 + ... + 17) = 174 prompt tokens; sum of (8 + 2r) = 48 + 54 = 102 response tokens; 3 s.
    rates = summary.throughput
    assert (rates.seconds, rates.samples, rates.response_tokens, rates.tokens) == (3.0, 12, 102, 276)
    assert (rates.step_tokens_per_s, rates.response_tokens_per_s, rates.samples_per_s) == (92.0, 34.0, 4.0)
    assert rates.generation_tokens_per_s == pytest.approx(102 / 1.5)
    assert rates.training_tokens_per_s == pytest.approx(276 / 1.05)


def test_lengths_padding_memory_and_learning(summary):
    assert (summary.lengths.samples, summary.lengths.minimum, summary.lengths.mean, summary.lengths.maximum) == (12, 5, 8.5, 12)
    assert summary.lengths.share_at_cap == pytest.approx(1 / 12)
    padding = summary.padding["actor_update"]
    assert (padding.valid_tokens, padding.computed_tokens) == (276, 318)  # 2 x (22 + r) over rows 2 to 7
    assert padding.padding_share == pytest.approx(42 / 318)
    assert summary.memory.peak_bytes["actor_update"] == {"rss_peak_bytes": 2900}
    assert summary.memory.growth_bytes_per_step.value == pytest.approx(10)
    assert (summary.learning.reward.value, summary.learning.grad_norm, summary.learning.weights_changed) == (0.5, 0.5, True)
    assert summary.learning.native["kl"].value == 0.25


def test_efficiency_counts_the_tokens_of_the_measured_steps(summary):
    # tiny: N = 2 (49,152 + 147,456) + 131,072 = 524,288 weights in products; 2 L n_q d_h = 512. 276 tokens over 3 steps, and sequences of
    # 13 + 2r and 15 + 2r tokens over rows 2 to 7.
    squares = sum((13 + 2 * row) ** 2 + (15 + 2 * row) ** 2 for row in range(2, 8)) / 3
    forward = 2 * 524_288 * 92 + 512 * squares
    update = summary.efficiency.stages["actor_update"]
    assert update.model_flops == pytest.approx(3 * forward)
    assert (update.seconds, update.achieved_flops_per_s) == (pytest.approx(0.35), pytest.approx(3 * forward / 0.35))
    assert set(summary.efficiency.stages) == {"generation", "actor_update"}  # what did not run is not counted
    step = update.model_flops + summary.efficiency.stages["generation"].model_flops
    assert summary.efficiency.step_model_flops == pytest.approx(step)
    assert summary.efficiency.against == []
    assert summary.absent["efficiency.mfu"].startswith("unknown device")


def test_a_stage_that_runs_on_takes_as_long_as_its_slowest_process(synthetic):
    """The driver waits 0.5 s for generation, of which an engine makes 0.8 s, beside the update."""
    run = synthetic.write()
    (process,) = synthetic.only("process")
    steps = [event["start_ns"] for event in synthetic.only("step")]
    spans = [
        {"ev": "span", "id": 1, "parent": None, "stage": "generation", "substage": None, "name": "generate", "step": 0, "thread": 1}
        | {"start_ns": start + 100_000_000, "end_ns": start + 900_000_000}
        for start in steps
    ]
    events = [process | {"pid": 2, "role": "engine", "rank": None}, *(span | {"id": number} for number, span in enumerate(spans, 1))]
    (run.path / "probe" / "engine-2.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    generation = summarize(run).efficiency.stages["generation"]
    assert generation.seconds == pytest.approx(0.8)
    assert generation.achieved_flops_per_s == pytest.approx(generation.model_flops / 0.8)


def test_generation_that_runs_ahead_is_counted_over_the_whole_run(synthetic):
    """Asynchronous: an engine makes everything in the first 3.2 s, of which step 1 is warm-up; the driver's own spans are 0.5 s in each of 4 steps."""
    synthetic.experiment["placement"] = {"mode": "async", "rollout_engine": "vllm", "rollout_devices": 1}
    run = synthetic.write()
    (process,), start = synthetic.only("process"), synthetic.only("step")[0]["start_ns"]
    ahead = {"ev": "span", "id": 1, "parent": None, "stage": "generation", "substage": None, "name": "generate", "step": 1, "thread": 1}
    events = [process | {"pid": 2, "role": "engine", "rank": None}, ahead | {"start_ns": start, "end_ns": start + 3_200_000_000}]
    (run.path / "probe" / "engine-2.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert summarize(run).efficiency.stages["generation"].seconds == pytest.approx((3.2 + 3 * 0.5) / 4)


def test_startup_runs_from_the_start_of_the_run_to_its_first_step(summary):
    assert summary.startup.total_s == pytest.approx(10.0)  # the probe began 1 s after the run, step 1 came 9 s later
    # The model is loaded from 6 to 2 s before step 1; the 3 s before that are the driver's imports.
    assert summary.startup.stages_s == pytest.approx({"imports": 3.0, "load model": 4.0})


def test_startup_names_what_happened_before_the_driver_was_there(synthetic):
    """By hand: the driver begins at 1.0 s, the launcher at 0.2 s, and it starts Ray from 0.4 to 0.7 s."""
    process = {"ev": "process", "schema": 1, "pid": 2, "ppid": 0, "rank": 0, "local_rank": 0, "world_size": 1, "role": "launcher"}
    clocks = {"host": "h", "boot_id": "b", "mono_ns": 200_000_000, "real_ns": 1_000_200_000_000, "argv": ["python"]}
    times = {"start_ns": 400_000_000, "end_ns": 700_000_000}
    span = {
        "ev": "span",
        "id": 1,
        "parent": None,
        "substage": None,
        "step": 0,
        "thread": 1,
        "stage": "startup",
        "name": "ray_init",
        **times,
    }
    run = synthetic.write()
    (run.path / "probe" / "launcher-2.jsonl").write_text("".join(json.dumps(event) + "\n" for event in ({**process, **clocks}, span)))
    assert summarize(load(run.path)).startup.stages_s == pytest.approx(
        {"launcher": 0.5, "ray_init": 0.3, "imports": 3.0, "load model": 4.0}
    )


def test_native_figures_have_their_ratio(summary):
    assert summary.native["step_time"].ratio == pytest.approx(0.875)  # one update a step of 1 s
    assert summary.native["reward"].ratio == pytest.approx(1.0)


def test_a_hook_is_missing_when_it_attached_nowhere_and_is_not_optional(summary):
    assert summary.hooks.attached == ["generation"]
    assert [(hook.name, hook.reason) for hook in summary.hooks.missing] == [("weight_sync", "no vLLM")]


def test_each_step_is_listed(summary):
    assert [step.start_s for step in summary.steps] == [0.0, 1.0, 2.0, 3.0]
    second = summary.steps[1]
    assert (second.prompts, second.samples, second.prompt_tokens, second.response_tokens, second.optimizer_steps) == (2, 4, 50, 26, 1)
    assert (second.tokens_per_s, second.reward_mean, second.micro_batches) == (76.0, 0.5, 2)


def test_absent_figures_are_null_with_a_reason(summary):
    assert summary.absent["workers"] == "a single process recorded spans"
    assert summary.absent["learning.native.entropy"] == "the framework did not log it"
    assert "throughput" not in summary.absent


def test_coverage_leaves_short_steps_out_unless_all_are_short(synthetic):
    short = synthetic.only("step", 4)[0]
    short["end_ns"] = short["start_ns"] + 60_000_000  # 0.06 s: data 50 ms and generation 10 ms cover all of it
    assert summarize(synthetic.write()).coverage.steps == 2
    for step in synthetic.only("step"):
        step["end_ns"] = step["start_ns"] + 60_000_000
    coverage = summarize(synthetic.write()).coverage
    assert (coverage.steps, coverage.min) == (3, 1.0)
    assert coverage.scope == "all measured steps (none is 0.3 s long)"


def test_a_stage_that_not_every_step_has_counts_as_zero_seconds_there(synthetic):
    synthetic.drop([event for event in synthetic.only("span", 3) + synthetic.only("span", 4) if event["stage"] == "reward"])
    assert summarize(synthetic.write()).stages_s["reward"] == 0.0  # 0.05, 0, 0


def test_a_failed_audit_fails_a_run_that_ended_well(synthetic):
    synthetic.only("loss", 3)[0]["rows"].pop()
    summary = summarize(synthetic.write())
    assert (summary.status, summary.failure_class, summary.audit.ok) == ("failed", "audit", False)
    assert summary.failure.message == "2 mismatches with the plan; first: step 3: the loss received 3 samples instead of 4"


def test_a_run_that_recorded_nothing_is_never_green(synthetic):
    synthetic.events = []
    run = synthetic.write()
    (run.path / "probe" / "driver-1.jsonl").unlink()
    summary = summarize(Run(run.path, run.manifest))  # as a run is closed
    assert (summary.status, summary.failure_class, summary.audit, summary.measured_steps) == ("failed", "audit", None, 0)
    assert (summary.step_s.median, summary.coverage.min, summary.throughput, summary.probe_overhead) == (None, None, None, None)
    assert {"audit", "step_s", "coverage", "throughput", "probe_overhead", "lengths", "learning.reward"} <= set(summary.absent)


def test_a_run_whose_steps_are_all_left_out_is_never_green(synthetic):
    for number in (2, 3, 4):
        span = next(event for event in synthetic.only("span", number) if event["stage"] == "bookkeeping")
        span["stage"] = "checkpoint"
    summary = summarize(synthetic.write())
    assert (summary.status, summary.measured_steps, summary.audit.ok) == ("failed", 0, True)
    assert summary.failure.message == "no step was measured: all 4 are left out"


def test_a_run_killed_in_its_third_step_keeps_what_it_measured(synthetic):
    synthetic.manifest["status"] = "running"
    third = [event for event in synthetic.events if event.get("step") in (3, 4)]
    synthetic.drop(third[4:])
    summary = summarize(synthetic.write())
    assert (summary.status, summary.failure_class) == ("interrupted", "killed")
    assert (summary.completed_steps, summary.measured_steps, summary.step_s.median) == (2, 1, 1.0)
    assert summary.violations == []


def test_without_spans_work_and_step_time_remain(synthetic):
    synthetic.drop(synthetic.only("span"))
    summary = summarize(synthetic.write())
    assert (summary.status, summary.stages_s, summary.coverage.min, summary.unattributed_s) == ("ok", {}, None, None)
    assert (summary.step_s.median, summary.throughput.samples_per_s) == (1.0, 4.0)
    assert summary.steps[1].coverage is None
    assert summary.absent["coverage"].startswith("no spans were recorded")


def test_throughput_is_absent_when_a_measured_steps_work_is_unknown(synthetic):
    synthetic.drop(synthetic.only("loss", 3) + synthetic.only("update", 3))
    summary = summarize(synthetic.write())
    assert summary.throughput is None
    assert summary.absent["throughput"] == "the work of some measured step was not recorded"


def test_workers_are_compared_when_there_are_several(synthetic):
    run = synthetic.write()
    slower = [
        {**event, "end_ns": event["end_ns"] - 150_000_000}
        for event in synthetic.only("span")
        if event["stage"] == "actor_update" and not event["substage"]
    ]
    (run.path / "probe" / "worker-2.jsonl").write_text("".join(json.dumps(event) + "\n" for event in slower))
    workers = {worker.stage: worker for worker in summarize(load(run.path)).workers}
    assert {worker.role for worker in workers.values()} == {"trainer"}, "a driver that trains is one of the ranks"
    update = workers["actor_update"]
    assert (update.processes, workers["generation"].processes) == (2, 1)
    assert (update.min_s, update.median_s, update.max_s) == pytest.approx((0.2, 0.275, 0.35))
    assert update.skew == pytest.approx((0.35 - 0.275) / 0.35)


def test_a_driver_that_only_directs_others_is_no_worker(synthetic):
    """verl's: its spans last as long as its workers need, and it trains nothing itself."""
    elsewhere = [{"ev": "role", "role": "trainer", "rank": 1}, *synthetic.only("update"), *synthetic.only("span")]
    synthetic.drop(synthetic.only("update"))
    run = synthetic.write()
    (run.path / "probe" / "worker-2.jsonl").write_text("".join(json.dumps(event) + "\n" for event in elsewhere))
    loaded = load(run.path)
    assert {(worker.role, worker.processes) for worker in summarize(loaded).workers} == {("trainer", 1)}
    (process,) = loaded.processes[loaded.processes["process"] == "worker-2"].to_dict("records")
    assert (process["role"], process["rank"]) == ("trainer", 1)


def test_the_json_object_meets_its_schema_and_the_committed_file_is_current(summary):
    printed = json.loads(json.dumps(document([summary]), allow_nan=False))
    jsonschema.Draft202012Validator.check_schema(json_schema())
    jsonschema.validate(printed, json_schema())
    assert printed["schema_version"] == 1
    assert {
        "id",
        "path",
        "suite",
        "scale",
        "framework",
        "status",
        "failure_class",
        "audit",
        "coverage",
        "step_s",
        "stages_s",
        "measured_steps",
    } <= set(printed["runs"][0])
    assert SCHEMA_FILE.read_text() == schema_text(), (
        "run: python -c 'from rlmbench.metrics import schema_text; print(schema_text(), end=\"\")' > docs/summary.schema.json"
    )


def test_a_figure_that_is_no_number_never_reaches_the_json(synthetic):
    synthetic.only("native", 2)[0]["values"]["kl"] = float("nan")
    synthetic.only("update", 2)[0]["grad_norm"] = float("inf")
    printed = json.dumps(document([summarize(synthetic.write())]), allow_nan=False)
    assert json.loads(printed)["runs"][0]["learning"]["grad_norm"] == 0.5


def test_the_written_summary_is_what_load_finds(synthetic):
    run = synthetic.write()
    summary = summarize(run)
    write_summary(run.path, summary)
    assert load(run.path).summary == document([summary])["runs"][0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda fields: fields["steps"][1].update(unattributed_s=0.5),
            "step 2: stages + unattributed - overlap are 1.490000 s, but the step took 1.000000 s",
        ),
        (lambda fields: fields["steps"][1].update(coverage=1.5), "step 2: coverage 1.5 is not in [0, 1]"),
        (lambda fields: fields["steps"][1].update(probe_share=-0.1), "step 2: the probe's share -0.1 is not in [0, 1]"),
        (lambda fields: fields["steps"][1]["stages_s"].update(lunch=0.0), "step 2: unknown stage 'lunch'"),
        (lambda fields: fields["substages_s"].update({"generation.lunch": 0.1}), "unknown substage 'generation.lunch'"),
        (lambda fields: fields["steps"][2].update(start_s=1.5), "step 3 begins before step 2 ends"),
        (lambda fields: fields["steps"][2].update(step=2), "step 2 was recorded 2 times"),
        (lambda fields: fields.update(measured_steps=4), "4 measured and 1 excluded steps are not the 4 completed ones"),
        (lambda fields: fields["throughput"].update(samples_per_s=40.0), "40.0 samples/s over 3.0 s are not the 12 that were counted"),
        (lambda fields: fields["throughput"].update(seconds=1.0), "throughput is over 1.0 s, which are not the measured steps' seconds"),
        (
            lambda fields: fields["padding"]["actor_update"].update(padding_share=-0.2),
            "actor_update: 276 valid tokens exceed the 318 computed ones",
        ),
    ],
)
def test_a_broken_invariant_is_named(summary, change, sentence):
    fields = summary.model_dump()
    change(fields)
    assert sentence in check_invariants(type(summary).model_validate(fields))


def test_a_path_below_the_working_directory_is_relative(synthetic, monkeypatch):
    run = synthetic.write()
    monkeypatch.chdir(run.path.parent)
    assert summarize(run).path == "synthetic-run"


@pytest.mark.parametrize(
    ("probe", "attached", "reason"),
    [
        (False, True, "no spans were recorded: measurement.probe is off"),
        (True, False, "no spans were recorded: no hook attached"),
        (True, True, "no spans were recorded by the hooks that attached"),
    ],
)
def test_a_run_without_spans_says_which_reason_is_its_own(synthetic, probe, attached, reason):
    synthetic.events = [event for event in synthetic.events if event["ev"] not in ("span", "hook")]
    synthetic.events.append({"ev": "hook", "name": "step", "target": "trl:Trainer.step", "attached": attached, "reason": None})
    synthetic.experiment["measurement"]["probe"] = probe
    assert summarize(synthetic.write()).absent["coverage"] == reason
