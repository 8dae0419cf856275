"""SYNTHETIC records, altered one thing at a time: nothing here was measured. A run is written once; each test alters a copy of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlmbench.comparison import Evidence, evidence_of
from rlmbench.comparison.compare import compare
from rlmbench.comparison.figures import Comparison, Pair
from rlmbench.metrics import summarize, write_summary
from rlmbench.records import load

HOST = {"hostname": "one", "cpu_model": "Synthetic CPU", "cores": 2, "memory_bytes": 8 << 30, "boot_id": "b", "load": [0.5, 0.5, 0.5]}
TRL = {"name": "trl", "device": "cpu", "key": "t", "python": "/opt/trl/bin/python", "packages": {"trl": "1.16.0", "torch": "2.13.0"}}
VERL = {"name": "verl", "device": "cpu", "key": "v", "python": "/opt/verl/bin/python", "packages": {"verl": "0.9.1", "torch": "2.13.0"}}
OF_VERL = {"framework": "verl", "environment": VERL}


class Records:
    """Copies of one written run, each altered by a test before it is read."""

    def __init__(self, folder: Path, written: Path) -> None:
        self.folder = folder
        self.written = written
        self._plain: dict[str, Evidence] = {}

    def altered(self, change: Callable[[Path], None] | None = None, **manifest: Any) -> Evidence:
        """A run like the written one, but for `manifest`'s fields and what `change` does to its folder.

        Figures are taken again only where something that they are taken from has changed, which saves most of the time.
        """
        place = self.folder / f"run-{len(list(self.folder.iterdir()))}"
        shutil.copytree(self.written, place)
        path = place / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "host": HOST, "environment": TRL, **manifest}))
        if change:
            change(place)
            for derived in place.glob("*.parquet"):
                derived.unlink()
        run = load(place)
        if change is None and "status" not in manifest and self._plain:
            who = {name: getattr(run.manifest, name) for name in ("suite", "framework", "division")}
            summary = self._plain["trl"].summary.model_copy(update=who)
            experiment = run.experiment.model_dump(mode="json")
            return dataclasses.replace(self._plain["trl"], manifest=run.manifest, summary=summary, experiment=experiment)
        return evidence_of(run, summarize(run))

    def plain(self, framework: str = "trl") -> Evidence:
        """The run as it is, of either framework; read once."""
        if not self._plain:
            self._plain["trl"] = self.altered()
        if framework not in self._plain:
            self._plain[framework] = self.altered(**OF_VERL)
        return self._plain[framework]

    def kept_at(self, run: Path, **manifest: Any) -> None:
        """Write the plain run to `run` with `manifest`'s fields and the figures that a run keeps."""
        shutil.copytree(self.written, run)
        path = run / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "host": HOST, "run_id": run.name, **manifest}))
        of = {name: manifest[name] for name in ("suite", "framework") if name in manifest}
        write_summary(run, self.plain().summary.model_copy(update={"id": run.name, **of}))


def repeated(evidence: Evidence, times: int = 4, speed: float = 1.0, spread: float = 0.01) -> list[Evidence]:
    """`times` runs like this one, `speed` times as fast, that vary by steps of `spread`. Times and rates change together."""
    return [_at_speed(evidence, speed * (1 + spread * place), f"{evidence.id}-r{place}") for place in range(times)]


def _at_speed(evidence: Evidence, factor: float, run_id: str) -> Evidence:
    summary = evidence.summary
    rates = summary.throughput
    if rates is not None:
        rates = rates.model_copy(
            update={
                "step_tokens_per_s": rates.step_tokens_per_s * factor,
                "step_tokens_per_s_per_device": rates.step_tokens_per_s_per_device * factor,
                "seconds": rates.seconds / factor,
            }
        )
    steps = [
        step.model_copy(
            update={
                "step_s": step.step_s / factor,
                "unattributed_s": step.unattributed_s / factor,
                "overlap_s": step.overlap_s / factor,
                "stages_s": {stage: seconds / factor for stage, seconds in step.stages_s.items()},
            }
        )
        for step in summary.steps
    ]
    return dataclasses.replace(evidence, summary=summary.model_copy(update={"id": run_id, "throughput": rates, "steps": steps}))


def waiting(evidence: Evidence, share: float) -> Evidence:
    """The same run, but that every step is longer by a wait, which is `share` of it: without its waits it is the run as it was."""
    summary, longer = evidence.summary, 1 / (1 - share)
    assert summary.throughput is not None and "wait" not in summary.stages_share
    steps = [
        step.model_copy(update={"step_s": step.step_s * longer, "stages_s": {**step.stages_s, "wait": step.step_s * (longer - 1)}})
        for step in summary.steps
    ]
    rates = summary.throughput.model_copy(
        update={
            "step_tokens_per_s": summary.throughput.step_tokens_per_s / longer,
            "step_tokens_per_s_per_device": summary.throughput.step_tokens_per_s_per_device / longer,
        }
    )
    changed = {"steps": steps, "throughput": rates, "stages_share": {**summary.stages_share, "wait": share}}
    return dataclasses.replace(evidence, summary=summary.model_copy(update=changed))


def compared(*runs: Evidence) -> Comparison:
    return compare(runs)


def only_pair(*groups: list[Evidence]) -> Pair:
    """The pair of two configurations."""
    (pair,) = compare([run for group in groups for run in group]).pairs
    return pair


def kinds(pair: Pair) -> set[str]:
    return {reason.kind for reason in pair.reasons}


def sentence(pair: Pair, kind: str) -> str:
    """The only reason of this kind."""
    (reason,) = [reason for reason in pair.reasons if reason.kind == kind]
    return reason.sentence


def append_events(*events: dict[str, Any], file: str = "4000.jsonl") -> Callable[[Path], None]:
    """Further events of the driver, before its last word."""

    def change(folder: Path) -> None:
        path = folder / "probe" / file
        path.write_text(path.read_text() + "".join(json.dumps(event) + "\n" for event in events))

    return change


def edit_events(edit: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Every event of every process, changed in place."""

    def change(folder: Path) -> None:
        for path in (folder / "probe").glob("*.jsonl"):
            events = [json.loads(line) for line in path.read_text().splitlines()]
            for event in events:
                edit(event)
            path.write_text("".join(json.dumps(event) + "\n" for event in events))

    return change
