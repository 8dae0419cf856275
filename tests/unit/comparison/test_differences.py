"""In what two configurations differ in effect, and what that changes."""

from __future__ import annotations

import json

import pytest
from altered_records import OF_VERL, TRL, VERL, append_events, edit_events, only_pair, repeated

from rlmbench.adapter import installed_adapters
from rlmbench.comparison.knowledge import EFFECTS, TRAITS, field_meaning
from rlmbench.experiment.load import load_suite, suite_files


def pair_of(records, change_a=None, change_b=None, a=None, b=None):
    ours, theirs = records.altered(change_a, **(a or {})), records.altered(change_b, **{**OF_VERL, **(b or {})})
    pair = only_pair(repeated(ours, speed=2), repeated(theirs))
    return pair, {difference.name: difference for difference in pair.differences}


def entry(field, fidelity, reason="", value=None):
    return {"field": field, "value": value, "fidelity": fidelity, "native_key": None, "native_value": None, "reason": reason}


def test_runs_that_differ_in_their_framework_alone(records):
    pair, found = pair_of(records)
    assert (pair.differences, found) == ([], {})


def test_a_field_that_one_framework_only_approximates(records):
    ours = [entry("optimization.max_grad_norm", "approximated", "not applied"), entry("optimization.epochs", "exact")]
    theirs = [entry("optimization.max_grad_norm", "exact"), entry("optimization.epochs", "exact", "another text")]
    _, found = pair_of(records, a={"ledger": ours}, b={"ledger": theirs})
    assert list(found) == ["field.optimization.max_grad_norm"]
    difference = found["field.optimization.max_grad_norm"]
    assert (difference.a, difference.b, difference.changes, difference.unify) == ("not applied", "as asked", "numbers", None)


def test_a_field_that_both_approximate_alike_is_no_difference(records):
    ledger = [entry("model.dtype", "approximated", "float32 weights")]
    _, found = pair_of(records, a={"ledger": ledger}, b={"ledger": ledger})
    assert found == {}


def test_a_setting_of_the_users_own(records):
    _, found = pair_of(records, a={"ledger": [entry("native.fused", "changed", "mine.yaml gives True")], "division": "tuned"})
    assert (found["field.native.fused"].a, found["field.native.fused"].changes) == ("mine.yaml gives True", "unknown")


def test_traits_by_their_effect_gravest_first(records):
    names = ("rollout_poll", "advantage_epsilon", "padding", "a_third_partys")
    ours, theirs = dict.fromkeys(names, "this"), dict.fromkeys((*names, "only_theirs"), "that")
    pair, _ = pair_of(records, a={"traits": ours}, b={"traits": theirs})
    assert [(difference.name, difference.changes) for difference in pair.differences] == [
        ("trait.padding", "work"),
        ("trait.a_third_partys", "unknown"),
        ("trait.advantage_epsilon", "numbers"),
        ("trait.rollout_poll", "neither"),
    ]
    assert [difference.changes for difference in pair.differences] == sorted(
        (difference.changes for difference in pair.differences), key=EFFECTS.index
    )
    assert pair.differences[-1].unify == "placement.fast_rollout_poll=true"


def asked_engine(records, engine):
    recipe = json.loads(json.dumps(records.plain().manifest.experiment))
    recipe["placement"] = {"rollout_engine": engine}
    return recipe


def test_what_was_asked_for_gives_way_to_what_became_of_it(records):
    """auto and vllm are asked for differently, but both became vLLM; auto and auto became different engines."""
    auto, vllm = asked_engine(records, "auto"), asked_engine(records, "vllm")
    became = {"traits": {"rollout_engine": "vllm"}}
    pair, found = pair_of(records, a={"experiment": auto, **became}, b={"experiment": vllm, **became})
    assert (pair.verdict, found) == ("comparable", {})
    _, found = pair_of(records, a={"traits": {"rollout_engine": "hf"}}, b=became)
    assert (found["trait.rollout_engine"].a, found["trait.rollout_engine"].b) == ("hf", "vllm")
    # Without traits, the experiments are all there is.
    _, found = pair_of(records, a={"experiment": auto}, b={"experiment": vllm})
    assert found["field.placement.rollout_engine"].changes == "neither"


def test_a_section_that_one_experiment_lacks_is_one_difference(records):
    recipe = json.loads(json.dumps(records.plain().manifest.experiment))
    recipe["workload"]["replay"] = None
    _, found = pair_of(records, b={"experiment": recipe})
    assert list(found) == ["field.workload.replay"]
    assert (found["field.workload.replay"].a, found["field.workload.replay"].b) == ("given", "none")


