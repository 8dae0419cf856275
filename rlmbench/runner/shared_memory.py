"""Shared memory that a run's processes leave in /dev/shm when they are killed: found by comparing before and after."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path("/dev/shm")


def segments(folder: Path = FOLDER) -> dict[str, int]:
    """Name -> inode of every segment there."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.inode() for entry in entries}
    except OSError:
        return {}


def remove_leftovers(before: dict[str, int], folder: Path = FOLDER) -> list[str]:
    """Remove what appeared since `before`, is this user's, and no living process holds; returns the names.

    Another program of the same user may have made segments meanwhile: what any process has open or mapped stays.
    """
    removed = []
    for name, inode in segments(folder).items():
        path = folder / name
        try:
            status = path.lstat()
            mine = status.st_uid == os.getuid() and before.get(name) != inode
            if mine and not _is_held(str(path)):
                path.unlink()
                removed.append(name)
        except OSError:  # gone meanwhile, or a folder
            continue
    return removed


def _is_held(path: str) -> bool:
    """Whether any process that we may look into has `path` mapped or open."""
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if path in (process / "maps").read_text(errors="replace"):
                return True
            if any(os.readlink(descriptor) == path for descriptor in (process / "fd").iterdir()):
                return True
        except OSError:  # ended meanwhile, or somebody else's
            continue
    return False
