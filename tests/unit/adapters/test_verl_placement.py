"""Which of verl's trainers an experiment gets, how far it may run ahead, and on which devices."""

from __future__ import annotations

import pytest

from rlmbench.adapter import RunInputs
from rlmbench_verl import adapter
from rlmbench_verl.placement import Trainer, main_module, split_nodes, trainer
from rlmbench_verl.translate import translate
from tests.unit.adapters.cells import experiment

FOUR_AND_FOUR = {"parallelism__data": 4, "placement__rollout_devices": 4}


def on_gpus(**over):
    return experiment(scale="base", **{**FOUR_AND_FOUR, **over})


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        (experiment(), Trainer.SYNC),
        (experiment(optimization__algorithm="remax"), Trainer.V0),
        (experiment(placement__mode="async"), Trainer.COLOCATE_ASYNC),
        (experiment(placement__mode="async", placement__max_staleness=3), Trainer.COLOCATE_ASYNC),
        (on_gpus(placement__mode="disaggregated"), Trainer.SEPARATE_ASYNC),
        (on_gpus(placement__mode="async"), Trainer.SEPARATE_ASYNC),
        (on_gpus(placement__mode="async", placement__max_staleness=1), Trainer.ONE_STEP_OFF),
        (on_gpus(placement__mode="async", placement__max_staleness=2), Trainer.FULLY_ASYNC),
    ],
)
def test_the_trainer(cell, wanted):
    assert trainer(cell) is wanted


def test_v1_and_v0_share_a_main_module_and_the_older_asynchronous_trainers_have_their_own(tmp_path):
    inputs = RunInputs(tmp_path, tmp_path / "model", tmp_path / "plan.json", tmp_path / "python", "cuda")
    for cell, module in (
        (experiment(), "verl.trainer.main_ppo"),
        (experiment(optimization__algorithm="remax"), "verl.trainer.main_ppo"),
        (on_gpus(placement__mode="async", placement__max_staleness=1), "verl.experimental.one_step_off_policy.main_ppo"),
        (on_gpus(placement__mode="async", placement__max_staleness=2), "verl.experimental.fully_async_policy.fully_async_main"),
    ):
        (process,) = adapter.launch(translate(cell, "cuda"), cell, inputs).processes
        assert process.argv[1:3] == ("-m", module)
        assert main_module(cell) == module


def test_v0_is_reached_by_one_key():
    """trainer.use_v1 decides (main_ppo.py), so a file of the user's own can turn any co-located experiment to V0."""
    assert translate(experiment(), "cpu").native["trainer.use_v1"] is True
    native = translate(experiment(optimization__algorithm="remax", optimization__advantage_scaling="none"), "cpu").native
    assert native["trainer.use_v1"] is False
    assert not [key for key in native if key.startswith("trainer.v1.")]


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_a_sample_spans_one_version_more_than_it_lags_behind(staleness):
    """replay_buffer.py: span = global_steps - the prompt's global_steps + 1, and sampling waits for spans at the threshold."""
    native = translate(experiment(placement__mode="async", placement__max_staleness=staleness), "cpu").native
    assert native["trainer.v1.sampler.max_off_policy_threshold"] == staleness + 1
    assert native["trainer.v1.sampler.max_off_policy_strategy"] == "wait"
    assert native["trainer.v1.colocate_async.num_warmup_batches"] == staleness


def test_separate_async_takes_one_mini_batch_at_a_time():
    """trainer_separate_async.py asserts train_batch_size == parameter_sync_step * ppo_mini_batch_size."""
    native = translate(on_gpus(placement__mode="disaggregated"), "cuda").native
    steps = native["trainer.v1.separate_async.parameter_sync_step"]
    assert native["data.train_batch_size"] == steps * native["actor_rollout_ref.actor.ppo_mini_batch_size"] == 1024
    assert native["actor_rollout_ref.rollout.checkpoint_engine.backend"] != "naive"
    assert (native["actor_rollout_ref.rollout.nnodes"], native["actor_rollout_ref.rollout.n_gpus_per_node"]) == (1, 4)


