"""What a user sees while something runs. One contract, three front ends: a live line, plain lines, nothing.

A sign of life comes at least every 5 s without any help from the caller, who may be waiting for an installer.
Everything goes to standard error; standard output belongs to results.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from rich.spinner import Spinner
    from rich.text import Text

SIGN_OF_LIFE_S = 5.0
SEPARATOR = " · "


class Progress(Protocol):
    """Used as a context manager. Calls are cheap and may repeat what is known: make them several times a second."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def run(self, label: str) -> None:
        """A new piece of work begins, such as ``trl 1/4``; what was shown of the last one is forgotten."""

    def phase(self, text: str) -> None:
        """What is going on, in a few words: ``installing torch``, ``starting``, ``training``."""

    def step(self, k: int, n: int, step_s: float | None = None, tokens_per_s: float | None = None, left_s: float | None = None) -> None:
        """Step `k` of `n` is under way; seconds and tokens/s of the last step that ended, and estimated seconds left. 0 of 0: none any more."""

    def stage(self, name: str | None) -> None:
        """The stage under way."""

    def message(self, text: str) -> None:
        """Something worth keeping on the screen."""

    def finish(self, text: str) -> None:
        """The piece of work is over, in one line that stays."""


@dataclass
class Shown:
    """Everything that is on display. Times are time.monotonic()."""

    label: str = ""
    phase: str = ""
    k: int = 0
    n: int = 0
    step_s: float | None = None
    tokens_per_s: float | None = None
    left_s: float | None = None
    stage: str | None = None
    since: float = 0.0


def describe(shown: Shown, now: float) -> str:
    """The one line that says all, such as
    ``trl 1/4 · training · step 3 of 5 · actor_update · last step 2.1 s · 812 tokens/s · 0:04 left · 0:09``."""
    return SEPARATOR.join(_place(shown) + _pace(shown, now))


def describe_within(shown: Shown, now: float, width: int) -> str:
    """As `describe`, on two lines where one of `width` characters is too short: where the run is, and how fast."""
    line = describe(shown, now)
    return line if len(line) <= width else "\n".join(SEPARATOR.join(part) for part in (_place(shown), _pace(shown, now)))


def _place(shown: Shown) -> list[str]:
    step = f"step {shown.k} of {shown.n}" if shown.n else ""
    return [part for part in (shown.label, shown.phase, step, shown.stage) if part]


def _pace(shown: Shown, now: float) -> list[str]:
    parts = []
    if shown.step_s is not None:
        parts.append(f"last step {shown.step_s:.3g} s")
    if shown.tokens_per_s is not None:
        parts.append(f"{shown.tokens_per_s:,.0f} tokens/s")
    if shown.left_s is not None:
        parts.append(f"{duration(shown.left_s)} left")
    return [*parts, duration(now - shown.since)]


def duration(seconds: float) -> str:
    """``0:09``, ``12:30``, ``1:02:03``."""
    minutes, whole = divmod(int(max(0.0, seconds) + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{whole:02}" if hours else f"{minutes}:{whole:02}"


class QuietProgress:
    """Shows nothing, and keeps what would be shown: the base of the other two."""

    def __init__(self) -> None:
        self.shown = Shown(since=time.monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def run(self, label: str) -> None:
        self.shown = Shown(label=label, since=time.monotonic())

    def phase(self, text: str) -> None:
        if text != self.shown.phase:
            self.shown.phase = text
            self._changed()

    def step(self, k: int, n: int, step_s: float | None = None, tokens_per_s: float | None = None, left_s: float | None = None) -> None:
        shown = self.shown
        new_step = n and (k, n) != (shown.k, shown.n)
        shown.k, shown.n, shown.step_s, shown.tokens_per_s, shown.left_s = k, n, step_s, tokens_per_s, left_s
        if new_step:
            self._changed()

    def stage(self, name: str | None) -> None:
        self.shown.stage = name

    def message(self, text: str) -> None:
        self._keep(text)

    def finish(self, text: str) -> None:
        self._keep(f"{self.shown.label}: {text}" if self.shown.label else text)
        self.shown = Shown(since=time.monotonic())

    def _changed(self) -> None:
        """A phase or a step has begun."""

    def _keep(self, text: str) -> None:
        """Print a line that stays."""

    def _close(self) -> None:
        """Stop displaying."""


class PlainProgress(QuietProgress):
    """Lines for logs and pipes: one when a phase or step begins, and one whenever 5 s have passed without any."""

    def __init__(self, stream: IO[str] | None = None, sign_of_life_s: float = SIGN_OF_LIFE_S) -> None:
        super().__init__()
        self._stream = stream or sys.stderr
        self._sign_of_life_s = sign_of_life_s
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._printed_at = time.monotonic()
        self._thread = threading.Thread(target=self._stay_alive, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def _stay_alive(self) -> None:
        look_every_s = self._sign_of_life_s / 10
        while not self._over.wait(look_every_s):
            if self.shown.phase and time.monotonic() - self._printed_at >= self._sign_of_life_s - 2 * look_every_s:
                self._changed()

    def _changed(self) -> None:
        self._keep(describe(self.shown, time.monotonic()))

    def _keep(self, text: str) -> None:
        with self._lock:
            self._printed_at = time.monotonic()
            try:
                print(text, file=self._stream, flush=True)
            except OSError:  # whoever read this has gone; the measurement goes on
                pass

    def _close(self) -> None:
        self._over.set()
        self._thread.join()


class LiveProgress(QuietProgress):
    """A line or two on a terminal, redrawn several times a second with a spinner; messages scroll above."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        super().__init__()
        self._spinner = Spinner("dots")
        self._console = Console(stderr=True)
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=5, transient=True, redirect_stdout=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def _render(self) -> Spinner | Text:
        from rich.text import Text

        if not self.shown.phase:
            return Text()
        indent = 2  # of the spinner and a blank
        lines = describe_within(self.shown, time.monotonic(), self._console.width - indent)
        self._spinner.update(text=Text(lines.replace("\n", "\n" + " " * indent)))
        return self._spinner

    def _keep(self, text: str) -> None:
        from rich.text import Text

        try:
            self._console.print(Text(text))
        except OSError:  # the terminal has gone; the measurement goes on
            pass

    def _close(self) -> None:
        self._live.stop()


def open_progress(quiet: bool = False, stream: IO[str] | None = None) -> Progress:
    """The front end that fits: nothing when `quiet`, a live line when standard error is a terminal, plain lines otherwise."""
    stream = stream or sys.stderr
    if quiet:
        return QuietProgress()
    if stream is sys.stderr and stream.isatty() and os.environ.get("TERM") != "dumb":
        return LiveProgress()
    return PlainProgress(stream)
