"""Starts the processes of one run, watches them, and sees to it that none is left, whatever ends the run.

Every process runs below a guard (guard.py) that ends all of its descendants. This module decides *when*: the main
process has ended, a server failed, a limit is reached, or the user asked. A second net lies below the guards: during
the call rlmbench itself adopts orphans, so that what a killed guard leaves is still found and ended.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlmbench.runner import guard
from rlmbench.runner.activity import POLLING_CPU_SHARE, StallClock, TreeMeter, bytes_written
from rlmbench.runner.interrupts import Interrupts
from rlmbench.runner.logtext import mark_end
from rlmbench.runner.oom import oom_kill_count

if TYPE_CHECKING:
    from rlmbench.adapter import Process

TICK_S = 0.2
READY_POLL_S = 0.5
READY_REQUEST_TIMEOUT_S = 2.0
SERVER_LOSS_GRACE_S = 10.0
GUARD_MARGIN_S = 0.5


class Reason(StrEnum):
    """Why a run is over."""

    EXITED = "exited"
    START_FAILED = "start_failed"
    READY_TIMEOUT = "ready_timeout"
    WALL_TIMEOUT = "wall_timeout"
    STALL_TIMEOUT = "stall_timeout"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Limits:
    """When a run is given up, and how long its processes may take to end.

    `stall_cpu_share` is the share of one core below which a process counts as idle. `settle_s` is what helpers of
    an ended command have to go by themselves, `grace_s` the time between SIGTERM and SIGKILL.
    """

    wall_timeout_s: float
    stall_timeout_s: float
    stall_cpu_share: float = POLLING_CPU_SHARE
    settle_s: float = 1.0
    grace_s: float = 5.0


@dataclass(frozen=True)
class Tick:
    """Where a run stands: the process being waited for, whether it is the main one, seconds since the start, resident memory."""

    process: str
    is_main: bool
    seconds: float
    rss_bytes: int


@dataclass(frozen=True)
class Leftover:
    """A process that outlived the command which started it, and the last signal it had to be sent (None: it survived even SIGKILL)."""

    process: str
    pid: int
    name: str
    signal: str | None


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    `process` names the one whose end, failure or slowness decided it, with its `exit_code` or `signal` (both None while
    it still ran); `is_main` tells whether it is the run's main process. `seconds` lie between the start and that
    moment. `error` says why a process could not be started. `oom_kills` counts what the kernel killed for memory
    meanwhile, None where it does not tell. `peak_rss_bytes` and `peak_pss_bytes` are the highest sums over all processes
    that were seen at any look (about every second, every 5 s or more rarely); in the second a page shared by n processes
    counts once and not n times, None where the kernel does not tell. `interrupt` is the number of a stop signal that came, even one that came
    too late to matter.
    """

    reason: Reason
    process: str
    is_main: bool
    exit_code: int | None
    signal: int | None
    seconds: float
    peak_rss_bytes: int
    leftovers: tuple[Leftover, ...] = ()
    error: str = ""
    oom_kills: int | None = None
    interrupt: int | None = None
    peak_pss_bytes: int | None = None

    @property
    def ok(self) -> bool:
        """The main process ended by itself, with exit code 0."""
        return self.reason is Reason.EXITED and self.is_main and self.exit_code == 0


def supervise(
    processes: Sequence[Process],
    *,
    cwd: Path,
    log_dir: Path,
    limits: Limits,
    env: Mapping[str, str] | None = None,
    watch: Sequence[Path] = (),
    on_tick: Callable[[Tick], None] = lambda tick: None,
    on_start: Callable[[int], None] = lambda guard_pid: None,
    interrupts: Interrupts | None = None,
) -> Outcome:
    """Run `processes` in order until the last one ends; when this returns or raises, none of their descendants is left.

    Output goes to ``log_dir/<name>.log``, with a line of ours where a process was told to end. `env` is the environment
    that each process's own is laid over (default: this process's). `watch` names files and folders whose growth is a
    sign of life, besides the logs. `on_tick` is called about five times a second from this thread; what it raises ends
    the run and is passed on. `on_start` is called with the process below which each of `processes` runs. Pass `interrupts`
    to share one note of Ctrl-C over several runs; without it the call makes its own.

    Call it from the main thread. Children that the caller starts meanwhile must stay in the caller's session: a child
    of this process in another session is taken for what a killed guard has left.
    """
    variables = dict(os.environ if env is None else env)
    supervision = _Supervision(processes, cwd, log_dir, limits, variables, watch, on_tick, on_start)
    if interrupts is not None:
        return supervision.run(interrupts)
    with Interrupts() as own:
        return supervision.run(own)


