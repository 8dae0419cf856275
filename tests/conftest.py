"""Every test carries the mark of the folder it lies in, so that ``-m unit`` needs nothing written in the tests themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
MARKS = ("unit", "faults", "frameworks", "browser", "cluster", "gpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by folder; a test that lies in none of them would be left out of every selection, so it is an error."""
    for item in items:
        folder = item.path.relative_to(HERE).parts[0]
        if folder not in MARKS:
            raise pytest.UsageError(f"{item.path}: put tests into one of tests/{{{','.join(MARKS)}}}")
        item.add_marker(folder)
