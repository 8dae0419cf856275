"""Did the run do exactly the work that was planned? A hard gate: a run whose audit fails has failed.

Compared where the loss received the work, since a framework may lose a sample in between and put a synthetic one in its
place without an error. Source: `samples`, `rewards`, `updates` and `steps` against `plan.json`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from rlmbench.experiment import Algorithm, Experiment
from rlmbench.metrics.learning import weights_changed
from rlmbench.metrics.order import order_mismatches
from rlmbench.metrics.work import optimizer_steps, step_work
from rlmbench.records.frames import plain_rows

if TYPE_CHECKING:
    import pandas as pd

    from rlmbench.records.tables import Tables

SHOWN_MISMATCHES = 20
REWARD_TOLERANCE = 1e-6
"""Planned rewards are multiples of 1/64, so that only float32 rounding of other values needs any tolerance."""

Key = tuple[int, int]


class WorkCounts(BaseModel):
    """Work of a whole run: prompts, samples and their tokens (each sample once, whatever the epochs), optimizer steps."""

    model_config = ConfigDict(frozen=True)

    steps: int
    prompts: int
    samples: int
    prompt_tokens: int
    response_tokens: int | None = Field(description="Null in the plan of a natural workload, where the model decides.")
    optimizer_steps: int


class Audit(WorkCounts):
    """What the loss received, against the plan."""

    ok: bool
    weights_changed: bool | None = Field(description="Whether any optimizer step changed the weights; null when none was checked.")
    planned: WorkCounts
    mismatch_count: int
    mismatches: list[str] = Field(description=f"The first {SHOWN_MISMATCHES}, each a sentence with its step and figures.")


class PlannedSample(NamedTuple):
    """One sample of the plan. `response_tokens` and `reward` are None in a natural workload."""

    prompt_hash: str
    prompt_tokens: int
    response_tokens: int | None
    reward: float | None


class TrainedSample(NamedTuple):
    """One visit of a sample to the loss. `key` is (row, sample), or None where the framework lost track of it."""

    key: Key | None
    prompt_hash: str | None
    prompt_tokens: int
    response_tokens: int


class Update(NamedTuple):
    """One optimizer step of one process."""

    process: str
    role: str
    learning_rate: float
    weights_changed: bool | None


def audit(plan: Mapping[str, Any], tables: Tables, experiment: Experiment, expected_facts: Mapping[str, Any] | None = None) -> Audit:
    """Compare a run's tables with its plan, step by step.

    Under replay, per step: the prompts; for each (row, sample) its visits (as many as epochs), prompt tokens, response
    tokens and reward, exactly. Samples without a row are compared as a multiset per prompt. In a natural workload
    lengths and rewards are the model's: lengths only may not pass the cap. In both, the optimizer steps of every process,
    whether they changed the weights where rewards gave a gradient, and that exactly the planned steps were made.

    An asynchronous rollout runs ahead, so which step trains a prompt depends on what is finished: there each step is held
    to its number of samples, and all of them together to the plan. Dynamic sampling also drops groups, and asks for more
    prompts than are planned: there the samples must be whole groups of planned prompts.
    `expected_facts` is what the run had to say of itself (`rlmbench.adapter.Translation`).
    """
    planned = planned_samples(plan)
    trained = _trained_samples(tables.samples)
    rewards = _rewards(tables.rewards)
    finished = {int(step) for step in tables.steps["step"]}
    updates = _updates(tables.updates)
    natural = plan["mode"] == "natural"
    in_order = experiment.placement.mode != "async" and not experiment.optimization.dynamic_sampling
    mismatches: list[str] = []
    for step in sorted({*planned, *trained, *updates, *(step for step in finished if step > 0)}):
        if step not in planned:
            mismatches.append(
                f"step {step}: not planned (the plan has {len(planned)} steps), but {len(trained.get(step, ()))} samples were trained"
            )
            continue
        if step not in trained:
            mismatches.append(f"step {step}: the loss received no sample; {len(planned[step])} are planned")
            continue
        if step not in finished:
            mismatches.append(f"step {step}: did not finish")
        if in_order:
            found = list(_sample_mismatches(planned[step], trained[step], experiment, natural))
            if not natural:
                found += _reward_mismatches(planned[step], rewards.get(step, []))
        else:
            found = list(_count_mismatches(planned[step], trained[step], experiment))
        found += _update_mismatches(step, updates, experiment, rewards.get(step, []))
        mismatches += [f"step {step}: {sentence}" for sentence in found]
    if not in_order:
        mismatches += [f"all steps: {sentence}" for sentence in _unordered_mismatches(planned, trained, rewards, experiment, natural)]
    if experiment.measurement.strict_order and plan["mode"] != "natural":
        mismatches += [f"step {step}: {sentence}" for step, sentence in order_mismatches(plan, tables.samples, experiment)]
    changed = weights_changed(tables.updates)
    if len(tables.updates) and changed is None:
        mismatches.append("no optimizer step was checked for changed weights")
    if not planned:
        mismatches.append("the plan holds no step")
    mismatches += _fact_mismatches(tables.facts, expected_facts or {})
    work = step_work(tables.samples, tables.microbatches, tables.updates, experiment.optimization.epochs).values()
    return Audit(
        ok=not mismatches,
        steps=len(finished),
        prompts=sum(step.prompts for step in work),
        samples=sum(step.samples for step in work),
        prompt_tokens=sum(step.prompt_tokens for step in work),
        response_tokens=sum(step.response_tokens for step in work),
        optimizer_steps=sum(optimizer_steps(tables.updates).values()),
        weights_changed=changed,
        planned=_planned_counts(plan, planned, experiment),
        mismatch_count=len(mismatches),
        mismatches=mismatches[:SHOWN_MISMATCHES],
    )


def planned_samples(plan: Mapping[str, Any]) -> dict[int, dict[Key, PlannedSample]]:
    """Step -> (row, sample) -> what is planned, from the content of `plan.json`."""
    steps: dict[int, dict[Key, PlannedSample]] = {}
    for row in plan["rows"]:
        nothing = [None] * plan["group_size"]
        of_each = zip(row["response_tokens"] or nothing, row["rewards"] or nothing, strict=True)
        for sample, (response_tokens, reward) in enumerate(of_each):
            planned = PlannedSample(row["prompt_hash"], row["prompt_tokens"], response_tokens, reward)
            steps.setdefault(row["step"], {})[row["row"], sample] = planned
    return steps


def _planned_counts(plan: Mapping[str, Any], planned: Mapping[int, Mapping[Key, PlannedSample]], experiment: Experiment) -> WorkCounts:
    samples = [sample for step in planned.values() for sample in step.values()]
    lengths = [sample.response_tokens for sample in samples if sample.response_tokens is not None]
    return WorkCounts(
        steps=len(planned),
        prompts=len(plan["rows"]),
        samples=len(samples),
        prompt_tokens=sum(sample.prompt_tokens for sample in samples),
        response_tokens=sum(lengths) if len(lengths) == len(samples) else None,
        optimizer_steps=len(planned) * experiment.updates_per_step,
    )


def _sample_mismatches(
    planned: Mapping[Key, PlannedSample], trained: Sequence[TrainedSample], experiment: Experiment, natural: bool
) -> Iterable[str]:
    """Sentences on prompts, samples and tokens of one step, or of all."""
    epochs = experiment.optimization.epochs
    yield from _count_mismatches(planned, trained, experiment)
    prompts = {sample.prompt_hash for sample in planned.values()}
    seen = {sample.prompt_hash for sample in trained}
    for prompt in sorted(prompts - seen):
        yield f"prompt {prompt} did not reach the loss"
    for prompt in sorted(str(prompt) for prompt in seen - prompts):
        yield f"prompt {prompt} reached the loss, but is not planned"
    visits = Counter(sample.key for sample in trained if sample.key is not None)
    anonymous = [sample for sample in trained if sample.key is None]
    for key in planned:
        if visits[key] != epochs and not (anonymous and key not in visits):
            yield f"{_named(key)} reached the loss {visits[key]} times instead of {epochs}"
    for sample in trained:
        if sample.key is not None:
            yield from _token_mismatches(sample.key, planned.get(sample.key), sample)
    if anonymous:
        yield from _anonymous_mismatches([planned[key] for key in planned if key not in visits], anonymous, epochs, natural)


def _count_mismatches(planned: Mapping[Key, PlannedSample], trained: Sequence[TrainedSample], experiment: Experiment) -> Iterable[str]:
    """Sentences on how many samples there are, and on the cap."""
    expected, cap = len(planned) * experiment.optimization.epochs, experiment.workload.max_response_tokens
    if len(trained) != expected:
        yield f"the loss received {len(trained)} samples instead of {expected}"
    for sample in trained:
        if sample.response_tokens > cap:
            name = _named(sample.key) if sample.key else f"a sample of prompt {sample.prompt_hash}"
            yield f"{name} has {sample.response_tokens} response tokens, above the cap of {cap}"


def _unordered_mismatches(
    planned: Mapping[int, Mapping[Key, PlannedSample]],
    trained: Mapping[int, Sequence[TrainedSample]],
    rewards: Mapping[int, Sequence[tuple[Key | None, float]]],
    experiment: Experiment,
    natural: bool,
) -> Iterable[str]:
    """Sentences on the samples of all steps, where a step does not decide which prompts it trains."""
    everything = {key: sample for of_step in planned.values() for key, sample in of_step.items()}
    received = [sample for of_step in trained.values() for sample in of_step]
    if experiment.optimization.dynamic_sampling:
        yield from _group_mismatches(everything, received, experiment)
        return
    yield from _sample_mismatches(everything, received, experiment, natural)
    if not natural:
        yield from _reward_mismatches(everything, [reward for of_step in rewards.values() for reward in of_step])


def _group_mismatches(planned: Mapping[Key, PlannedSample], trained: Sequence[TrainedSample], experiment: Experiment) -> Iterable[str]:
    """Sentences on prompts that are not planned, and on groups of which a part is missing."""
    known = {(sample.prompt_hash, sample.prompt_tokens) for sample in planned.values()}
    whole = experiment.optimization.group_size * experiment.optimization.epochs
    for (prompt, tokens), samples in sorted(Counter((sample.prompt_hash, sample.prompt_tokens) for sample in trained).items(), key=str):
        if (prompt, tokens) not in known:
            yield f"prompt {prompt} of {tokens} tokens reached the loss, but is not planned"
        elif samples % whole:
            yield f"prompt {prompt} reached the loss with {samples} samples, which are no whole groups of {whole}"


def _token_mismatches(key: Key, planned: PlannedSample | None, sample: TrainedSample) -> Iterable[str]:
    if planned is None:
        yield f"{_named(key)} reached the loss, but is not planned for this step"
        return
    if sample.prompt_hash != planned.prompt_hash:
        yield f"{_named(key)} was trained on prompt {sample.prompt_hash} instead of {planned.prompt_hash}"
    if sample.prompt_tokens != planned.prompt_tokens:
        yield f"{_named(key)} has {sample.prompt_tokens} prompt tokens instead of {planned.prompt_tokens}"
    if planned.response_tokens is not None and sample.response_tokens != planned.response_tokens:
        yield f"{_named(key)} has {sample.response_tokens} response tokens instead of {planned.response_tokens}"


def _anonymous_mismatches(planned: Sequence[PlannedSample], trained: Sequence[TrainedSample], epochs: int, natural: bool) -> Iterable[str]:
    """Compare multisets per prompt: which of a prompt's samples is which cannot be told."""
    expected: dict[str | None, list[tuple[int, int | None]]] = defaultdict(list)
    received: dict[str | None, list[tuple[int, int | None]]] = defaultdict(list)
    for plan in planned:
        expected[plan.prompt_hash] += [(plan.prompt_tokens, plan.response_tokens)] * epochs
    for sample in trained:
        received[sample.prompt_hash].append((sample.prompt_tokens, None if natural else sample.response_tokens))
    for prompt in sorted({*expected, *received}, key=str):
        missing, extra = Counter(expected[prompt]) - Counter(received[prompt]), Counter(received[prompt]) - Counter(expected[prompt])
        if missing or extra:
            yield f"prompt {prompt}: {_lengths(extra)} instead of {_lengths(missing)}"


