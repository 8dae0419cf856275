"""`--native FILE`: settings of the user's own, in the framework's terms, laid over what rlmbench gives it.

A run with such settings is in the *tuned* division: each framework at its best, by somebody who knows it, instead of all
given the same. The work stays that of the suite, since the audit still compares every sample with the plan; what else was
changed stands in the ledger, a line a setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlmbench.adapter import Fidelity, LedgerEntry, Translation
from rlmbench.errors import UserError
from rlmbench.experiment.yaml_file import parse, read_yaml

KEPT_FACTS = ("world_size", "training_devices")
"""Facts that hold in the tuned division too: on another number of devices it would be another measurement."""


def read_native(path: Path, dotted: bool) -> dict[str, Any]:
    """The settings in a YAML or JSON file: a mapping, nested or with dotted keys, or a list of ``key=value`` lines.

    `dotted` says that the framework's keys are dotted; nested mappings are then joined to dotted keys, else a mapping is
    a setting's value.

    Raises:
        UserError: not readable, not plain data, empty, or a key without a value.
    """
    document = read_yaml(path)
    data = document.data
    if isinstance(data, list):
        data = dict(_setting(path, document.line((place,)), item) for place, item in enumerate(data))
    if not isinstance(data, dict) or not data:
        raise UserError(f"{path}: holds no settings; write a mapping of the framework's own keys to values, or a list of key=value")
    return dict(_flat(data, "")) if dotted else data


def _setting(path: Path, line: int, item: Any) -> tuple[str, Any]:
    key, equals, value = str(item).partition("=")
    if not isinstance(item, str) or not equals or not key.strip():
        raise UserError(f"{path}:{line}: {item!r} is not key=value")
    return key.strip(), parse(value, f"{path}:{line}").data if value.strip() else ""


def _flat(data: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def tuned(translation: Translation, settings: Mapping[str, Any], reserved: Iterable[str], source: str) -> Translation:
    """`translation` with `settings` in place of its own; every one that differs is a CHANGED entry of the ledger.

    `reserved` are keys that rlmbench sets for itself, or beginnings of keys when they end in a dot; `source` names the
    file in messages and reasons.

    Raises:
        UserError: a setting that is reserved.
    """
    kept = tuple(reserved)
    native = dict(translation.native)
    ledger = list(translation.ledger)
    for key, value in settings.items():
        name = _bare(key)
        if any(name == _bare(own) or (own.endswith(".") and name.startswith(_bare(own))) for own in kept):
            raise UserError(f"{source}: {key}: rlmbench sets this itself to run, replay or measure; leave it out")
        present = next((own for own in native if _bare(own) == name), None)
        before = native.get(present) if present else None
        if present and before == value:
            continue
        native[present or key] = value
        ledger = _recorded(ledger, present or key, before, value, present is not None, source)
    facts = {name: wanted for name, wanted in translation.expected_facts.items() if name in KEPT_FACTS}
    return replace(translation, native=native, ledger=tuple(ledger), expected_facts=facts)


def _bare(key: str) -> str:
    """A key without the + by which hydra adds one that its defaults lack (hydra.cc/docs/advanced/override_grammar/basic)."""
    return key.lstrip("+")


def _recorded(ledger: list[LedgerEntry], key: str, before: Any, value: Any, present: bool, source: str) -> list[LedgerEntry]:
    """The ledger with the fields that `key` stands for marked as changed, or with an entry of its own for a key without a field."""
    reason = f"{source} gives {value!r}; matched runs have " + (repr(before) if present else "the framework's default")
    changed = [replace(entry, fidelity=Fidelity.CHANGED, native_value=value, reason=reason) for entry in ledger if entry.native_key == key]
    if not changed:
        return [*ledger, LedgerEntry(f"native.{key}", before, Fidelity.CHANGED, key, value, reason)]
    fields = {entry.field: entry for entry in changed}
    return [fields.get(entry.field, entry) for entry in ledger]
