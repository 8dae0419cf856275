"""The end of a collector, with a process that only says what is asked of it. Real ones: tests/faults/test_collector_faults.py."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

from rlmbench.runner.collecting import Collecting


class Stuck:
    """In a driver's call that never returns: not even SIGKILL ends it."""

    def __init__(self) -> None:
        self.stdin = io.BytesIO()
        self.killed = False

    def poll(self) -> None:
        return None

    def kill(self) -> None:
        self.killed = True

    def wait(self, timeout: float) -> int:  # there is no waiting without a bound
        raise subprocess.TimeoutExpired("collector", timeout)


def test_a_collector_that_nothing_ends_does_not_hold_up_the_run(tmp_path: Path) -> None:
    collecting, stuck = Collecting(tmp_path, 0.1), Stuck()
    collecting._end(stuck)  # type: ignore[arg-type]
    assert stuck.killed and stuck.stdin.closed
    assert "did not end within 10 s of the run's end" in collecting.problem
