"""`--native FILE`: settings of the user's own, in the framework's terms, laid over what rlmbench gives it.

A run with such settings is in the *tuned* division: each framework at its best, by somebody who knows it, instead of all
given the same. The work stays that of the suite, since the audit still compares every sample with the plan; what else was
changed stands in the ledger, a line a setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlmbench.adapter import Fidelity, LedgerEntry, Translation
from rlmbench.errors import UserError, did_you_mean
from rlmbench.experiment.yaml_file import parse, read_yaml

WORK = (
    "workload", "optimization.algorithm", "optimization.group_size", "optimization.mini_batch_samples", "optimization.epochs",
    "optimization.dynamic_sampling", "measurement.steps",
)  # fmt: skip
"""Fields that say what work is done: the audit compares it with the plan, and figures of other work are no tuning."""

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
        UserError: settings that are reserved, that change the work, or that are fields of the experiment; all of them, a line each.
    """
    if wrong := [f"{source}: {key}: {why}" for key in settings if (why := _refusal(translation, key, tuple(reserved)))]:
        raise UserError(*wrong)
    native = dict(translation.native)
    ledger = list(translation.ledger)
    for key, value in settings.items():
        present = next((own for own in native if _bare(own) == _bare(key)), None)
        before = native.get(present) if present else None
        if present and before == value:
            continue
        ledger = _recorded(ledger, present or key, before, value, present is not None, source, did_you_mean(key, native))
        native[present or key] = value
    facts = {name: wanted for name, wanted in translation.expected_facts.items() if name in KEPT_FACTS}
    return replace(translation, native=native, ledger=tuple(ledger), expected_facts=facts)


def _refusal(translation: Translation, key: str, reserved: Sequence[str]) -> str:
    """Why a native file may not hold `key`; empty where it may."""
    name = _bare(key)
    fields = [entry.field for entry in translation.ledger if entry.native_key and _bare(entry.native_key) == name]
    for field in fields:
        if any(field == work or field.startswith(work + ".") for work in WORK):
            return f"this is the suite's own work; change it for every framework with --set {field}=..."
    if any(name == _bare(own) or (own.endswith(".") and name.startswith(_bare(own))) for own in reserved):
        return "rlmbench sets this itself to run, replay or measure; leave it out"
    if any(entry.field == key for entry in translation.ledger):
        return f"this is a field of the experiment, not one of {translation.framework}'s keys; write --set {key}=..."
    return ""


def _bare(key: str) -> str:
    """A key without the + by which hydra adds one that its defaults lack (hydra.cc/docs/advanced/override_grammar/basic)."""
    return key.lstrip("+")


def _recorded(ledger: list[LedgerEntry], key: str, before: Any, value: Any, present: bool, source: str, near: str) -> list[LedgerEntry]:
    """The ledger with the fields that `key` stands for marked as changed, or with an entry of its own for a key without a field."""
    matched = f"matched runs have {before!r}" if present else f"matched runs leave it to the framework{near}"
    reason = f"{source} gives {value!r}; {matched}"
    changed = [replace(entry, fidelity=Fidelity.CHANGED, native_value=value, reason=reason) for entry in ledger if entry.native_key == key]
    if not changed:
        return [*ledger, LedgerEntry(f"native.{key}", before, Fidelity.CHANGED, key, value, reason)]
    fields = {entry.field: entry for entry in changed}
    return [fields.get(entry.field, entry) for entry in ledger]
