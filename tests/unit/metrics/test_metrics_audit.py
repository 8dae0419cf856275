import copy

import pytest

from rlmbench.metrics.audit import SHOWN_MISMATCHES, audit


def _audit(synthetic):
    run = synthetic.write()
    return audit(run.plan, run.tables, run.experiment)


def _assert_caught(synthetic, *sentences):
    found = _audit(synthetic)
    assert not found.ok
    for sentence in sentences:
        assert any(sentence in mismatch for mismatch in found.mismatches), found.mismatches
    return found


def test_a_run_that_did_the_planned_work_passes_with_its_counts(synthetic):
    found = _audit(synthetic)
    assert (found.ok, found.mismatches, found.mismatch_count) == (True, [], 0)
    assert (found.steps, found.prompts, found.samples, found.optimizer_steps) == (4, 8, 16, 4)
    assert found.prompt_tokens == 216  # 2 x (10 + ... + 17)
    assert found.response_tokens == 120  # sum over r of (3 + r) + (5 + r) = 8 x 8 + 2 x 28
    assert found.weights_changed is True
    assert found.planned.model_dump() == {
        "steps": 4,
        "prompts": 8,
        "samples": 16,
        "prompt_tokens": 216,
        "response_tokens": 120,
        "optimizer_steps": 4,
    }


def test_one_lost_sample_is_caught(synthetic):
    synthetic.only("loss", 3)[0]["rows"].pop()
    found = _assert_caught(
        synthetic, "step 3: the loss received 3 samples instead of 4", "step 3: sample 1 of row 4 reached the loss 0 times instead of 1"
    )
    assert found.samples == 15


def test_one_sample_one_token_short_is_caught(synthetic):
    synthetic.only("loss", 2)[1]["rows"][0][4] -= 1
    found = _assert_caught(synthetic, "step 2: sample 0 of row 3 has 5 response tokens instead of 6")
    assert found.mismatch_count == 1


def test_one_prompt_one_token_long_is_caught(synthetic):
    synthetic.only("loss", 2)[1]["rows"][0][3] += 1
    _assert_caught(synthetic, "step 2: sample 0 of row 3 has 14 prompt tokens instead of 13")


def test_two_swapped_rewards_are_caught(synthetic):
    rows = synthetic.only("reward", 2)[0]["rows"]
    rows[0][2], rows[1][2] = rows[1][2], rows[0][2]
    _assert_caught(
        synthetic, "step 2: sample 0 of row 2 was rewarded 0.75 instead of 0.25", "sample 1 of row 2 was rewarded 0.25 instead of 0.75"
    )


def test_a_missing_reward_is_caught(synthetic):
    synthetic.only("reward", 2)[0]["rows"].pop()
    synthetic.drop(synthetic.only("reward", 4))
    _assert_caught(synthetic, "step 2: sample 1 of row 3 has no reward; 0.75 is planned", "step 4: no reward was recorded; 4 are planned")


def test_rewards_may_come_from_every_rank_but_not_disagree(synthetic):
    synthetic.events += copy.deepcopy(synthetic.only("reward"))
    assert _audit(synthetic).ok
    synthetic.only("reward", 2)[1]["rows"][0][2] = 0.5
    _assert_caught(synthetic, "step 2: sample 0 of row 2 was rewarded 0.5 instead of 0.25")


def test_a_missing_step_is_caught(synthetic):
    synthetic.drop([event for event in synthetic.events if event.get("step") == 4])
    found = _assert_caught(synthetic, "step 4: the loss received no sample; 4 are planned")
    assert (found.steps, found.optimizer_steps) == (3, 3)


def test_a_step_that_did_not_finish_is_caught(synthetic):
    synthetic.drop(synthetic.only("step", 4))
    _assert_caught(synthetic, "step 4: did not finish")


def test_zero_steps_are_caught(synthetic):
    synthetic.events = synthetic.events[:3]
    found = _audit(synthetic)
    assert (found.ok, found.steps, found.samples, found.mismatch_count) == (False, 0, 0, 4)


def test_an_empty_plan_is_never_green(synthetic):
    synthetic.events, synthetic.plan["rows"] = synthetic.events[:3], []
    _assert_caught(synthetic, "the plan holds no step")


