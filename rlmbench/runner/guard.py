"""A small program that runs one command and ends everything that the command leaves behind.

Frameworks start processes in sessions of their own (torchrun's ranks, vLLM's engines, Ray), so neither a process group
nor a session holds them all. The guard makes itself *child subreaper*: whatever is orphaned below it becomes its child,
and as long as it has a child, something is left. It therefore ends only what is below it, found by parentage, and never
by name.

Run it by path with rlmbench's own interpreter (``python -I -S guard.py``); it uses the standard library only.

Standard input: one line of JSON, ``{"argv", "env", "cwd", "log", "grace_s", "settle_s", "harness_pid"}``, and later
``stop`` (SIGTERM, the grace, SIGKILL) or ``kill`` (SIGKILL now). Its end means that the harness is gone, however that
happened, and counts as ``stop``. SIGTERM, SIGINT and SIGHUP count as ``stop`` too.

Standard output, one JSON object a line:
    {"ev": "started", "pid"}
    {"ev": "failed", "error"}                  the command could not be started; ``done`` follows
    {"ev": "exited", "exit_code", "signal", "t_ns"}   the command itself ended: one of the two is null; CLOCK_MONOTONIC
    {"ev": "done", "leftovers": [{"pid", "name", "signal"}], "survivors": [{"pid", "name"}]}
`leftovers` are the processes that the command left behind, with the last signal each was sent; `survivors` those that
outlived SIGKILL (stuck in the kernel). A command that was stopped leaves no leftovers: all of it was asked to end.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37

POLL_S = 0.05
# What is killed needs a core to end and to give its memory back: a worker at niceness 15, beside others' work, waits for one.
KILL_TIMEOUT_S = 10.0
OOM_SCORE_ADJUSTMENT = 500
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LAUNCH_FAILED = 127
HAS_PIDFD = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")  # an interpreter built on an old system has none


class Proc(NamedTuple):
    """One process as /proc/<pid>/stat shows it. `started` is in clock ticks since boot and, with `pid`, its identity."""

    pid: int
    parent: int
    session: int
    started: int
    name: str
    state: str
    cpu_ticks: int
    rss_pages: int

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.started


def prctl(option: int, argument: int) -> None:
    """Call prctl(2) with an integer argument. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def is_subreaper() -> bool:
    """Whether orphans below this process become its children."""
    value = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0)
    return bool(value.value)


def read_proc(pid: int) -> Proc | None:
    """The process `pid`, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")  # the name may itself hold spaces and parentheses
    fields = rest.split()  # fields[0] is field 3 of proc(5)
    return Proc(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
        name=name,
        state=fields[0],
        cpu_ticks=int(fields[11]) + int(fields[12]),
        rss_pages=int(fields[21]),
    )


def process_table() -> dict[int, Proc]:
    """Every process that can be seen, by pid."""
    found = (read_proc(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return {proc.pid: proc for proc in found if proc}


def below(roots: Iterable[int], table: Mapping[int, Proc]) -> list[Proc]:
    """Every descendant of the pids `roots` in `table`, without the roots, parents before their children."""
    children: dict[int, list[Proc]] = {}
    for proc in table.values():
        children.setdefault(proc.parent, []).append(proc)
    found: list[Proc] = []
    queue = list(roots)
    for pid in queue:
        for child in children.get(pid, []):
            found.append(child)
            queue.append(child.pid)
    return found


def send(proc: Proc, number: int) -> bool:
    """Send a signal to exactly this process; False when it is gone, also when its pid has a new owner."""
    handle = None
    try:
        handle = os.pidfd_open(proc.pid) if HAS_PIDFD else None
    except ProcessLookupError:
        return False
    except OSError:  # refused by the kernel or a sandbox: check and send below, with a gap of microseconds
        pass
    try:
        now = read_proc(proc.pid)
        if now is None or now.identity != proc.identity:
            return False
        if handle is None:
            os.kill(proc.pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
        return True
    except OSError:
        return False
    finally:
        if handle is not None:
            os.close(handle)


def terminate(proc: Proc) -> bool:
    """Ask a process to end, and let it run so that it can, should it be stopped."""
    asked = send(proc, signal.SIGTERM)
    send(proc, signal.SIGCONT)
    return asked


def emit(**event: Any) -> None:
    """Write one event; nobody may be left to read it."""
    try:
        os.write(1, (json.dumps(event) + "\n").encode())
    except OSError:
        pass


def exec_command(spec: Mapping[str, Any], guard_pid: int) -> None:
    """In the child: become the command, in a session of its own and with signals as a shell would leave them."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed guard takes at least the command itself along
    if os.getppid() != guard_pid:
        os._exit(LAUNCH_FAILED)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(OOM_SCORE_ADJUSTMENT))  # when memory runs out the framework goes first, so its record survives
    except OSError:
        pass
    os.chdir(spec["cwd"])
    log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.execve(spec["argv"][0], spec["argv"], spec["env"])


