from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from rlmbench.runner.activity import POLLING_CPU_SHARE, StallClock, TreeMeter, bytes_written, proportional_bytes

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


def test_bytes_written_counts_files_and_folders_one_level_deep(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_bytes(b"x" * 3)
    (tmp_path / "logs" / "b.log").write_bytes(b"x" * 4)
    (tmp_path / "one.json").write_bytes(b"x" * 5)
    assert bytes_written([tmp_path / "logs", tmp_path / "one.json", tmp_path / "absent"]) == 12


def test_tree_meter_measures_a_busy_grandchild() -> None:
    burn = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\nprint('done', flush=True)\ntime.sleep(60)"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {burn!r}])"
    child = subprocess.Popen([sys.executable, "-S", "-c", parent], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout and child.stdout.readline() == b"done\n"
        meter = TreeMeter()
        now = time.monotonic()
        usage = meter.sample([child.pid], now)
        assert usage and usage.rss_bytes > 1 << 20
        # The kernel counts user and system time in ticks, each rounded down.
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        assert 0.4 - 2 * tick_s <= usage.cpu_s < 0.8
        assert meter.sample([child.pid], now + 0.5) is None
        later = meter.sample([child.pid], now + 60)
        assert later and later.cpu_s < 0.05
    finally:
        os.killpg(child.pid, 9)
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
