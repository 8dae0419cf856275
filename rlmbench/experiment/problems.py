"""What pydantic found wrong, in a user's words: which key, what it holds, what it may hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from rlmbench.errors import did_you_mean
from rlmbench.experiment.yaml_file import KeyPath, dotted

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Problem:
    """One thing wrong at a key path; `message` continues a line that begins with the place."""

    path: KeyPath
    message: str


def validate(model: type[M], data: Any) -> tuple[M | None, list[Problem]]:
    """`data` as a `model`, or what is wrong with it. Strict: ``"8"`` and ``true`` are not numbers.

    Validation passes through JSON because only there does pydantic's strict mode take an enum by its value.
    """
    try:
        return model.model_validate_json(json.dumps(data), strict=True), []
    except ValidationError as error:
        return None, [_problem(model, data, entry) for entry in error.errors(include_url=False)]


def known_keys(annotation: Any, path: KeyPath = (), data: Any = None) -> list[str]:
    """The keys that may stand in the mapping at `path` below a model (or any annotation that holds models).

    Where models are alternatives told apart by their `kind`, `data` decides; without it the keys of all are returned.
    An empty list means that `path` leads to a plain value, or nowhere.
    """
    if get_origin(annotation) is dict:
        key_type, value_type = get_args(annotation)
        return known_keys(value_type, path[1:], _below(data, path[0])) if path else [str(key) for key in get_args(key_type)]
    models = _alternatives(annotation, data)
    if not path:
        return list(dict.fromkeys(name for model in models for name in model.model_fields))
    for model in models:
        field = model.model_fields.get(str(path[0]))
        if field is not None:
            return known_keys(field.annotation, path[1:], _below(data, path[0]))
    return []


@cache
def key_paths(model: type[BaseModel]) -> tuple[KeyPath, ...]:
    """The path of every key below `model`, sections included; where models are alternatives, those of all."""
    found: dict[KeyPath, None] = {}
    for name, field in model.model_fields.items():
        found[(name,)] = None
        found |= {(name, *path): None for inner in _models(field.annotation) for path in key_paths(inner)}
    return tuple(found)


def unknown_key(model: type[BaseModel], path: KeyPath, data: Any = None) -> str:
    """The message for a key that does not exist, with the nearest one that does."""
    word, known = str(path[-1]), known_keys(model, path[:-1], data)
    if word in known_keys(model, path[:-1]):
        return f"is not a key of this kind; its keys are {', '.join(known)}"
    # Two letters that changed places, or a unit left out (`p50` for `p50_tokens`), are one slip to a person and several to difflib.
    near = [key for key in known if sorted(key) == sorted(word) or key.startswith(f"{word}_")]
    near = near or get_close_matches(word, known, n=1, cutoff=0.8)
    elsewhere = [dotted(path) for path in key_paths(model) if path[-1] == word]
    if elsewhere and not near:
        return f"unknown key (did you mean {' or '.join(map(repr, elsewhere))}?)"
    return f"unknown key{did_you_mean(near[0] if near else word, near or known) or '; the keys here are ' + ', '.join(known)}"


def _problem(model: type[BaseModel], data: Any, entry: Any) -> Problem:
    kind, context = entry["type"], entry.get("ctx", {})
    path, value = _locate(entry["loc"], data, absent=kind == "missing")
    if kind == "extra_forbidden":
        return Problem(path, unknown_key(model, path, data))
    if kind == "missing":
        return Problem(path, "is required, but missing")
    if kind == "value_error":
        return Problem(path, entry["msg"].removeprefix("Value error, "))
    if kind in ("literal_error", "enum") and entry["loc"][-1:] == ("[key]",):
        return Problem(path, _not_among(path[-1], _quoted(context["expected"])))
    if kind in ("literal_error", "enum"):
        return Problem(path, _not_among(value, _quoted(context["expected"])))
    if kind == "union_tag_invalid":
        return Problem((*path, "kind"), _not_among(context["tag"], _quoted(context["expected_tags"])))
    if kind == "union_tag_not_found":
        return _without_kind(model, path, value)
    expected = entry["msg"].removeprefix("Input ").split(", unable to parse")[0].replace("an object", "a mapping of keys")
    return Problem(path, f"{expected}, not {_shown(value)}")


def _without_kind(model: type[BaseModel], path: KeyPath, value: Any) -> Problem:
    """A mapping that does not say which of the alternatives it is: perhaps because `kind` is misspelt."""
    known = known_keys(model, path)
    for key in value if isinstance(value, dict) else ():
        if key not in known:
            return Problem((*path, key), unknown_key(model, (*path, key)))
    return Problem((*path, "kind"), "is required, but missing")


def _locate(location: Iterable[str | int], data: Any, *, absent: bool) -> tuple[KeyPath, Any]:
    """pydantic's location as a key path of `data`, and the value there.

    pydantic puts the chosen alternative of a union, and ``[key]``, into its locations: they are no keys. What `data`
    does not hold is therefore skipped, except for the last part of the location of an `absent` key.
    """
    parts = [part for part in location if part != "[key]"]
    path: KeyPath = ()
    for index, part in enumerate(parts):
        is_key = isinstance(data, dict) and part in data
        is_index = isinstance(data, list) and isinstance(part, int)
        if is_key or is_index:
            data, path = data[part], (*path, part)
        elif absent and index == len(parts) - 1:
            data, path = None, (*path, part)
    return path, data


def _not_among(value: Any, allowed: list[str]) -> str:
    return f"{_shown(value)} is not one of {', '.join(allowed)}{did_you_mean(str(value), allowed)}"


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


def _alternatives(annotation: Any, data: Any) -> list[type[BaseModel]]:
    models = _models(annotation)
    kind = _below(data, "kind")
    chosen = [model for model in models if "kind" in model.model_fields and model.model_fields["kind"].default == kind]
    return chosen or models


def _below(data: Any, key: str | int) -> Any:
    return data.get(key) if isinstance(data, dict) else None