def test_an_extra_step_is_caught(synthetic):
    synthetic.plan["rows"] = synthetic.plan["rows"][:6]
    _assert_caught(synthetic, "step 4: not planned (the plan has 3 steps), but 4 samples were trained")


def test_an_extra_optimizer_step_is_caught(synthetic):
    synthetic.events.append({**synthetic.only("update", 2)[0], "update": 1})
    found = _assert_caught(synthetic, "step 2: 2 optimizer steps of the actor in driver-1 instead of 1")
    assert found.optimizer_steps == 5


def test_a_step_without_optimizer_step_is_caught(synthetic):
    synthetic.drop(synthetic.only("update", 3))
    _assert_caught(synthetic, "step 3: no optimizer step; 1 planned")


def test_unchanged_weights_are_caught(synthetic):
    synthetic.only("update", 3)[0]["weights_changed"] = False
    _assert_caught(synthetic, "step 3: the optimizer stepped, but the weights did not change")


def test_weights_that_nobody_checked_are_caught(synthetic):
    for update in synthetic.only("update"):
        update["weights_changed"] = None
    _assert_caught(synthetic, "no optimizer step was checked for changed weights")


@pytest.mark.parametrize("cause", ["learning rate 0", "equal rewards"])
def test_weights_need_not_change_where_nothing_could_change_them(synthetic, cause):
    update = synthetic.only("update", 3)[0]
    update["weights_changed"] = False
    if cause == "learning rate 0":
        update["learning_rate"] = 0.0
    else:
        for row in (*synthetic.only("reward", 3)[0]["rows"],):
            row[2] = 0.5
        for row in synthetic.plan["rows"][4:6]:
            row["rewards"] = [0.5, 0.5]
    assert _audit(synthetic).ok


def test_equal_rewards_excuse_nothing_when_a_penalty_gives_a_gradient(synthetic):
    synthetic.experiment["optimization"]["kl"] = {"coefficient": 0.1}
    synthetic.only("update", 3)[0]["weights_changed"] = False
    for row in synthetic.only("reward", 3)[0]["rows"]:
        row[2] = 0.5
    for row in synthetic.plan["rows"][4:6]:
        row["rewards"] = [0.5, 0.5]
    _assert_caught(synthetic, "step 3: the optimizer stepped, but the weights did not change")


def test_a_penalty_has_no_gradient_while_the_policy_still_is_the_reference(synthetic):
    """Seen with a random model in a natural workload: no reward at all, so nothing ever moved the policy."""
    synthetic.experiment["optimization"]["kl"] = {"coefficient": 0.1}
    for update in synthetic.only("update"):
        update["weights_changed"] = False
    for event in synthetic.only("reward"):
        for row in event["rows"]:
            row[2] = 0.0
    for row in synthetic.plan["rows"]:
        row["rewards"] = [0.0, 0.0]
    assert _audit(synthetic).ok


def test_a_synthetic_duplicate_with_equal_totals_is_caught(synthetic):
    """verl once put a copy of another sample in the place of a lost one: counts and totals agree, the work does not."""
    rows = synthetic.only("loss", 1)[0]["rows"]
    rows[1] = [rows[0][0], rows[0][1], *rows[1][2:]]
    found = _assert_caught(
        synthetic, "step 1: sample 0 of row 0 reached the loss 2 times instead of 1", "sample 1 of row 0 reached the loss 0 times"
    )
    assert found.samples == 15


def test_a_sample_of_another_step_is_caught(synthetic):
    first, second = synthetic.only("loss", 1)[0]["rows"], synthetic.only("loss", 2)[0]["rows"]
    first[0], second[0] = second[0], first[0]
    _assert_caught(
        synthetic,
        "step 1: sample 0 of row 2 reached the loss, but is not planned for this step",
        "step 1: prompt 0000000000000002 reached the loss",
    )


def test_a_prompt_under_another_rows_name_is_caught(synthetic):
    synthetic.only("loss", 1)[0]["rows"][0][2] = f"{1:016x}"
    _assert_caught(synthetic, "step 1: sample 0 of row 0 was trained on prompt 0000000000000001 instead of 0000000000000000")


def _forget_rows(synthetic):
    for loss in synthetic.only("loss"):
        loss["rows"] = [[None, None, *row[2:]] for row in loss["rows"]]
    for reward in synthetic.only("reward"):
        reward["rows"] = [[None, None, row[2]] for row in reward["rows"]]


