"""Which runs a user means: folders of runs, a results folder, a suite, a campaign, or run ids; and which of them, by campaign and time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rlmbench.errors import UserError, did_you_mean
from rlmbench.records.manifest import MANIFEST
from rlmbench.records.store import LATEST, Run, find_run, list_runs, load

_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
Identity = tuple[str, float] | Path
_CAMPAIGN = re.compile(r"\d{8}-\d{6}-\d{3}")


def find_runs(names: Iterable[str], results_dir: str | Path) -> list[Run]:
    """The runs that `names` stand for, each once: of a run and a copy of it (a published one, say) the first that is named.

    A name is a run (folder, id, beginning of an id, or ``latest``), a folder that holds runs at most two levels below,
    a suite (all of its runs in `results_dir`), or a campaign's id. A profile run is found by its own name only.

    Raises:
        UserError: a name stands for no run.
    """
    found: dict[Identity, Run] = {}
    for name in names:
        for run in _runs_of(name, Path(results_dir)):
            found.setdefault(_identity(run), run)
    return list(found.values())


def check_apart(baseline: Iterable[Run], new: Iterable[Run]) -> None:
    """That no run is on both sides: beside itself it would never be slower.

    Raises:
        UserError: one is.
    """
    before = {_identity(run) for run in baseline}
    both = [run.id for run in new if _identity(run) in before]
    if both:
        more = f" and {len(both) - 1} more" if len(both) > 1 else ""
        raise UserError(f"--against: {both[0]}{more} would be compared with itself, as the baseline has it, too; name each run on one side")


def _identity(run: Run) -> Identity:
    """What a run and its copies have in common; a damaged one is told by its place, until it is read."""
    return (run.manifest.run_id, run.manifest.times.created_unix_s) if _readable(run) else run.path


def _runs_of(name: str, results_dir: Path) -> list[Run]:
    for folder in _folders(name, results_dir):
        if folder.is_dir() and not (folder / MANIFEST).is_file():
            runs = [run for run in _below(folder) if run.measures]
            if not runs:
                raise UserError(f"{folder}: no runs there: a run's folder holds {MANIFEST}")
            return runs
    if _CAMPAIGN.fullmatch(name):
        runs = [run for run in list_runs(results_dir) if run.measures and _may_be_of(run, name)]
        if any(_readable(run) for run in runs):
            return runs
    try:
        return [find_run(name, results_dir)]
    except UserError as error:
        suites = [path.name for path in results_dir.iterdir() if path.is_dir()] if results_dir.is_dir() else []
        raise UserError(f"{error}; a suite or folder that holds runs is taken, too{did_you_mean(name, suites)}") from None


def _readable(run: Run) -> bool:
    try:
        return bool(run.manifest)
    except UserError:
        return False


def _may_be_of(run: Run, campaign: str) -> bool:
    """Whether the campaign made it. A run whose manifest is damaged may be of any: whoever reads it hears of the damage."""
    return not _readable(run) or run.manifest.campaign_id == campaign


def _folders(name: str, results_dir: Path) -> list[Path]:
    """Where runs of `name` may lie: a folder, a suite's results, or those of a suite given by its file, as for ``rlmbench run``."""
    given = Path(name)
    is_file = given.is_file() or Path(f"{name}.yaml").is_file()
    return [given, results_dir / name, *([results_dir / given.stem] if is_file else [])]


def _below(folder: Path) -> list[Run]:
    """Runs in `folder` itself or in the suites' folders below it."""
    paths = sorted(folder.glob(f"*/{MANIFEST}")) or sorted(folder.glob(f"*/*/{MANIFEST}"))
    return [load(path) for path in paths]


def only(runs: Sequence[Run], campaign: str | None = None, since: str | None = None) -> list[Run]:
    """Those of `runs` that one campaign made (its id, or ``latest``: of each suite its latest), and that were begun since then.

    `since` is a date or time (``2026-11-30``, ``2026-11-30T18:00``, UTC) or how long ago (``90m``, ``12h``, ``7d``, ``2w``).

    Raises:
        UserError: nothing is left, or `since` is neither.
    """
    kept = list(runs)
    if campaign is not None:
        kept = _of_campaign(kept, campaign)
    if since is not None:
        begun = _moment(since)
        kept = [run for run in kept if run.manifest.times.created_unix_s >= begun]
        if not kept:
            latest = max(run.manifest.times.created_unix_s for run in runs)
            told = datetime.fromtimestamp(latest, UTC).strftime("%Y-%m-%dT%H:%M")
            raise UserError(f"--since {since}: no run since then; the latest was begun {told} UTC")
    return kept


def _of_campaign(runs: Sequence[Run], campaign: str) -> list[Run]:
    known = sorted({run.manifest.campaign_id for run in runs if run.manifest.campaign_id})
    if campaign == LATEST:
        latest: dict[str, str] = {}
        for run in runs:
            suite, of = run.manifest.suite, run.manifest.campaign_id or ""
            latest[suite] = max(latest.get(suite, ""), of)
        kept = [run for run in runs if run.manifest.campaign_id and run.manifest.campaign_id == latest[run.manifest.suite]]
    else:
        kept = [run for run in runs if run.manifest.campaign_id == campaign]
    if not kept:
        there = f"known: {', '.join(known[-5:])}" if known else "these runs belong to none"
        raise UserError(f"--campaign {campaign}: no run of it{did_you_mean(campaign, known)}; {there}")
    return kept


def _moment(since: str) -> float:
    """`since` in seconds since 1970."""
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", since.strip()):
        return time.time() - float(ago.group(1)) * _SECONDS[ago.group(2)]
    try:
        moment = datetime.fromisoformat(since.strip())
    except ValueError:
        raise UserError(
            f"--since {since}: give a date or time in UTC (2026-11-30, 2026-11-30T18:00) or how long ago (90m, 12h, 7d, 2w)"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
