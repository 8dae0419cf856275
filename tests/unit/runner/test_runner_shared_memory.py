"""What a killed run leaves in shared memory is removed, and nothing else."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import shared_memory

from rlmbench.runner.shared_memory import FOLDER, kept_unseen, remove_leftovers, segments


def test_only_new_segments_that_nobody_holds_are_removed():
    old = shared_memory.SharedMemory(create=True, size=4096)
    before = segments()
    held = shared_memory.SharedMemory(create=True, size=4096)
    left = FOLDER / f"psm_left_{os.getpid()}"
    of_vllm = FOLDER / f"vllm_dist_0123-tp:0-[0-1]-cpushm_{os.getpid()}"  # as its CPU communicator names them
    of_verl = FOLDER / f"verl_weights_{os.getpid()}"  # verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py
    for path in (left, of_vllm, of_verl):
        path.write_bytes(b"left behind")
    foreign = FOLDER / f"somebody_elses_{os.getpid()}"
    foreign.write_bytes(b"of another program")
    try:
        assert {left.name, of_vllm.name, of_verl.name} <= set(remove_leftovers(before))
        assert foreign.exists()
        assert {old.name, held.name} <= set(segments())
    finally:
        for segment in (old, held):
            segment.close()
            segment.unlink()
        for path in (left, of_vllm, of_verl):
            path.unlink(missing_ok=True)
        foreign.unlink()


def test_a_semaphore_in_use_stays():
    """glibc makes a semaphore under another name than the one it is known by, so its name is in nobody's maps."""
    before = segments()
    lock = multiprocessing.get_context("spawn").Lock()
    name = f"sem.{lock._semlock.name.removeprefix('/')}"  # others may make some meanwhile
    assert name in segments() and name not in before
    assert name not in remove_leftovers(before)
    assert name in segments()
    del lock


def test_no_shared_memory_folder_is_no_error(tmp_path):
    assert segments(tmp_path / "absent") == {}
    assert remove_leftovers({}, tmp_path / "absent") == []


def test_what_stays_because_a_process_hides_is_told(tmp_path, monkeypatch):
    (tmp_path / "psm_left").write_bytes(b"x" * 3_000_000)
    (tmp_path / "of_somebody").write_bytes(b"x")
    assert kept_unseen({}, tmp_path) is None  # every process can be looked into: what nobody holds is simply removed

    def hide(process):
        if process.name == str(os.getpid()):
            raise PermissionError(13, "Permission denied")
        return set()

    monkeypatch.setattr("rlmbench.runner.shared_memory._mapped", hide)
    assert remove_leftovers({}, tmp_path) == []
    told = kept_unseen({}, tmp_path)
    assert told and told.startswith("3.0 MB of shared memory may be left of this run and were not removed"), told
    assert f"process {os.getpid()} (" in told and told.endswith(f"rm {tmp_path / 'psm_left'}"), told
    assert kept_unseen(segments(tmp_path), tmp_path) is None  # nothing new: nothing to tell
