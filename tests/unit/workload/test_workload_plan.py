import json
from hashlib import sha256
from pathlib import Path

import pytest

from rlmbench.errors import UserError
from rlmbench.experiment import Experiment
from rlmbench.workload.plan import TokenizedPrompt, draw_plan, prompt_hash, read_plan, write_plan
from rlmbench.workload.replay import response_tokens, reward


def experiment(
    *, steps: int = 3, prompts_per_step: int = 4, replay: dict | None = None, seed: int = 0, max_prompt_tokens: int = 10
) -> Experiment:
    return Experiment.model_validate(
        {
            "model": {"shape": "tiny"},
            "workload": {
                "prompts": {"seed": seed},
                "prompts_per_step": prompts_per_step,
                "max_prompt_tokens": max_prompt_tokens,
                "max_response_tokens": 32,
                "replay": replay,
            },
            "optimization": {
                "algorithm": "grpo",
                "group_size": 2,
                "mini_batch_samples": 2 * prompts_per_step,
                "micro_batch_samples": 2 * prompts_per_step,
            },
            "measurement": {"steps": steps, "warmup_steps": 0},
        }
    )


def prompts(count: int, tokens: int = 5) -> list[TokenizedPrompt]:
    return [
        TokenizedPrompt(number, f"question {number}", str(number), (1, 2, *range(number, number + tokens - 2))) for number in range(count)
    ]


REPLAY = {"lengths": {"kind": "lognormal", "p50_tokens": 8, "p99_tokens": 64}, "seed": 3}


def test_prompt_hash_by_hand() -> None:
    assert prompt_hash([1, 312, 7]) == sha256(b"1,312,7").hexdigest()[:16]


def test_rows_follow_the_contract() -> None:
    wanted = experiment(replay=REPLAY)
    plan = draw_plan(wanted, prompts(20))
    assert (plan["schema_version"], plan["mode"], plan["group_size"], plan["prompts_per_step"], plan["steps"]) == (1, "replay", 2, 4, 3)
    assert [row["row"] for row in plan["rows"]] == list(range(12))
    assert [row["step"] for row in plan["rows"]] == [1] * 4 + [2] * 4 + [3] * 4
    for row in plan["rows"]:
        number = row["problem"]
        assert (row["question"], row["answer"], row["visit"]) == (f"question {number}", str(number), 0)
        assert row["prompt_ids"] == [1, 2, number, number + 1, number + 2] and row["prompt_tokens"] == 5
        assert row["prompt_hash"] == prompt_hash(row["prompt_ids"])
        drawn = [response_tokens(wanted.workload.replay, 32, row["prompt_hash"], 0, sample) for sample in (0, 1)]
        assert row["response_tokens"] == drawn
        assert row["rewards"] == [reward(wanted.workload.replay, row["prompt_hash"], 0, sample) for sample in (0, 1)]


def test_natural_plan_leaves_samples_open() -> None:
    plan = draw_plan(experiment(), prompts(20))
    assert plan["mode"] == "natural"
    assert all(row["response_tokens"] is None and row["rewards"] is None for row in plan["rows"])


def test_passes_visit_everything_equally_and_no_prompt_twice_in_a_step() -> None:
    plan = draw_plan(experiment(steps=6, replay=REPLAY), prompts(8))  # two steps a pass, three passes
    by_step = [[row["problem"] for row in plan["rows"] if row["step"] == step] for step in range(1, 7)]
    assert all(len(set(step)) == 4 for step in by_step)
    for first in (0, 2, 4):
        assert sorted(by_step[first] + by_step[first + 1]) == list(range(8))
    assert [row["visit"] for row in plan["rows"]] == [0] * 8 + [1] * 8 + [2] * 8
    assert len({tuple(by_step[first] + by_step[first + 1]) for first in (0, 2, 4)}) == 3, "each pass has an order of its own"
    first, again = (next(row for row in plan["rows"] if row["problem"] == 0 and row["visit"] == visit) for visit in (0, 1))
    assert (first["response_tokens"], first["rewards"]) != (again["response_tokens"], again["rewards"])


