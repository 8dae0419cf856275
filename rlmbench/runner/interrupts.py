"""Ctrl-C, SIGTERM and SIGHUP as a request that is looked at, not as an exception at any moment.

An asynchronous ``KeyboardInterrupt`` can strike between starting a process and remembering it, or in the middle of
writing a record. Inside ``with Interrupts() as interrupts`` the signals only leave a note; the code that runs there
looks at it where it can stop cleanly.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """The user asked to stop; raised by `Interrupts.check`, so only where the code asks."""


class Interrupts:
    """The stop requests received inside a ``with`` block.

    `signal` is the first signal's number, or None; `count` how many came: from the second on the user wants no grace.
    Handlers are put back on exit, and the note stays readable. A signal that was ignored on entry stays ignored (a
    job put in the background). Off the main thread Python allows no handlers, so the note stays empty there.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.count = 0
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        return self.count > 0

    @property
    def insisted(self) -> bool:
        return self.count > 1

    def check(self) -> None:
        """Raise `Interrupted` if a stop was asked for: for steps of a long piece of work that has nobody else to tell."""
        if self.asked:
            raise Interrupted

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in HANDLED:
                before = signal.getsignal(number)
                if before != signal.SIG_IGN:
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number
        self.count += 1
