"""Raw framework logs as text a person can read, and the first thing in them that went wrong.

A log mixes the output of many processes: progress bars that never end their line, colours, prefixes that Ray, torchrun
and vLLM put before every line, tracebacks of ranks that only noticed another rank's death, and launchers that report
what was already said. Pure functions over text; only `read_log` and `mark_end` touch a file.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

LOG_LIMIT_BYTES = 16 << 20
LINE_LIMIT = 500
END_MARK = "\n[rlmbench] told to end: "

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_PREFIX = re.compile(
    r"^(?:"
    r"\[(?:rank|default)\d+\]:\s?"  # torch.distributed, torchrun --tee
    r"|\((?:[^()]*\s)?pid=\d+[^()]*\)\s?"  # Ray: (Worker pid=12, ip=10.0.0.1), vLLM: (EngineCore pid=12)
    r"|(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]+\]\s?"  # vLLM's logger, on each line of a traceback
    r")"
)
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Iteration|Warning|Timeout|Group)(?::.*)?$"
    r"|^(?:[A-Za-z_]\w*\.)+[A-Z]\w*(?::.*)?$"  # queue.Empty
)
_RAY_TASK_ERROR = re.compile(r"^(?:ray\.exceptions\.)?RayTaskError\(\w+\): ray::")
_LAUNCHER_ERROR = re.compile(r"\bChildFailedError\b|\bSignalException\b|\bSystemExit\b|\bKeyboardInterrupt\b")
_TORCHRUN_SIGNAL = re.compile(r"failed \(exitcode: -(?P<number>\d+)\) local_rank: (?P<rank>\d+)")
_RAY_CRASH = re.compile(r"^\*\*\* (?P<name>SIG(?:SEGV|ABRT|BUS|FPE|ILL)) received at time=")  # abseil's handler, in each Ray process
_CONSEQUENCE = re.compile(
    r"Connection closed by peer|Connection reset by peer|remote process exited|Broken pipe|DistBackendError|DistNetworkError"
    r"|ActorDiedError|RayActorError|EngineDeadError|EngineCore (?:encountered|failed)|Engine core initialization failed"
)
_FATAL = re.compile(
    r"^Fatal Python error: |^terminate called |^\s*what\(\):|^OpenBLAS error: |^Segmentation fault|^Bus error|^Aborted|^Killed\b"
    r"|^(?:\S+: )?(?:line \d+: )?\s*\d+ (?:Killed|Segmentation fault|Bus error|Aborted)\b|error while loading shared libraries"
    r"|^[\w.-]+(?: [\w-]+)?: error: "  # argparse
)
_ERROR_LINE = re.compile(r"(?:^|[\s|\[:])(?:ERROR|CRITICAL|FATAL)(?:$|[\s|\]:])|^(?:Error|ERROR|error): ")


@dataclass(frozen=True)
class Line:
    """One line without decoration. `source` is the prefix that tells which process wrote it, or an empty string."""

    source: str
    text: str


@dataclass(frozen=True)
class Cause:
    """What a log says went wrong first. `number` is the signal that ended a rank, as its launcher saw it.

    `frames` are the lines of its traceback, without the exception itself.
    """

    text: str
    frames: tuple[str, ...] = ()
    number: int | None = None


def read_log(path: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> str:
    """The text of a log; of a longer one the first and the last half of `limit_bytes`. An absent one is empty."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            if size <= limit_bytes:
                return file.read().decode(errors="replace")
            head = file.read(limit_bytes // 2)
            file.seek(size - limit_bytes // 2)
            return (head + b"\n[...]\n" + file.read()).decode(errors="replace")
    except OSError:
        return ""


def mark_end(path: Path, why: str) -> None:
    """Note in a process's log that rlmbench ends it from here on. A log that cannot be written (full disk) goes without."""
    try:
        with path.open("ab") as file:
            file.write(f"{END_MARK}{why}\n".encode())
    except OSError:
        pass


def before_end(log: str) -> str:
    """A log up to `mark_end`: what processes say when they are told to end explains nothing."""
    return log.partition(END_MARK)[0]


def plain_lines(log: str) -> list[str]:
    """The lines of a log without colours; what a progress bar overwrote is gone, as on a terminal."""
    lines = []
    for line in _ESCAPE.sub("", log).split("\n"):
        states = [part for part in line.split("\r") if part.strip()]
        lines.append(states[-1].rstrip() if states else "")
    return lines


def tail(log: str, count: int = 10) -> list[str]:
    """The last `count` lines that are not blank, each cut to a readable length."""
    return [line[:LINE_LIMIT] for line in plain_lines(log) if line.strip()][-count:]


def parse_lines(log: str) -> Iterator[Line]:
    """Every line with its source. A traceback that starts behind an unfinished progress bar gets a line of its own."""
    for text in plain_lines(log):
        bar, found, _ = text.partition(_TRACEBACK)
        if found and not _strip_prefix(bar).text.strip():
            yield _strip_prefix(text)
        elif found:
            source = re.search(r"(?:\[(?:rank|default)\d+\]: ?|\([^()]*pid=\d+[^()]*\) ?)$", bar)
            yield Line(source.group().strip() if source else "", _TRACEBACK)
        else:
            yield _strip_prefix(text)


def _strip_prefix(text: str) -> Line:
    source = ""
    while match := _PREFIX.match(text):
        source += match.group().strip()
        text = text[match.end() :]
    return Line(_without_time(source), text)


def _without_time(source: str) -> str:
    return re.sub(r"\d\d-\d\d \d\d:\d\d:\d\d ", "", source)


def find_cause(log: str) -> Cause | None:
    """The first real cause in a log, or None when it holds no error.

    In order of worth: an exception that is not merely a sign of another process's end (the first of a chain), what a
    launcher says about a rank ended by a signal, or Ray about one of its workers, an interpreter's or the shell's last
    words, an exception that is such a sign, a line logged as an error.
    """
    lines = list(parse_lines(log))
    consequence = None
    for cause in _exceptions(lines):
        if not _CONSEQUENCE.search(cause.text):
            return cause
        consequence = consequence or cause
    for line in lines:
        if match := _TORCHRUN_SIGNAL.search(line.text):
            number = int(match["number"])
            return Cause(f"local rank {match['rank']} was ended by {signal_name(number)} (torchrun)", number=number)
        if match := _RAY_CRASH.match(line.text):
            who = line.source.strip("()") or "a process"
            return Cause(f"{who} received {match['name']} (Ray)", number=signal.Signals[match["name"]])
    fatal = next((line.text for line in lines if _FATAL.search(line.text)), None)
    if fatal:
        return Cause(fatal.strip()[:LINE_LIMIT])
    if consequence:
        return consequence
    error = next((line.text for line in lines if _ERROR_LINE.search(line.text)), None)
    return Cause(error.strip()[:LINE_LIMIT]) if error else None


def first_cause(log: str) -> str | None:
    """The text of `find_cause`."""
    cause = find_cause(log)
    return cause.text if cause else None


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; ``signal 99`` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _exceptions(lines: list[Line]) -> Iterator[Cause]:
    """The exception at the end of each traceback, in order; those Python ignored and those of launchers left out."""
    for index, line in enumerate(lines):
        if line.text.strip() != _TRACEBACK:
            continue
        if index and lines[index - 1].text.startswith("Exception ignored"):
            continue
        cause = _exception_after(islice(lines, index + 1, None), line.source)
        if cause and not _LAUNCHER_ERROR.search(cause.text.split(":")[0]):
            yield cause


def _exception_after(lines: Iterable[Line], source: str) -> Cause | None:
    """The exception that closes the traceback whose frames `lines` begin with, among the lines of the same source."""
    frames: list[str] = []
    own = (line.text for line in lines if line.source == source)
    for text in own:
        if not text.strip():
            continue
        if text[0].isspace():
            frames.append(text)
            continue
        if _RAY_TASK_ERROR.match(text):  # the worker's own frames follow, and then the exception it raised
            continue
        if not _EXCEPTION.match(text):
            continue  # another process's line in between
        if text.endswith(":"):
            text = f"{text} {next(own, '').strip()}"
        return Cause(text.strip()[:LINE_LIMIT], tuple(frames))
    return None