def _lengths(samples: Counter[tuple[int, int | None]]) -> str:
    named = [f"{prompt} + {'any' if response is None else response}" for prompt, response in sorted(samples.elements(), key=str)]
    return f"samples of {', '.join(named)} tokens" if named else "no sample"


def _reward_mismatches(planned: Mapping[Key, PlannedSample], rewards: Sequence[tuple[Key | None, float]]) -> Iterable[str]:
    """Sentences on one step's rewards. Several ranks may report the same reward; they may not disagree."""
    if not rewards:
        return [f"no reward was recorded; {len(planned)} are planned"]
    by_key: dict[Key, set[float]] = defaultdict(set)
    anonymous = []
    for key, reward in rewards:
        if key is None:
            anonymous.append(reward)
        else:
            by_key[key].add(reward)
    found = []
    for key, sample in planned.items():
        wrong = [reward for reward in by_key[key] if not _equal(reward, sample.reward)]
        if wrong:
            found.append(f"{_named(key)} was rewarded {wrong[0]:g} instead of {sample.reward:g}")
        elif not by_key[key] and not anonymous:
            found.append(f"{_named(key)} has no reward; {sample.reward:g} is planned")
    if anonymous:
        expected = sorted(sample.reward or 0.0 for key, sample in planned.items() if not by_key[key])
        agree = len(expected) == len(anonymous) and all(map(_equal, sorted(anonymous), expected))
        if not agree:
            found.append(
                f"{len(anonymous)} rewards with sum {sum(anonymous):g} are not the {len(expected)} planned with sum {sum(expected):g}"
            )
    return found


