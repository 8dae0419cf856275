"""The taxonomy says what the adapters really do: each statement against the ledger of a translation, and the page against both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlmbench.adapter import Translation, find_adapter, installed_adapters
from rlmbench.cli.frameworks import page
from rlmbench.experiment import Experiment
from rlmbench.report.taxonomy import taxonomy_sections
from rlmbench.taxonomy import TECHNIQUES, DeclaresTechniques, Support, Technique, declared, disagreements, observe

ROOT = Path(__file__).parents[2]
REAL = ("openrlhf", "trl", "verl")


@pytest.mark.parametrize("name", REAL)
def test_statements_agree_with_translations(name: str) -> None:
    adapter = find_adapter(name)
    assert disagreements(adapter) == []
    assert isinstance(adapter, DeclaresTechniques)
    assert set(adapter.techniques()) == {kind.name for kind in TECHNIQUES}


def test_published_facts_of_the_frameworks() -> None:
    """From their own documentation: TRL trains without model splits; verl has Megatron's; OpenRLHF has ring attention and AutoTP, no pipeline."""
    support = {name: {kind: one.support for kind, one in declared(find_adapter(name)).items()} for name in REAL}
    assert {support["trl"][split] for split in ("tensor", "pipeline", "expert", "context")} == {Support.ABSENT}
    assert {support["verl"][split] for split in ("tensor", "pipeline", "expert", "context")} == {Support.TRANSLATED}
    assert (support["openrlhf"]["context"], support["openrlhf"]["pipeline"]) == (Support.TRANSLATED, Support.ABSENT)
    assert {support[name]["colocation"] for name in REAL} == {Support.RUN}
    assert {support[name]["shared_actor_critic"] for name in REAL} == {Support.ABSENT}


class Boasting:
    """TRL's translation with a statement of its own."""

    def __init__(self, **stated: Technique) -> None:
        self._stated = stated

    def translate(self, experiment: Experiment, device: str) -> Translation:
        return find_adapter("trl").translate(experiment, device)

    def techniques(self) -> Mapping[str, Technique]:
        return self._stated


def test_a_statement_that_rots_is_noticed() -> None:
    adapter: Any = Boasting(
        tensor=Technique(Support.RUN, ""),
        zero3=Technique(Support.RUN, ""),
        data=Technique(Support.RUN, ""),
        warp=Technique(Support.RUN, ""),
    )
    assert [line.split(":")[0] for line in disagreements(adapter)] == ["warp", "zero3", "tensor"]


def test_a_technique_that_is_only_approximated_is_not_that_technique() -> None:
    zero1 = next(kind for kind in TECHNIQUES if kind.name == "zero1")
    seen = observe(find_adapter("verl"), zero1)
    assert seen is not None and seen.support is Support.TRANSLATED  # by Megatron on GPUs: FSDP2 on a CPU would shard everything


def test_an_adapter_that_states_nothing_is_observed() -> None:
    class Silent:
        def translate(self, experiment: Experiment, device: str) -> Translation:
            return find_adapter("trl").translate(experiment, device)

    silent: Any = Silent()
    assert disagreements(silent) == []
    assert declared(silent)["pipeline"].support is Support.ABSENT
    assert "sequence" not in declared(silent)


def test_the_chapter_of_a_report_says_of_its_frameworks_what_the_page_says() -> None:
    (chapter,) = taxonomy_sections(["verl", "reference", "verl", "no such framework"])
    table, folded = chapter.parts
    assert [column.title for column in table.columns] == ["technique", "verl"]
    stated = {line.cells[0].text: line.cells[1].text for line in table.lines}
    assert stated == {kind.title: str(declared(find_adapter("verl"))[kind.name].support) for kind in TECHNIQUES}
    hows = {line.cells[0].text: line.cells[1].text for line in folded.table.lines}
    page_text = (ROOT / "docs" / "taxonomy.md").read_text()
    assert all(f"- verl: {stated[title]}. {how}" in page_text for title, how in hows.items())
    assert taxonomy_sections(["reference"]) == ()


def test_the_page_is_current() -> None:
    """`rlmbench frameworks --markdown > docs/taxonomy.md` writes it again."""
    adapters = {name: adapter for name, adapter in installed_adapters().items() if name in REAL}
    assert (ROOT / "docs" / "taxonomy.md").read_text() == page(adapters)