def test_samples_without_a_row_are_compared_as_multisets(synthetic):
    _forget_rows(synthetic)
    found = _audit(synthetic)
    assert (found.ok, found.prompts, found.samples, found.response_tokens) == (True, 8, 16, 120)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda rows: rows[1].__setitem__(4, rows[0][4]),
            "step 2: prompt 0000000000000002: samples of 12 + 5 tokens instead of samples of 12 + 7 tokens",
        ),
        (lambda rows: rows.pop(), "step 2: prompt 0000000000000002: no sample instead of samples of 12 + 7 tokens"),
        (lambda rows: rows.append(list(rows[0])), "step 2: prompt 0000000000000002: samples of 12 + 5 tokens instead of no sample"),
    ],
)
def test_multisets_differ_by_one_sample(synthetic, change, sentence):
    _forget_rows(synthetic)
    change(synthetic.only("loss", 2)[0]["rows"])
    _assert_caught(synthetic, sentence)


def test_rewards_without_a_row_are_compared_as_multisets(synthetic):
    _forget_rows(synthetic)
    synthetic.only("reward", 2)[0]["rows"][0][2] = 0.5
    _assert_caught(synthetic, "step 2: 4 rewards with sum 2.25 are not the 4 planned with sum 2")


def test_a_missing_reward_without_a_row_is_caught(synthetic):
    _forget_rows(synthetic)
    synthetic.only("reward", 2)[0]["rows"].pop()
    _assert_caught(synthetic, "step 2: 3 rewards with sum 1.25 are not the 4 planned with sum 2")


def test_each_epoch_visits_each_sample(synthetic):
    synthetic.experiment["optimization"]["epochs"] = 2
    synthetic.events += copy.deepcopy(synthetic.only("loss")) + [{**update, "update": 1} for update in synthetic.only("update")]
    found = _audit(synthetic)
    assert (found.ok, found.samples, found.response_tokens, found.optimizer_steps) == (True, 16, 120, 8)
    synthetic.only("loss", 2)[-1]["rows"].pop()
    _assert_caught(synthetic, "step 2: sample 1 of row 3 reached the loss 1 times instead of 2")


def _natural(synthetic):
    synthetic.plan["mode"] = "natural"
    del synthetic.experiment["workload"]["replay"]
    for row in synthetic.plan["rows"]:
        row["response_tokens"] = row["rewards"] = None


def test_a_natural_workload_leaves_lengths_and_rewards_to_the_model(synthetic):
    _natural(synthetic)
    for loss in synthetic.only("loss"):
        loss["rows"][0][4] = 2
    found = _audit(synthetic)
    assert (found.ok, found.planned.response_tokens) == (True, None)
    assert found.response_tokens == 120 - sum(3 + row for row in range(8)) + 16


def test_a_natural_workload_still_counts_samples_and_keeps_the_cap(synthetic):
    _natural(synthetic)
    synthetic.only("loss", 2)[0]["rows"][0][4] = 13
    synthetic.only("loss", 3)[0]["rows"].pop()
    _assert_caught(
        synthetic,
        "step 2: sample 0 of row 2 has 13 response tokens, above the cap of 12",
        "step 3: the loss received 3 samples instead of 4",
    )


def test_every_rank_must_make_every_optimizer_step(synthetic, tables_of):
    other = [{**update, "weights_changed": None} for update in synthetic.only("update")]
    run = synthetic.write()
    assert audit(run.plan, tables_of({"rank-0": synthetic.events, "rank-1": other}), run.experiment).ok
    found = audit(run.plan, tables_of({"rank-0": synthetic.events, "rank-1": other[:3]}), run.experiment)
    assert found.mismatches == ["step 4: 0 optimizer steps of the actor in rank-1 instead of 1"]


def test_only_the_first_mismatches_are_spelled_out(synthetic):
    for loss in synthetic.only("loss"):
        for row in loss["rows"]:
            row[3] += 1
            row[4] -= 1
    found = _audit(synthetic)
    assert (found.mismatch_count, len(found.mismatches)) == (32, SHOWN_MISMATCHES)


