"""The tuned division: a user's own native settings over a translation, each in the ledger."""

from __future__ import annotations

import pytest

from rlmbench.adapter import Fidelity, LedgerEntry, Translation
from rlmbench.errors import UserError
from rlmbench.runner.cells import Request, make_plan
from rlmbench.runner.tuned import read_native, tuned

LEDGER = (
    LedgerEntry("optimization.adam_beta1", 0.9, Fidelity.EXACT, "optim.betas", [0.9, 0.95]),
    LedgerEntry("optimization.adam_beta2", 0.95, Fidelity.EXACT, "optim.betas", [0.9, 0.95]),
    LedgerEntry("model.dtype", "bfloat16", Fidelity.APPROXIMATED, "+mixed.dtype", "bf16", "float32 weights"),
)
NATIVE = {"optim.betas": [0.9, 0.95], "+mixed.dtype": "bf16", "engine.eager": True}
MATCHED = Translation("verl", "verl", NATIVE, LEDGER, {"world_size": 2, "weights_dtype": "float32"})


def test_every_setting_that_differs_is_in_the_ledger():
    changed = tuned(MATCHED, {"optim.betas": [0.9, 0.999], "engine.eager": True, "mixed.dtype": "fp32", "engine.graphs": 8}, (), "my.yaml")
    assert changed.native == {"optim.betas": [0.9, 0.999], "+mixed.dtype": "fp32", "engine.eager": True, "engine.graphs": 8}
    told = {entry.field: (entry.fidelity, entry.value, entry.native_value) for entry in changed.ledger}
    assert told == {
        "optimization.adam_beta1": (Fidelity.CHANGED, 0.9, [0.9, 0.999]),
        "optimization.adam_beta2": (Fidelity.CHANGED, 0.95, [0.9, 0.999]),
        "model.dtype": (Fidelity.CHANGED, "bfloat16", "fp32"),
        "native.engine.graphs": (Fidelity.CHANGED, None, 8),
    }
    assert "my.yaml gives 8; matched runs leave it to the framework" in changed.ledger[-1].reason


def test_number_of_devices_still_holds_but_not_what_a_user_may_tune():
    assert tuned(MATCHED, {"engine.graphs": 8}, (), "my.yaml").expected_facts == {"world_size": 2}


@pytest.mark.parametrize("key", ["data.train_files", "+data.train_files", "ray_kwargs.ray_init.address", "++ray_kwargs.ray_init.num_cpus"])
def test_what_rlmbench_needs_for_itself_is_refused(key):
    with pytest.raises(UserError, match=r"^my.yaml: .*: rlmbench sets this itself to run, replay or measure; leave it out$"):
        tuned(MATCHED, {key: 1}, ("data.train_files", "ray_kwargs.ray_init."), "my.yaml")


def test_what_is_the_suites_own_work_is_refused_with_the_field_to_set():
    ledger = (*LEDGER, LedgerEntry("optimization.group_size", 4, Fidelity.EXACT, "num_generations", 4))
    translation = Translation("trl", "trl", {**NATIVE, "num_generations": 4}, ledger)
    settings = {"num_generations": 8, "model.dtype": "fp32", "data.seed": 1}
    with pytest.raises(UserError) as refused:
        tuned(translation, settings, ("data.",), "my.yaml")
    assert list(refused.value.lines) == [
        "my.yaml: num_generations: this is the suite's own work; change it for every framework with --set optimization.group_size=...",
        "my.yaml: model.dtype: this is a field of the experiment, not one of trl's keys; write --set model.dtype=...",
        "my.yaml: data.seed: rlmbench sets this itself to run, replay or measure; leave it out",
    ]


def test_a_key_near_one_that_is_there_is_pointed_at():
    (*_, entry) = tuned(MATCHED, {"engine.eagr": False}, (), "my.yaml").ledger
    assert entry.reason.endswith("matched runs leave it to the framework (did you mean 'engine.eager'?)")


def test_three_ways_to_write_the_same_file(tmp_path):
    nested, dotted, lines = (tmp_path / name for name in ("nested.yaml", "dotted.yaml", "lines.yaml"))
    nested.write_text("engine:\n  eager: false\n  sizes: [1, 2]\noptim.lr: 1e-6\n")
    dotted.write_text('{"engine.eager": false, "engine.sizes": [1, 2], "optim.lr": 1e-6}')
    lines.write_text("- engine.eager=false\n- engine.sizes=[1, 2]\n- optim.lr=1e-6\n")
    for path in (nested, dotted, lines):
        assert read_native(path, dotted=True) == {"engine.eager": False, "engine.sizes": [1, 2], "optim.lr": 1e-6}
    nested.write_text("model_init_kwargs: {trust: false}\n")
    assert read_native(nested, dotted=False) == {"model_init_kwargs": {"trust": False}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a=1\n- b\n", r"native.yaml:2: 'b' is not key=value"),
        ("just text\n", r"native.yaml: holds no settings"),
        ("{}\n", r"native.yaml: holds no settings"),
        ("a: !!python/name:os.system\n", r"native.yaml:1: a: tag .* is not allowed"),
    ],
)
def test_a_file_that_is_none(tmp_path, text, told):
    path = tmp_path / "native.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=told):
        read_native(path, dotted=True)


def request(*native: str, frameworks: tuple[str, ...] = ("trl",)) -> Request:
    return Request("gsm8k_grpo", frameworks, "tiny", native=native)


def test_a_plan_with_native_files(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("learning_rate: 5e-6\n")
    plan = make_plan(request(f"trl={path}", frameworks=("trl", "verl")))
    assert plan.parts["trl"].is_tuned and not plan.parts["verl"].is_tuned
    assert plan.parts["trl"].translation.native["learning_rate"] == 5e-6
    for native, frameworks, told in [
        ((str(path),), ("trl", "verl"), "which framework's"),
        ((f"openrlhf={path}",), ("trl",), "openrlhf is not among the frameworks"),
        ((str(path), f"trl={path}"), ("trl",), "trl already has"),
        (("nowhere.yaml",), ("trl",), "nowhere.yaml: cannot be read"),
    ]:
        with pytest.raises(UserError, match=told):
            make_plan(request(*native, frameworks=frameworks))
    path.write_text("output_dir: /tmp/x\n")
    with pytest.raises(UserError, match=r"mine.yaml: output_dir: rlmbench sets this itself"):
        make_plan(request(str(path)))


def test_the_command_that_repeats_it_names_the_files():
    assert "--native verl=my.yaml" in request("verl=my.yaml").command()
