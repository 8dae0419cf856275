from __future__ import annotations

from pathlib import Path

from rlmbench.runner.oom import oom_kill_count


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_cgroup_v2(tmp_path: Path) -> None:
    own = write(tmp_path / "cgroup", "0::/user.slice/job\n")
    write(tmp_path / "fs/user.slice/job/memory.events", "low 0\nhigh 5\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n")
    assert oom_kill_count(own, tmp_path / "fs", tmp_path) == 3


def test_cgroup_v1_inside_a_container_that_shows_the_host_s_path(tmp_path: Path) -> None:
    own = write(tmp_path / "cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n")
    write(tmp_path / "fs/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert oom_kill_count(own, tmp_path / "fs", tmp_path) == 2


def test_the_machine_s_counter_where_no_group_is_accounted(tmp_path: Path) -> None:
    own = write(tmp_path / "cgroup", "0::/\n")
    write(tmp_path / "proc/vmstat", "nr_free_pages 7\noom_kill 6\n")
    assert oom_kill_count(own, tmp_path / "fs", tmp_path / "proc") == 6


def test_unknown_is_none(tmp_path: Path) -> None:
    assert oom_kill_count(tmp_path / "absent", tmp_path, tmp_path) is None
