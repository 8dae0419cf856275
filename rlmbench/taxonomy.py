"""Which parallelism and inter-model technique each framework's adapter can run, in the terms of arXiv 2608.27046 (Sections 3 and 4).

An adapter declares it (`DeclaresTechniques`). Where a technique follows from fields of the experiment, it is also *observed*: probe experiments
are translated, and what the ledger refuses or `untested` names decides. `disagreements` compares the two, and a test holds it empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from rlmbench.adapter import Adapter, Fidelity, Translation
from rlmbench.experiment import Experiment
from rlmbench.experiment.models import merge


class Support(StrEnum):
    """How far an adapter goes with a technique."""

    RUN = "run here"
    """It has trained and passed its audit on a machine of rlmbench's authors (a CPU, at tiny)."""
    TRANSLATED = "translated, not run"
    ABSENT = "not expressible"
    """The framework lacks it, or no field of the experiment reaches it."""


@dataclass(frozen=True)
class Technique:
    """What an adapter says of one technique: how far, and by what of the framework's (or why not)."""

    support: Support
    how: str


@runtime_checkable
class DeclaresTechniques(Protocol):
    """An adapter that states its techniques, by the names of `TECHNIQUES`. Optional: without it they are observed where they can be."""

    def techniques(self) -> Mapping[str, Technique]: ...


@dataclass(frozen=True)
class Kind:
    """One technique. `probes` are settings laid over a small experiment, each of which needs it; without any it cannot be observed.

    `exact` are fields that have to be met exactly for the technique to be the one that was asked for."""

    name: str
    title: str
    group: str
    probes: tuple[Mapping[str, Any], ...] = ()
    exact: tuple[str, ...] = ()


_SPLIT = {"model": {"dtype": "bfloat16"}}
_PACKED = {"model": {"dtype": "bfloat16", "attention": "flash_attention_2"}}
_VLLM = {"placement": {"rollout_engine": "vllm"}}


def _sharded(kind: str) -> tuple[Mapping[str, Any], ...]:
    plain = {"parallelism": {"data": 2, "sharding": kind}}
    return plain, merge({"parallelism": {"data": 2, "sharding": kind, "tensor": 2}}, _SPLIT)


def _own_devices(**placement: Any) -> Mapping[str, Any]:
    return {"placement": {"rollout_engine": "vllm", "rollout_devices": 1, **placement}}


def _asynchronous(versions: int) -> tuple[Mapping[str, Any], ...]:
    """With rollout devices of their own, and on the training devices."""
    own = _own_devices(mode="async", max_staleness=versions)
    return own, merge(dict(own), {"placement": {"rollout_devices": 0}})


def _kinds(group: str, *kinds: Kind) -> tuple[Kind, ...]:
    return tuple(Kind(kind.name, kind.title, group, kind.probes, kind.exact) for kind in kinds)


TECHNIQUES: tuple[Kind, ...] = (
    *_kinds(
        "Parallelism within a model",
        Kind("data", "data parallelism (DP)", "", ({"parallelism": {"data": 2}}, {"parallelism": {"data": 2, "sharding": "zero3"}})),
        Kind("zero1", "ZeRO-1: optimizer state sharded", "", _sharded("zero1"), ("parallelism.sharding",)),
        Kind("zero2", "ZeRO-2: gradients too", "", _sharded("zero2"), ("parallelism.sharding",)),
        Kind("zero3", "ZeRO-3, FSDP: weights too", "", _sharded("zero3"), ("parallelism.sharding",)),
        Kind("tensor", "tensor parallelism (TP) in training", "", ({**_SPLIT, "parallelism": {"tensor": 2}},)),
        Kind("rollout_tensor", "tensor parallelism (TP) in generation", "", ({**_VLLM, "parallelism": {"data": 2, "rollout_tensor": 2}},)),
        Kind("sequence", "sequence parallelism (SP), with TP", ""),
        Kind("context", "context parallelism (CP): ring attention, Ulysses", "", ({**_PACKED, "parallelism": {"context": 2}},)),
        Kind("expert", "expert parallelism (EP)", "", ({"model": {"shape": "qwen3-30b-a3b", "dtype": "bfloat16"}, "parallelism": {"data": 2, "expert": 2}},)),
        Kind("pipeline", "pipeline parallelism (PP)", "", ({**_SPLIT, "parallelism": {"pipeline": 2}},)),
    ),
    *_kinds(
        "Between models and stages",
        Kind("colocation", "co-location: every role on the same devices", "", ({"placement": {"mode": "colocated"}},)),
        Kind("shared_actor_critic", "shared actor-critic: one backbone for policy and critic", ""),
        Kind("disaggregation", "disaggregation: rollout on devices of its own", "", (_own_devices(mode="disaggregated"),)),
        Kind("fusion_reward", "stage fusion: rewards of ended samples beside generation", ""),
        Kind("fusion_training", "stage fusion: log-probs or training beside generation", ""),
        Kind("hybrid_layouts", "hybrid layouts: TP to generate, DP or ZeRO to train", "", ({**_VLLM, "parallelism": {"data": 2, "rollout_tensor": 2}},)),
        Kind("one_step_off", "asynchrony: one step off", "", _asynchronous(1)),
        Kind("bounded_asynchrony", "asynchrony: bounded, two versions or more", "", _asynchronous(2)),
    ),
)  # fmt: skip
"""Every technique, in the order of the table."""

