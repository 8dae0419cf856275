"""The collector beside a run: started before its first process, told of each, ended with it. It can end badly; the run goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from rlmbench.collectors.capability import Capability
from rlmbench.collectors.lines import capability_line, note_path_of
from rlmbench.records.samples import FOLDER
from rlmbench.runner.logtext import signal_name

LOG = "collector.log"
STOP_TIMEOUT_S = 10.0
"""On a busy machine with many devices, closing them takes seconds."""
KILL_TIMEOUT_S = 2.0
"""A process that is stuck in a driver's call dies only when that returns; the run does not wait for it."""


class Collecting:
    """Used as a context manager. `problem` says afterwards why the collector did not see the run to its end; empty when it did.

    With `interval_s` None there is no collector. `devices` is whether to sample GPUs too; `unseen` why a part of the run's processes
    is not below rlmbench's own.
    """

    def __init__(self, run_dir: Path, interval_s: float | None, *, devices: bool = False, unseen: str | None = None) -> None:
        self._folder = run_dir / FOLDER
        self._interval_s = interval_s
        self._settings = [f"interval_s={interval_s}", *(["devices=all"] if devices else []), *([f"unseen={unseen}"] if unseen else [])]
        self._process: subprocess.Popen[bytes] | None = None
        self.problem = ""

    def __enter__(self) -> Self:
        if self._interval_s is None:
            return self
        try:
            self._folder.mkdir(exist_ok=True)
            with (self._folder / LOG).open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "rlmbench.collectors", str(self._folder), *self._settings],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    cwd=self._folder,
                    start_new_session=True,  # a terminal's Ctrl-C is for rlmbench alone
                )
        except OSError as error:
            self.problem = f"it could not be started: {error.strerror}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None:
            self._end(self._process)
        if self.problem:
            self._record()

    def watch(self, pid: int) -> None:
        """What is below the process `pid` belongs to the run."""
        if self._process is None or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(b"root %d\n" % pid)
            self._process.stdin.flush()
        except OSError:  # it is gone; its end is noticed when the run ends
            pass

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        early = process.poll() is not None
        try:
            if process.stdin:
                process.stdin.close()
        except OSError:
            pass
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(KILL_TIMEOUT_S)
            self.problem = f"it did not end within {STOP_TIMEOUT_S:g} s of the run's end (stuck in a driver?) and was killed"
            return
        log = self._folder / LOG
        said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        if early or code != 0:
            how = f"by {signal_name(-code)}" if code < 0 else f"with exit code {code}"
            self.problem = f"it ended {how}{' before the run did' if early else ''}" + (f": {said[-1]}" if said else "")
        elif not said:
            log.unlink(missing_ok=True)

    def _record(self) -> None:
        """Say it in the record."""
        line = json.dumps(capability_line(Capability("collector", False, self.problem)))
        with suppress(OSError):
            note_path_of(self._folder).write_text(line + "\n")