def _equal(reward: float, planned: float | None) -> bool:
    return planned is not None and abs(reward - planned) <= REWARD_TOLERANCE


def _update_mismatches(
    step: int, updates: Mapping[int, Sequence[Update]], experiment: Experiment, rewards: Sequence[tuple[Key | None, float]]
) -> Iterable[str]:
    """Sentences on one step's optimizer steps: every process that ever updates makes as many as planned, and they change the weights."""
    expected = experiment.updates_per_step
    made = Counter((update.process, update.role) for update in updates.get(step, ()))
    who = sorted({(update.process, update.role) for of_step in updates.values() for update in of_step})
    if not made:
        return [f"no optimizer step; {expected} planned"]
    found = [f"{made[one]} optimizer steps of the {one[1]} in {one[0]} instead of {expected}" for one in who if made[one] != expected]
    actor = [update for update in updates[step] if update.role == "actor"]
    checked = [update.weights_changed for update in actor if update.weights_changed is not None]
    moved_before = any(update.weights_changed for earlier in updates if earlier < step for update in updates[earlier])
    could_change = any(update.learning_rate != 0 for update in actor) and _gives_gradient(experiment, rewards, moved_before)
    if checked and not any(checked) and could_change:
        found.append("the optimizer stepped, but the weights did not change")
    return found


