"""What a killed rlmbench leaves is removed by the next one; what lives, belongs to others or is a link stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlmbench.runner import temporary
from rlmbench.runner.shared_memory import remove_leftovers
from rlmbench.runner.temporary import MARK, Belongings, remove_abandoned, temporary_folder

MAKER = """
import sys
from rlmbench.runner.temporary import Belongings, temporary_folder
with temporary_folder("test-", Belongings()) as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(temporary.tempfile, "tempdir", str(tmp_path))


def abandoned(root: Path, name: str = "rlmbench-left", **mark: Any) -> Path:
    """A folder as a killed maker leaves it."""
    folder = root / name
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "file").write_text("x")
    (folder / MARK).write_text(json.dumps({"rlmbench": 1, "run_dir": "", "folders": [], "shared_before": {}, **mark}))
    return folder


def test_a_folder_is_there_while_its_maker_lives_and_goes_when_it_was_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", MAKER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as maker:
        assert maker.stdout
        folder = Path(maker.stdout.readline().strip())
        assert folder.parent == tmp_path and folder.name.startswith("rlmbench-test-")
        assert remove_abandoned() == []
        assert (folder / MARK).is_file()
        maker.kill()
    assert folder.is_dir()
    assert remove_abandoned() == [folder]
    assert not folder.exists()


def test_one_that_a_process_of_its_run_still_uses_is_left_for_later(tmp_path: Path) -> None:
    folder = abandoned(tmp_path)
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, env={"TMPDIR": str(folder)}) as of_the_run:
        assert remove_abandoned() == []
        assert of_the_run.stdin
        of_the_run.stdin.close()
    assert remove_abandoned() == [folder]


@pytest.mark.parametrize("where", ["argument", "cwd", "of the cluster"])
def test_one_in_which_a_run_lives_on_is_left_for_later(tmp_path: Path, where: str) -> None:
    """A killed `rlmbench overhead` leaves a run behind that writes its results there; a killed run perhaps its cluster."""
    cluster = tmp_path / "rlmbench-ray-1"
    cluster.mkdir()
    folder = abandoned(tmp_path, folders=[str(cluster)])
    named = {"argument": str(folder / "results"), "of the cluster": f"--temp-dir={cluster}"}.get(where, "")
    command = ["/bin/sh", "-c", "read line", "run", named]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={}, cwd=folder / "below" if where == "cwd" else "/") as lives_on:
        assert remove_abandoned() == []
        assert (folder / "below" / "file").exists() and cluster.exists()
        assert lives_on.stdin
        lives_on.stdin.close()
    assert remove_abandoned() == [folder]
    assert not cluster.exists()


def test_one_that_ends_well_leaves_nothing(tmp_path: Path) -> None:
    with temporary_folder() as folder:
        assert remove_abandoned() == []
        Path(folder, "file").write_text("x")
    assert list(tmp_path.iterdir()) == []


