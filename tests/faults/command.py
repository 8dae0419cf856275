"""`rlmbench` as a terminal runs it, to be interrupted and killed, with an account of every process that came of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlmbench.runner.guard import read_proc

MARK = "RLMBENCH_TEST_MARK"


def living(mark: str, folder: Path) -> list[int]:
    """Every living process that carries the mark in its environment or works below `folder`: found by no parentage or name."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        process = Path("/proc", entry)
        try:
            marked = f"{MARK}={mark}".encode() in (process / "environ").read_bytes()
            inside = (process / "cwd").readlink().is_relative_to(folder)
        except OSError:  # it has ended, or belongs to somebody else
            continue
        proc = read_proc(int(entry)) if marked or inside else None
        if proc and proc.state != "Z":
            found.append(proc.pid)
    return found


def wait_for(condition: Callable[[], object], timeout_s: float) -> bool:
    """Whether `condition` came true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


class Command:
    """One command, started in `folder` and in a process group of its own.

    `stderr` holds the lines so far, `stderr_at` the start and when each came (time.monotonic()). `woken_late_s` is by how much a thread
    that sleeps beside it was woken too late, at most: what the machine does to the command, it does to that one as well.
    """

    def __init__(self, folder: Path, *arguments: str, env: dict[str, str] | None = None, stdout: int = subprocess.PIPE) -> None:
        self.folder = folder.resolve()
        self.arguments = arguments
        self.mark = uuid.uuid4().hex
        self.stderr: list[str] = []
        self.stderr_at = [time.monotonic()]
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "rlmbench", *arguments],
            cwd=folder,
            env={**os.environ, **(env or {}), MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.woken_late_s = 0.0
        threading.Thread(target=self._sleep_beside, daemon=True).start()
        self._stdout = ""
        self._readers = [threading.Thread(target=reader, daemon=True) for reader in (self._read_stdout, self._read_stderr)]
        for reader in self._readers:
            reader.start()

    def _read_stdout(self) -> None:
        if self.popen.stdout:
            self._stdout = self.popen.stdout.read()

    def _read_stderr(self) -> None:
        assert self.popen.stderr
        for line in self.popen.stderr:
            self.stderr_at.append(time.monotonic())
            self.stderr.append(line.rstrip("\n"))

    def _sleep_beside(self) -> None:
        while self.popen.returncode is None:
            due = time.monotonic() + 0.1
            time.sleep(0.1)
            self.woken_late_s = max(self.woken_late_s, time.monotonic() - due)

    def wait(self, timeout_s: float = 600) -> int:
        """The exit code, once all output has been read."""
        code = self.popen.wait(timeout_s)
        for reader in self._readers:
            reader.join()
        return code

    def ctrl_c(self) -> None:
        """SIGINT to the whole foreground group, which is what a terminal does."""
        os.killpg(self.popen.pid, signal.SIGINT)

    @property
    def stdout(self) -> str:
        return self._stdout

    @property
    def output(self) -> str:
        """Everything that was printed, errors first; what a failed assertion should show."""
        return "\n".join([*self.stderr, self._stdout])

    @property
    def document(self) -> dict[str, Any]:
        """The JSON object that `--json` promises as the last line of standard output."""
        document: dict[str, Any] = json.loads(self._stdout.splitlines()[-1])
        return document

    def living(self) -> list[int]:
        return living(self.mark, self.folder)

    def end(self) -> None:
        """Leave nothing behind, however the test went."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for pid in self.living():
            os.kill(pid, signal.SIGKILL)