def launch(spec: Mapping[str, Any]) -> tuple[int, str]:
    """Start the command. Returns its pid, and why it could not become the command (empty when it did)."""
    guard_pid = os.getpid()
    reader, writer = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the guard's handlers must not run in the child
    pid = os.fork()
    if pid == 0:
        try:
            exec_command(spec, guard_pid)
        except (OSError, ValueError, TypeError) as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(LAUNCH_FAILED)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        return pid, file.read().decode()  # ends when exec closes the other end


class Guard:
    """The state of one guard: what it was told, what became of the command, and what is left below it."""

    def __init__(self) -> None:
        self.stop_asked = False
        self.kill_asked = False
        self.command_pid: int | None = None
        self.command_ended = False
        self.childless = False
        self._wake, wake_writer = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_writer, False)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_stop_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._input = b""
        self._input_open = True

    def _on_stop_signal(self, *_: object) -> None:
        self.stop_asked = True

    def read_spec(self) -> dict[str, Any] | None:
        """The first line of standard input, or None when told to stop before it came."""
        while not self.stop_asked:
            self._wait(None)
            line, newline, rest = self._input.partition(b"\n")
            if newline:
                self._input = rest
                spec: dict[str, Any] = json.loads(line)
                return spec
        return None

    def pause(self, seconds: float | None) -> None:
        """Wait until something happens, at most `seconds`; then follow orders and reap."""
        self._wait(seconds)
        *orders, self._input = self._input.split(b"\n")
        self.stop_asked |= b"stop" in orders or b"kill" in orders
        self.kill_asked |= b"kill" in orders
        self.reap()

    def _wait(self, seconds: float | None) -> None:
        watched = [self._wake, 0] if self._input_open else [self._wake]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if 0 in ready:
            data = os.read(0, 1 << 16)
            self._input += data
            if not data:
                self._input_open = False
                self.stop_asked = True

    def reap(self) -> None:
        """Collect every child that has ended, adopted ones too, and tell of the command's end."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                self.childless = False
                return
            if pid == self.command_pid:
                self.command_ended = True
                code = os.waitstatus_to_exitcode(status)
                by_signal = code < 0
                emit(ev="exited", exit_code=None if by_signal else code, signal=-code if by_signal else None, t_ns=time.monotonic_ns())

    def settle(self, seconds: float) -> None:
        """Give helpers that end with the command (resource trackers) time to go by themselves."""
        deadline = time.monotonic() + seconds
        while not self.childless and not self.stop_asked and time.monotonic() < deadline:
            self.pause(POLL_S)

    def end_all(self, grace_s: float) -> list[dict[str, Any]]:
        """SIGTERM to everything below, SIGKILL after the grace, over and over until this process has no child.

        A single pass would miss what is forked during it; being without a child is exact, since orphans come here.
        Returns the last signal that each process was sent.
        """
        sent: dict[tuple[int, int], dict[str, Any]] = {}
        kill_at = time.monotonic() + grace_s
        give_up_at: float | None = None
        self.reap()
        while not self.childless:
            now = time.monotonic()
            killing = self.kill_asked or now >= kill_at
            for proc in below([os.getpid()], process_table()):
                if proc.state == "Z":
                    continue
                if killing and send(proc, signal.SIGKILL):
                    sent[proc.identity] = {"pid": proc.pid, "name": proc.name, "signal": "SIGKILL"}
                elif not killing and proc.identity not in sent and terminate(proc):
                    sent[proc.identity] = {"pid": proc.pid, "name": proc.name, "signal": "SIGTERM"}
            if killing:
                give_up_at = give_up_at or now + KILL_TIMEOUT_S
                if now >= give_up_at:
                    break
            self.pause(POLL_S)
        return list(sent.values())


def main() -> int:
    """Guard one command; see the module's docstring."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard = Guard()
    spec = guard.read_spec()
    if spec is None:
        return 0
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # a second way to learn of the harness's end, should the pipe be held open
    if os.getppid() != spec["harness_pid"]:
        return 0
    guard.command_pid, error = launch(spec)
    if error:
        emit(ev="failed", error=error)
    else:
        emit(ev="started", pid=guard.command_pid)
    guard.reap()
    while not guard.command_ended and not guard.stop_asked:
        guard.pause(None)
    by_itself = guard.command_ended
    guard.settle(spec["settle_s"])
    sent = guard.end_all(spec["grace_s"])
    leftovers = sent if by_itself else []
    survivors = [{"pid": proc.pid, "name": proc.name} for proc in below([os.getpid()], process_table()) if proc.state != "Z"]
    emit(ev="done", leftovers=leftovers, survivors=survivors)
    return 0


if __name__ == "__main__":
    sys.exit(main())
