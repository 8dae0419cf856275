"""Time in which a configuration waits while nothing works for it: it is in the ratio, and a setting may take it away."""

from __future__ import annotations

from rlmbench.comparison import knowledge
from rlmbench.comparison.configurations import Group
from rlmbench.comparison.figures import Configuration, Reason, Speed, WithoutWaits
from rlmbench.comparison.wording import about, ratio

WAIT = "wait"
CONSIDERABLE = 0.1
"""Share of a step from which on its wait is told beside the ratio: rlmbench's own choice, as that of the guideline `waiting_driver`."""

Member = tuple[Group, Configuration]


def without_waits(speed: Speed, a: Configuration, b: Configuration) -> WithoutWaits | None:
    """What `speed`'s ratio would be about, if those that wait for a considerable share of their step did not.

    A rate grows as its step shrinks: without 60% of its step a configuration would be 1 / 0.4 times as fast. None where neither waits so long,
    or where a step is nothing but a wait.
    """
    waits = {one.key: share for one in (a, b) if (share := _share(one))}
    left_a, left_b = (1 - _share(one) for one in (a, b))
    if not waits or min(left_a, left_b) <= 0:
        return None
    return WithoutWaits(of=waits, ratio=speed.ratio * left_b / left_a)


def waiting(a: Member, b: Member, speed: Speed | None) -> list[Reason]:
    """The reservation that a pair's waits are, with the setting that shortens them where one is known."""
    told = [_told(one) for one in (a, b) if _share(one[1])]
    if not told:
        return []
    sentence = "; ".join(told)
    if speed is not None and (made := speed.without_waits) is not None:
        waits = "these waits" if len(told) > 1 else "the wait"
        rates = f"{a[1].key} would have {about(made.ratio)} the tokens/s of {b[1].key}, not {ratio(speed.ratio)}"
        sentence = f"{sentence}: without {waits} {rates}"
    return [Reason(kind="waiting", severity="reservation", sentence=sentence)]


def _share(one: Configuration) -> float:
    """The share of a step that is a wait; 0 below what is considerable."""
    wait = one.stages.get(WAIT)
    return wait.share if wait is not None and wait.share >= CONSIDERABLE else 0.0


def _told(one: Member) -> str:
    wait, step_s = one[1].stages[WAIT], one[1].step_s
    of_step = f" of its {step_s.value:.3f} s step" if step_s is not None else ""
    said = f"{one[1].key} waits for {wait.seconds:.3f} s ({wait.share:.1%}){of_step}"
    return f"{said}, by {cause}" if (cause := _cause(one[0])) else said


def _cause(one: Group) -> str:
    """Which habit of the framework's makes it wait, and the setting that is not yet made; nothing where none is known."""
    found = []
    for trait, field in knowledge.WAITS.items():
        way, meaning = one.any.manifest.traits.get(trait), knowledge.TRAITS[trait]
        if way is not None and way != knowledge.NO_WAIT and one.fields.get(field) is False:
            found.append(f"its {meaning.label} {way} ({meaning.unify} shortens it)")
    return ", ".join(found)