def test_a_note_in_the_ledger_is_not_told_twice(records):
    ledger = [entry("(framework) old log-probs", "approximated", "from the training forward")]
    theirs = {"ledger": [], "traits": {"old_logprob": "a forward"}}
    _, found = pair_of(records, a={"ledger": ledger, "traits": {"old_logprob": "none"}}, b=theirs)
    assert list(found) == ["trait.old_logprob"]
    _, found = pair_of(records, a={"ledger": ledger}, b={"ledger": []})  # an older record, without traits
    assert found["field.(framework) old log-probs"].changes == "work"


def test_facts_stated_inside_the_runs(records):
    ours = append_events({"ev": "fact", "name": "weights_dtype", "value": "float32"}, {"ev": "fact", "name": "torch_threads", "value": 1})
    theirs = append_events({"ev": "fact", "name": "weights_dtype", "value": "bfloat16"})
    _, found = pair_of(records, ours, theirs)
    difference = found["fact.weights_dtype"]
    assert (difference.a, difference.b, difference.changes) == ("float32", "bfloat16", "numbers")
    assert set(found) == {"fact.weights_dtype"}  # of the threads the other says nothing


def test_a_stage_that_only_one_has(records):
    def no_old_logprob(event):
        if event.get("stage") == "old_logprob":
            event["stage"] = "bookkeeping"

    _, found = pair_of(records, None, edit_events(no_old_logprob))
    assert (found["stage.old_logprob"].b, found["stage.old_logprob"].changes) == ("none", "work")
    assert found["stage.old_logprob"].a.endswith(" s a step")


def test_computed_tokens(records):
    """The training forwards of B process twice the tokens for the same valid ones."""

    def pad(event):
        if event["ev"] == "loss":
            event["computed_tokens"] *= 2

    pair, found = pair_of(records, None, edit_events(pad))
    difference = found["computed_tokens.actor_update"]
    run = records.plain().summary.padding["actor_update"]
    steps = 3  # 4, of which one is warm-up
    assert difference.a == f"{run.computed_tokens / steps:,.0f} a step for {run.valid_tokens / steps:,.0f} valid"
    assert difference.b == f"{2 * run.computed_tokens / steps:,.0f} a step for {run.valid_tokens / steps:,.0f} valid"
    assert difference.changes == "work"
    assert {reason.kind for reason in pair.reasons} == {"work_in_effect"}


def test_versions_of_what_both_stand_on(records):
    newer = {**VERL, "packages": {**VERL["packages"], "torch": "2.14.0", "vllm": "1.0"}}
    _, found = pair_of(records, b={"environment": newer})
    assert (found["versions"].a, found["versions"].b) == ("torch 2.13.0", "torch 2.14.0")


def test_two_versions_of_one_framework_are_two_configurations(records):
    newer = {**TRL, "packages": {**TRL["packages"], "trl": "1.17.0"}}
    pair = only_pair(repeated(records.plain()), repeated(records.altered(environment=newer)))
    assert pair.differences == []  # the framework's own version is the name of the configuration


def test_the_longest_name_that_fits_speaks_for_a_field():
    assert field_meaning("workload.sampling.temperature").effect == "numbers"
    assert field_meaning("workload.prompts.seed").effect == "work"
    assert field_meaning("optimization.kl.coefficient").effect == "work"
    assert field_meaning("optimization.clip_low").effect == "numbers"
    assert field_meaning("elsewhere").effect == "unknown"


@pytest.mark.parametrize("name", sorted(suite_files()))
def test_every_trait_that_an_adapter_states_is_known(name):
    suite = load_suite(name)
    for scale in suite.scales:
        experiment = suite.experiment_at(scale)
        for framework, adapter in installed_adapters().items():
            stated = adapter.translate(experiment, "cpu" if scale == "tiny" else "cuda").traits
            assert stated, framework
            assert set(stated) <= set(TRAITS), (framework, set(stated) - set(TRAITS))
            assert all(stated.values())


def test_the_known_differences_of_the_frameworks():
    """Each by the framework's own source: trl/trainer/grpo_trainer.py, verl/trainer/ppo/core_algos.py, openrlhf/trainer/ppo_utils/experience_maker.py."""
    experiment = load_suite("gsm8k_grpo").experiment_at("tiny")
    epsilon = {name: adapter.translate(experiment, "cpu").traits.get("advantage_epsilon") for name, adapter in installed_adapters().items()}
    assert {"trl": "1e-4", "verl": "1e-6"}.items() <= epsilon.items()
    assert epsilon.get("openrlhf", "1e-9") == "1e-9"
    ppo = load_suite("gsm8k_ppo").experiment_at("tiny")
    critic = {name: adapter.translate(ppo, "cpu").traits["critic_update"] for name, adapter in installed_adapters().items()}
    assert critic["trl"].startswith("joint") and critic["verl"].startswith("separate")