def test_a_step_never_straddles_two_passes() -> None:
    plan = draw_plan(experiment(steps=9, prompts_per_step=3), prompts(5))
    for step in range(1, 10):
        rows = [row for row in plan["rows"] if row["step"] == step]
        assert len({row["problem"] for row in rows}) == 3
    for row in plan["rows"]:
        assert row["visit"] == sum(earlier["problem"] == row["problem"] for earlier in plan["rows"][: row["row"]])


def test_order_depends_on_the_seed_and_nothing_else() -> None:
    def order(seed: int, pool: list[TokenizedPrompt]) -> list[int]:
        return [row["problem"] for row in draw_plan(experiment(seed=seed), pool)["rows"]]

    assert order(0, prompts(20)) == order(0, prompts(20)[::-1])
    assert order(0, prompts(20)) != order(1, prompts(20))


def test_long_and_duplicate_prompts_are_left_out_and_counted() -> None:
    pool = [*prompts(6), TokenizedPrompt(6, "long", "0", tuple(range(11))), TokenizedPrompt(7, "same", "0", prompts(1)[0].prompt_ids)]
    plan = draw_plan(experiment(steps=1), pool)
    assert (plan["left_out_prompts"], plan["duplicate_prompts"]) == (1, 1)
    assert {row["problem"] for row in draw_plan(experiment(steps=1, prompts_per_step=6), pool)["rows"]} == set(range(6))


def test_prompts_at_the_limit_stay() -> None:
    plan = draw_plan(experiment(steps=1), prompts(4, tokens=10))
    assert plan["left_out_prompts"] == 0 and len(plan["rows"]) == 4


def test_too_few_prompts() -> None:
    with pytest.raises(UserError, match=r"prompts_per_step is 4, but only 3 of 5 prompts are different and have at most 10 tokens"):
        draw_plan(experiment(), prompts(3) + [TokenizedPrompt(9, "long", "0", tuple(range(11)))] * 2)


def test_trace_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("17\n")
    plan = draw_plan(experiment(replay={"lengths": {"kind": "trace", "path": str(tmp_path / "t.txt")}}), prompts(4))
    assert {length for row in plan["rows"] for length in row["response_tokens"]} == {17}


def test_round_trip(tmp_path: Path) -> None:
    plan = draw_plan(experiment(replay=REPLAY), prompts(20))
    write_plan(plan, tmp_path / "run" / "plan.json")
    assert read_plan(tmp_path / "run" / "plan.json") == plan
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["plan.json"]


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda plan: plan.update(schema_version=2), "schema_version is 2"),
        (lambda plan: plan.pop("mode"), "`mode` is missing"),
        (lambda plan: plan.update(mode="both"), "mode is 'both'"),
        (lambda plan: plan.update(steps=True), "`steps` has the wrong type"),
        (lambda plan: plan["rows"].pop(), "11 rows, but 3 steps of 4 prompts are 12"),
        (lambda plan: plan["rows"][5].pop("visit"), "row 5: `visit` is missing"),
        (lambda plan: plan["rows"][5].update(row=4), "row 5: is numbered 4 in step 2, expected 5 in step 2"),
        (lambda plan: plan["rows"][5].update(step=1), "row 5: is numbered 5 in step 1"),
        (lambda plan: plan["rows"][2]["prompt_ids"].__setitem__(0, 9), "row 2: prompt_tokens or prompt_hash"),
        (lambda plan: plan["rows"][2]["response_tokens"].pop(), "row 2: response_tokens needs one entry for each of the 2 samples"),
        (lambda plan: plan["rows"][2].update(rewards=None), "row 2: rewards needs one entry"),
        (lambda plan: plan.update(mode="natural"), "row 0: response_tokens must be null"),
        (lambda plan: plan["rows"].__setitem__(1, 3), "row 1: expected an object"),
    ],
)
def test_spoilt_plans_are_refused(tmp_path: Path, spoil, complaint: str) -> None:
    plan = draw_plan(experiment(replay=REPLAY), prompts(20))
    spoil(plan)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    with pytest.raises(UserError) as caught:
        read_plan(path)
    assert str(caught.value).startswith(f"{path}: not a workload plan: {complaint}")


def test_missing_and_cut_plans(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_plan(tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text('{"schema_version": 1, "rows": [')
    with pytest.raises(UserError, match="not a workload plan"):
        read_plan(tmp_path / "plan.json")
