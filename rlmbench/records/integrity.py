"""Whether a record is whole: its table files against what its figures and its manifest say must be there.

`summary.json` keeps a fingerprint of each table file. A record from before there were any is asked for as much as can be read cheaply:
that every Parquet file opens, and that a table has rows from which some figure was taken. Raw events stand in for any table.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rlmbench.errors import UserError

if TYPE_CHECKING:
    from rlmbench.records.manifest import Manifest

ENDS_BYTES = 1 << 16
"""So much of a file's begin and end is hashed: all of most tables, and of one with a million rows no more than can be read in no time."""
TABLES = "tables"
"""The key in `summary.json`, beside ``runs``."""
ANOTHER_COPY = "take another copy of this run"
Fingerprint = dict[str, Any]


def has_events(run_dir: Path) -> bool:
    """Whether the run's processes left raw events, from which its tables are derived again. A published run has none."""
    return any((run_dir / "probe").glob("*.jsonl"))


def fingerprint(data: bytes) -> Fingerprint:
    """`bytes` and `sha256`: the size, and a hash of all of it, of a large one of its first and last 64 KiB."""
    return _fingerprint(io.BytesIO(data), len(data))


def fingerprints(run_dir: Path) -> dict[str, Fingerprint]:
    """Table -> the fingerprint of its file, for every table that has one."""
    return {path.stem: _fingerprint_of(path) for path in sorted(run_dir.glob("*.parquet"))}


def _fingerprint_of(path: Path) -> Fingerprint:
    with path.open("rb") as file:
        return _fingerprint(file, path.stat().st_size)


def _fingerprint(file: IO[bytes], size: int) -> Fingerprint:
    digest = hashlib.sha256(file.read(2 * ENDS_BYTES if size <= 2 * ENDS_BYTES else ENDS_BYTES))
    if size > 2 * ENDS_BYTES:
        file.seek(size - ENDS_BYTES)
        digest.update(file.read(ENDS_BYTES))
    return {"bytes": size, "sha256": digest.hexdigest()}


@dataclass(frozen=True)
class Faults:
    """What is wrong with a record's files: `damaged` by their names, and of `missing` tables why they must have rows."""

    damaged: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.damaged or self.missing)

    def told(self, run_dir: Path) -> str:
        """One line: the place, all that is wrong, the fix."""
        said = []
        if self.damaged:
            them = "it" if len(self.damaged) == 1 else "them"
            said.append(f"{listed(self.damaged)}: damaged, and there are no raw events to derive {them} from")
        if self.missing:
            reasons = set(self.missing.values())
            why = reasons.pop() if len(reasons) == 1 else "the run's figures were taken from them"
            verbs = ("is", "has") if len(self.missing) == 1 else ("are", "have")
            files = listed(f"{table}.parquet" for table in self.missing)
            said.append(f"{files} {verbs[0]} missing or {verbs[1]} no rows, though {why}")
        return f"{run_dir}: {'; '.join(said)}; {ANOTHER_COPY}"


def listed(names: Iterable[str]) -> str:
    """``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def faults(run_dir: Path, kept: Mapping[str, Any] | None, manifest: Manifest) -> Faults:
    """What is wrong with the table files of `run_dir`; `kept` is the document in `summary.json`, None where there is none."""
    recorded = kept.get(TABLES) if kept else None
    if isinstance(recorded, dict):
        return _against(run_dir, recorded)
    rows, damaged = {}, []
    for path in sorted(run_dir.glob("*.parquet")):
        try:
            rows[path.stem] = _rows_in(path)
        except ValueError:
            damaged.append(path.name)
    unread = {Path(name).stem for name in damaged}
    required = _by_figures(kept["runs"][0], manifest) if kept else _by_manifest(manifest, rows)
    return Faults(tuple(damaged), {table: why for table, why in required if not rows.get(table) and table not in unread})


def empty_though_needed(kept: Mapping[str, Any], manifest: Manifest, rows: Callable[[str], int]) -> Faults:
    """Tables without rows, of those that the kept figures were taken from; `rows` says how many a table has as it was derived."""
    return Faults(missing={table: why for table, why in _by_figures(kept["runs"][0], manifest) if not rows(table)})


def _against(run_dir: Path, recorded: Mapping[str, Fingerprint]) -> Faults:
    damaged, missing = [], {}
    for table, expected in sorted(recorded.items()):
        path = run_dir / f"{table}.parquet"
        try:
            if _fingerprint_of(path) != expected:
                damaged.append(path.name)
        except OSError:
            missing[table] = _STEPS if table in _OF_EVERY_STEP else "it was there when the run ended"
    return Faults(tuple(damaged), missing)


def _rows_in(path: Path) -> int:
    """Rows of a Parquet file, by its footer.

    Raises:
        ValueError: it is none.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(str(error)) from None


_STEPS = "steps were measured"
_OF_EVERY_STEP = ("processes", "steps", "spans", "samples", "microbatches")


def _by_figures(figures: Mapping[str, Any], manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The tables from which some of `figures` were taken, each with the reason that it must have rows."""

    def of(*names: str) -> Any:
        value: Any = figures
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    asked = [
        ("processes", _STEPS, of("completed_steps")),
        ("steps", _STEPS, of("completed_steps")),
        ("spans", _STEPS, of("stages_s")),
        ("hooks", "hooks attached", of("hooks", "attached")),
        ("samples", _STEPS, of("audit", "samples")),
        ("microbatches", _STEPS, of("audit", "samples")),
        ("rewards", "rewards were recorded", of("learning", "reward")),
        ("updates", "optimizer steps were recorded", of("audit", "optimizer_steps")),
        ("native", "the framework logged figures of its own", of("native")),
        ("logprobs", "log-probs were compared", of("learning", "logprob_difference")),
        ("facts", "processes stated facts", manifest.expected_facts and figures.get("status") == "ok"),
        ("collectors", "a collector ran", of("collectors")),
        ("tree_samples", "hosts were sampled", of("host")),
        ("process_samples", "processes were sampled", of("processes")),
        ("device_samples", "devices were sampled", of("devices")),
    ]
    return ((table, why) for table, why, value in asked if value)


def _by_manifest(manifest: Manifest, rows: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The same where no figures were kept: a run is ok only when its audit found the planned work, in steps that were measured."""
    ok = manifest.status == "ok"
    if ok:
        yield from ((table, _STEPS) for table in _OF_EVERY_STEP if table != "spans")
    measurement = manifest.experiment.get("measurement")
    probe = measurement.get("probe", True) if isinstance(measurement, dict) else False
    if probe and (ok or rows.get("steps")):
        yield "spans", "the run was measured with the probe"


def json_place(content: bytes) -> str:
    """Where `content` stops being JSON, for a person: ``line 3, column 17``."""
    if not content.strip():
        return "it is empty"
    try:
        json.loads(content)
    except json.JSONDecodeError as error:
        return f"line {error.lineno}, column {error.colno}"
    except UnicodeDecodeError as error:
        return f"byte {error.start + 1} is no text"
    return "not what it has to hold"


def damaged_json(path: Path, content: bytes, fix: str) -> UserError:
    """That the file at `path`, which should be JSON, is not."""
    return UserError(f"{path}: damaged ({json_place(content)}); {fix}")