BASE: Mapping[str, Any] = {
    "model": {"shape": "tiny", "dtype": "float32"},
    "workload": {
        "prompts_per_step": 8,
        "max_prompt_tokens": 160,
        "max_response_tokens": 64,
        "replay": {"lengths": {"kind": "fixed", "tokens": 32}},
    },
    "optimization": {"algorithm": "grpo", "group_size": 4, "mini_batch_samples": 32, "micro_batch_samples": 4},
    "measurement": {"steps": 3},
}


@dataclass(frozen=True)
class Observation:
    """What translating a technique's probes shows: how far it goes, and the reason for it (a refusal, or what was never run)."""

    support: Support
    reason: str


def observe(adapter: Adapter, kind: Kind) -> Observation | None:
    """The best that any probe reaches on any device; None for a technique without probes."""
    found = [_one(adapter, probe, kind, device) for probe in kind.probes for device in ("cpu", "cuda")]
    order = list(Support)
    return min(found, key=lambda one: order.index(one.support), default=None)


def _one(adapter: Adapter, probe: Mapping[str, Any], kind: Kind, device: str) -> Observation:
    translation = adapter.translate(Experiment.model_validate(merge(dict(BASE), dict(probe))), device)
    if translation.unsupported:
        return Observation(Support.ABSENT, translation.unsupported[0].reason)
    near = [entry for entry in translation.ledger if entry.field in kind.exact and entry.fidelity is Fidelity.APPROXIMATED]
    if near:
        return Observation(Support.ABSENT, near[0].reason)
    if translation.untested or device == "cuda":
        return Observation(Support.TRANSLATED, _first(translation))
    return Observation(Support.RUN, "")


def _first(translation: Translation) -> str:
    return translation.untested[0] if translation.untested else "on a GPU: translated, not run"


def declared(adapter: Adapter) -> Mapping[str, Technique]:
    """What the adapter states, by technique; what it leaves out is filled in from what is observed."""
    own = dict(adapter.techniques()) if isinstance(adapter, DeclaresTechniques) else {}
    for kind in TECHNIQUES:
        if kind.name not in own and (seen := observe(adapter, kind)) is not None:
            own[kind.name] = Technique(seen.support, seen.reason)
    return own


def disagreements(adapter: Adapter) -> list[str]:
    """Where what an adapter states is not what its translation does, a line each; also techniques that nobody knows."""
    names = {kind.name for kind in TECHNIQUES}
    own = dict(adapter.techniques()) if isinstance(adapter, DeclaresTechniques) else {}
    found = [f"{name}: no such technique" for name in sorted(set(own) - names)]
    for kind in TECHNIQUES:
        said = own.get(kind.name)
        seen = observe(adapter, kind) if said is not None else None
        if said is not None and seen is not None and said.support is not seen.support:
            why = seen.reason or "it has been run"
            found.append(f"{kind.name}: stated {said.support!s}, but its translation says {seen.support!s} ({why})")
    return found


def rows(adapters: Mapping[str, Adapter]) -> list[tuple[Kind, list[Technique | None]]]:
    """Each technique with what each adapter says of it, in the order of `adapters`; None where it says nothing."""
    stated = [declared(adapter) for adapter in adapters.values()]
    return [(kind, [of.get(kind.name) for of in stated]) for kind in TECHNIQUES]


def markdown(adapters: Mapping[str, Adapter], titles: Sequence[str]) -> str:
    """The tables of docs/taxonomy.md: one a group, then how each is done or why it is not."""
    lines: list[str] = []
    found = rows(adapters)
    for group in dict.fromkeys(kind.group for kind in TECHNIQUES):
        lines += [f"## {group}", "", f"| technique | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
        lines += [f"| {kind.title} | {' | '.join(_cell(one) for one in of)} |" for kind, of in found if kind.group == group]
        lines.append("")
    lines += ["## How, or why not", ""]
    for kind, of in found:
        lines.append(f"**{kind.title}**")
        lines += [f"- {title}: {one.support}. {one.how}" for title, one in zip(titles, of, strict=True) if one is not None]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _cell(one: Technique | None) -> str:
    return "not stated" if one is None else f"**{one.support}**" if one.support is Support.RUN else str(one.support)
