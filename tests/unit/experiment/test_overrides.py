"""`--set key=value`: what it changes, and what it refuses by name."""

from __future__ import annotations

import copy

import pytest

from rlmbench.errors import UserError
from rlmbench.experiment import Experiment, Suite
from rlmbench.experiment.load import apply_overrides, build_experiment

BASE = {
    "model": {"shape": "tiny", "dtype": "float32"},
    "workload": {
        "prompts_per_step": 8,
        "max_prompt_tokens": 160,
        "max_response_tokens": 64,
        "replay": {"lengths": {"kind": "lognormal", "p50_tokens": 24, "p99_tokens": 64}},
    },
    "optimization": {"algorithm": "grpo", "group_size": 4, "mini_batch_samples": 16, "micro_batch_samples": 8},
    "measurement": {"steps": 5},
}
SUITE = Suite.model_validate(
    {"name": "mine", "title": "", "description": "", "sources": [], "experiment": BASE, "scales": {"tiny": {"devices": 0}}}
)


def built(*overrides: str) -> Experiment:
    return build_experiment(SUITE, "tiny", overrides)


def refusal(*overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        built(*overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_values_are_yaml_and_the_last_one_wins() -> None:
    it = built("optimization.group_size=2", "optimization.group_size=8", "optimization.learning_rate=3e-6", "measurement.probe=false")
    assert (it.optimization.group_size, it.optimization.learning_rate, it.measurement.probe) == (8, 3e-6, False)
    assert it.optimization.mini_batch_samples == 16


def test_the_experiment_given_is_left_alone() -> None:
    before = copy.deepcopy(BASE)
    apply_overrides(BASE, ["workload.replay.lengths.kind=fixed", "optimization.kl.coefficient=1", "model.hub=a/b"])
    assert before == BASE


def test_null_replay_is_a_natural_workload() -> None:
    assert built("workload.replay=null").workload.mode == "natural"


@pytest.mark.parametrize(("source", "value"), [("hub", "Qwen/Qwen3-0.6B"), ("path", "/models/mine"), ("shape", "qwen2.5-7b")])
@pytest.mark.parametrize("form", ["model.{}={}", "model={{{}: {}}}"])
def test_one_source_of_the_model_clears_the_others(source: str, value: str, form: str) -> None:
    model = built(form.format(source, value)).model
    assert {name: getattr(model, name) for name in ("shape", "hub", "path")} == {"shape": None, "hub": None, "path": None} | {source: value}
    assert model.dtype == "float32"


@pytest.mark.parametrize(
    "overrides",
    [
        ["workload.replay.lengths={kind: fixed, tokens: 8}"],
        ["workload.replay.lengths.kind=fixed", "workload.replay.lengths.tokens=8"],
        ["workload.replay.lengths.tokens=8", "workload.replay.lengths.kind=fixed"],
        ["workload.replay={lengths: {kind: fixed, tokens: 8}}"],
    ],
)
def test_another_kind_of_lengths_replaces_the_mapping(overrides: list[str]) -> None:
    replay = built(*overrides).workload.replay
    assert replay is not None and replay.lengths.model_dump() == {"kind": "fixed", "tokens": 8}


def test_the_same_kind_of_lengths_keeps_the_rest() -> None:
    replay = built("workload.replay.lengths={kind: lognormal, p50_tokens: 12}").workload.replay
    assert replay is not None and replay.lengths.model_dump() == {"kind": "lognormal", "p50_tokens": 12, "p99_tokens": 64}


def test_a_section_that_was_absent_is_made() -> None:
    it = built("optimization.critic={}", "optimization.algorithm=ppo", "optimization.kl.placement=reward")
    assert it.optimization.critic is not None and it.optimization.critic.gamma == 1.0
    assert it.optimization.kl.placement == "reward"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimization.grup_size=8", "--set optimization.grup_size: unknown key (did you mean 'group_size'?)"),
        ("optimisation.group_size=8", "--set optimisation.group_size: optimisation: unknown key (did you mean 'optimization'?)"),
        ("group_size=8", "--set group_size: unknown key (did you mean 'optimization.group_size'?)"),
        ("optimization={grup_size: 8}", "--set optimization: grup_size: unknown key (did you mean 'group_size'?)"),
        ("workload.replay.lengths.p50=8", "--set workload.replay.lengths.p50: unknown key (did you mean 'p50_tokens'?)"),
        ("workload.replay.lengths.tokens=8", "--set workload.replay.lengths.tokens: is not a key of this kind; its keys are kind, p50_tokens, p99_tokens"),
        ("optimization.group_size.x=8", "--set optimization.group_size.x: optimization.group_size holds a value, it has no keys"),
        ("optimization.group_size", "--set optimization.group_size: has no value; write --set optimization.group_size=VALUE (null clears it)"),
        ("optimization.group_size=", "--set optimization.group_size: has no value; write --set optimization.group_size=VALUE (null clears it)"),
        ("optimization.group_size=many", '--set optimization.group_size: should be a valid integer, not "many"'),
        ("optimization.group_size=[1", "--set optimization.group_size: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("optimization.group_size=!!python/name:os.system x", "--set optimization.group_size: tag !!python/name:os.system is not allowed: only text, numbers, true, false, null, lists and mappings are"),
        ("optimization.group_size=1", "--set optimization.group_size=1: optimization: grpo compares the samples of one prompt: group_size must be at least 2"),
        ("optimization.group_size=3", "--set optimization.group_size=3: optimization.mini_batch_samples (16) must divide the step's samples (8 prompts x 3 = 24)"),
        ("optimization.loss_aggregation=token_men", '--set optimization.loss_aggregation: "token_men" is not one of token_mean, sequence_mean, sequence_sum_constant, micro_batch_token_mean (did you mean \'token_mean\'?)'),
        ("workload={max_prompt_tokens: none}", '--set workload: max_prompt_tokens: should be a valid integer, not "none"'),
        ("workload.max_prompt_tokens=null", "--set workload.max_prompt_tokens: should be a valid integer, not null"),
        ("=3", "--set '=3': unknown key; the keys here are model, workload, optimization, parallelism, placement, measurement"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_setting(override: str, message: str) -> None:
    assert refusal(override) == message


def test_settings_that_only_clash_together_are_all_named() -> None:
    said = refusal("optimization.group_size=3", "measurement.steps=9")
    assert said.startswith("--set optimization.group_size=3 --set measurement.steps=9: optimization.mini_batch_samples (16) must divide")


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(UserError, match=r"^--scale tyni: unknown scale \(did you mean 'tiny'\?\); suite mine has tiny$"):
        build_experiment(SUITE, "tyni")
