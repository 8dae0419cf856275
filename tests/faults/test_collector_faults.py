"""The collector goes with the run, whatever ends either: and a run does not mind the end of its collector."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command import wait_for

from rlmbench.records.samples import lines_of
from rlmbench.records.tables import Tables, tables_from_events
from rlmbench.runner.collecting import Collecting
from rlmbench.runner.guard import process_table, read_proc

PATIENCE_S = 120.0
"""When to give up waiting for what must come about."""
COLLECTED = (sys.executable, str(Path(__file__).parent / "collected.py"))
FOREVER = "import time; time.sleep(600)"
AWAIT = "import os, time\ndef wait_for(file):\n    while not os.path.exists(file): time.sleep(0.01)\n"
"""A command's part of what a test tells it by a file in its folder: the collector is to have seen one thing before the next happens."""
BURN = f"{AWAIT}wait_for('burn')\nend = time.process_time() + 0.7\nwhile time.process_time() < end: pass"
BURNING_BELOW = f"""{AWAIT}
import subprocess, sys
subprocess.run([sys.executable, '-c', {BURN!r}])
def tell(): print(sum(os.times()[:4]), flush=True)
tell()
wait_for('over')
tell()
"""
"""Its work is done by a child that is gone when it is told to end; it prints what CPU time both have used, then and at its own end."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started = []

    def start(code: str) -> subprocess.Popen[str]:
        command = [*COLLECTED, str(tmp_path), sys.executable, "-c", code]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def tables(run_dir: Path) -> Tables:
    return tables_from_events(run_dir)


def lines(run_dir: Path) -> str:
    return b"".join(line for path in (run_dir / "collector").glob("*.jsonl.gz") for line in lines_of(path)).decode()


def collector_of(process: subprocess.Popen[str], run_dir: Path) -> int:
    """The pid of the collector, once it has seen the command."""
    assert wait_for(lambda: '"tree_samples":[[1,' in lines(run_dir), PATIENCE_S), lines(run_dir)
    pid = int(tables(run_dir).collectors["pid"].iloc[0])
    found = read_proc(pid)
    assert found is not None and found.parent == process.pid
    return pid


def gone(pid: int) -> bool:
    found = read_proc(pid)
    return found is None or found.state == "Z"


def test_what_the_tree_used_is_in_the_samples(start: Callable[..., Any], tmp_path: Path) -> None:
    """0.7 s of CPU, burnt by a child that is gone at the last look: its parent's counters bring what it used."""
    process = start(BURNING_BELOW)
    assert wait_for(lambda: '"tree_samples":[[2,' in lines(tmp_path), PATIENCE_S)
    (tmp_path / "burn").touch()
    log = tmp_path / "main.log"
    assert wait_for(lambda: log.read_text().endswith("\n"), PATIENCE_S)
    burnt_at_ns = time.monotonic_ns()
    assert wait_for(lambda: tables(tmp_path).tree_samples["t_ns"].max() > burnt_at_ns, PATIENCE_S)
    before_burning = tables(tmp_path).node_samples["cpu_busy_s"].iloc[0]
    (tmp_path / "over").touch()
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert json.loads(out) == {"ok": True, "problem": ""}
    found = tables(tmp_path)
    tree = found.tree_samples
    used_s, in_all_s = map(float, log.read_text().split())
    tick_s = 0.01  # user and system time of two processes, each rounded down
    assert used_s >= 0.7 - 4 * tick_s
    after = tree[tree["t_ns"] > burnt_at_ns]["cpu_s"]
    assert used_s - 4 * tick_s <= after.iloc[0] <= after.iloc[-1] <= in_all_s + 4 * tick_s
    assert tree["cpu_s"].is_monotonic_increasing
    assert tree["processes"].max() == 2
    assert tree["pss_bytes"].max() <= tree["rss_bytes"].max()
    assert found.collectors["end_ns"].notna().all()
    assert found.node_samples["cpu_busy_s"].iloc[-1] - before_burning >= 0.7 - tick_s
    assert not (tmp_path / "collector" / "collector.log").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_collector_ends_with_rlmbench(start: Callable[..., Any], tmp_path: Path, number: signal.Signals) -> None:
    process = start(FOREVER)
    pid = collector_of(process, tmp_path)
    process.send_signal(number)
    assert wait_for(lambda: gone(pid), PATIENCE_S)
    assert process.wait(PATIENCE_S) == (-number if number == signal.SIGKILL else 128 + number)
    ended = tables(tmp_path).collectors
    assert ended["damaged_lines"].tolist() == [0]
    if number != signal.SIGKILL:
        assert ended["end_ns"].notna().all()


def test_a_terminals_ctrl_c_does_not_reach_it(start: Callable[..., Any], tmp_path: Path) -> None:
    process = start(FOREVER)
    pid = collector_of(process, tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE_S) == 128 + signal.SIGINT
    assert json.loads(process.stdout.read())["problem"] == ""
    assert gone(pid)


def test_a_run_does_not_mind_a_collector_that_dies(start: Callable[..., Any], tmp_path: Path) -> None:
    process = start(f"{AWAIT}wait_for('over')")
    os.kill(collector_of(process, tmp_path), signal.SIGKILL)
    (tmp_path / "over").touch()
    out, _ = process.communicate(timeout=PATIENCE_S)
    document = json.loads(out)
    assert (document["ok"], document["problem"]) == (True, "it ended by SIGKILL before the run did")
    found = tables(tmp_path)
    assert found.capabilities.set_index("name").loc["collector", ["available", "reason"]].tolist() == [False, document["problem"]]
    assert found.collectors["end_ns"].isna().all()
    assert len(found.tree_samples) > 0


def test_one_that_cannot_write_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "collector").mkdir()
    (tmp_path / "collector" / f"{os.uname().nodename}.jsonl.gz").mkdir()
    with Collecting(tmp_path, 0.05) as collecting:
        assert wait_for(lambda: "Is a directory" in (tmp_path / "collector" / "collector.log").read_text(), PATIENCE_S)
        collecting.watch(os.getpid())  # nobody listens, and that is no error
    assert "Is a directory" in collecting.problem


def test_one_that_cannot_start_says_so_and_none_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Collecting(tmp_path, None) as collecting:
        pass
    assert (collecting.problem, list(tmp_path.iterdir())) == ("", [])
    monkeypatch.setattr("rlmbench.runner.collecting.sys.executable", str(tmp_path / "python"))
    with Collecting(tmp_path, 0.05) as collecting:
        pass
    assert collecting.problem == "it could not be started: No such file or directory"
    assert tables(tmp_path).capabilities["name"].tolist() == ["collector"]


def test_a_stopped_collector_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is stuck in a driver's call."""
    monkeypatch.setattr("rlmbench.runner.collecting.STOP_TIMEOUT_S", 0.5)
    with Collecting(tmp_path, 0.05) as collecting:
        collecting.watch(os.getpid())
        assert wait_for(lambda: "rows" in lines(tmp_path), PATIENCE_S)
        [pid] = [proc.pid for proc in process_table().values() if proc.parent == os.getpid() and proc.session == proc.pid]
        os.kill(pid, signal.SIGSTOP)  # it never goes on: whoever waited for it would not come here
    assert "did not end within 0.5 s" in collecting.problem
    assert wait_for(lambda: gone(pid), PATIENCE_S)
