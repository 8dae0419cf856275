"""Everything in which two configurations differ in effect: what was asked for, what became of it, and what was counted.

Sources, in this order, each thing once: the experiments, the ledgers, the adapters' traits, the facts stated inside the
runs, stages that only one of them has, computed tokens, package versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rlmbench.comparison import knowledge
from rlmbench.comparison.configurations import Group, versions_of
from rlmbench.comparison.figures import Configuration, Difference
from rlmbench.comparison.knowledge import EFFECTS, Meaning

NONE = "none"
COMPUTED_TOKENS = "computed tokens"
SHARE_WORTH_NAMING = 0.001
"""A stage below this share of the step is not worth a line."""
TOKENS_WORTH_NAMING = 0.005
"""Computed tokens that differ by less than this are called equal."""


def differences(a: Group, b: Group, figures_a: Configuration, figures_b: Configuration) -> list[Difference]:
    """Gravest first."""
    found = [
        *asked_differently(a, b),
        *_ledgers(a, b),
        *_traits(a, b),
        *_facts(a, b),
        *_stages(figures_a, figures_b),
        *_computed_tokens(figures_a, figures_b),
        *_versions(a, b),
    ]
    once: dict[str, Difference] = {}
    for difference in found:
        once.setdefault(difference.subject, difference)
    return sorted(once.values(), key=lambda difference: EFFECTS.index(difference.changes))


def asked_differently(a: Group, b: Group) -> list[Difference]:
    """Fields of the experiments that differ: the two were not asked for the same. Of what a trait decides, the trait speaks."""
    return [
        _difference(f"field.{field}", field, _said(mine), _said(other), knowledge.field_meaning(field), unify=f"one value of {field}")
        for field, mine, other in _unequal(a.fields, b.fields)
        if not _both_state(knowledge.DECIDES.get(field), a, b)
    ]


def _ledgers(a: Group, b: Group) -> Iterable[Difference]:
    """Fields that were asked for alike, but that one framework honours otherwise than the other."""
    mine, other = _entries(a), _entries(b)
    for field in dict.fromkeys((*mine, *other)):
        first, second = mine.get(field), other.get(field)
        inexact = [entry for entry in (first, second) if entry and entry["fidelity"] != "exact"]
        if not inexact or (first and second and _told(first) == _told(second)):
            continue
        if _both_state(knowledge.NOTES.get(field), a, b):
            continue
        label = field.removeprefix("(framework) ")
        meaning = knowledge.TRAITS[knowledge.NOTES[field]] if field in knowledge.NOTES else knowledge.field_meaning(field)
        own = any(entry["fidelity"] == "changed" for entry in inexact)
        yield _difference(f"field.{field}", label, _told(first), _told(second), meaning, "leaving it out of --native" if own else None)


def _both_state(trait: str | None, a: Group, b: Group) -> bool:
    """Whether both adapters say as data what a field or an entry says in words."""
    return trait is not None and trait in a.any.manifest.traits and trait in b.any.manifest.traits


def _entries(one: Group) -> dict[str, Mapping[str, Any]]:
    return {str(entry["field"]): entry for entry in one.any.manifest.ledger}


def _told(entry: Mapping[str, Any] | None) -> str:
    """What became of a field, in words."""
    if entry is None:
        return NONE
    if entry["fidelity"] == "exact":
        return "as asked"
    return str(entry.get("reason") or entry["fidelity"])


def _traits(a: Group, b: Group) -> Iterable[Difference]:
    """What the frameworks do by themselves. A trait that only one of them states cannot be compared."""
    mine, other = a.any.manifest.traits, b.any.manifest.traits
    for name in mine:
        if name in other and mine[name] != other[name]:
            meaning = knowledge.TRAITS.get(name, knowledge.NOT_KNOWN)
            yield _difference(f"trait.{name}", meaning.label or name, mine[name], other[name], meaning)


def _facts(a: Group, b: Group) -> Iterable[Difference]:
    """What processes stated of themselves, where both did."""
    for name, meaning in knowledge.FACTS.items():
        mine, other = _stated(a, name), _stated(b, name)
        if mine and other and mine != other:
            yield _difference(f"fact.{name}", meaning.label, ", ".join(mine), ", ".join(other), meaning)


def _stated(one: Group, name: str) -> list[str]:
    return sorted({_said(value) for run in one.ok for value in run.facts.get(name, ())})


def _stages(a: Configuration, b: Configuration) -> Iterable[Difference]:
    """Stages that only one of them has."""
    if not a.stages or not b.stages:
        return
    for stage, meaning in knowledge.STAGES.items():
        mine, other = a.stages.get(stage), b.stages.get(stage)
        here, there = mine.share if mine else 0.0, other.share if other else 0.0
        if (mine is None) != (other is None) and max(here, there) >= SHARE_WORTH_NAMING:
            yield _difference(f"stage.{stage}", meaning.label, _seconds(mine), _seconds(other), meaning)


def _seconds(stage: Any) -> str:
    return f"{stage.seconds:.3f} s a step" if stage else NONE


def _computed_tokens(a: Configuration, b: Configuration) -> Iterable[Difference]:
    """Tokens that a stage processed, padding included, where both counted them for the same valid ones."""
    for name in a.stages:
        mine, other = a.stages[name], b.stages.get(name)
        if other is None or mine.valid_tokens != other.valid_tokens or not mine.computed_tokens or not other.computed_tokens:
            continue
        if abs(mine.computed_tokens / other.computed_tokens - 1) > TOKENS_WORTH_NAMING:
            subject = f"{COMPUTED_TOKENS} of {name.replace('_', ' ').replace('logprob', 'log-probs')}"
            yield _difference(f"computed_tokens.{name}", subject, _tokens(mine), _tokens(other), knowledge.COMPUTED)


def _tokens(stage: Any) -> str:
    valid = f" for {stage.valid_tokens:,.0f} valid" if stage.valid_tokens else ""
    return f"{stage.computed_tokens:,.0f} a step{valid}"


def _versions(a: Group, b: Group) -> Iterable[Difference]:
    """Versions of what both stand on; frameworks' own are in the configurations' names."""
    mine, other = versions_of(a.any), versions_of(b.any)
    shared = [name for name in mine if name in other and mine[name] != other[name] and name != a.any.manifest.framework]
    if shared:
        theirs = [", ".join(f"{name} {versions[name]}" for name in shared) for versions in (mine, other)]
        yield _difference("versions", knowledge.VERSIONS.label, theirs[0], theirs[1], knowledge.VERSIONS)


def _difference(name: str, subject: str, a: str, b: str, meaning: Meaning, unify: str | None = None) -> Difference:
    return Difference(subject=subject, name=name, a=a, b=b, changes=meaning.effect, why=meaning.why, unify=unify or meaning.unify or None)


def _unequal(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """A section that one of them lacks is one entry, not one a field."""
    missing = object()
    unequal = []
    for field in dict.fromkeys((*a, *b)):
        mine, other = a.get(field, missing), b.get(field, missing)
        if mine == other or any(part in a or part in b for part in _above(field)):
            continue
        unequal.append((field, "given" if mine is missing else mine, "given" if other is missing else other))
    return unequal


def _above(field: str) -> list[str]:
    parts = field.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _said(value: Any) -> str:
    if value is None:
        return NONE
    return value if isinstance(value, str) else json.dumps(value, default=str)
