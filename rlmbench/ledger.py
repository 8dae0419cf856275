"""Builds a fidelity ledger: what became of each field of an experiment in a framework's configuration."""

from __future__ import annotations

from typing import Any

from rlmbench.adapter import Fidelity, LedgerEntry
from rlmbench.experiment import Experiment


class Ledger:
    """Collects entries together with the native configuration they stand for.

    Every method names the experiment's field by its dotted path; the asked-for value is read from the experiment.
    `native` holds what was passed as ``key=value``.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._fields = experiment.model_dump(mode="json")
        self.entries: list[LedgerEntry] = []
        self.native: dict[str, Any] = {}

    def exact(self, field: str, key: str | None = None, value: Any = None, reason: str = "") -> None:
        """The framework does precisely this. Without `key`, rlmbench itself sees to it: `reason` says how."""
        self._add(field, Fidelity.EXACT, key, value, reason)

    def approximated(self, field: str, reason: str, key: str | None = None, value: Any = None) -> None:
        """The framework does something near; `reason` names the difference."""
        self._add(field, Fidelity.APPROXIMATED, key, value, reason)

    def unsupported(self, field: str, reason: str) -> None:
        """The framework cannot do it: the run is refused."""
        self._add(field, Fidelity.UNSUPPORTED, None, None, reason)

    def supported_if(self, condition: bool, field: str, reason: str, otherwise: str) -> None:
        """A field without a native key that is met only if `condition` holds."""
        if condition:
            self.exact(field, reason=reason)
        else:
            self.unsupported(field, otherwise)

    def value(self, field: str) -> Any:
        """The experiment's value at a dotted path (None below a section that is absent)."""
        value: Any = self._fields
        for part in field.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def _add(self, field: str, fidelity: Fidelity, key: str | None, value: Any, reason: str) -> None:
        self.entries.append(LedgerEntry(field, self.value(field), fidelity, key, value, reason))
        if key is not None:
            self.native[key] = value


def leaves(experiment: Experiment) -> list[str]:
    """The dotted names of all fields of an experiment, down to plain values."""

    def walk(value: Any, prefix: str) -> list[str]:
        if isinstance(value, dict):
            return [name for key, inner in value.items() for name in walk(inner, f"{prefix}.{key}" if prefix else key)]
        return [prefix]

    return walk(experiment.model_dump(mode="json"), "")


def missing(experiment: Experiment, entries: list[LedgerEntry] | tuple[LedgerEntry, ...]) -> list[str]:
    """Fields of the experiment that no entry covers; an entry for a section covers what lies below it."""
    covered = {entry.field for entry in entries}
    return [leaf for leaf in leaves(experiment) if not any(leaf == field or leaf.startswith(field + ".") for field in covered)]
