"""Ceilings: what the script says is kept per machine, shown, and refused in one line where nothing can measure."""

import json
from pathlib import Path

import pytest

from rlmbench.environment import ceilings
from rlmbench.environment.cache import Environment, State
from rlmbench.environment.doctor import examine
from rlmbench.errors import EnvironmentFailure, UserError

ENTRY = {"device": "cpu", "torch": "2.0", "threads": 2, "flops_per_s": {"float32": 7e10, "bfloat16": 3e11}, "bytes_per_s": 3e10}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("RLMBENCH_CACHE", str(tmp_path))


def _interpreter(folder: Path, prints: str, code: int = 0) -> Environment:
    """An executable that answers as the script would."""
    script = folder / "python"
    script.write_text(f"#!/bin/sh\necho noise\ncat <<'END'\n{prints}\nEND\nexit {code}\n")
    script.chmod(0o755)
    return Environment(python=script, key="k", packages={}, python_version="3.11")


def test_measured_rates_are_kept_for_this_machine(tmp_path):
    assert ceilings.kept("cpu") == []
    measured = ceilings.measure(_interpreter(tmp_path, json.dumps([ENTRY])), "trl", "cpu")
    assert ceilings.kept("cpu") == measured
    assert ceilings.kept("cuda") == []
    (one,) = measured
    assert (one["environment"], one["flops_per_s"]) == ("trl", ENTRY["flops_per_s"])
    quiet = {**one, "load_1min": 0.5}
    assert ceilings.shown([quiet]) == "cpu: float32 70 GFLOP/s, bfloat16 300 GFLOP/s, copy 30 GB/s, torch 2.0"
    assert "float32 51 TFLOP/s, bfloat16" in ceilings.shown([{**quiet, "flops_per_s": {"float32": 5.1e13, "bfloat16": 1e15}}])
    assert ceilings.shown([{**one, "load_1min": 7.0}]).endswith("; the machine was busy (load 7.0 on 2 cores), measure again")
    facts = {fact.name: fact for fact in examine([])}
    assert (facts["ceilings"].available, facts["ceilings"].value) == (True, 1)


def test_what_was_not_measured_is_absent_with_the_way_to_measure_it():
    fact = next(fact for fact in examine([]) if fact.name == "ceilings")
    assert not fact.available and fact.reason is not None and fact.reason.endswith("rlmbench doctor --ceilings")


def test_a_script_that_ends_without_an_answer_is_one_line(tmp_path):
    with pytest.raises(EnvironmentFailure, match="could not be measured: out of luck"):
        ceilings.measure(_interpreter(tmp_path, "out of luck", 1), "trl", "cpu")
    assert ceilings.kept("cpu") == []


def test_one_that_takes_too_long_is_one_line_too(tmp_path, monkeypatch):
    """And not the whole script, which is an argument of the command."""
    python = _interpreter(tmp_path, "")
    python.python.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(ceilings, "TIMEOUT_S", 0.05)
    with pytest.raises(EnvironmentFailure, match=r"python: ceilings could not be measured within 0\.05 s$"):
        ceilings.measure(python, "trl", "cpu")


def test_without_a_built_environment_the_fix_is_named():
    class Spec:
        name, device = "trl", "cpu"

    unbuilt = State(Spec(), Path("/nowhere"), None, False, None)
    with pytest.raises(UserError, match="rlmbench env create verl --device cpu"):
        ceilings.measure_with([("trl", unbuilt)], "verl", "cpu")
