"""Commands side by side: output kept, failures reported, nobody left behind."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import pytest

from rlmbench.environment import processes
from rlmbench.environment.exclusive import exclusive
from rlmbench.environment.processes import Command, CommandFailed, run_together


def _python(source: str, phase: str = "working") -> Command:
    return Command([sys.executable, "-S", "-c", source], phase, dict(os.environ), lambda line: line if line.startswith("now ") else None)


def test_outputs_and_log(tmp_path: Path) -> None:
    log, phases = io.StringIO(), list[str]()
    outputs = run_together([_python("print('one')"), _python("print('two')")], cwd=tmp_path, log=log, progress=phases.append)
    assert outputs == [["one"], ["two"]]
    assert "one\n" in log.getvalue()
    assert "two\n" in log.getvalue()
    assert phases == ["working"]


def test_a_failure_ends_the_others(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed) as caught:
        run_together(
            [_python("import time; time.sleep(600); open('slept', 'w')"), _python("print('ERROR: no'); raise SystemExit(3)")],
            cwd=tmp_path,
            log=io.StringIO(),
            progress=lambda phase: None,
        )
    assert (caught.value.returncode, caught.value.output) == (3, ["ERROR: no"])
    assert not (tmp_path / "slept").exists()


def test_silence_still_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SIGN_OF_LIFE_S", 0.05)
    phases: list[str] = []

    def shown(phase: str) -> None:
        phases.append(phase)
        if len(phases) == 4:
            (tmp_path / "enough").touch()

    silent = (
        "import os, time\nuntil = time.monotonic() + 60\nwhile not os.path.exists('enough') and time.monotonic() < until: time.sleep(0.01)"
    )
    run_together([_python(silent, "sleeping")], cwd=tmp_path, log=io.StringIO(), progress=shown)
    assert set(phases) == {"sleeping"}
    assert len(phases) >= 4


def test_phases_of_all_commands_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SHORTEST_PHASE_S", 0.0)
    phases: list[str] = []
    talking = _python("import time; print('now unpacking', flush=True); time.sleep(0.3); open('done', 'w').close()", "starting")
    silent = _python("import os, time\nwhile not os.path.exists('done'): time.sleep(0.01)", "waiting")  # outlives the other, on any machine
    run_together([talking, silent], cwd=tmp_path, log=io.StringIO(), progress=phases.append)
    assert phases[0] == "starting; waiting"
    assert "now unpacking; waiting" in phases


def test_lock_lasts_as_long_as_a_child_that_inherited_it(tmp_path: Path) -> None:
    """After a kill -9 of the builder its orphans still hold the lock, so that nobody builds in their folder."""
    import subprocess

    lock = tmp_path / "lock"
    with exclusive(lock) as descriptor:
        child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(descriptor,))
    waited: list[float] = []

    def waiting() -> None:
        waited.append(time.monotonic())
        assert child.stdin is not None
        child.stdin.close()

    with exclusive(lock, waiting):
        assert waited
        assert child.wait(10) is not None
