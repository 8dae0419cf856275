"""Nothing may be left of a run, whatever ends it: its own end, a limit, Ctrl-C, or the death of those who watch it."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlmbench.adapter import Process
from rlmbench.runner import supervise as supervise_module
from rlmbench.runner.guard import read_proc
from rlmbench.runner.supervise import Limits, Outcome, Reason, Tick, supervise

HERE = Path(__file__).parent
TREE = (sys.executable, str(HERE / "tree.py"))
MARK = "RLMBENCH_TEST_MARK"
PATIENCE_S = 120.0
"""When to give up waiting for what must come about; a tree that nobody ends lives for 1,000 s."""


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def marked(mark: str) -> list[int]:
    """Every living process whose environment carries the mark: an account of the tree that owes nothing to parentage."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            environ = Path("/proc", entry, "environ").read_bytes() if entry.isdigit() else b""
        except OSError:
            continue
        proc = read_proc(int(entry)) if f"{MARK}={mark}".encode() in environ else None
        if proc and proc.state != "Z":
            found.append(proc.pid)
    return found


def wait_for(condition: Callable[[], object], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def pids_in(log: Path) -> dict[str, int]:
    """The pids that tree.py announced so far."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return {name: int(pid) for name, pid in (line.split() for line in lines)}


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark for one test's processes; whatever carries it afterwards is ended, so that a failing test leaves nothing either."""
    mark = uuid.uuid4().hex
    yield mark
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def run(tmp_path: Path, mark: str) -> Callable[..., Outcome]:
    """Supervise processes in this process, with short limits."""

    def run(*processes: Process, on_tick: Callable[[Tick], None] = lambda tick: None, **limits: float) -> Outcome:
        return supervise(
            processes,
            cwd=tmp_path,
            log_dir=tmp_path,
            limits=Limits(**{"wall_timeout_s": PATIENCE_S, "stall_timeout_s": PATIENCE_S, "grace_s": 0.5, "settle_s": 0.5, **limits}),
            env={**os.environ, MARK: mark},
            on_tick=on_tick,
        )

    return run


@pytest.fixture
def harness(tmp_path: Path, mark: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start supervised.py: a harness that a test may kill."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str, grace_s: float = 0.5, wall_timeout_s: float = 1000, mark: str = mark) -> subprocess.Popen[str]:
        popen = subprocess.Popen(
            [sys.executable, str(HERE / "supervised.py"), str(tmp_path), str(grace_s), str(wall_timeout_s), *command],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, MARK: mark},
        )
        started.append(popen)
        assert popen.stdout and popen.stdout.readline() == "ready\n"
        return popen

    yield start
    for popen in started:
        popen.kill()
        popen.communicate()


def guard_of(harness: subprocess.Popen[str], main_pid: int) -> int:
    proc = read_proc(main_pid)
    assert proc
    guard = read_proc(proc.parent)
    assert guard and guard.parent == harness.pid
    return guard.pid


def test_leftovers_of_an_ended_command_are_ended_and_named(run: Callable[..., Outcome], tmp_path: Path, mark: str) -> None:
    begun_at = time.monotonic()
    outcome = run(Process("main", (*TREE, "quick")), grace_s=2)
    took_s = time.monotonic() - begun_at
    assert not marked(mark)
    assert (outcome.reason, outcome.process, outcome.exit_code, outcome.signal) == (Reason.EXITED, "main", 3, None)
    pids = pids_in(tmp_path / "main.log")
    assert {left.pid: left.signal for left in outcome.leftovers} == {pids["daemon"]: "SIGKILL", pids["worker"]: "SIGTERM"}
    assert outcome.seconds <= took_s - 2 and not outcome.ok  # until its own end: without the time that the daemon was given


def test_success_and_the_command_s_surroundings(run: Callable[..., Outcome], tmp_path: Path) -> None:
    code = """
import os, signal, sys
assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
assert os.getsid(0) == os.getpid() and sys.stdin.read() == ""
assert os.getsid(os.getppid()) == os.getppid()  # a terminal's Ctrl-C does not reach the guard
print(os.environ["EXTRA"], os.getcwd(), sorted(os.listdir("/proc/self/fd")), file=sys.stderr)
"""
    outcome = run(Process("main", python(code), env={"EXTRA": "x" * 100_000}))  # more than a pipe holds
    log = (tmp_path / "main.log").read_text()
    assert outcome.ok, log
    assert log.split() == ["x" * 100_000, str(tmp_path), "['0',", "'1',", "'2',", "'3']"]  # 3 is listdir's own
    assert outcome.leftovers == ()


def test_the_command_ignores_no_signal(run: Callable[..., Outcome], tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a job put in the background
    try:
        assert run(Process("main", (shutil.which("grep") or "", "SigIgn", "/proc/self/status"))).ok
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "main.log").read_text().split() == ["SigIgn:", "0" * 16]


def test_death_by_signal_is_told(run: Callable[..., Outcome]) -> None:
    outcome = run(Process("main", python("import os; os.kill(os.getpid(), 11)")))
    assert (outcome.reason, outcome.exit_code, outcome.signal) == (Reason.EXITED, None, signal.SIGSEGV)


def test_a_command_that_cannot_start(run: Callable[..., Outcome]) -> None:
    outcome = run(Process("main", ("/nonexistent/python", "-V")))
    assert outcome.reason is Reason.START_FAILED
    assert "No such file or directory: '/nonexistent/python'" in outcome.error


def test_a_sleeping_child_stalls(run: Callable[..., Outcome], mark: str) -> None:
    outcome = run(Process("main", python("import time; time.sleep(1000)")), stall_timeout_s=2)
    assert outcome.reason is Reason.STALL_TIMEOUT and not marked(mark)
    assert (outcome.exit_code, outcome.signal) == (None, None)
    assert outcome.seconds >= 2


def test_a_stopped_child_stalls_and_is_ended(run: Callable[..., Outcome], mark: str) -> None:
    begun_at = time.monotonic()
    outcome = run(Process("main", python("import os; os.kill(os.getpid(), 19)")), stall_timeout_s=2, grace_s=PATIENCE_S)
    assert time.monotonic() - begun_at < PATIENCE_S  # it was woken to hear SIGTERM, not left for SIGKILL
    assert outcome.reason is Reason.STALL_TIMEOUT and not marked(mark)


@pytest.mark.parametrize(
    "busy", ["while time.monotonic() < end: pass", "while time.monotonic() < end: time.sleep(0.5); print(1, flush=True)"]
)
def test_cpu_time_and_output_are_signs_of_life(run: Callable[..., Outcome], busy: str) -> None:
    # Long enough for three looks in a row to see that it wants a core, on a machine where it gets none.
    outcome = run(Process("main", python(f"import time\nend = time.monotonic() + 7\n{busy}")), stall_timeout_s=4)
    assert outcome.ok, outcome


def test_wall_timeout_ends_a_stubborn_tree(run: Callable[..., Outcome], tmp_path: Path, mark: str) -> None:
    ticks: list[Tick] = []
    outcome = run(Process("main", (*TREE, "wait")), on_tick=ticks.append, wall_timeout_s=1)
    assert outcome.reason is Reason.WALL_TIMEOUT and not marked(mark)
    assert (tmp_path / "main.log").read_text().endswith("\n[rlmbench] told to end: wall_timeout\n")
    *before, last = [tick.seconds for tick in ticks]
    assert all(seconds < 1 for seconds in before) and 1 <= last <= outcome.seconds  # at the first look at which it was due


def test_ticks_come_about_five_times_a_second(run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of them it waits for a fifth of a second, or less when there is news: how much more it gets is the machine's doing."""
    ticks: list[Tick] = []
    waits: list[float] = []
    select = supervise_module.select.select

    def waiting(reading: list[object], writing: list[object], other: list[object], timeout_s: float) -> object:
        waits.append(timeout_s)
        return select(reading, writing, other, timeout_s)

    monkeypatch.setattr(supervise_module.select, "select", waiting)

    def tick(seen: Tick) -> None:
        assert len(waits) == len(ticks) + 1
        ticks.append(seen)

    outcome = run(Process("main", python("import time; time.sleep(1000)")), on_tick=tick, wall_timeout_s=2)
    assert set(waits) == {0.2}
    assert 2 <= len(ticks) <= 13  # of these 10 waited to the end, and news came of a start
    assert ticks[-1].process == "main" and outcome.peak_rss_bytes >= ticks[-1].rss_bytes > 1 << 20


def test_an_error_in_on_tick_ends_the_run_and_is_passed_on(run: Callable[..., Outcome], tmp_path: Path, mark: str) -> None:
    def fail(tick: Tick) -> None:
        if len(pids_in(tmp_path / "main.log")) == 3:
            raise RuntimeError("display")

    with pytest.raises(RuntimeError, match="display"):
        run(Process("main", (*TREE, "wait")), on_tick=fail)
    assert not marked(mark)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


SERVE = """
import http.server, sys, time
time.sleep(0.5)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(sys.argv[2])); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def server(status: int = 200, ready_timeout_s: float = PATIENCE_S) -> Process:
    port = free_port()
    argv = (*python(SERVE), str(port), str(status))
    return Process("server", argv, ready_url=f"http://127.0.0.1:{port}/health", ready_timeout_s=ready_timeout_s)


def test_main_starts_when_the_server_answers_and_the_server_ends_after_main(run: Callable[..., Outcome], mark: str) -> None:
    serving = server()
    ask = python(f"import urllib.request; assert urllib.request.urlopen({serving.ready_url!r}).status == 200")
    outcome = run(serving, Process("main", ask))
    assert outcome.ok and outcome.leftovers == () and not marked(mark)


def test_a_server_that_ends_before_it_is_ready(run: Callable[..., Outcome], tmp_path: Path) -> None:
    dying = Process("server", python("raise SystemExit(0)"), ready_url="http://127.0.0.1:9/")
    outcome = run(dying, Process("main", python("pass")))
    assert (outcome.reason, outcome.process, outcome.exit_code, outcome.ok) == (Reason.EXITED, "server", 0, False)
    assert not (tmp_path / "main.log").exists()


def test_a_server_that_never_answers_200(run: Callable[..., Outcome], mark: str) -> None:
    outcome = run(server(status=503, ready_timeout_s=1.5), Process("main", python("pass")))
    assert (outcome.reason, outcome.process) == (Reason.READY_TIMEOUT, "server") and not marked(mark)


def test_main_that_fails_because_the_server_died_blames_the_server(run: Callable[..., Outcome]) -> None:
    port = free_port()
    mortal = SERVE.replace("serve_forever()", "handle_request()") + "raise SystemExit(5)"
    serving = Process(
        "server", (*python(f"import os; print(os.getpid(), flush=True)\n{mortal}"), str(port), "200"), ready_url=f"http://127.0.0.1:{port}/"
    )
    # Main sees that the server has gone, and fails a second later.
    after_it = """
import os, time
pid = open("server.log").readline().strip()
while os.path.exists(f"/proc/{pid}"): time.sleep(0.01)
time.sleep(1)
raise SystemExit(1)"""
    outcome = run(serving, Process("main", python(after_it)))
    assert (outcome.reason, outcome.process, outcome.exit_code) == (Reason.EXITED, "server", 5)


def test_kill_9_of_the_harness_leaves_nothing(harness: Callable[..., subprocess.Popen[str]], tmp_path: Path, mark: str) -> None:
    popen = harness(*TREE, "wait")
    assert wait_for(lambda: len(pids_in(tmp_path / "main.log")) == 3, PATIENCE_S)
    popen.kill()
    assert wait_for(lambda: not marked(mark), PATIENCE_S)


def test_kill_9_of_the_guard_leaves_nothing(harness: Callable[..., subprocess.Popen[str]], tmp_path: Path, mark: str) -> None:
    popen = harness(*TREE, "wait")
    log = tmp_path / "main.log"
    assert wait_for(lambda: len(pids_in(log)) == 3, PATIENCE_S)
    os.kill(guard_of(popen, pids_in(log)["main"]), signal.SIGKILL)
    output, _ = popen.communicate(timeout=PATIENCE_S)
    outcome = json.loads(output)
    assert not marked(mark)
    assert (outcome["reason"], outcome["signal"]) == ("exited", signal.SIGKILL)
    assert {pids_in(log)["daemon"], pids_in(log)["worker"]} <= {left["pid"] for left in outcome["leftovers"]}


def test_a_stopped_guard_holds_nothing_up(harness: Callable[..., subprocess.Popen[str]], tmp_path: Path, mark: str) -> None:
    popen = harness(*TREE, "wait")
    log = tmp_path / "main.log"
    assert wait_for(lambda: len(pids_in(log)) == 3, PATIENCE_S)
    os.kill(guard_of(popen, pids_in(log)["main"]), signal.SIGSTOP)
    popen.send_signal(signal.SIGTERM)
    assert popen.wait(timeout=PATIENCE_S) == 143
    assert not marked(mark)


def test_kill_9_of_harness_and_guard_takes_the_command_along(
    harness: Callable[..., subprocess.Popen[str]], tmp_path: Path, mark: str
) -> None:
    popen = harness(*TREE, "wait")
    log = tmp_path / "main.log"
    assert wait_for(lambda: len(pids_in(log)) == 3, PATIENCE_S)
    main = pids_in(log)["main"]
    guard = guard_of(popen, main)
    popen.send_signal(signal.SIGSTOP)  # so that it cannot act between the two deaths
    os.kill(guard, signal.SIGKILL)
    popen.kill()
    assert wait_for(lambda: main not in marked(mark), PATIENCE_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_is_an_interruption(harness: Callable[..., subprocess.Popen[str]], tmp_path: Path, mark: str, number: int) -> None:
    popen = harness(*TREE, "wait")
    assert wait_for(lambda: len(pids_in(tmp_path / "main.log")) == 3, PATIENCE_S)
    popen.send_signal(number)
    output, _ = popen.communicate(timeout=PATIENCE_S)
    assert not marked(mark)
    outcome = json.loads(output)
    assert popen.returncode == 128 + number
    assert (outcome["reason"], outcome["interrupt"], outcome["exit_code"], outcome["signal"]) == ("interrupted", number, None, None)


def test_a_second_ctrl_c_waits_for_no_grace(harness: Callable[..., subprocess.Popen[str]], tmp_path: Path, mark: str) -> None:
    popen = harness(*TREE, "wait", grace_s=1000)
    assert wait_for(lambda: len(pids_in(tmp_path / "main.log")) == 3, PATIENCE_S)
    main, daemon = (pids_in(tmp_path / "main.log")[name] for name in ("main", "daemon"))
    popen.send_signal(signal.SIGINT)
    assert wait_for(lambda: main not in marked(mark), PATIENCE_S)  # the first has been heard: two at once would be one
    assert popen.poll() is None and daemon in marked(mark)
    popen.send_signal(signal.SIGINT)
    assert popen.wait(timeout=PATIENCE_S) == 130
    assert not marked(mark)


def test_ctrl_c_at_any_moment(harness: Callable[..., subprocess.Popen[str]], mark: str) -> None:
    def interrupt(number: int, delay_s: float) -> tuple[int, str, list[int]]:
        own_mark = f"{mark}-{number:02}"
        popen = harness(*TREE, "wait", grace_s=0.2, mark=own_mark)
        time.sleep(delay_s)
        popen.send_signal(signal.SIGINT)
        output, _ = popen.communicate(timeout=PATIENCE_S)
        return popen.returncode, output, marked(own_mark)

    moments = random.Random(20)
    delays_s = [0.0] + [moments.uniform(0, 0.4) for _ in range(19)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(interrupt, range(len(delays_s)), delays_s))
    for delay_s, (code, output, left) in zip(delays_s, results, strict=True):
        assert (code, json.loads(output)["reason"], left) == (130, "interrupted", []), delay_s
