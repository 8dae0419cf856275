"""May two configurations be compared? Each trigger by a record altered in that one thing."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
import synthetic_run
import synthetic_samples
from altered_records import HOST, OF_VERL, append_events, compared, edit_events, kinds, only_pair, repeated, sentence

from rlmbench.comparison.knowledge import DECIDES, FACTS, FIELDS, NOTES, STAGES, TRAITS


@pytest.fixture
def trl(records):
    return repeated(records.plain("trl"))


def against(trl, other, times=4):
    return only_pair(trl, repeated(other, times))


def test_equal_work_on_one_machine_is_comparable(records, trl):
    pair = against(trl, records.plain("verl"))
    assert (pair.verdict, pair.reasons) == ("comparable", [])
    assert pair.speed.verdict == "no difference shown"


def changed(experiment, field, value):
    recipe = json.loads(json.dumps(experiment))
    section, name = field.split(".")
    recipe.setdefault(section, {})[name] = value
    return recipe


def test_other_work_asked_for(records, trl):
    recipe = changed(records.plain().manifest.experiment, "workload.max_response_tokens", 512)
    pair = against(trl, records.altered(experiment=recipe, **OF_VERL))
    assert pair.verdict == "not comparable"
    assert "workload.max_response_tokens (256 v 512)" in sentence(pair, "different_work_asked")
    assert pair.speed is None


def test_what_only_simulates_a_framework_is_compared_with_itself_alone(records, trl):
    simulated = {"framework": "reference", "simulated": "simulated: a scripted schedule, no training"}
    pair = against(trl, records.altered(**simulated))
    assert pair.verdict == "not comparable"
    assert "is simulated: a scripted schedule, no training" in sentence(pair, "simulated")
    assert pair.speed is None
    alike = only_pair(repeated(records.altered(**simulated)), repeated(records.altered(native={"schedule": "fused"}, **simulated)))
    assert "simulated" not in kinds(alike)


def test_other_settings_asked_for(records, trl):
    recipe = changed(records.plain().manifest.experiment, "optimization.clip_high", 0.3)
    pair = against(trl, records.altered(experiment=recipe, **OF_VERL))
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"different_settings"})
    assert "optimization.clip_high (0.2 v 0.3)" in sentence(pair, "different_settings")  # 0.2 is the default that the other leaves it at


def test_other_plan_and_tokens(records, trl, write_other_plan):
    def take_its_place(folder):
        shutil.copytree(write_other_plan, folder, dirs_exist_ok=True)

    other = records.altered(take_its_place, **OF_VERL)
    assert other.ok, "its own audit passes: it did what its own plan says"
    pair = against(trl, other)
    assert (pair.verdict, kinds(pair)) == ("not comparable", {"different_plans", "different_tokens"})
    # The figures by hand, from the plans.
    first, second = (_planned_tokens(synthetic_run.plan(4, 4, 2, seed), step=1) for seed in (0, 7))
    assert first != second
    tokens = sentence(pair, "different_tokens")
    assert f"in step 1 {first:,} in" in tokens or f"in step 1 {second:,} in" in tokens
    assert f"{first:,}" in tokens and f"{second:,}" in tokens
    assert {trl[0].plan_hash, other.plan_hash} <= set(sentence(pair, "different_plans").replace(",", "").split())


def _planned_tokens(plan, step):
    rows = [row for row in plan["rows"] if row["step"] == step]
    return sum(len(row["response_tokens"]) * row["prompt_tokens"] + sum(row["response_tokens"]) for row in rows)


def test_a_lost_sample_leaves_no_good_run(records, trl):
    def lose(event):
        if event["ev"] == "loss" and event["step"] == 3:
            event["rows"] = event["rows"][:-1]

    pair = against(trl, records.altered(edit_events(lose), **OF_VERL))
    assert (pair.verdict, kinds(pair)) == ("not comparable", {"no_good_run"})
    assert sentence(pair, "no_good_run") == "B has no run that ended well (4 failed: audit)"
    assert pair.speed is None and pair.differences == []


def test_a_run_without_a_passed_audit(records, trl):
    other = records.plain("verl")
    unproven = dataclasses.replace(other, summary=other.summary.model_copy(update={"audit": None}))
    pair = against(trl, unproven)
    assert (pair.verdict, kinds(pair)) == ("not comparable", {"audit"})
    assert "the work of 4 runs of" in sentence(pair, "audit")


def test_lengths_left_to_the_model(records, trl):
    def natural(folder):
        plan = json.loads((folder / "plan.json").read_text())
        plan["mode"] = "natural"
        for row in plan["rows"]:
            row["response_tokens"] = row["rewards"] = None
        (folder / "plan.json").write_text(json.dumps(plan))

    ours, theirs = records.altered(natural), records.altered(natural, **OF_VERL)
    pair = only_pair(repeated(ours), repeated(theirs))
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"natural_lengths"})
    mean = ours.summary.lengths.mean
    assert f"{mean:,.1f} tokens in A and {mean:,.1f} tokens in B" in sentence(pair, "natural_lengths")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"host": {**HOST, "cpu_model": "Another CPU"}}, "cpu: Another CPU, 2 cores"),
        ({"host": {**HOST, "cores": 64}}, "cpu: Synthetic CPU, 64 cores"),
        ({"devices": [{"name": "NVIDIA H200"}, {"name": "NVIDIA H200"}]}, "2 x NVIDIA H200"),
    ],
)
def test_other_devices(records, trl, change, named):
    pair = against(trl, records.altered(**OF_VERL, **change))
    assert (pair.verdict, kinds(pair)) == ("not comparable", {"different_devices"})
    assert named in sentence(pair, "different_devices")
    assert pair.speed is None


def test_another_number_of_devices_held(records, trl):
    other = records.plain("verl")
    rates = other.summary.throughput
    alone = rates.model_copy(update={"devices": 1, "step_tokens_per_s_per_device": rates.step_tokens_per_s})
    pair = only_pair(trl, [dataclasses.replace(other, summary=other.summary.model_copy(update={"throughput": alone}))] * 4)
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"devices_held"})
    rate = f"{rates.step_tokens_per_s:,.0f}"
    assert f"holds 1 and makes {rate} tokens/s with each" in sentence(pair, "devices_held")
    assert "holds 2 and makes" in sentence(pair, "devices_held")


def test_other_hosts_of_the_same_kind(records, trl):
    pair = against(trl, records.altered(**OF_VERL, host={**HOST, "hostname": "two"}))
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"different_hosts"})
    assert sentence(pair, "different_hosts").endswith("one, two")


def test_a_throttled_device(records, trl):
    fact = {"ev": "fact", "name": "throttled_share", "value": 0.12}
    pair = against(trl, records.altered(append_events(fact), **OF_VERL))
    assert (pair.verdict, kinds(pair)) == ("not comparable", {"throttled"})
    assert "throttled in 4 of 4 runs, up to 12.0% of the time" in sentence(pair, "throttled")


def sampled(**kinds):
    return lambda folder: synthetic_samples.write_samples(folder, **kinds)


def test_a_device_that_a_collector_saw_throttled(records, trl):
    pair = against(trl, records.altered(sampled(devices=2, throttle_reasons="hw_thermal"), **OF_VERL))
    assert (pair.verdict, kinds(pair)) == ("not comparable", {"throttled"})
    assert "throttled in 4 of 4 runs, up to 100.0% of the time" in sentence(pair, "throttled")


def test_a_device_at_its_power_limit_is_not_throttled_and_its_figures_are_compared(records, trl):
    """Of both devices 450 W, each with half of its multiprocessors active; of two cores one and a half in use, a tenth by others."""
    other = records.altered(sampled(devices=2, throttle_reasons="sw_power_cap"), **OF_VERL)
    comparison = compared(*trl, *repeated(other))
    assert comparison.pairs[0].verdict == "comparable"
    of = {one.framework: one for one in comparison.configurations}
    verl, step_s = of["verl"], other.summary.step_s.mean
    assert (verl.cpu_idle, verl.low_sm, verl.others_cpu_cores) == pytest.approx((0.25, 0.5, 0.1))
    assert (verl.energy_j_per_step, verl.device_peak_bytes) == (pytest.approx(450 * step_s), 8 * synthetic_run.GIB)
    assert verl.energy_j_per_1000_response_tokens == pytest.approx(
        450 * 1000 * other.summary.throughput.seconds / other.summary.throughput.response_tokens
    )
    update = verl.stages["actor_update"]
    assert (update.cpu_idle, update.device_peak_bytes) == (pytest.approx(0.25), 8 * synthetic_run.GIB)
    seconds = [device.stages["actor_update"].seconds for device in other.summary.devices]
    assert update.energy_j == pytest.approx(250 * seconds[0] + 200 * seconds[1])
    assert (of["trl"].energy_j_per_step, of["trl"].cpu_idle, of["trl"].stages["actor_update"].energy_j) == (None, None, None)


def test_others_at_work_while_it_was_measured(records, trl):
    other = records.altered(sampled(), **OF_VERL)
    (host,) = other.summary.host
    busy = other.summary.model_copy(update={"host": [host.model_copy(update={"others_cpu_cores": 0.6})]})
    pair = against(trl, dataclasses.replace(other, summary=busy))
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"others_at_work"})
    assert "while 4 of 4 runs of" in sentence(pair, "others_at_work")
    assert "up to 30% of its cores" in sentence(pair, "others_at_work")


def test_a_device_that_was_watched_and_not_throttled(records, trl):
    fact = {"ev": "fact", "name": "throttled_share", "value": 0.0}
    assert against(trl, records.altered(append_events(fact), **OF_VERL)).verdict == "comparable"


def test_a_single_run(records, trl):
    pair = against(trl, records.plain("verl"), times=1)
    assert (pair.verdict, kinds(pair)) == ("not comparable", {"too_few_runs"})
    assert "--repeats 4" in sentence(pair, "too_few_runs")
    # The ratio is shown, since the work is equal, but nothing is concluded from it.
    assert pair.speed.verdict == "too few runs" and pair.speed.low is None


def test_three_runs(records):
    pair = only_pair(repeated(records.plain(), 3), repeated(records.plain("verl"), 3, speed=2))
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"few_runs"})
    assert "the smallest p they can give is 0.1" in sentence(pair, "few_runs")
    assert pair.speed.verdict == "too few runs"


@pytest.mark.parametrize(
    ("event", "evidence"),
    [
        ({"ev": "native", "step": 2, "t_ns": 1, "values": {"sampling/sampling_logp_difference/mean": 0.4}}, "differ by 0.4 on average"),
        ({"ev": "fact", "name": "weights_synced", "value": False}, "checked inside the run and failed"),
    ],
)
def test_a_broken_weight_sync(records, trl, event, evidence):
    pair = against(trl, records.altered(append_events(event), **OF_VERL))
    assert (pair.verdict, kinds(pair)) == ("not comparable", {"broken_weight_sync"})
    assert evidence in sentence(pair, "broken_weight_sync")
    assert pair.speed is None


def test_our_own_count_goes_before_the_frameworks_log(records, trl):
    """Rollout log-probs 0.3 apart over 10 tokens, while the framework logs nothing wrong."""
    event = {"ev": "logprobs", "step": 2, "t_ns": 1, "tokens": 10, "difference_sum": 3.0, "difference_max": 0.5}
    pair = against(trl, records.altered(append_events(event), **OF_VERL))
    assert (pair.verdict, kinds(pair)) == ("not comparable", {"broken_weight_sync"})
    assert "differ by 0.3 on average, rounding in bfloat16 explains 0.02" in sentence(pair, "broken_weight_sync")


def test_a_weight_sync_that_works(records, trl):
    event = {"ev": "native", "step": 2, "t_ns": 1, "values": {"sampling/sampling_logp_difference/mean": 0.01}}
    assert against(trl, records.altered(append_events(event), **OF_VERL)).verdict == "comparable"


@pytest.mark.parametrize(("weights", "verdict"), [("bfloat16", "comparable"), ("float32", "not comparable")])
def test_the_type_that_was_at_work_decides_what_rounding_explains(records, weights, verdict):
    """Asked for float32, a framework that has only bfloat16 is not blamed for its rounding."""
    recipe = changed(records.plain().manifest.experiment, "model.dtype", "float32")
    said = {"ev": "native", "step": 2, "t_ns": 1, "values": {"sampling/sampling_logp_difference/mean": 0.01}}
    events = append_events(said, {"ev": "fact", "name": "weights_dtype", "value": weights})
    other = records.altered(events, experiment=recipe, **OF_VERL)
    assert only_pair(repeated(records.altered(experiment=recipe)), repeated(other)).verdict == verdict


def test_weights_that_did_not_change(records, trl):
    def stand_still(event):
        if event["ev"] == "update":
            event.update(learning_rate=0.0, weights_changed=False)

    pair = against(trl, records.altered(edit_events(stand_still), **OF_VERL))
    assert (pair.verdict, kinds(pair)) == ("not comparable", {"weights_unchanged"})


def test_a_run_that_failed_among_good_ones(records, trl):
    failed = records.altered(status="failed", failure=synthetic_run.FAILURE.model_dump(mode="json"), **OF_VERL)
    pair = only_pair(trl, [*repeated(records.plain("verl")), failed])
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"failed_runs"})
    assert "1 of 5 runs of B did not end well and are left out (1 failed: out_of_memory_host)" in sentence(pair, "failed_runs")
    assert (pair.speed.runs_a, pair.speed.runs_b) == (4, 4)


def test_only_unfinished_runs(records, trl):
    unfinished = records.altered(status="running", **OF_VERL)  # its supervisor is gone: killed
    pair = only_pair(trl, [unfinished])
    assert (pair.verdict, kinds(pair)) == ("not comparable", {"no_good_run"})
    assert "1 interrupted: killed" in sentence(pair, "no_good_run")


def test_a_busy_machine(records, trl):
    pair = against(trl, records.altered(**OF_VERL, host={**HOST, "load": [3.0, 1.0, 1.0]}))
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"load"})
    assert "began: load per core up to 1.50" in sentence(pair, "load")


def test_a_machine_that_was_measured_as_busy_is_said_in_the_words_of_its_record(records, trl):
    found = {"host_busy_share": 0.6, "problems": ["60% of the cores are at work for others (limit 25%)"]}
    pair = against(trl, records.altered(**OF_VERL, host={**HOST, "load": [3.0, 1.0, 1.0]}, preconditions=found))
    assert kinds(pair) == {"load"}
    assert "was not quiet when 4 of 4 runs of B began" in sentence(pair, "load")
    assert "60% of the cores are at work for others (limit 25%)" in sentence(pair, "load")
    quiet = against(trl, records.altered(**OF_VERL, host={**HOST, "load": [3.0, 1.0, 1.0]}, preconditions={"host_busy_share": 0.01}))
    assert kinds(quiet) == set()  # the load average was still that of an hour ago


def test_another_rlmbench(records, trl):
    pair = against(trl, records.altered(**OF_VERL, versions={"rlmbench": "0.0.9"}))
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"different_rlmbench"})
    assert sentence(pair, "different_rlmbench").endswith("0.0.9, 0.1.0")


def test_another_division(records, trl):
    pair = against(trl, records.altered(**OF_VERL, division="tuned"))
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"different_divisions"})


def test_a_breakdown_that_explains_little(records, trl):
    other = records.plain("verl")
    coverage = other.summary.coverage.model_copy(update={"min": 0.7})
    poor = dataclasses.replace(other, summary=other.summary.model_copy(update={"coverage": coverage}))
    pair = against(trl, poor)
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"coverage"})
    assert "only 70.0% of a step" in sentence(pair, "coverage")


def test_other_computation_in_effect(records):
    ours = records.altered(traits={"old_logprob": "none"})
    theirs = records.altered(traits={"old_logprob": "a forward of their own"}, **OF_VERL)
    pair = only_pair(repeated(ours), repeated(theirs))
    assert (pair.verdict, kinds(pair)) == ("comparable with reservations", {"work_in_effect"})
    assert "old log-probs" in sentence(pair, "work_in_effect")


def test_configurations_of_different_suites_are_not_paired_unless_nothing_else_is(records, trl):
    other = repeated(records.altered(suite="gsm8k_ppo", **OF_VERL))
    assert len(compared(*trl, *other).pairs) == 1
    third = repeated(records.plain("verl"))
    assert len(compared(*trl, *other, *third).pairs) == 1


def test_every_meaning_has_a_reason():
    for table in (TRAITS, FIELDS, FACTS, STAGES):
        for name, meaning in table.items():
            assert meaning.label and len(meaning.why) > 10, name
    assert set(NOTES.values()) <= set(TRAITS) and set(DECIDES.values()) <= set(TRAITS)