def _move_row(synthetic, row, step):
    """Row `row` is trained, and rewarded, in `step`."""
    for event in synthetic.only("loss"):
        if event["rows"][0][0] == row:
            event["step"] = step
    for event in synthetic.only("reward"):
        moved = [each for each in event["rows"] if each[0] == row]
        event["rows"] = [each for each in event["rows"] if each[0] != row]
        synthetic.only("reward", step)[0]["rows"] += moved


def test_an_asynchronous_rollout_may_train_a_prompt_in_another_step(synthetic):
    _move_row(synthetic, 1, 2)
    _move_row(synthetic, 2, 1)
    _assert_caught(synthetic, "step 1: prompt 0000000000000001 did not reach the loss")
    synthetic.experiment["placement"] = {"mode": "async", "max_staleness": 1}
    assert _audit(synthetic).mismatches == []


def test_an_asynchronous_run_must_train_everything_once_with_its_reward(synthetic):
    synthetic.experiment["placement"] = {"mode": "async", "max_staleness": 1}
    synthetic.only("loss", 2)[0]["rows"] = [row[:] for row in synthetic.only("loss", 1)[0]["rows"]]
    synthetic.only("reward", 3)[0]["rows"][0][2] = 0.5
    _assert_caught(
        synthetic,
        "all steps: sample 0 of row 0 reached the loss 2 times instead of 1",
        "all steps: prompt 0000000000000002 did not reach the loss",
        "all steps: sample 0 of row 4 was rewarded 0.5 instead of 0.25",
    )
    _move_row(synthetic, 7, 3)
    _assert_caught(synthetic, "step 3: the loss received 6 samples instead of 4", "step 4: the loss received 2 samples instead of 4")


def test_dynamic_sampling_trains_whole_groups_of_planned_prompts(synthetic):
    synthetic.plan["mode"] = "natural"
    for row in synthetic.plan["rows"]:
        row["response_tokens"] = row["rewards"] = None
    synthetic.experiment["workload"]["replay"] = None
    synthetic.experiment["optimization"]["dynamic_sampling"] = True
    for event in synthetic.only("loss", 2):  # row 2 was dropped, and 3 and 4 came instead of 2 and 3
        for sample in event["rows"]:
            sample[0], sample[1] = None, None
            number = int(sample[2]) + 1
            sample[2], sample[3] = f"{number:016x}", 10 + number
    assert _audit(synthetic).mismatches == []
    synthetic.only("loss", 2)[0]["rows"][0][2] = "another"
    _assert_caught(
        synthetic,
        "all steps: prompt another of 13 tokens reached the loss, but is not planned",
        "all steps: prompt 0000000000000003 reached the loss with 1 samples, which are no whole groups of 2",
    )
    synthetic.only("loss", 2)[0]["rows"].pop()
    _assert_caught(synthetic, "step 2: the loss received 3 samples instead of 4")


def _swapped(synthetic):
    """The two micro-batches of step 2, in the other order."""
    first, second = synthetic.only("loss", 2)
    first["rows"], second["rows"] = second["rows"], first["rows"]


def test_the_order_of_micro_batches_counts_in_strict_mode_only(synthetic):
    synthetic.experiment["measurement"]["strict_order"] = True
    assert _audit(synthetic).ok
    _swapped(synthetic)
    found = _assert_caught(
        synthetic,
        "step 2: strict order: update 1 trained samples of 13 + 6, 13 + 8 tokens where plan order has samples of 12 + 5, 12 + 7 tokens",
    )
    assert found.mismatch_count == 1
    synthetic.experiment["measurement"]["strict_order"] = False
    assert _audit(synthetic).ok


def test_with_several_ranks_an_update_is_compared_as_a_whole(synthetic):
    synthetic.experiment["measurement"]["strict_order"] = True
    synthetic.experiment["parallelism"] = {"data": 2}
    _swapped(synthetic)
    assert _audit(synthetic).ok
    synthetic.experiment["optimization"] |= {"mini_batch_samples": 2, "micro_batch_samples": 1}  # two updates a step
    for number, update in enumerate(synthetic.only("loss")):
        update["update"] = number
    found = _audit(synthetic)
    order = [mismatch for mismatch in found.mismatches if "strict order" in mismatch]
    assert [mismatch.partition(":")[0] for mismatch in order] == ["step 2"]
