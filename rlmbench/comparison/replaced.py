"""Interrupted runs that `rlmbench run --resume` made again: their cell was asked for once, and counts once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlmbench.records.store import Run

FINISHED = ("ok", "failed")


def without_replaced(runs: Sequence[Run]) -> tuple[list[Run], dict[Path, tuple[str, ...]]]:
    """`runs` without interrupted attempts at a cell that a later run of the same campaign finished; and for the path of each such later
    run, which attempts it stands for.

    A cell is one framework, variant and repetition. A failed run stays, whatever came after it: that it failed is a finding, while an
    interruption says nothing of the framework.
    """
    cells: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs:
        of = run.manifest
        if of.campaign_id is not None:
            cells[of.suite, of.scale, of.campaign_id, of.framework, of.variant, of.division, of.repeat, of.pass_].append(run)
    replaced: dict[Path, tuple[str, ...]] = {}
    gone: set[Path] = set()
    for attempts in cells.values():
        finished = [run for run in attempts if run.manifest.status in FINISHED]
        if not finished:
            continue
        last = max(finished, key=_begun)
        before = [run for run in attempts if run.manifest.status == "interrupted" and _begun(run) < _begun(last)]
        if before:
            replaced[last.path] = tuple(run.id for run in sorted(before, key=_begun))
            gone.update(run.path for run in before)
    return [run for run in runs if run.path not in gone], replaced


def _begun(run: Run) -> tuple[float, str]:
    return run.manifest.times.created_unix_s, run.id