def _gives_gradient(experiment: Experiment, rewards: Sequence[tuple[Key | None, float]], moved_before: bool) -> bool:
    """Whether the step's loss has a gradient.

    Group-relative advantages are all 0 when rewards agree within each group. A KL penalty has no gradient either as
    long as the policy still is the reference, that is until an update has changed the weights (`moved_before`).
    """
    optimization = experiment.optimization
    if optimization.algorithm not in (Algorithm.GRPO, Algorithm.RLOO) or (optimization.kl.coefficient > 0 and moved_before):
        return True
    groups: dict[int, set[float]] = defaultdict(set)
    for key, reward in rewards:
        if key is None:
            return True
        groups[key[0]].add(reward)
    return not groups or any(len(group) > 1 for group in groups.values())


def _named(key: Key) -> str:
    return f"sample {key[1]} of row {key[0]}"


def _fact_mismatches(facts: pd.DataFrame, expected: Mapping[str, Any]) -> Iterator[str]:
    """What the run turned out to be, against what it was asked to be. A fact that nobody stated is a mismatch too."""
    for name, wanted in expected.items():
        stated = {text: json.loads(text) for text in facts[facts["name"] == name]["value"]}
        if not stated:
            yield f"{name} should be {wanted!r}, but no process stated it"
        for value in stated.values():
            if value != wanted:
                yield f"{name} is {value!r}, asked for {wanted!r}"


def _trained_samples(samples: pd.DataFrame) -> dict[int, list[TrainedSample]]:
    steps: dict[int, list[TrainedSample]] = defaultdict(list)
    for step, row, sample, prompt_hash, prompt_tokens, response_tokens in plain_rows(
        samples, "step", "row", "sample", "prompt_hash", "prompt_tokens", "response_tokens"
    ):
        steps[step].append(TrainedSample(_key(row, sample), prompt_hash, prompt_tokens, response_tokens))
    return dict(steps)


def _rewards(rewards: pd.DataFrame) -> dict[int, list[tuple[Key | None, float]]]:
    steps: dict[int, list[tuple[Key | None, float]]] = defaultdict(list)
    for step, row, sample, reward in plain_rows(rewards, "step", "row", "sample", "reward"):
        steps[step].append((_key(row, sample), float("nan") if reward is None else reward))
    return dict(steps)


def _updates(updates: pd.DataFrame) -> dict[int, list[Update]]:
    steps: dict[int, list[Update]] = defaultdict(list)
    for step, process, role, rate, changed in plain_rows(updates, "step", "process", "role", "learning_rate", "weights_changed"):
        steps[step].append(Update(process, role, float("nan") if rate is None else rate, changed))
    return dict(steps)


def _key(row: int | None, sample: int | None) -> Key | None:
    return None if row is None or sample is None else (row, sample)
