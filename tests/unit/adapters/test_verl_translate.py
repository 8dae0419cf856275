"""verl's translation: every field accounted for, verl's units, and a refusal where verl (or this adapter) cannot."""

from __future__ import annotations

import json

import pytest

from rlmbench.adapter import Fidelity, RunInputs
from rlmbench.experiment.load import suite_files
from rlmbench.ledger import missing
from rlmbench_verl import adapter
from rlmbench_verl.adapter import CPU, override
from rlmbench_verl.translate import translate
from tests.unit.adapters import verl_golden
from tests.unit.adapters.cells import CELLS, experiment


@pytest.mark.parametrize(("suite", "scale"), CELLS)
def test_the_ledger_covers_every_field(suite, scale):
    cell = experiment(suite, scale)
    ledger = translate(cell, "cuda" if scale != "tiny" else "cpu").ledger
    assert missing(cell, ledger) == []
    for entry in ledger:
        assert entry.fidelity is Fidelity.EXACT or entry.reason
        assert entry.native_key or entry.reason


@pytest.mark.parametrize("path", verl_golden.golden_files(), ids=lambda path: path.stem)
def test_golden(path):
    """Reviewed by hand against verl's own files; ``python -m tests.unit.adapters.verl_golden`` writes them again."""
    golden = verl_golden.read(path)
    assert golden["unsupported"] == []
    assert {"asked": golden["asked"], **verl_golden.given(golden["asked"])} == golden


@pytest.mark.parametrize("path", verl_golden.golden_files(), ids=lambda path: path.stem)
def test_the_ledger_of_a_golden_case_is_complete(path):
    cell, device = verl_golden.cell(verl_golden.read(path)["asked"])
    ledger = translate(cell, device).ledger
    assert missing(cell, ledger) == []
    assert len({entry.field for entry in ledger}) == len(ledger)
    native = translate(cell, device).native
    for entry in ledger:
        assert entry.native_key or entry.reason
        assert entry.native_key is None or native[entry.native_key] == entry.native_value


@pytest.mark.parametrize("suite", sorted(suite_files()))
def test_suites_run_at_tiny(suite):
    assert [entry.field for entry in translate(experiment(suite), "cpu").unsupported] == []


def test_batches_are_counted_in_verls_units():
    """8 prompts x 4 samples in mini-batches of 16 samples: verl is told of 8 prompts and mini-batches of 4 prompts."""
    native = translate(experiment(optimization__mini_batch_samples=16), "cpu").native
    assert native["data.train_batch_size"] == 8
    assert native["actor_rollout_ref.rollout.n"] == 4
    assert native["actor_rollout_ref.actor.ppo_mini_batch_size"] == 4
    assert native["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"] == 8
    assert native["trainer.total_training_steps"] == 5


def test_defaults_that_verl_would_take_otherwise_are_set():
    """verl's own defaults: wandb, resume from an old checkpoint, validation first, dual clip at 3, rollout over 2 devices."""
    native = translate(experiment(), "cpu").native
    assert native["trainer.logger"] == ["console", "file"]
    assert (native["trainer.resume_mode"], native["trainer.val_before_train"]) == ("disable", False)
    assert native["actor_rollout_ref.actor.clip_ratio_c"] > 1000
    assert native["actor_rollout_ref.rollout.tensor_model_parallel_size"] == 1
    assert native["data.shuffle"] is False


@pytest.mark.parametrize(
    ("placement", "estimator", "keys"),
    [
        ("loss", "k3", {"actor_rollout_ref.actor.use_kl_loss": True, "actor_rollout_ref.actor.kl_loss_type": "low_var_kl"}),
        ("reward", "k1", {"algorithm.use_kl_in_reward": True, "algorithm.kl_penalty": "kl", "algorithm.kl_ctrl.kl_coef": 0.1}),
    ],
)
def test_kl_in_the_loss_and_in_the_reward(placement, estimator, keys):
    native = translate(experiment(optimization__kl={"coefficient": 0.1, "placement": placement, "estimator": estimator}), "cpu").native
    assert {key: native[key] for key in keys} == keys


