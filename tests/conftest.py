"""Every test carries the mark of the folder it lies in, so that ``-m unit`` needs nothing written in the tests themselves."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MARKS = ("unit", "faults", "frameworks", "browser", "cluster", "gpu")

# A shell switches Ctrl-C off in what it starts in the background, and nohup the hang-up; processes inherit that, and tests send both.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Of `-n auto`: the cores that this process may use. xdist takes the machine's, without their second threads."""
    from rlmbench.environment.host import cgroup_limits

    allowed = len(os.sched_getaffinity(0))
    return max(1, min(allowed, int(cgroup_limits().cpus or allowed)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by folder; a test that lies in none of them would be left out of every selection, so it is an error."""
    for item in items:
        folder = item.path.relative_to(HERE).parts[0]
        if folder not in MARKS:
            raise pytest.UsageError(f"{item.path}: put tests into one of tests/{{{','.join(MARKS)}}}")
        item.add_marker(folder)


def pytest_collection_finish() -> None:
    """Python looks for garbage after each 700 new objects, and comes upon pandas' and altair's modules each time: 8% of the unit tests' time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
