"""What a killed run leaves in shared memory is removed, and nothing else."""

from __future__ import annotations

from multiprocessing import shared_memory

from rlmbench.runner.shared_memory import FOLDER, remove_leftovers, segments


def test_only_new_segments_that_nobody_holds_are_removed():
    old = shared_memory.SharedMemory(create=True, size=4096)
    before = segments()
    held = shared_memory.SharedMemory(create=True, size=4096)
    left = FOLDER / f"psm_rlmbench_test_{held.name}"
    left.write_bytes(b"left behind")
    try:
        assert left.name in remove_leftovers(before)
        assert not left.exists()
        assert {old.name, held.name} <= set(segments())
    finally:
        for segment in (old, held):
            segment.close()
            segment.unlink()
        left.unlink(missing_ok=True)


def test_no_shared_memory_folder_is_no_error(tmp_path):
    assert segments(tmp_path / "absent") == {}
    assert remove_leftovers({}, tmp_path / "absent") == []