@pytest.mark.parametrize(
    ("over", "field"),
    [
        ({"optimization__policy_loss": "vespo"}, "optimization.policy_loss"),
        ({"optimization__loss_aggregation": "micro_batch_token_mean"}, "optimization.loss_aggregation"),
        ({"optimization__mini_batch_samples": 2, "optimization__micro_batch_samples": 2}, "optimization.mini_batch_samples"),
        ({"placement__rollout_engine": "hf"}, "placement.rollout_engine"),
        ({"parallelism__tensor": 2}, "parallelism.tensor"),
        ({"optimization__lr_schedule": "linear"}, "optimization.lr_schedule"),
        ({"optimization__mask_truncated": True}, "optimization.mask_truncated"),
        ({"optimization__dynamic_sampling": True}, "optimization.dynamic_sampling"),
        (
            {"workload__replay": None, "optimization__dynamic_sampling": True, "placement__fast_rollout_poll": True},
            "placement.fast_rollout_poll",
        ),
        ({"workload__replay": None, "optimization__overlong_buffer_tokens": 65}, "optimization.overlong_buffer_tokens"),
        ({"optimization__algorithm": "remax"}, "optimization.advantage_scaling"),
        ({"optimization__algorithm": "remax", "placement__mode": "async"}, "placement.mode"),
        (
            {"optimization__algorithm": "remax", "workload__replay": None, "optimization__dynamic_sampling": True},
            "optimization.dynamic_sampling",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(over, field):
    assert field in {entry.field for entry in translate(experiment(**over), "cpu").unsupported}


def test_nothing_for_cpus_is_active_on_a_gpu(tmp_path):
    cell = experiment()
    inputs = RunInputs(tmp_path, tmp_path / "model", tmp_path / "plan.json", tmp_path / "python", "cuda")
    (process,) = adapter.launch(translate(cell, "cuda"), cell, inputs).processes
    assert not set(process.env) & set(CPU)
    assert "trainer.device=cuda" in process.argv


def test_ray_is_a_cluster_of_the_runs_own(tmp_path):
    cell = experiment()
    inputs = RunInputs(tmp_path, tmp_path / "model", tmp_path / "plan.json", tmp_path / "python", "cpu")
    launch = adapter.launch(translate(cell, "cpu"), cell, inputs)
    (process,) = launch.processes
    assert process.env["RAY_ADDRESS"] == "local"
    assert "+ray_kwargs.ray_init.address=local" in process.argv
    (folder,) = launch.scratch
    assert f"+ray_kwargs.ray_init._temp_dir={folder}" in process.argv
    assert "ray_kwargs.ray_init.num_cpus=16" in process.argv  # the one of these keys that verl's own configuration has


def test_an_existing_cluster_is_joined_only_when_named(tmp_path):
    cell = experiment()
    inputs = RunInputs(tmp_path, tmp_path / "model", tmp_path / "plan.json", tmp_path / "python", "cpu", ray_address="head:6379")
    launch = adapter.launch(translate(cell, "cpu"), cell, inputs)
    (process,) = launch.processes
    assert [word for word in process.argv if "ray_init" in word] == ["+ray_kwargs.ray_init.address=head:6379"]
    workers = json.loads(process.env["RAY_JOB_CONFIG_JSON_ENV_VAR"])["runtime_env"]["env_vars"]
    assert workers["VERL_PLATFORM"] == "cpu" and workers["RLMBENCH_JOB"] == str(tmp_path / "job.json")
    assert launch.scratch == ()


def test_the_dataset_is_the_plan(tmp_path):
    import pyarrow.parquet as pq

    rows = [{"row": index, "question": f"q{index}", "answer": str(index)} for index in range(3)]
    (tmp_path / "plan.json").write_text(json.dumps({"rows": rows}))
    cell = experiment()
    inputs = RunInputs(tmp_path, tmp_path / "model", tmp_path / "plan.json", tmp_path / "python", "cpu")
    adapter.launch(translate(cell, "cpu"), cell, inputs)
    table = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert [row["prompt"][0]["content"] for row in table] == ["q0", "q1", "q2"]
    assert [row["extra_info"]["row"] for row in table] == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "k=True"),
        (None, "k=null"),
        (1e-06, "k=1e-06"),
        ([0.9, 0.999], "k=[0.9,0.999]"),
        ("plain/path-1.0", "k=plain/path-1.0"),
        ("a b", "k='a b'"),
        ("it's, {x}", "k='it\\'s, {x}'"),
        (r"back\slash", r"k='back\\slash'"),
    ],
)
def test_overrides_are_quoted_by_hydras_grammar(value, text):
    assert override("k", value) == text


def test_gradients_are_clipped_where_verl_reads_the_bound():
    """FSDPEngine.optimizer_step takes optimizer_config.clip_grad; actor.grad_clip and critic.grad_clip are read by nothing."""
    native = translate(experiment("gsm8k_ppo", optimization__max_grad_norm=0.3), "cpu").native
    assert native["actor_rollout_ref.actor.optim.clip_grad"] == 0.3
    assert native["critic.optim.clip_grad"] == 0.3


def test_the_overlong_penalty_is_dapos():
    """DAPO (arXiv 2503.14476, eq. 13): 0 up to cap - buffer, then linear down to -1 at the cap."""
    cell = experiment("gsm8k_dapo", workload__replay=None, optimization__overlong_buffer_tokens=16)
    native = translate(cell, "cpu").native
    assert native["reward.reward_manager.name"] == "dapo"
    kwargs = "+reward.reward_kwargs."
    assert native[kwargs + "max_resp_len"] == 64
    buffer = {key.rpartition(".")[2]: value for key, value in native.items() if "overlong_buffer_cfg" in key}
    assert buffer == {"enable": True, "len": 16, "penalty_factor": 1.0, "log": False}
