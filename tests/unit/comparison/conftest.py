"""Fixtures around SYNTHETIC records (altered_records.py, ../report/synthetic_run.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

import synthetic_run
from altered_records import Records

from rlmbench.records.tables import write_tables


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events and the tables derived from them, as a run that ended well leaves them."""
    run = synthetic_run.write_run(tmp_path_factory.mktemp("written"), steps=4, prompts_per_step=4, group_size=2)
    write_tables(run.path, run.tables)
    return run.path


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory, written: Path) -> Records:
    made = Records(tmp_path_factory.mktemp("records"), written)
    made.plain()
    return made


@pytest.fixture(scope="session")
def write_other_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose plan was drawn from another seed: as many samples, of other lengths."""
    folder = tmp_path_factory.mktemp("other")
    synthetic_run.write_events(folder, synthetic_run.plan(4, 4, 2, seed=7))
    return folder