class _Guarded:
    """One process below its guard, as far as the guard has told."""

    def __init__(self, process: Process, is_main: bool, spec: Mapping[str, Any], log: Path) -> None:
        self.process = process
        self.is_main = is_main
        self.log = log
        self.ready = is_main
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.error = ""
        self.ended_at: float | None = None
        self.gone = False
        self.lost = False
        self.leftovers: list[Leftover] = []
        self._buffer = b""
        with log.open("ab") as errors:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # a terminal's Ctrl-C is for rlmbench alone
            )
        assert self._guard.stdin and self._guard.stdout
        self._orders, self._reports = self._guard.stdin, self._guard.stdout
        os.set_blocking(self._reports.fileno(), False)
        self._tell(json.dumps(spec))

    @property
    def pid(self) -> int:
        return self._guard.pid

    @property
    def ended(self) -> bool:
        return self.ended_at is not None

    @property
    def failed(self) -> bool:
        """Ended without doing its duty: main with anything but exit code 0, a server also before it was ready."""
        return self.ended and not (self.ready and self.exit_code == 0)

    def fileno(self) -> int:
        return self._reports.fileno()

    def stop(self) -> None:
        self._tell("stop")
        self._guard.send_signal(signal.SIGCONT)  # should somebody have stopped the guard itself

    def kill(self) -> None:
        self._tell("kill")

    def _tell(self, line: str) -> None:
        try:
            self._orders.write(line.encode() + b"\n")
            self._orders.flush()
        except OSError:  # the guard is gone; read() sees that
            pass

    def read(self) -> None:
        """Take in what the guard has reported since."""
        while not self.gone:
            try:
                data = os.read(self.fileno(), 1 << 16)
            except BlockingIOError:
                return
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            if not data and not self.gone:
                self._take_loss()

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["ev"]:
            case "failed":
                self.error = event["error"]
            case "exited":
                self.exit_code, self.signal = event["exit_code"], event["signal"]
                self.ended_at = event["t_ns"] / 1e9
            case "done":
                name = self.process.name
                self.leftovers = [Leftover(name, item["pid"], item["name"], item["signal"]) for item in event["leftovers"]]
                self.leftovers += [Leftover(name, item["pid"], item["name"], None) for item in event["survivors"]]
                self.gone = True

    def _take_loss(self) -> None:
        """The guard went without a farewell, so it was killed, and the command by the kernel with it."""
        self.gone = self.lost = True
        if not self.ended:
            self.signal, self.ended_at = int(signal.SIGKILL), time.monotonic()

    def close(self) -> None:
        """End the guard if it still runs, and let go of it."""
        self.lost |= not self.gone
        self.gone = True
        if self.lost:
            self._guard.kill()
        self._reports.close()
        try:
            self._orders.close()
        except OSError:
            pass
        self._guard.wait()


@dataclass(frozen=True)
class _Verdict:
    reason: Reason
    blamed: _Guarded
    at: float = field(default_factory=time.monotonic)


