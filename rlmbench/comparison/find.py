"""Which runs a user means: folders of runs, a results folder, a suite, or run ids."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rlmbench.errors import UserError, did_you_mean
from rlmbench.records.manifest import MANIFEST
from rlmbench.records.store import Run, find_run, load


def find_runs(names: Iterable[str], results_dir: str | Path) -> list[Run]:
    """The runs that `names` stand for, each once.

    A name is a run (folder, id, beginning of an id, or ``latest``), a folder that holds runs at most two levels below,
    or a suite: all of its runs in `results_dir`.

    Raises:
        UserError: a name stands for no run.
    """
    found: dict[Path, Run] = {}
    for name in names:
        for run in _runs_of(name, Path(results_dir)):
            found.setdefault(run.path, run)
    return list(found.values())


def _runs_of(name: str, results_dir: Path) -> list[Run]:
    for folder in _folders(name, results_dir):
        if folder.is_dir() and not (folder / MANIFEST).is_file():
            runs = _below(folder)
            if not runs:
                raise UserError(f"{folder}: no runs there: a run's folder holds {MANIFEST}")
            return runs
    try:
        return [find_run(name, results_dir)]
    except UserError as error:
        suites = [path.name for path in results_dir.iterdir() if path.is_dir()] if results_dir.is_dir() else []
        raise UserError(f"{error}, or a suite with runs there{did_you_mean(name, suites)}") from None


def _folders(name: str, results_dir: Path) -> list[Path]:
    """Where runs of `name` may lie: a folder, a suite's results, or those of a suite given by its file, as for ``rlmbench run``."""
    given = Path(name)
    is_file = given.is_file() or Path(f"{name}.yaml").is_file()
    return [given, results_dir / name, *([results_dir / given.stem] if is_file else [])]


def _below(folder: Path) -> list[Run]:
    """Runs in `folder` itself or in the suites' folders below it."""
    paths = sorted(folder.glob(f"*/{MANIFEST}")) or sorted(folder.glob(f"*/*/{MANIFEST}"))
    return [load(path) for path in paths]
