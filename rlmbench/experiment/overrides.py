"""`--set optimization.group_size=8`: changes to one experiment from the command line."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlmbench.errors import UserError
from rlmbench.experiment.models import Experiment
from rlmbench.experiment.problems import known_keys, unknown_key
from rlmbench.experiment.yaml_file import KeyPath, dotted, parse

# Of these only one can be given: setting one clears the others.
MODEL_SOURCES = ("shape", "hub", "path")
LENGTHS: KeyPath = ("workload", "replay", "lengths")


def apply_overrides(experiment: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of `experiment` (plain data) with ``key.path=value`` settings applied, the later ones winning.

    Values are YAML: ``8``, ``1e-5``, ``null``, ``{kind: fixed, tokens: 8}``. A mapping is laid over what is there, as
    a scale is. Setting one of model.shape, hub and path clears the other two; another `kind` of replay lengths starts
    an empty mapping, wherever it stands among the settings.

    Raises:
        UserError: a setting that cannot be parsed or a key that does not exist, before anything is changed.
            Whether the values make sense is for `rlmbench.experiment.load.build_experiment` to say.
    """
    settings = [setting for text in overrides for setting in _leaves(*_parse(text))]
    changed = copy.deepcopy(dict(experiment))
    for path, value in sorted(settings, key=lambda setting: setting[0] != (*LENGTHS, "kind")):
        _set(changed, path, value)
    return changed


def override_path(text: str) -> KeyPath:
    """The key path of one ``key.path=value`` setting."""
    return tuple(text.partition("=")[0].strip().split("."))


def _parse(text: str) -> tuple[KeyPath, Any]:
    key, equals, value = text.partition("=")
    place = f"--set {key.strip() or repr(text)}"
    path = override_path(text)
    for depth in range(len(path)):
        known = known_keys(Experiment, path[:depth])
        if not known:
            raise UserError(f"{place}: {dotted(path[:depth])} holds a value, it has no keys")
        if path[depth] not in known:
            name = "" if depth == len(path) - 1 else f"{path[depth]}: "
            raise UserError(f"{place}: {name}{unknown_key(Experiment, path[: depth + 1])}")
    if not equals or not value.strip():
        raise UserError(f"{place}: has no value; write --set {key.strip()}=VALUE (null clears it)")
    try:
        return path, parse(value, place).data
    except UserError as error:
        raise UserError(str(error).replace(f"{place}:1:", f"{place}:", 1)) from error


def _leaves(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    """A mapping as the settings of its values, so that the rules for single keys hold inside it too."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            if key not in known_keys(Experiment, path):
                raise UserError(f"--set {dotted(path)}: {key}: {unknown_key(Experiment, (*path, key))}")
            yield from _leaves((*path, key), inner)
    else:
        yield path, value


def _set(data: dict[str, Any], path: KeyPath, value: Any) -> None:
    *parents, key = map(str, path)
    section = data
    for name in parents:
        if not isinstance(section.get(name), dict):
            section[name] = {}
        section = section[name]
    if path[:-1] == ("model",) and key in MODEL_SOURCES and value is not None:
        for source in MODEL_SOURCES:
            section.pop(source, None)
    if path == (*LENGTHS, "kind") and section.get("kind") != value:
        section.clear()
    section[key] = value
