import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlmbench.errors import UserError
from rlmbench.records import Failure, Manifest, Supervisor, read_manifest, write_manifest


def _store(folder, fields):
    (folder / "manifest.json").write_text(json.dumps(fields))
    return folder


def test_what_was_written_is_read_back(tmp_path, manifest_fields):
    failure = Failure(failure_class="crash", message="torchrun ended", step=3, signal="SIGSEGV", tail=["last line"])
    manifest = Manifest.model_validate({**manifest_fields, "status": "failed"}).model_copy(update={"failure": failure})
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_the_pass_is_called_so_on_disk_and_older_records_measured(tmp_path, manifest_fields):
    assert Manifest.model_validate(manifest_fields).pass_ == "measure"
    write_manifest(tmp_path, Manifest.model_validate({**manifest_fields, "pass": "profile", "profile": {"steps": [2]}}))
    written = json.loads((tmp_path / "manifest.json").read_text())
    assert (written["pass"], written["profile"]) == ("profile", {"steps": [2], "extras": []})
    assert read_manifest(tmp_path).pass_ == "profile"


def test_a_failed_write_keeps_the_old_manifest(tmp_path, manifest_fields, monkeypatch):
    write_manifest(tmp_path, Manifest.model_validate(manifest_fields))

    def disk_full(_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="no space"):
        write_manifest(tmp_path, Manifest.model_validate({**manifest_fields, "status": "failed"}))
    assert read_manifest(tmp_path).status == "ok"
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize("status", ["planned", "running"])
def test_a_dead_supervisor_makes_the_run_interrupted(tmp_path, manifest_fields, status):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    ticks = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    supervisor = {"pid": child.pid, "boot_id": Supervisor.current().boot_id, "start_ticks": ticks}
    _store(tmp_path, {**manifest_fields, "status": status, "supervisor": supervisor})
    alive = read_manifest(tmp_path)
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but not yet collected: a zombie
    zombie = read_manifest(tmp_path)
    child.wait()
    dead = read_manifest(tmp_path)

    assert alive.status == status
    assert zombie.status == "interrupted"
    assert (dead.status, dead.failure.failure_class) == ("interrupted", "killed")
    assert json.loads((tmp_path / "manifest.json").read_text())["status"] == status, "reading must not write"


@pytest.mark.parametrize("changed", [{"start_ticks": 1}, {"boot_id": "another-boot"}])
def test_a_process_id_used_again_is_not_the_supervisor(tmp_path, manifest_fields, changed):
    supervisor = {**Supervisor.current().model_dump(), **changed}
    _store(tmp_path, {**manifest_fields, "status": "running", "supervisor": supervisor})
    assert read_manifest(tmp_path).status == "interrupted"


def test_a_run_that_ended_needs_no_supervisor(tmp_path, manifest_fields):
    _store(tmp_path, {**manifest_fields, "status": "failed", "failure": {"failure_class": "hang", "message": "stalled"}})
    assert read_manifest(tmp_path).failure.failure_class == "hang"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema_version": 2}, "schema version 2 is newer"),
        ({"status": "fine"}, "status:"),
        ({"times": {}}, "times.created_unix_s:"),
    ],
)
def test_a_manifest_that_is_wrong_is_one_line_with_its_path(tmp_path, manifest_fields, change, says):
    _store(tmp_path, {**manifest_fields, **change})
    with pytest.raises(UserError) as caught:
        read_manifest(tmp_path)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "manifest.json"))
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize("content", [b"", b'{"schema_version": 1, "run_id', b"\xff\xfe"])
def test_a_damaged_manifest_is_one_line(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_manifest(tmp_path)
    assert "\n" not in str(caught.value)


def test_no_manifest_says_what_to_give(tmp_path):
    with pytest.raises(UserError, match="give the folder of a run"):
        read_manifest(tmp_path)


def test_a_key_of_a_later_version_is_left_out(tmp_path, manifest_fields):
    _store(tmp_path, {**manifest_fields, "colour": "blue"})
    assert read_manifest(tmp_path).run_id == manifest_fields["run_id"]
