"""Fixtures around a SYNTHETIC run (synthetic_run.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import synthetic_run

from rlmbench.metrics import RunSummary, summarize
from rlmbench.records import Run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, RunSummary]:
    """A run of six steps that ended well."""
    run = synthetic_run.write_run(tmp_path_factory.mktemp("finished"))
    return run, summarize(run)


@pytest.fixture(scope="session")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, RunSummary]:
    """A run that ran out of memory in its third step."""
    run = synthetic_run.write_failed_run(tmp_path_factory.mktemp("failed"))
    return run, summarize(run)


@pytest.fixture(scope="session")
def stepless(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, RunSummary]:
    """A run that ended before its first step did."""
    run = synthetic_run.write_failed_run(tmp_path_factory.mktemp("stepless"), until_step=1)
    return run, summarize(run)
