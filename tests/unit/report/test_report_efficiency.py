"""Efficiency and prediction in the terminal and on the page: the figures of the summary, in words."""

from __future__ import annotations

import io
from dataclasses import asdict, replace
from typing import Any

import pytest
from rich.console import Console

from rlmbench.metrics import RunSummary
from rlmbench.metrics.efficiency import Against, Efficiency, StageAgainst, SyncEfficiency
from rlmbench.report import efficiency, prediction
from rlmbench.report.glossary import GLOSSARY
from rlmbench.report.terminal import print_run_detail


@pytest.fixture(scope="module")
def known(finished: Any) -> RunSummary:
    """The synthetic run as if its device were known: MFU 25% in every stage, 10% of a step."""
    found: Efficiency = finished[1].efficiency
    stage = StageAgainst(mfu=0.25, hfu=0.3125, mbu=0.125, limit="memory", least_s=0.5, roofline=0.75)
    against = Against("datasheet", "H100-SXM", "data sheet", 989e12, 3.35e12, dict.fromkeys(found.stages, stage), 0.1, 0.12, 0.25, 4.0)
    return finished[1].model_copy(update={"efficiency": replace(found, against=[against])})


def printed(run: Any, summary: RunSummary) -> str:
    out = io.StringIO()
    print_run_detail(run, summary, Console(file=out, width=120, markup=False))
    return out.getvalue()


def test_the_terminal_shows_flops_and_shares(finished: Any, known: RunSummary) -> None:
    text = printed(finished[0], known)
    assert known.efficiency is not None
    assert efficiency.flops(known.efficiency.stages["actor_update"].model_flops) in text
    assert "75.0% memory" in text
    assert (
        "MFU 10.0%, HFU 12.0% of 989 TFLOP/s and 3,350 GB/s a device (H100-SXM; data sheet); a step of the lengths it had takes at least 250 ms, it took 4.00x that"
        in " ".join(text.split())
    )


def test_an_unknown_device_says_so_in_place_of_mfu(finished: Any) -> None:
    text = " ".join(printed(*finished).split())
    assert "MFU: n/a (unknown device: no data sheet has it, and nothing was measured (rlmbench doctor --ceilings))" in text


def test_the_chapter_of_the_page_and_the_words_of_the_glossary(finished: Any, known: RunSummary) -> None:
    chapter = efficiency.efficiency_section(known)
    table = chapter.parts[0]
    assert [column.title for column in table.columns][-4:] == ["MFU", "HFU", "MBU", "roofline"]
    assert table.caption == "Per measured step and stage; shares of the data sheet's peaks"
    assert [cell.text for cell in table.lines[0].cells][-4:] == ["25.0%", "31.2%", "12.5%", "75.0% memory"]
    assert known.efficiency is not None
    measured = replace(known.efficiency.against[0], basis="measured")
    both = known.model_copy(update={"efficiency": replace(known.efficiency, against=[*known.efficiency.against, measured])})
    heads = [column.title for column in efficiency.efficiency_section(both).parts[0].columns]
    assert heads[-8::4] == ["MFU (datasheet)", "MFU (measured)"]
    absent = finished[1].model_copy(update={"efficiency": None, "absent": {"efficiency": "no such model"}})
    assert efficiency.efficiency_section(absent).parts[0].text == "Efficiency is absent: no such model."
    names = {term.name for term in GLOSSARY}
    assert {"Model FLOPs", "MFU, HFU", "MBU, FLOP/byte, roofline, limit", "Least step, work-depth ratio"} <= names


def test_weight_sync_stands_beside_its_lower_bound(known: RunSummary) -> None:
    assert known.efficiency is not None
    synced = replace(
        known.efficiency,
        weight_sync=SyncEfficiency(seconds=0.5, replicas=2, least_bytes=1e9, bytes_per_s=2e9),
        against=[replace(known.efficiency.against[0], least_sync_s=0.05, sync_roofline=0.1)],
    )
    text = dict(efficiency.step_lines(known, synced))["weight sync"]
    assert text == ("954 MiB into 2 rollout replicas in 500 ms: 2.00 GB/s at least; 10.0% of what 3,350 GB/s a device allow (datasheet)")


def test_memory_of_a_cpu_stands_beside_that_of_all_processes(known: RunSummary) -> None:
    told: dict[str, Any] = {
        "stages": {},
        "least_step_s": None,
        "memory": {"training": {"total_bytes": 3 << 30, "terms": {"processes": 1.0}}},
    }
    told["memory"]["generation"] = {"total_bytes": 2 << 30, "terms": {"processes": 1.0}}
    held = known.model_copy(update={"memory": known.memory.model_copy(update={"run_peak_pss_bytes": 6 << 30})})
    assert list(prediction.beside_rows(told, held))[1:] == [("memory of the machine", "3.00 GiB", "6.00 GiB", "2.00x")]


def test_prediction_and_measurement_side_by_side(finished: Any, known: RunSummary) -> None:
    assert known.efficiency is not None
    measured = known.efficiency.stages["actor_update"].seconds
    told = {
        "stages": {"actor_update": {"least_s": measured / 4}, "weight_sync": {"least_s": None}},
        "least_step_s": known.step_s.mean / 2,  # type: ignore[operator]
        "memory": {"training": {"total_bytes": 1 << 30}, "generation": {"total_bytes": 1 << 20}},
    }
    rows = {what: (predicted, seen, ratio) for what, predicted, seen, ratio in prediction.beside_rows(told, known)}
    assert rows["actor update, at least"][2] == "4.00x"
    assert rows["step, at least"][2] == "2.00x"
    assert rows["weight sync, at least"][0] == "n/a (no ceiling was known)"
    assert rows["memory of one device, training"][0] == "1.00 GiB"
    text = printed_with(finished[0], known, told)
    assert "Predicted before the run, and measured" in text


def printed_with(run: Any, summary: RunSummary, told: dict[str, Any]) -> str:
    out = io.StringIO()
    prediction.print_beside(told, summary, Console(file=out, width=120, markup=False))
    return out.getvalue()


def test_the_figures_are_plain_data(known: RunSummary) -> None:
    again = RunSummary.model_validate_json(known.model_dump_json())
    assert again.efficiency is not None and known.efficiency is not None
    assert asdict(again.efficiency) == asdict(known.efficiency)