class _ReadinessPoll:
    """Asks a server's URL from a thread of its own, so that a server which accepts and never answers holds up nothing."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ready = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="readiness", daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        import urllib.request

        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the server is near; a proxy is not
        while not self._over.wait(READY_POLL_S):
            try:
                with opener.open(self._url, timeout=READY_REQUEST_TIMEOUT_S) as response:
                    if response.status == 200:
                        self._ready.set()
                        return
            except (OSError, ValueError):
                continue

    @property
    def ready(self) -> bool:
        return self._ready.is_set()

    def close(self) -> None:
        self._over.set()


class _Supervision:
    """The state of one call of `supervise`."""

    def __init__(
        self,
        processes: Sequence[Process],
        cwd: Path,
        log_dir: Path,
        limits: Limits,
        env: dict[str, str],
        watch: Sequence[Path],
        on_tick: Callable[[Tick], None],
        on_start: Callable[[int], None],
    ) -> None:
        self._processes = processes
        self._cwd = cwd
        self._log_dir = log_dir
        self._limits = limits
        self._env = env
        self._watch = [log_dir, *watch]
        self._on_tick = on_tick
        self._on_start = on_start
        self._interrupts = Interrupts()
        self._guarded: list[_Guarded] = []
        self._swept: list[Leftover] = []
        self._meter = TreeMeter()
        self._rss_bytes = self._peak_rss_bytes = 0
        self._peak_pss_bytes: int | None = None
        self._started_at = time.monotonic()
        self._stall = StallClock(limits.stall_timeout_s, limits.stall_cpu_share, self._started_at)

    def run(self, interrupts: Interrupts) -> Outcome:
        self._interrupts = interrupts
        was_subreaper = guard.is_subreaper()
        guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
        self._children_before = {proc.identity for proc in guard.process_table().values() if proc.parent == os.getpid()}
        oom_kills_before = oom_kill_count()
        why_ended = "an error in rlmbench"
        try:
            verdict = self._watch_processes()
            why_ended = verdict.reason.value
        finally:
            self._end_all(why_ended)
            guard.prctl(guard.PR_SET_CHILD_SUBREAPER, int(was_subreaper))
        oom_kills_after = oom_kill_count()
        blamed = verdict.blamed
        decided = verdict.reason is Reason.EXITED  # otherwise its end is our own doing
        return Outcome(
            reason=verdict.reason,
            process=blamed.process.name,
            is_main=blamed.is_main,
            exit_code=blamed.exit_code if decided else None,
            signal=blamed.signal if decided else None,
            seconds=verdict.at - self._started_at,
            peak_rss_bytes=self._peak_rss_bytes,
            leftovers=tuple([leftover for guarded in self._guarded for leftover in guarded.leftovers] + self._swept),
            error=blamed.error,
            oom_kills=None if oom_kills_before is None or oom_kills_after is None else oom_kills_after - oom_kills_before,
            interrupt=interrupts.signal,
            peak_pss_bytes=self._peak_pss_bytes,
        )

    def _watch_processes(self) -> _Verdict:
        for process in self._processes[:-1]:
            verdict = self._bring_up(self._start(process, is_main=False))
            if verdict:
                return verdict
        main = self._start(self._processes[-1], is_main=True)
        while True:
            verdict = self._tick(main)
            if verdict:
                return verdict

    def _start(self, process: Process, is_main: bool) -> _Guarded:
        log = self._log_dir / f"{process.name}.log"
        spec = {
            "argv": list(process.argv),
            "env": {**self._env, **process.env},
            "cwd": str(self._cwd),
            "log": str(log),
            "grace_s": self._limits.grace_s,
            "settle_s": self._limits.settle_s,
            "harness_pid": os.getpid(),
        }
        guarded = _Guarded(process, is_main, spec, log)
        self._guarded.append(guarded)
        self._on_start(guarded.pid)
        return guarded

    def _bring_up(self, server: _Guarded) -> _Verdict | None:
        """Wait until a server answers; one without `ready_url` is taken to be ready at once."""
        if server.process.ready_url is None:
            server.ready = True
            return None
        deadline = time.monotonic() + server.process.ready_timeout_s
        poll = _ReadinessPoll(server.process.ready_url)
        try:
            while not poll.ready:
                verdict = self._tick(server)
                if verdict:
                    return verdict
                if time.monotonic() >= deadline:
                    return _Verdict(Reason.READY_TIMEOUT, server)
            server.ready = True
            return None
        finally:
            poll.close()

    def _tick(self, awaited: _Guarded) -> _Verdict | None:
        """Wait for news, at most TICK_S; returns why the run is over, if it is."""
        self._read_reports(TICK_S)
        now = time.monotonic()
        stalled = self._measure(now)
        self._on_tick(Tick(awaited.process.name, awaited.is_main, now - self._started_at, self._rss_bytes))
        verdict = self._ended(now)
        if self._interrupts.asked and not (verdict and verdict.blamed.is_main and not verdict.blamed.failed):
            return _Verdict(Reason.INTERRUPTED, awaited)
        if verdict:
            return verdict
        if now - self._started_at >= self._limits.wall_timeout_s:
            return _Verdict(Reason.WALL_TIMEOUT, awaited)
        return _Verdict(Reason.STALL_TIMEOUT, awaited) if stalled else None

    def _read_reports(self, timeout_s: float) -> None:
        talking = [guarded for guarded in self._guarded if not guarded.gone]
        for guarded in select.select(talking, [], [], timeout_s)[0]:
            guarded.read()

    def _measure(self, now: float) -> bool:
        """Look at the tree when it is time to; whether it has stalled, which only a fresh look can tell."""
        usage = self._meter.sample([guarded.pid for guarded in self._guarded], now)
        if usage is None:
            return False
        self._rss_bytes = usage.rss_bytes
        self._peak_rss_bytes = max(self._peak_rss_bytes, usage.rss_bytes)
        if usage.pss_bytes is not None:
            self._peak_pss_bytes = max(self._peak_pss_bytes or 0, usage.pss_bytes)
        self._stall.update(now, bytes_written(self._watch), usage.cpu_by_process_s, usage.runnable)
        return self._stall.stalled(now)

    def _ended(self, now: float) -> _Verdict | None:
        """Whether the processes' own ends decide the run. A server's failure before main's is the cause of main's."""
        for guarded in self._guarded:
            if guarded.error:
                return _Verdict(Reason.START_FAILED, guarded)
        ended = sorted((guarded.ended_at, index) for index, guarded in enumerate(self._guarded) if guarded.ended_at is not None)
        failed = next((self._guarded[index] for _, index in ended if self._guarded[index].failed), None)
        main = next((guarded for guarded in self._guarded if guarded.is_main), None)
        if main and main.ended_at is not None:
            return _Verdict(Reason.EXITED, failed if failed and main.failed else main, main.ended_at)
        if failed and failed.ended_at is not None and (main is None or now >= failed.ended_at + SERVER_LOSS_GRACE_S):
            return _Verdict(Reason.EXITED, failed, failed.ended_at)
        return None

    def _end_all(self, why: str) -> None:
        """Have every guard end its tree; force it where a guard does not manage."""
        for guarded in self._guarded:
            if not guarded.ended:
                mark_end(guarded.log, why)
                guarded.stop()
        deadline = time.monotonic() + self._limits.settle_s + self._limits.grace_s + guard.KILL_TIMEOUT_S + GUARD_MARGIN_S
        killing = False
        while any(not guarded.gone for guarded in self._guarded) and time.monotonic() < deadline:
            if self._interrupts.insisted and not killing:
                killing = True
                for guarded in self._guarded:
                    guarded.kill()
            self._read_reports(TICK_S)
        for guarded in self._guarded:
            guarded.close()
        if any(guarded.lost for guarded in self._guarded):
            self._sweep()

    def _sweep(self) -> None:
        """End what a killed guard left behind. Orphans have come to this process; they are its children in other sessions."""
        own_pid, own_session = os.getpid(), os.getsid(0)
        seen: dict[tuple[int, int], Leftover] = {}
        deadline = time.monotonic() + guard.KILL_TIMEOUT_S
        while time.monotonic() < deadline:
            table = guard.process_table()
            adopted = [
                proc
                for proc in table.values()
                if proc.parent == own_pid and proc.session != own_session and proc.identity not in self._children_before
            ]
            if not adopted:
                break
            for proc in [*adopted, *guard.below([proc.pid for proc in adopted], table)]:
                if proc.state != "Z" and guard.send(proc, signal.SIGKILL):
                    seen[proc.identity] = Leftover("rlmbench", proc.pid, proc.name, "SIGKILL")
            for proc in adopted:
                try:
                    os.waitpid(proc.pid, os.WNOHANG)
                except ChildProcessError:
                    pass
            time.sleep(guard.POLL_S)
        self._swept = list(seen.values())
