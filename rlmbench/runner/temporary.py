"""Folders for temporary files that go with the process that made them: at its end or, where it was killed, when rlmbench next makes one.

Each holds a mark on which its maker keeps a lock. The kernel lets go of the lock when the maker has ended, however that happened, so neither
reused process ids nor other process namespaces nor a restart of the machine can make a living folder look abandoned. One that a process
still uses is left for later. The mark also says what else the maker's processes may leave behind. Nothing is removed but what this user
owns and rlmbench has marked, and no link is followed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlmbench.runner.shared_memory import remove_leftovers

PREFIX = "rlmbench-"
MARK = ".rlmbench-mark"
LONGEST_MARK_BYTES = 1 << 20
SIGNS_OF_LIFE = ("probe", "logs", "collector")
"""Folders below a run's own in which files grow as long as it lives."""
ENDING_S = 10.0
"""So long a run's processes may outlive its last sign of life."""


@dataclass(frozen=True)
class Belongings:
    """What a run makes outside its temporary folder: its own folder `run_dir`, other `folders`, and the segments of shared memory that are not among
    `shared_before` (name -> inode)."""

    run_dir: str = ""
    folders: Sequence[str] = ()
    shared_before: Mapping[str, int] = field(default_factory=dict)


@contextmanager
def temporary_folder(kind: str = "", belongings: Belongings | None = None) -> Iterator[str]:
    """A new folder, removed with all in it on leaving; `kind` becomes a part of its name."""
    with (
        ExitStack() as last,  # the lock goes last: until the folder is gone, nobody else may take it for left
        tempfile.TemporaryDirectory(prefix=f"{PREFIX}{kind}", ignore_cleanup_errors=True) as folder,
    ):
        last.callback(os.close, _mark(Path(folder), belongings or Belongings()))
        yield folder


def _mark(folder: Path, belongings: Belongings) -> int:
    """The mark's descriptor, which holds the lock. Where files cannot be locked there is no mark, and what a kill leaves stays."""
    new = folder / f"{MARK}.new"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write(descriptor, json.dumps({"rlmbench": 1, **asdict(belongings)}).encode())
        new.rename(folder / MARK)  # under its name it is locked from the first moment on
    return descriptor


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def remove_abandoned(root: Path | None = None) -> list[Path]:
    """Remove the folders in `root` (by default that of temporary files) whose makers have ended, with their belongings. Returns them."""
    root = root or Path(tempfile.gettempdir())
    try:
        with os.scandir(root) as entries:
            found = [Path(entry.path) for entry in entries if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [folder for folder in sorted(found) if _remove_if_abandoned(folder)]


def _remove_if_abandoned(folder: Path) -> bool:
    descriptors: list[int] = []
    try:
        descriptors.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
        descriptors.append(os.open(MARK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptors[0]))
        opened, mark = (os.fstat(descriptor) for descriptor in descriptors)
        if {opened.st_uid, mark.st_uid} != {os.getuid()} or not stat.S_ISREG(mark.st_mode):
            return False
        fcntl.flock(descriptors[1], fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while its maker lives
        belongings = _parsed(os.read(descriptors[1], LONGEST_MARK_BYTES))
        gone = os.fstat(descriptors[1]).st_nlink == 0  # its maker, or another rlmbench, removed it before the lock was ours
        if gone or belongings is None or _in_use([folder, *_marked_folders(belongings)]):
            return False
        _remove(belongings)
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    except OSError:
        return False
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _in_use(folders: Sequence[Path]) -> bool:
    """Whether a process names one of them or works in it: one of a run that is just being ended, or a run that writes its results there."""
    names = [os.fsencode(folder) for folder in folders]
    processes = [Path("/proc", name) for name in os.listdir("/proc") if name.isdecimal()]
    return any(name in told for process in processes for told in _told_by(process) for name in names)


def _told_by(process: Path) -> Iterator[bytes]:
    """Its environment, its arguments and the folder in which it works; not what is hidden from us, or gone."""
    for file in ("environ", "cmdline"):
        with suppress(OSError):
            yield (process / file).read_bytes()
    with suppress(OSError):
        yield os.fsencode(os.readlink(process / "cwd"))


def _parsed(text: bytes) -> Belongings | None:
    """None for what is no mark of ours."""
    try:
        mark: Any = json.loads(text)
        known = Belongings(
            str(mark["run_dir"]), [str(name) for name in mark["folders"]], {str(k): int(v) for k, v in mark["shared_before"].items()}
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return known if mark.get("rlmbench") == 1 else None


def _marked_folders(belongings: Belongings) -> list[Path]:
    """Without what no rlmbench would have named."""
    return [folder for folder in map(Path, belongings.folders) if folder.is_absolute() and folder.name.startswith(PREFIX)]


def _remove(belongings: Belongings) -> None:
    run_dir = Path(belongings.run_dir)
    for folder in _marked_folders(belongings):
        _remove_own(folder)
    if belongings.run_dir and (run_dir / "manifest.json").is_file():
        _remove_own(run_dir / "scratch")
        last = _last_sign_unix_s(run_dir)
        if last is not None:
            remove_leftovers(belongings.shared_before, made_until_unix_s=last + ENDING_S)


def _remove_own(folder: Path) -> None:
    """A folder of this user's; not where a link stands in its place."""
    with suppress(OSError):
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


def _last_sign_unix_s(run_dir: Path) -> float | None:
    """When the run last wrote anything."""
    times = []
    for name in SIGNS_OF_LIFE:
        with suppress(OSError), os.scandir(run_dir / name) as entries:
            times += [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
    return max(times, default=None)
