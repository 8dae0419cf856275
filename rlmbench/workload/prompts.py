"""Where problems come from: rlmbench's generator, or GSM8K records of a file or a data set."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rlmbench.errors import UserError
from rlmbench.experiment import Prompts
from rlmbench.workload import generated
from rlmbench.workload.verifier import extract

DEFAULT_GENERATED = 1024
"""Problems generated where the suite does not say how many."""


@dataclass(frozen=True)
class Problem:
    """A question and its final answer, as text that `verifier.extract` reads a number from."""

    question: str
    answer: str


def load_problems(prompts: Prompts) -> list[Problem]:
    """The problems that `prompts` names, in their own order, for every source but the hub.

    Data sets of the hub are read by the framework's interpreter (see `rlmbench.workload.inputs`), since rlmbench does
    not install the library for it.

    Raises:
        UserError: the file cannot be read, holds a bad record, or holds fewer problems than `count` asks for.
    """
    if prompts.source == "generated":
        wanted = islice(generated.problems(prompts.seed), prompts.count or DEFAULT_GENERATED)
        return [Problem(problem.question, str(problem.answer)) for problem in wanted]
    if prompts.source == "file":
        path = Path(prompts.path or "")
        return parse_records(_json_lines(path), count=prompts.count, place=str(path))
    raise ValueError("data sets of the hub are read by the framework's interpreter")


def parse_records(records: Iterable[tuple[int, Any]], *, count: int | None, place: str) -> list[Problem]:
    """Problems from GSM8K records (`question`, and `answer` that ends with ``#### number``).

    `records` are (line or row number from 1, record). Only the first `count` are looked at.

    Raises:
        UserError: a record is not of that form (named as ``place:number``), or there are fewer than `count`.
    """
    problems = [_problem(record, f"{place}:{number}") for number, record in islice(records, count)]
    if not problems:
        raise UserError(f"{place}: no problem in it; expected records with `question` and `answer`")
    if count and len(problems) < count:
        raise UserError(f"{place}: holds {len(problems)} problems, but workload.prompts.count is {count}: lower it or leave it out")
    return problems


def _json_lines(path: Path) -> Iterable[tuple[int, Any]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, _decoded(line, f"{path}:{number}")
    except OSError as error:
        raise UserError(f"workload.prompts.path: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"workload.prompts.path: {path} is not UTF-8 text: {error.reason}") from error


def _decoded(line: str, place: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise UserError(f"{place}: not JSON ({error}); expected one object per line") from error


def _problem(record: Any, place: str) -> Problem:
    if not isinstance(record, dict):
        raise UserError(f"{place}: expected an object with `question` and `answer`, found {type(record).__name__}")
    for key in ("question", "answer"):
        text = record.get(key)
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{place}: `{key}` is {'missing' if key not in record else 'empty or not a text'}")
    number = extract(record["answer"])
    if number is None:
        raise UserError(f"{place}: `answer` gives no number; GSM8K answers end with a line such as `#### 72`")
    return Problem(record["question"], str(number))
