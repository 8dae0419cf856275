"""The workload plan: which prompts each step visits, and under replay how long each sample is and what it earns.

rlmbench draws it once, before the framework starts; the framework's workers look samples up in it, and the audit
compares what reached the loss with it. Its form on disk is documented in docs/records.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count, islice
from pathlib import Path
from typing import Any

from rlmbench.errors import UserError
from rlmbench.experiment import Experiment, TraceLengths
from rlmbench.files import write_atomically
from rlmbench.workload.replay import read_trace, response_tokens, reward

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class TokenizedPrompt:
    """A problem and the token ids of its chat-templated prompt. `problem` is its position in the source, from 0."""

    problem: int
    question: str
    answer: str
    prompt_ids: tuple[int, ...]

    @property
    def prompt_hash(self) -> str:
        return prompt_hash(self.prompt_ids)


def prompt_hash(prompt_ids: Sequence[int]) -> str:
    """First 16 hex digits of sha256 over the comma-joined decimal token ids."""
    return sha256(",".join(map(str, prompt_ids)).encode()).hexdigest()[:16]


def draw_plan(experiment: Experiment, prompts: Sequence[TokenizedPrompt]) -> dict[str, Any]:
    """The plan of `experiment` over `prompts`.

    Prompts longer than `max_prompt_tokens` are left out (`left_out_prompts` counts them), and so is all but the first
    of those with equal token ids (`duplicate_prompts`). What remains is visited in passes, each in an order of its
    own drawn from the prompts' seed; a step lies within one pass, so that no prompt comes twice in a step, and the
    prompts at the end of a pass that do not fill a step are skipped in it.

    Raises:
        UserError: fewer prompts remain than a step needs, or the length trace cannot be read.
    """
    workload, group_size, steps = experiment.workload, experiment.optimization.group_size, experiment.measurement.steps
    short = [prompt for prompt in prompts if len(prompt.prompt_ids) <= workload.max_prompt_tokens]
    usable = {prompt.prompt_hash: prompt for prompt in reversed(short)}
    if len(usable) < workload.prompts_per_step:
        raise UserError(
            f"workload.prompts_per_step is {workload.prompts_per_step}, but only {len(usable)} of {len(prompts)} prompts are different and have "
            f"at most {workload.max_prompt_tokens} tokens: raise workload.max_prompt_tokens or workload.prompts.count"
        )
    replay = workload.replay
    trace = read_trace(Path(replay.lengths.path)) if replay and isinstance(replay.lengths, TraceLengths) else ()
    visits = dict.fromkeys(usable, 0)
    rows = []
    order = islice(_visiting_order(list(usable), workload.prompts.seed, workload.prompts_per_step), steps * workload.prompts_per_step)
    for row, key in enumerate(order):
        prompt, visit = usable[key], visits[key]
        visits[key] += 1
        samples = range(group_size)
        rows.append(
            {
                "row": row,
                "step": 1 + row // workload.prompts_per_step,
                "problem": prompt.problem,
                "question": prompt.question,
                "answer": prompt.answer,
                "prompt_hash": key,
                "prompt_ids": list(prompt.prompt_ids),
                "prompt_tokens": len(prompt.prompt_ids),
                "visit": visit,
                "response_tokens": [response_tokens(replay, workload.max_response_tokens, key, visit, sample, trace) for sample in samples]
                if replay
                else None,
                "rewards": [reward(replay, key, visit, sample) for sample in samples] if replay else None,
            }
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "mode": workload.mode,
        "seed": workload.prompts.seed,
        "group_size": group_size,
        "prompts_per_step": workload.prompts_per_step,
        "steps": steps,
        "left_out_prompts": len(prompts) - len(short),
        "duplicate_prompts": len(short) - len(usable),
        "rows": rows,
    }


def write_plan(plan: dict[str, Any], path: Path) -> None:
    """Write `plan` so that a reader sees all of it or none of it."""
    write_atomically(path, json.dumps(plan, ensure_ascii=False).encode())


def read_plan(path: Path) -> dict[str, Any]:
    """The plan in `path`, checked.

    Raises:
        UserError: the file is missing or is not a plan of a version that this rlmbench reads; the message names the row.
    """
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the workload plan {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: not a workload plan: {error}") from error
    fault = _fault(plan)
    if fault:
        raise UserError(f"{path}: not a workload plan: {fault}")
    return plan


def _visiting_order(keys: Sequence[str], seed: int, per_step: int) -> Iterator[str]:
    full_steps = len(keys) // per_step * per_step
    for number in count():
        shuffled = sorted(keys, key=lambda key: sha256(f"{seed}:{number}:{key}".encode()).digest())
        yield from shuffled[:full_steps]


_PLAN_TYPES: dict[str, type | tuple[type, ...]] = {
    "mode": str, "seed": int, "group_size": int, "prompts_per_step": int, "steps": int, "rows": list,
}  # fmt: skip
_ROW_TYPES: dict[str, type | tuple[type, ...]] = {
    "row": int, "step": int, "problem": int, "question": str, "answer": str, "prompt_hash": str, "prompt_ids": list,
    "prompt_tokens": int, "visit": int, "response_tokens": (list, type(None)), "rewards": (list, type(None)),
}  # fmt: skip


def _fault(plan: Any) -> str | None:
    """What is wrong with `plan`, or None."""
    if not isinstance(plan, dict):
        return "expected an object"
    if plan.get("schema_version") != SCHEMA_VERSION:
        return f"schema_version is {plan.get('schema_version')!r}, and this rlmbench reads {SCHEMA_VERSION}"
    wrong = _wrong_key(plan, _PLAN_TYPES)
    if wrong:
        return wrong
    if plan["mode"] not in ("replay", "natural"):
        return f"mode is {plan['mode']!r}, expected replay or natural"
    expected = plan["steps"] * plan["prompts_per_step"]
    if len(plan["rows"]) != expected:
        return f"{len(plan['rows'])} rows, but {plan['steps']} steps of {plan['prompts_per_step']} prompts are {expected}"
    for index, row in enumerate(plan["rows"]):
        fault = _row_fault(plan, row, index)
        if fault:
            return f"row {index}: {fault}"
    return None


def _row_fault(plan: dict[str, Any], row: Any, index: int) -> str | None:
    wrong = _wrong_key(row, _ROW_TYPES) if isinstance(row, dict) else "expected an object"
    if wrong:
        return wrong
    step = 1 + index // plan["prompts_per_step"]
    if (row["row"], row["step"]) != (index, step):
        return f"is numbered {row['row']} in step {row['step']}, expected {index} in step {step}"
    if row["prompt_tokens"] != len(row["prompt_ids"]) or row["prompt_hash"] != prompt_hash(row["prompt_ids"]):
        return "prompt_tokens or prompt_hash does not belong to prompt_ids"
    for key in ("response_tokens", "rewards"):
        samples = row[key]
        if plan["mode"] == "natural" and samples is not None:
            return f"{key} must be null in a natural workload"
        if plan["mode"] == "replay" and (samples is None or len(samples) != plan["group_size"]):
            return f"{key} needs one entry for each of the {plan['group_size']} samples"
    return None


def _wrong_key(mapping: dict[str, Any], types: dict[str, type | tuple[type, ...]]) -> str | None:
    for key, expected in types.items():
        if key not in mapping:
            return f"`{key}` is missing"
        if not isinstance(mapping[key], expected) or isinstance(mapping[key], bool):
            return f"`{key}` has the wrong type"
    return None
