from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlmbench.runner import activity
from rlmbench.runner.activity import POLLING_CPU_SHARE, StallClock, TreeMeter, bytes_written, proportional_bytes
from rlmbench.runner.guard import process_table

ONE = (1, 1)


def test_silence_and_an_idle_cpu_are_a_stall() -> None:
    clock = StallClock(timeout_s=100, cpu_share=POLLING_CPU_SHARE, now=0)
    clock.update(now=1, written_bytes=10, cpu_by_process_s={})
    for now in range(2, 101):
        clock.update(now=now, written_bytes=10, cpu_by_process_s={ONE: 0.03})  # a vLLM worker that waits, at its most in a second
        assert not clock.stalled(now)
    clock.update(now=101, written_bytes=10, cpu_by_process_s={ONE: 0.03})
    assert clock.stalled(101)


def test_output_restarts_the_clock() -> None:
    clock = StallClock(timeout_s=100, cpu_share=POLLING_CPU_SHARE, now=0)
    clock.update(now=1, written_bytes=10, cpu_by_process_s={})
    clock.update(now=90, written_bytes=11, cpu_by_process_s={})
    assert not clock.stalled(189)
    assert clock.stalled(190)


def test_cpu_time_restarts_the_clock() -> None:
    clock = StallClock(timeout_s=100, cpu_share=POLLING_CPU_SHARE, now=0)
    clock.update(now=1, written_bytes=10, cpu_by_process_s={})
    for now in range(2, 300):
        clock.update(now=now, written_bytes=10, cpu_by_process_s={ONE: 0.15})
        assert not clock.stalled(now)


def test_many_processes_that_only_poll_are_idle() -> None:
    """Measured: 8 idle Ray actors and the cluster's own processes, 0.25 to 1.1% of a core each, 8.8% together."""
    clock = StallClock(timeout_s=100, cpu_share=POLLING_CPU_SHARE, now=0)
    clock.update(now=1, written_bytes=10, cpu_by_process_s={})
    for now in range(2, 102):
        clock.update(now=now, written_bytes=10, cpu_by_process_s={(pid, 1): 0.011 for pid in range(8)})
    assert clock.stalled(101)
    clock.update(now=110, written_bytes=10, cpu_by_process_s={(3, 1): 1.5})
    assert not clock.stalled(110)


def test_one_that_others_keep_from_a_core_is_at_work() -> None:
    """A worker of Ray's on a busy machine: 2% of a core, as one that polls, and in the queue for it at every look."""
    clock = StallClock(timeout_s=100, cpu_share=POLLING_CPU_SHARE, now=0)
    for now in range(1, 300):
        clock.update(now=now, written_bytes=10, cpu_by_process_s={ONE: 0.02}, runnable={ONE})
        assert not clock.stalled(now)


def test_one_that_polls_is_idle_though_some_looks_meet_it_awake() -> None:
    """Two of them, each asleep at one look of every window of 10: together some process is awake at all looks."""
    clock = StallClock(timeout_s=100, cpu_share=POLLING_CPU_SHARE, now=0)
    other = (2, 1)
    for now in range(1, 102):
        awake = {0: {ONE}, 5: {other}}.get(now % 10, {ONE, other})
        clock.update(now=now, written_bytes=10, cpu_by_process_s={ONE: 0.02, other: 0.02}, runnable=awake)
    assert clock.stalled(101)


def test_a_single_look_does_not_take_one_that_polls_for_starved() -> None:
    """Windows of half a second, and a look a second: every third look meets it awake."""
    clock = StallClock(timeout_s=5, cpu_share=POLLING_CPU_SHARE, now=0)
    for now in range(1, 7):
        clock.update(now=now, written_bytes=10, cpu_by_process_s={ONE: 0.02}, runnable={ONE} if now % 3 else ())
    assert clock.stalled(6)


def test_bytes_written_counts_files_and_folders_one_level_deep(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_bytes(b"x" * 3)
    (tmp_path / "logs" / "b.log").write_bytes(b"x" * 4)
    (tmp_path / "one.json").write_bytes(b"x" * 5)
    assert bytes_written([tmp_path / "logs", tmp_path / "one.json", tmp_path / "absent"]) == 12


def test_tree_meter_measures_a_busy_grandchild() -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass\nprint(time.process_time(), flush=True)\ntime.sleep(600)"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {burn!r}])"
    child = subprocess.Popen([sys.executable, "-S", "-c", parent], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout
        burnt_s = float(child.stdout.readline())  # of its whole life, by its own account
        meter = TreeMeter()
        now = time.monotonic()
        usage = meter.sample([child.pid], now)
        assert usage and usage.rss_bytes > 1 << 20
        # The kernel counts user and system time in ticks, each rounded down.
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        assert burnt_s - 2 * tick_s <= usage.cpu_s <= burnt_s + 2 * tick_s
        assert meter.sample([child.pid], now + 0.5) is None
        later = meter.sample([child.pid], now + 60)
        assert later and later.cpu_s < 0.05
    finally:
        os.killpg(child.pid, 9)
        child.communicate()


def test_a_look_that_others_hold_up_does_not_put_off_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 ms of wall time in which the process has no core: they cost nothing, and the next look is due after a second, not after five."""
    monkeypatch.setattr(activity, "process_table", lambda: time.sleep(0.05) or process_table())
    meter = TreeMeter()
    assert meter.sample([os.getpid()], 1000.0)
    assert meter.sample([os.getpid()], 1000.9) is None
    assert meter.sample([os.getpid()], 1001.0)


def test_who_wants_a_core_is_seen() -> None:
    """Of two children one spins and one sleeps."""
    codes = ("print(flush=True)\nwhile True: pass", "import time\nprint(flush=True)\ntime.sleep(600)")
    both = [subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) for code in codes]
    try:
        for child in both:
            assert child.stdout and child.stdout.readline() == b"\n"
        until_asleep = (usage.runnable for now in itertools.count(1000) if (usage := TreeMeter().sample([os.getpid()], now)))
        runnable = next(pids for found in until_asleep if both[1].pid not in (pids := {pid for pid, _ in found}))
        assert both[0].pid in runnable
    finally:
        for child in both:
            child.kill()
            child.communicate()


def test_memory_shared_with_a_child_counts_once() -> None:
    """64 MiB written before a fork: resident in both processes, but there only once."""
    script = (
        "import os, sys, time\nblock = bytearray(b'x') * (64 << 20)\nchild = os.fork()\n"
        "if child: print(os.getpid(), child, flush=True)\ntime.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert parent.stdout
        pids = [int(word) for word in parent.stdout.readline().split()]
        both, one = proportional_bytes(pids), proportional_bytes(pids[:1])
        assert both and one and 64 << 20 <= both < 96 << 20 and 32 << 20 <= one < 64 << 20
        assert proportional_bytes([]) is None
    finally:
        os.killpg(parent.pid, 9)
        parent.communicate()
