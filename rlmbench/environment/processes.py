"""Running commands side by side, with their output in a log and a sign of life for whoever waits."""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

SIGN_OF_LIFE_S = 4.0
SHORTEST_PHASE_S = 0.5


@dataclass(frozen=True)
class Command:
    """A command with the phase to show until its own output says something better (`phase_of` reads a line of it)."""

    argv: Sequence[str]
    phase: str
    env: Mapping[str, str]
    phase_of: Callable[[str], str | None] = lambda line: None


class CommandFailed(Exception):
    """A command ended with a code other than 0; `output` holds its lines."""

    def __init__(self, command: Command, returncode: int, output: list[str]) -> None:
        super().__init__(f"exit code {returncode}")
        self.command, self.returncode, self.output = command, returncode, output


@dataclass
class _Running:
    command: Command
    process: subprocess.Popen[str]
    phase: str
    output: list[str] = field(default_factory=list)


def run_together(
    commands: Sequence[Command], *, cwd: Path, log: TextIO, progress: Callable[[str], None], keep_open: Sequence[int] = ()
) -> list[list[str]]:
    """Run `commands` at the same time until all have ended; returns the lines each one printed.

    `progress` gets the phases whenever they change, though not more often than every `SHORTEST_PHASE_S` seconds, and
    again after `SIGN_OF_LIFE_S` seconds without a change. The file descriptors `keep_open` are inherited by the
    commands. When one fails, or on any exception here, the others are killed.

    Raises:
        CommandFailed: the first command that ended with a code other than 0.
    """
    lines: queue.Queue[tuple[_Running, str | None]] = queue.Queue()
    running: list[_Running] = []
    try:
        for command in commands:
            log.write(f"$ {' '.join(command.argv[:1])} ... ({command.phase})\n")
            process = subprocess.Popen(
                command.argv,
                cwd=cwd,
                env=dict(command.env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                pass_fds=keep_open,
            )
            running.append(_Running(command, process, command.phase))
            threading.Thread(target=_read, args=(running[-1], lines), daemon=True).start()
        _follow(running, lines, log, progress)
        return [one.output for one in running]
    finally:
        for one in running:
            one.process.kill()
            one.process.wait()
        log.flush()


def _read(one: _Running, lines: queue.Queue[tuple[_Running, str | None]]) -> None:
    assert one.process.stdout is not None
    with one.process.stdout as output:
        for line in output:
            lines.put((one, line.rstrip("\n")))
    lines.put((one, None))


def _follow(
    running: Sequence[_Running], lines: queue.Queue[tuple[_Running, str | None]], log: TextIO, progress: Callable[[str], None]
) -> None:
    alive = list(running)
    shown_at, shown = 0.0, ""
    while alive:
        phases = "; ".join(dict.fromkeys(one.phase for one in alive))
        due = shown_at + (SIGN_OF_LIFE_S if phases == shown else SHORTEST_PHASE_S)
        if time.monotonic() >= due:
            progress(phases)
            shown_at, shown = time.monotonic(), phases
            continue
        try:
            one, line = lines.get(timeout=max(0.0, due - time.monotonic()))
        except queue.Empty:
            continue
        if line is None:
            alive.remove(one)
            if code := one.process.wait():
                raise CommandFailed(one.command, code, one.output)
            continue
        one.output.append(line)
        log.write(line + "\n")
        one.phase = one.command.phase_of(line) or one.phase
