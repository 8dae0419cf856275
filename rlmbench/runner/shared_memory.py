"""Shared memory that a run's processes leave in /dev/shm when they are killed: found by comparing before and after."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path("/dev/shm")
OURS = ("psm_", "sem.mp-", "torch_", "vllm_dist_", "verl_weights_")
"""Names that Python's multiprocessing, torch, vLLM's CPU communicator and verl's weight transfer give: what the frameworks leave. Other programs'
are not touched."""

Inode = tuple[int, int]


def segments(folder: Path = FOLDER) -> dict[str, int]:
    """Name -> inode of every segment there."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.inode() for entry in entries}
    except OSError:
        return {}


def remove_leftovers(before: Mapping[str, int], folder: Path = FOLDER, made_until_unix_s: float | None = None) -> list[str]:
    """Remove what appeared since `before` (and not after `made_until_unix_s`), is this user's, and no living process holds; returns the names.

    Another program of the same user may have made segments meanwhile: what any process has open or mapped stays, and
    so does everything while there is a process of this user that cannot be looked into.
    """
    removed = []
    for name in leftovers(before, folder, made_until_unix_s):
        try:
            (folder / name).unlink()
        except OSError:  # gone meanwhile, or a folder
            continue
        removed.append(name)
    return removed


def leftovers(before: Mapping[str, int], folder: Path = FOLDER, made_until_unix_s: float | None = None) -> list[str]:
    """What appeared since `before` under one of the names in `OURS`, is this user's, and is held by no living process."""
    new = _appeared(before, folder, made_until_unix_s)
    try:
        held = _held() if new else set()
    except _HiddenError:
        return []
    return [name for name, status in new.items() if (status.st_dev, status.st_ino) not in held]


def kept_unseen(before: Mapping[str, int], folder: Path = FOLDER) -> str | None:
    """Why segments that appeared since `before` stay though nobody may hold them, in a sentence; None where none does."""
    new = _appeared(before, folder, None)
    try:
        if new:
            _held()
        return None
    except _HiddenError as hidden:
        size_mb = sum(status.st_blocks for status in new.values()) * 512 / 1e6
        return (
            f"{size_mb:.1f} MB of shared memory may be left of this run and were not removed, since process {hidden} does not show "
            f"what it uses; if nothing else needs them: rm {' '.join(str(folder / name) for name in new)}"
        )


def _appeared(before: Mapping[str, int], folder: Path, made_until_unix_s: float | None) -> dict[str, os.stat_result]:
    """What appeared since `before` (and not after `made_until_unix_s`) under one of the names in `OURS`, and is this user's."""
    found = {}
    for name, inode in segments(folder).items():
        if not name.startswith(OURS) or before.get(name) == inode:
            continue
        try:
            status = (folder / name).lstat()
        except OSError:  # gone meanwhile
            continue
        if status.st_uid == os.getuid() and (made_until_unix_s is None or status.st_ctime <= made_until_unix_s):
            found[name] = status
    return found


class _HiddenError(Exception):
    """A process of this user cannot be looked into."""


def _held() -> set[Inode]:
    """(device, inode) of every file that a process of this user has mapped or open; `_HiddenError` if one of them hides it.

    Inodes, since the name in /proc/<pid>/maps is the one the file was made under: glibc makes a semaphore under a
    temporary name and links it to its own afterwards.
    """
    held: set[Inode] = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or process.name == "1":  # a container's init hides itself, and trains nothing
            continue
        try:
            if process.stat().st_uid != os.getuid():
                continue
            held |= _mapped(process)
            held |= _opened(process)
        except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
            continue
        except OSError:
            raise _HiddenError(f"{process.name} ({_command(process)})") from None
    return held


def _command(process: Path) -> str:
    try:
        return (process / "comm").read_text(errors="replace").strip()
    except OSError:
        return "ended meanwhile"


def _mapped(process: Path) -> set[Inode]:
    """From lines such as ``7f1c-7f1d rw-s 00000000 00:1a 42 /dev/shm/name`` (proc_pid_maps(5))."""
    found = set()
    for line in (process / "maps").read_text(errors="replace").splitlines():
        device, inode = line.split(maxsplit=5)[3:5]
        if inode != "0":
            major, minor = (int(part, 16) for part in device.split(":"))
            found.add((os.makedev(major, minor), int(inode)))
    return found


def _opened(process: Path) -> set[Inode]:
    found = set()
    for descriptor in (process / "fd").iterdir():
        try:
            status = descriptor.stat()
        except OSError:  # closed meanwhile, or a kind that has no file behind it
            continue
        found.add((status.st_dev, status.st_ino))
    return found
