from __future__ import annotations

import os
import signal
import subprocess
import sys

from rlmbench.runner.guard import Proc, below, process_table, read_proc, send


def proc(pid: int, parent: int) -> Proc:
    return Proc(pid=pid, parent=parent, session=1, started=pid, name="p", state="S", cpu_ticks=0, rss_pages=0)


def test_below_walks_parentage_and_leaves_out_the_roots() -> None:
    table = {p.pid: p for p in [proc(1, 0), proc(2, 1), proc(3, 2), proc(4, 3), proc(5, 1), proc(6, 5)]}
    assert [p.pid for p in below([2], table)] == [3, 4]
    assert [p.pid for p in below([2, 5], table)] == [3, 6, 4]
    assert below([6], table) == []


def test_a_name_with_spaces_and_parentheses_is_read() -> None:
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'a) R (b c', 0, 0, 0); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout and child.stdin
        child.stdout.readline()
        found = read_proc(child.pid)
        assert found and (found.name, found.parent, found.session) == ("a) R (b c", os.getpid(), os.getsid(0))
        assert process_table()[child.pid].identity == found.identity
        child.stdin.close()


def test_a_pid_with_a_new_owner_gets_no_signal() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        found = read_proc(child.pid)
        assert found
        assert not send(found._replace(started=found.started - 1), signal.SIGKILL)
        assert child.poll() is None
        assert send(found, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert not send(found, signal.SIGKILL)
