from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from rlmbench.runner.activity import StallClock, TreeMeter, bytes_written


def test_silence_and_an_idle_cpu_are_a_stall() -> None:
    clock = StallClock(timeout_s=100, cpu_share=0.02, now=0)
    clock.update(now=1, written_bytes=10, cpu_s=0)
    for now in range(2, 101):
        clock.update(now=now, written_bytes=10, cpu_s=0.01)  # 1% of a core: something polls
        assert not clock.stalled(now)
    clock.update(now=101, written_bytes=10, cpu_s=0.01)
    assert clock.stalled(101)


def test_output_restarts_the_clock() -> None:
    clock = StallClock(timeout_s=100, cpu_share=0.02, now=0)
    clock.update(now=1, written_bytes=10, cpu_s=0)
    clock.update(now=90, written_bytes=11, cpu_s=0)
    assert not clock.stalled(189)
    assert clock.stalled(190)


def test_cpu_time_restarts_the_clock() -> None:
    clock = StallClock(timeout_s=100, cpu_share=0.02, now=0)
    clock.update(now=1, written_bytes=10, cpu_s=0)
    for now in range(2, 300):
        clock.update(now=now, written_bytes=10, cpu_s=0.03)
        assert not clock.stalled(now)


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
        assert usage and 0.4 <= usage.cpu_s < 0.8 and usage.rss_bytes > 1 << 20
        assert meter.sample([child.pid], now + 0.5) is None
        later = meter.sample([child.pid], now + 60)
        assert later and later.cpu_s < 0.05
    finally:
        os.killpg(child.pid, 9)
        child.communicate()
