"""Where built environments lie, how they are named, and which of them may be used.

    <cache root>/environments/
        <name>-<device>-<first 12 digits of the key>/   one virtual environment
            rlmbench-environment.json                   the marker: written last, so without it the folder is half-built
        <name>-<device>-<key>.lock                      held by whoever builds it
        logs/<name>-<device>-<key>.log                  pip's output of the latest build

A virtual environment holds absolute paths and cannot be moved, so it is built in place; the marker is what makes it count.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlmbench.adapter import EnvironmentSpec

MARKER = "rlmbench-environment.json"
SCHEMA_VERSION = 1
CACHE_VARIABLE = "RLMBENCH_CACHE"


@dataclass(frozen=True)
class Environment:
    """An interpreter that a framework runs in.

    `key` identifies its content: 64 hex digits over lock files, Python and platform for one that rlmbench built, over
    path and package versions for the user's own. `packages` maps every distribution to its version; `torch` holds
    what torch says of itself (version, cuda, profiler_activities), None without torch; `notes` are differences from
    the specification that do not forbid its use; `build_s` is None for the user's own.
    """

    python: Path
    key: str
    packages: Mapping[str, str]
    python_version: str
    torch: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    build_s: float | None = None


@dataclass(frozen=True)
class State:
    """What the cache holds for one specification. `size_bytes` and `environment` are None when it is not built."""

    spec: EnvironmentSpec
    folder: Path
    environment: Environment | None
    half_built: bool
    size_bytes: int | None


def cache_root() -> Path:
    """The folder for everything rlmbench can make again: $RLMBENCH_CACHE, else the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("rlmbench"))


def key_of(spec: EnvironmentSpec) -> str:
    """64 hex digits over the lock files' content, this Python's version and the platform.

    Raises:
        EnvironmentFailure: a lock file is missing.
    """
    from rlmbench.environment.lockfiles import HASHED, UNHASHED
    from rlmbench.errors import EnvironmentFailure

    digest = hashlib.sha256()
    for part in (platform.python_implementation(), platform.python_version(), sysconfig.get_platform()):
        digest.update(part.encode() + b"\0")
    for name in (HASHED, UNHASHED):
        try:
            digest.update((spec.lock_dir / name).read_bytes() + b"\0")
        except OSError as error:
            raise EnvironmentFailure(f"{spec.name} for {spec.device} cannot be built: no lock file {error.filename}") from error
    return digest.hexdigest()


def folder_of(spec: EnvironmentSpec, cache_dir: Path | None = None) -> Path:
    """Where the environment of `spec` lies once it is built."""
    return _home(cache_dir) / f"{spec.name}-{spec.device}-{key_of(spec)[:12]}"


def lock_path(folder: Path) -> Path:
    """The file whose lock the builder of `folder` holds."""
    return folder.with_name(f"{folder.name}.lock")


def log_path(folder: Path) -> Path:
    """The log of the latest build of `folder`."""
    return folder.parent / "logs" / f"{folder.name}.log"


def find(spec: EnvironmentSpec, cache_dir: Path | None = None) -> Environment | None:
    """The finished environment of `spec`, or None: not built, half-built, or its base interpreter is gone."""
    return load(folder_of(spec, cache_dir))


def load(folder: Path) -> Environment | None:
    """The finished environment in `folder`, or None."""
    try:
        marker = json.loads((folder / MARKER).read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None
    if marker.pop("schema_version", None) != SCHEMA_VERSION:
        return None
    python = folder / "bin" / "python"
    return Environment(**{**marker, "python": python, "notes": tuple(marker["notes"])}) if python.exists() else None


def finish(folder: Path, environment: Environment) -> None:
    """Write the marker that makes `folder` count as built."""
    content = {"schema_version": SCHEMA_VERSION, **asdict(environment)}
    del content["python"]
    partial = folder / f"{MARKER}.partial"
    with partial.open("w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / MARKER)


def discard(folder: Path) -> None:
    """Remove a folder; the marker goes first, so that a removal cut short leaves nothing that counts as built."""
    (folder / MARKER).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def remove(spec: EnvironmentSpec, cache_dir: Path | None = None) -> list[Path]:
    """Remove every build of this name and device, those of earlier lock files and their logs included.

    Returns the environment folders that were there. A build in progress is waited for.
    """
    from rlmbench.environment.exclusive import exclusive

    home = _home(cache_dir)
    removed = []
    for lock in sorted(home.glob(f"{spec.name}-{spec.device}-{'[0-9a-f]' * 12}.lock")):
        folder = lock.with_suffix("")
        with exclusive(lock):
            if folder.exists():
                discard(folder)
                removed.append(folder)
            log_path(folder).unlink(missing_ok=True)
    return removed


def state(spec: EnvironmentSpec, cache_dir: Path | None = None) -> State:
    """Whether `spec` is built here, and how much room it takes."""
    folder = folder_of(spec, cache_dir)
    environment = load(folder)
    return State(spec, folder, environment, environment is None and folder.exists(), size_of(folder) if environment else None)


def size_of(folder: Path) -> int:
    """Bytes that the files below `folder` take on disk; links are not followed."""
    return sum(os.lstat(f"{base}/{name}").st_blocks * 512 for base, _, names in os.walk(folder) for name in names)


def _home(cache_dir: Path | None) -> Path:
    return (cache_dir or cache_root()) / "environments"
