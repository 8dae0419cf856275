"""TRL, verl and OpenRLHF on the same work, by one command: do they train the same samples, and does the comparison say so?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise

import pytest

FRAMEWORKS = ("openrlhf", "trl", "verl")


def micro_batches(record) -> list[list[tuple[str, int, int]]]:
    """Every micro-batch in the order of training, as the loss received it: prompt, prompt tokens, response tokens, sorted."""
    samples = record.samples.sort_values(["step", "micro_batch"], kind="stable")
    columns = ["prompt_hash", "prompt_tokens", "response_tokens"]
    return [sorted(batch[columns].itertuples(index=False, name=None)) for _, batch in samples.groupby(["step", "micro_batch"])]


def test_all_three_train_the_same_micro_batches_in_the_same_order(all_grpo):
    assert tuple(sorted(all_grpo.figures)) == FRAMEWORKS
    plans = {(record.path / "plan.json").read_bytes() for record in all_grpo.records.values()}
    assert len(plans) == 1
    plan = json.loads(plans.pop())
    # Plan order cut into micro-batches of 8: each holds the samples of two rows.
    planned = [[(row["prompt_hash"], row["prompt_tokens"], tokens) for tokens in row["response_tokens"]] for row in plan["rows"]]
    expected = [sorted([*first, *second]) for first, second in zip(planned[::2], planned[1::2], strict=True)]
    assert {len(batch) for batch in expected} == {8}
    for name, record in all_grpo.records.items():
        assert micro_batches(record) == expected, name
    assert {name: run["audit"]["optimizer_steps"] for name, run in all_grpo.figures.items()} == dict.fromkeys(FRAMEWORKS, 6)


def test_the_command_ends_with_one_table_in_which_all_agree(all_grpo):
    lines = [line.rstrip() for line in all_grpo.result.stderr.splitlines()]
    table = lines[lines.index("What reached the loss, step by step") :]
    agreeing = [line for line in table if line.endswith("all 3")]
    assert [line.split()[0] for line in agreeing] == ["1", "2", "3"]
    assert any("the same prompts with the same token counts in every step" in line for line in table)


def test_the_rollout_engines_follow(all_grpo):
    """verl and OpenRLHF send new weights to vLLM, which computes the policy's log-probs then; TRL generates with the weights it trains."""
    apart = {name: run["learning"]["logprob_difference"] for name, run in all_grpo.figures.items()}
    assert apart["trl"] is None
    assert (apart["verl"]["dtype"], apart["openrlhf"]["dtype"]) == ("float32", "bfloat16")
    for name in ("verl", "openrlhf"):
        assert apart[name]["tokens"] > 1000, name
        assert apart[name]["mean"] <= apart[name]["tolerance"], name


def test_coverage_and_nothing_missing(all_grpo):
    assert {name: run["coverage"]["median"] >= 0.98 for name, run in all_grpo.figures.items()} == dict.fromkeys(FRAMEWORKS, True)
    assert {name: run["hooks"]["missing"] for name, run in all_grpo.figures.items()} == {name: [] for name in FRAMEWORKS}


def test_no_temporary_file_is_left(all_grpo):
    """Ray's folders and the sockets that vLLM makes and forgets, 450 of them on a day of runs, go with the run."""
    assert all_grpo.left_in_temporary == []


def test_no_process_is_left(all_grpo):
    def is_inside(pid: str) -> bool:
        try:
            return os.readlink(f"/proc/{pid}/cwd").startswith(str(all_grpo.result.folder))
        except OSError:
            return False

    assert [pid for pid in filter(str.isdigit, os.listdir("/proc")) if is_inside(pid)] == []


def test_each_pair_is_compared_with_its_differences(all_grpo):
    paths = [str(record.path) for record in all_grpo.records.values()]
    done = subprocess.run([sys.executable, "-m", "rlmbench", "compare", *paths, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert len(document["configurations"]) == 3
    assert len(document["pairs"]) == 3
    for pair in document["pairs"]:
        # One run of each is too few for a verdict; the work itself is equal.
        assert {reason["kind"] for reason in pair["reasons"] if reason["severity"] == "prevents"} == {"too_few_runs"}
        assert {difference["changes"] for difference in pair["differences"]} <= {"work", "numbers", "neither"}
        assert any("epsilon" in difference["name"] or "dtype" in difference["name"] for difference in pair["differences"])


@pytest.mark.parametrize(("one", "other"), list(pairwise(FRAMEWORKS)))
def test_computed_tokens_differ_by_padding_only(all_grpo, one, other):
    valid = [all_grpo.figures[name]["padding"]["actor_update"]["valid_tokens"] for name in (one, other)]
    assert valid[0] == valid[1]
