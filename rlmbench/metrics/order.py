"""Strict order: did every update, and every micro-batch in it, hold the planned samples in plan order?

Checked only where the experiment asks for it (`measurement.strict_order`): frameworks otherwise shuffle or sort a step's samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlmbench.records.frames import plain_rows

if TYPE_CHECKING:
    import pandas as pd

    from rlmbench.experiment import Experiment

Sample = tuple[str | None, int, int]
"""Prompt hash, prompt tokens, response tokens: what every framework knows of a sample at its loss."""


def order_mismatches(plan: Mapping[str, Any], samples: pd.DataFrame, experiment: Experiment) -> Iterator[tuple[int, str]]:
    """(step, sentence) for the first update of each step that held other samples than plan order gives it.

    Plan order is by row, then sample. It is cut into mini-batches of `mini_batch_samples`, once an epoch, and these into
    micro-batches of `micro_batch_samples`. With several ranks an update's samples are compared over all of them, since how
    they are dealt out is the framework's; with one rank each micro-batch is.
    """
    opt = experiment.optimization
    size = opt.micro_batch_samples if experiment.parallelism.data == 1 else opt.mini_batch_samples
    planned = _planned(plan)
    trained = _trained(samples, by_micro_batch=experiment.parallelism.data == 1)
    for step, in_order in planned.items():
        minis = _cut(in_order, opt.mini_batch_samples) * opt.epochs
        expected = [(number, batch) for number, mini in enumerate(minis, start=1) for batch in _cut(mini, size)]
        found = trained.get(step, [])
        for (number, batch), (update, held) in zip(expected, found, strict=False):
            if update != number or Counter(batch) != Counter(held):
                yield step, f"strict order: update {update} trained {_told(held)} where plan order has {_told(batch)} in update {number}"
                break
        else:
            if len(expected) != len(found):
                yield step, f"strict order: {len(found)} batches reached the loss instead of {len(expected)}"


def _planned(plan: Mapping[str, Any]) -> dict[int, list[Sample]]:
    steps: dict[int, list[Sample]] = {}
    for row in sorted(plan["rows"], key=lambda row: int(row["row"])):
        of_row = [(row["prompt_hash"], row["prompt_tokens"], tokens) for tokens in row["response_tokens"]]
        steps.setdefault(row["step"], []).extend(of_row)
    return steps


def _trained(samples: pd.DataFrame, *, by_micro_batch: bool) -> dict[int, list[tuple[int, list[Sample]]]]:
    """Step -> (update within the step, from 1; its samples) in the order of training: a micro-batch each, or a whole update over all ranks."""
    batches: dict[int, dict[tuple[int, int], list[Sample]]] = {}
    updates: dict[tuple[str, int], list[int]] = {}
    columns = ("process", "step", "update", "micro_batch", "prompt_hash", "prompt_tokens", "response_tokens")
    for process, step, update, micro_batch, *sample in sorted(plain_rows(samples, *columns), key=lambda row: (row[0], row[1], row[3])):
        seen = updates.setdefault((process, step), [])
        if update not in seen:
            seen.append(update)
        place = (len(seen), micro_batch if by_micro_batch else 0)
        batches.setdefault(step, {}).setdefault(place, []).append(tuple(sample))
    return {step: [(place[0], held) for place, held in sorted(of_step.items())] for step, of_step in batches.items()}


def _cut(samples: Sequence[Sample], size: int) -> list[list[Sample]]:
    return [list(samples[start : start + size]) for start in range(0, len(samples), size)]


def _told(samples: Sequence[Sample]) -> str:
    shown = ", ".join(f"{prompt} + {response}" for _, prompt, response in samples[:4])
    return f"samples of {shown} tokens" + (" and more" if len(samples) > 4 else "")