def test_the_fully_asynchronous_trainer_trains_exactly_the_planned_prompts(tmp_path):
    """fully_async_rollouter.py: steps = total_rollout_steps / (ppo_mini_batch_size * require_batches * trigger_parameter_sync_step)."""
    cell = on_gpus(placement__mode="async", placement__max_staleness=2)
    native = translate(cell, "cuda").native
    per_step = (
        native["actor_rollout_ref.actor.ppo_mini_batch_size"]
        * native["async_training.require_batches"]
        * native["async_training.trigger_parameter_sync_step"]
    )
    assert native["rollout.total_rollout_steps"] / per_step == cell.measurement.steps == native["trainer.total_training_steps"]
    assert (native["data.train_batch_size"], native["data.gen_batch_size"]) == (0, 1)  # both asserted there
    inputs = RunInputs(tmp_path, tmp_path / "model", tmp_path / "plan.json", tmp_path / "python", "cuda")
    adapter.launch(translate(cell, "cuda"), cell, inputs)
    assert "- name: single_turn_agent" in (tmp_path / "agents.yaml").read_text()  # the name it asks for (detach_utils.py)


@pytest.mark.parametrize("trainer_staleness", [1, 2])
@pytest.mark.parametrize(
    ("over", "field"),
    [
        ({"optimization__importance_sampling": "sequence"}, "optimization.policy_loss"),
        ({"optimization__policy_loss": "cispo"}, "optimization.policy_loss"),
        ({"workload__replay": None, "optimization__dynamic_sampling": True}, "optimization.dynamic_sampling"),
        ({"optimization__algorithm": "ppo", "optimization__critic": {}}, "placement.mode"),
        ({"optimization__algorithm": "remax"}, "placement.mode"),
        ({"parallelism__rollout_tensor": 3}, "parallelism.rollout_tensor"),
    ],
)
def test_what_the_older_asynchronous_trainers_cannot_do(trainer_staleness, over, field):
    cell = on_gpus(placement__mode="async", placement__max_staleness=trainer_staleness, **over)
    assert field in {entry.field for entry in translate(cell, "cuda").unsupported}


@pytest.mark.parametrize(
    ("over", "device", "field"),
    [
        ({"placement__rollout_engine": "sglang"}, "cpu", "placement.rollout_engine"),
        ({"placement__mode": "disaggregated", "placement__rollout_devices": 1}, "cpu", "placement.mode"),
        ({"placement__mode": "disaggregated"}, "cuda", "placement.mode"),
        (
            {"placement__mode": "disaggregated", "placement__rollout_devices": 1, "placement__max_staleness": 1},
            "cuda",
            "placement.max_staleness",
        ),
        ({"placement__max_staleness": 1}, "cpu", "placement.max_staleness"),
        ({"placement__mode": "async", "placement__rollout_devices": 12}, "cuda", "placement.rollout_devices"),
        ({"parallelism__rollout_tensor": 2}, "cpu", "parallelism.rollout_tensor"),
    ],
)
def test_placements_that_are_refused(over, device, field):
    assert field in {entry.field for entry in translate(experiment(**over), device).unsupported}


@pytest.mark.parametrize(("devices", "wanted"), [(1, (1, 1)), (6, (1, 6)), (8, (1, 8)), (64, (8, 8))])
def test_devices_are_split_into_nodes_of_eight(devices, wanted):
    assert split_nodes(devices) == wanted


def test_what_was_never_run_is_said():
    assert translate(experiment(), "cpu").untested == ()
    (line,) = translate(experiment("gsm8k_ppo", scale="base"), "cuda").untested
    assert line == "verl on a GPU: translated, not run"
    cell = on_gpus(placement__mode="async", placement__max_staleness=2, parallelism__data=2, parallelism__tensor=2)
    assert [line.split(":")[0].split(" (")[0] for line in translate(cell, "cuda").untested] == [
        "verl on a GPU",
        "Megatron",
        "verl's fully_async trainer",
    ]
