"""What a killed run leaves in shared memory is removed, and nothing else."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import shared_memory

from rlmbench.runner.shared_memory import FOLDER, remove_leftovers, segments


def test_only_new_segments_that_nobody_holds_are_removed():
    old = shared_memory.SharedMemory(create=True, size=4096)
    before = segments()
    held = shared_memory.SharedMemory(create=True, size=4096)
    left = FOLDER / f"psm_left_{os.getpid()}"
    left.write_bytes(b"left behind")
    foreign = FOLDER / f"somebody_elses_{os.getpid()}"
    foreign.write_bytes(b"of another program")
    try:
        assert left.name in remove_leftovers(before)
        assert not left.exists() and foreign.exists()
        assert {old.name, held.name} <= set(segments())
    finally:
        for segment in (old, held):
            segment.close()
            segment.unlink()
        left.unlink(missing_ok=True)
        foreign.unlink()


def test_a_semaphore_in_use_stays():
    """glibc makes a semaphore under another name than the one it is known by, so its name is in nobody's maps."""
    before = segments()
    lock = multiprocessing.get_context("spawn").Lock()
    (name,) = [name for name in set(segments()) - set(before) if name.startswith("sem.mp-")]
    assert name not in remove_leftovers(before)
    assert name in segments()
    del lock


def test_no_shared_memory_folder_is_no_error(tmp_path):
    assert segments(tmp_path / "absent") == {}
    assert remove_leftovers({}, tmp_path / "absent") == []