def test_until_the_folder_is_gone_its_maker_has_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else another rlmbench that begins just then takes a run that ended well for a killed one."""
    meanwhile: list[list[Path]] = []
    cleanup = temporary.tempfile.TemporaryDirectory.cleanup

    def and_another_looks(self: Any) -> None:
        meanwhile.append(remove_abandoned())
        cleanup(self)

    monkeypatch.setattr(temporary.tempfile.TemporaryDirectory, "cleanup", and_another_looks)
    with temporary_folder() as folder:
        pass
    assert meanwhile == [[]] and not Path(folder).exists()


def test_a_mark_that_was_removed_before_its_lock_was_had_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = tmp_path / "rlmbench-ray-1"
    cluster.mkdir()
    folder = abandoned(tmp_path, folders=[str(cluster)])
    flock = temporary.fcntl.flock

    def removed_just_before(*arguments: Any) -> None:
        (folder / MARK).unlink()
        flock(*arguments)

    monkeypatch.setattr(temporary.fcntl, "flock", removed_just_before)
    assert remove_abandoned() == []
    assert cluster.exists()


def test_what_could_not_be_removed_is_not_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = abandoned(tmp_path)
    monkeypatch.setattr(temporary.shutil, "rmtree", lambda path, ignore_errors: None)
    assert remove_abandoned() == []
    assert folder.exists()


def test_what_rlmbench_did_not_mark_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    abandoned(tmp_path, "elsewhere")  # another name
    (tmp_path / "rlmbench-unmarked").mkdir()
    (tmp_path / "rlmbench-file").write_text("x")
    (tmp_path / "rlmbench-link").symlink_to(abandoned(tmp_path, "target"))
    for number, text in enumerate(
        ("", "[]", "{", "null", '{"rlmbench": 2, "run_dir": "", "folders": [], "shared_before": {}}', '{"rlmbench": 1}')
    ):
        folder = abandoned(tmp_path, f"rlmbench-odd-{number}")
        (folder / MARK).write_text(text)
    linked = abandoned(tmp_path, "rlmbench-linked-mark")
    (linked / MARK).rename(outside / "mark")
    (linked / MARK).symlink_to(outside / "mark")
    fifo = abandoned(tmp_path, "rlmbench-fifo")
    (fifo / MARK).unlink()
    os.mkfifo(fifo / MARK)
    before = sorted(tmp_path.rglob("*"))
    assert remove_abandoned() == []
    assert sorted(tmp_path.rglob("*")) == before
    assert remove_abandoned(tmp_path / "absent") == []


def test_links_within_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    folder = abandoned(tmp_path, folders=[str(tmp_path / "rlmbench-ray-1")])
    (folder / "below" / "link").symlink_to(outside)
    (tmp_path / "rlmbench-ray-1").symlink_to(outside)
    assert remove_abandoned() == [folder]
    assert not folder.exists()
    assert (outside / "kept").exists()
    assert (tmp_path / "rlmbench-ray-1").is_symlink()


def test_another_users_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = abandoned(tmp_path)
    monkeypatch.setattr(temporary.os, "getuid", lambda: os.geteuid() + 1)
    assert remove_abandoned() == []
    assert folder.exists()


def test_its_belongings_go_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster's folder, the run's scratch, and segments that were made while the run lived."""
    segments = tmp_path / "shm"
    segments.mkdir()
    monkeypatch.setattr(temporary, "remove_leftovers", partial(remove_leftovers, folder=segments))
    for name in ("psm_before", "psm_of_the_run", "somebody_elses"):
        (segments / name).write_text("x")
    before = {"psm_before": (segments / "psm_before").stat().st_ino}
    run_dir = tmp_path / "results" / "run"
    for name in ("scratch/model", "probe"):
        (run_dir / name).mkdir(parents=True)
    (run_dir / "manifest.json").write_text("{}")
    (run_dir / "probe" / "a.jsonl").write_text("x")
    cluster, foreign = tmp_path / "rlmbench-ray-1", tmp_path / "foreign"
    cluster.mkdir()
    foreign.mkdir()
    mark = {"run_dir": str(run_dir), "folders": [str(cluster), str(foreign), "rlmbench-relative"], "shared_before": before}
    abandoned(tmp_path, **mark)
    assert len(remove_abandoned()) == 1
    assert not cluster.exists() and foreign.exists()
    assert sorted(path.name for path in run_dir.iterdir()) == ["manifest.json", "probe"]
    assert sorted(path.name for path in segments.iterdir()) == ["psm_before", "somebody_elses"]


def test_segments_made_after_the_run_had_ended_are_not_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = tmp_path / "shm"
    segments.mkdir()
    monkeypatch.setattr(temporary, "remove_leftovers", partial(remove_leftovers, folder=segments))
    run_dir = tmp_path / "run"
    (run_dir / "logs").mkdir(parents=True)
    (run_dir / "manifest.json").write_text("{}")
    log = run_dir / "logs" / "trainer.log"
    log.write_text("the last word")
    an_hour_ago = time.time() - 3600
    os.utime(log, (an_hour_ago, an_hour_ago))
    (segments / "psm_of_today").write_text("x")
    abandoned(tmp_path, run_dir=str(run_dir))
    assert len(remove_abandoned()) == 1
    assert (segments / "psm_of_today").exists()


def test_the_mark_says_what_belongs_to_it(tmp_path: Path) -> None:
    with temporary_folder("x-", Belongings("/results/run", ["/tmp/rlmbench-ray-1"], {"psm_1": 5})) as folder:
        mark = json.loads(Path(folder, MARK).read_text())
    assert mark == {"rlmbench": 1, "run_dir": "/results/run", "folders": ["/tmp/rlmbench-ray-1"], "shared_before": {"psm_1": 5}}
