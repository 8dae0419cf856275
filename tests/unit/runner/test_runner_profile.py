"""`--profile`: what is planned after the measuring runs, and what a run is told."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlmbench.cli.main import main
from rlmbench.errors import UserError
from rlmbench.runner.cells import Profile, Request, make_plan
from rlmbench.runner.execute import cell_hash
from rlmbench.runner.profile import prepare_profile, profile_variables

STEPS = ("measurement.steps=6", "measurement.warmup_steps=2")
ENVIRONMENT = SimpleNamespace(key="k")


def plan_of(**changes):
    return make_plan(dataclasses.replace(Request("gsm8k_grpo", ("trl", "verl"), "tiny", STEPS, repeats=2), **changes))


def test_one_run_of_each_framework_follows_and_ends_a_step_after_the_last_traced_one() -> None:
    plan = plan_of(profile=True)
    assert [(of.profile, cell.framework, cell.repeat) for of, cell in plan.passes] == [
        (None, "trl", 0), (None, "verl", 0), (None, "verl", 1), (None, "trl", 1), (Profile((3,)), "trl", 0), (Profile((3,)), "verl", 0)
    ]  # fmt: skip
    measured, profiled = plan.experiment.measurement, plan.then.experiment.measurement
    assert (measured.steps, profiled.steps) == (6, 4)
    assert plan.parts["verl"].translation.native["trainer.total_training_steps"] == 6
    assert plan.then.parts["verl"].translation.native["trainer.total_training_steps"] == 4
    assert plan_of().then is None


@pytest.mark.parametrize(("steps", "of"), [((2, 5), 6), ((6,), 6), ((1,), 3)])
def test_chosen_steps(steps, of) -> None:
    """A run of one step, or of warm-up alone, would be none: the second is the one after it."""
    then = plan_of(profile=True, profile_steps=steps).then
    assert (then.profile.steps, then.experiment.measurement.steps) == (steps, of)


def test_a_run_without_probe_is_profiled_with_it() -> None:
    plan = plan_of(profile=True, overrides=(*STEPS, "measurement.probe=false"))
    assert (plan.experiment.measurement.probe, plan.then.experiment.measurement.probe) == (False, True)


def test_steps_that_the_runs_do_not_have() -> None:
    with pytest.raises(UserError, match="--profile-steps 7: the runs have steps 1 to 6"):
        plan_of(profile=True, profile_steps=(2, 7))


def test_a_profile_run_is_no_repetition_of_a_cell() -> None:
    """--resume knows a finished run by its content, so that neither can stand for the other."""
    plan, other = plan_of(profile=True, profile_steps=(6,)), plan_of(profile=True, profile_steps=(6,), profile_with=("stack",))
    assert plan.experiment == plan.then.experiment  # the whole run: nothing else tells them apart
    hashes = [cell_hash(of, of.cells[0], ENVIRONMENT) for of in (plan, plan.then, other.then, plan_of())]
    assert hashes[0] == hashes[3] and len(set(hashes)) == 3


def test_the_command_asks_for_the_same_again() -> None:
    request = Request("gsm8k_grpo", ("trl",), profile=True, profile_steps=(2, 3), profile_with=("shapes", "stack"))
    assert request.command() == (
        "rlmbench run gsm8k_grpo --framework trl --profile --profile-steps 2,3 --profile-with shapes --profile-with stack"
    )


WRONG = {
    "--profile-steps 2": "--profile-steps goes with --profile",
    "--profile-with stack": "--profile-with goes with --profile",
    "--profile --profile-steps two": "--profile-steps two: give step numbers, as in 2 or 2,3",
    "--profile --profile-with stacks": "--profile-with stacks (did you mean 'stack'?): give one of shapes, stack, memory",
    "--profile --profile-steps 0": "--profile-steps 0: the runs have steps 1 to 5",
}


@pytest.mark.parametrize("given", WRONG)
def test_mistakes_are_one_line(given, capsys) -> None:
    assert main(["run", "gsm8k_grpo", "-f", "trl", "--scale", "tiny", *shlex.split(given)]) == 2
    assert capsys.readouterr().err.strip() == f"error: {WRONG[given]}"


def test_a_dry_run_tells_of_it(capsys) -> None:
    arguments = ["run", "gsm8k_grpo", "-f", "trl", "--scale", "tiny", "--profile", "--profile-steps", "3", "--dry-run"]
    assert main(arguments) == 0
    assert "then one more run of each framework, of 4 steps, with step 3 under torch.profiler" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["profile"] == {"cells": [{"framework": "trl", "repeat": 0, "variant": ""}], "steps": [3], "extras": [], "run_steps": 4}


def test_what_the_probe_is_told(tmp_path: Path) -> None:
    prepare_profile(tmp_path)
    told = json.loads(profile_variables(tmp_path, Profile((2,), ("memory",)))["RLMBENCH_PROFILE"])
    assert (told["steps"], told["with"]) == ([2], ["memory"])
    assert Path(told["traces"]) == tmp_path / "traces" and Path(told["traces"]).is_dir()
    assert int((Path(told["state"]) / "step").read_text()) == 0
    assert Path(told["state"]).is_relative_to(tmp_path / "scratch")  # which goes when the run has ended
