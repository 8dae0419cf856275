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

COLLECTED = (sys.executable, str(Path(__file__).parent / "collected.py"))
BUSY = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass"
FOREVER = "import time; time.sleep(600)"


def spawning(child: str) -> str:
    """A command whose work is done by a short-lived child of a child."""
    return f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"


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
    assert wait_for(lambda: '"tree_samples":[[1,' in lines(run_dir), 20), lines(run_dir)
    pid = int(tables(run_dir).collectors["pid"].iloc[0])
    found = read_proc(pid)
    assert found is not None and found.parent == process.pid
    return pid


def gone(pid: int) -> bool:
    found = read_proc(pid)
    return found is None or found.state == "Z"


def test_what_the_tree_used_is_in_the_samples(start: Callable[..., Any], tmp_path: Path) -> None:
    """0.7 s of CPU, burnt by a child that lives between two looks at most partly: its parent's counters bring the rest."""
    process = start(f"{spawning(BUSY.format(0.7))}; import time; time.sleep(1)")  # so that there are looks after all of it was burnt
    out, _ = process.communicate(timeout=60)
    assert json.loads(out) == {"ok": True, "problem": ""}
    found = tables(tmp_path)
    tree = found.tree_samples
    assert 0.7 <= tree["cpu_s"].iloc[-1] <= 1.5  # and what two interpreters need to start
    assert tree["cpu_s"].is_monotonic_increasing
    assert tree["processes"].max() == 2
    assert tree["pss_bytes"].max() <= tree["rss_bytes"].max()
    assert found.collectors["end_ns"].notna().all()
    busy = found.node_samples["cpu_busy_s"]
    assert busy.iloc[-1] - busy.iloc[0] >= 0.5
    assert not (tmp_path / "collector" / "collector.log").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_collector_ends_with_rlmbench(start: Callable[..., Any], tmp_path: Path, number: signal.Signals) -> None:
    process = start(FOREVER)
    pid = collector_of(process, tmp_path)
    process.send_signal(number)
    assert wait_for(lambda: gone(pid), 20)
    assert process.wait(30) == (-number if number == signal.SIGKILL else 128 + number)
    ended = tables(tmp_path).collectors
    assert ended["damaged_lines"].tolist() == [0]
    if number != signal.SIGKILL:
        assert ended["end_ns"].notna().all()


def test_a_terminals_ctrl_c_does_not_reach_it(start: Callable[..., Any], tmp_path: Path) -> None:
    process = start(FOREVER)
    pid = collector_of(process, tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 128 + signal.SIGINT
    assert json.loads(process.stdout.read())["problem"] == ""
    assert gone(pid)


def test_a_run_does_not_mind_a_collector_that_dies(start: Callable[..., Any], tmp_path: Path) -> None:
    process = start("import time; time.sleep(3)")
    os.kill(collector_of(process, tmp_path), signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
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
        assert wait_for(lambda: "Is a directory" in (tmp_path / "collector" / "collector.log").read_text(), 20)
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
        assert wait_for(lambda: "rows" in lines(tmp_path), 20)
        [pid] = [proc.pid for proc in process_table().values() if proc.parent == os.getpid() and proc.session == proc.pid]
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
    assert time.monotonic() - began < 20  # and not until it goes on, which is never
    assert "did not end within 0.5 s" in collecting.problem
    assert gone(pid)
