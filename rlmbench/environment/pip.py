"""pip in an environment under construction: how it gets there, how it is started, and what its output means.

pip itself rather than a faster installer: it alone honours the user's whole pip configuration (indexes, find-links,
constraints, proxies), and that decides which build of torch is taken.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
from collections.abc import Sequence
from importlib.util import cache_from_source
from itertools import takewhile
from pathlib import Path

# Settings that would send packages somewhere else than into the environment, silence the output read here, or forbid byte code.
_MISDIRECTING = frozenset(
    {"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_QUIET", "PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"}
)
# With rlmbench killed pip must not go on writing: the kernel ends it too (PR_SET_PDEATHSIG is 1, SIGKILL is 9).
_START = "import ctypes, runpy; ctypes.CDLL(None).prctl(1, 9); runpy.run_module('pip', run_name='__main__', alter_sys=True)"
# The check after the build writes byte code, for what a run imports and not for all there is.
_OPTIONS = ("--no-input", "--no-color", "--progress-bar=off", "--disable-pip-version-check", "--no-compile")
_PROCESSING = re.compile(r"^Processing (?P<path>\S+)")
_DOWNLOADING = re.compile(r"^\s*(?P<verb>Downloading|Using cached) (?P<file>\S+)(?P<size> \([^)]+\))?")
_INSTALLING = re.compile(r"^Installing collected packages: (?P<names>.+)")
_ERROR = re.compile(r"^\s*(?:ERROR|error): (?P<message>.+)")
# pip prints this as an error before the one that stopped it.
_NOT_A_CAUSE = "Ignored the following"
_CONFLICT = "The conflict is caused by:"
_LONGEST_MESSAGE = 300


def copy_into(python: Path) -> bool:
    """Copy the pip beside rlmbench, and its environment's pip.conf, into the virtual environment of `python`.

    A copy takes a tenth of the time of installing Python's bundled pip, and a newer pip installs faster than that one.
    Returns False when there is no pip beside rlmbench.
    """
    prefix = python.parent.parent
    configuration = Path(sys.prefix) / "pip.conf"
    if sys.prefix != sys.base_prefix and configuration.exists():
        shutil.copyfile(configuration, prefix / "pip.conf")
    try:
        files = importlib.metadata.distribution("pip").files or []
    except importlib.metadata.PackageNotFoundError:
        return False
    site = site_packages(prefix)
    for file in files:
        source = Path(str(file.locate()))
        if file.parts[0] != ".." and source.exists():
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, site / file)  # with its time stamp, or its byte code would be stale
            compiled = Path(cache_from_source(str(source)))
            if source.suffix == ".py" and compiled.exists():  # where pip has run before: compiling it takes longer than its copy
                (site / file).with_name("__pycache__").mkdir(exist_ok=True)
                shutil.copy2(compiled, (site / file).with_name("__pycache__") / compiled.name)
    return bool(files)


def site_packages(prefix: Path) -> Path:
    """Where packages lie in the virtual environment at `prefix`."""
    return next((prefix / "lib").glob("python3*")) / "site-packages"


def install_command(python: Path, *arguments: str) -> list[str]:
    """The command that installs `arguments` into the environment of `python`, and ends when its parent does."""
    return [str(python), "-c", _START, "install", *_OPTIONS, *arguments]


def environment() -> dict[str, str]:
    """The user's environment variables, less those that would misdirect pip."""
    return {name: value for name, value in os.environ.items() if name not in _MISDIRECTING}


def phase(line: str) -> str | None:
    """What a line of pip's output says is being done now, or None."""
    if found := _DOWNLOADING.match(line):
        verb = "downloading" if found["verb"] == "Downloading" else "taking from pip's cache"
        return f"{verb} {found['file'].rpartition('/')[2]}{found['size'] or ''}"
    if found := _PROCESSING.match(line):
        return f"reading {found['path'].rpartition('/')[2]}"
    if found := _INSTALLING.match(line):
        names = found["names"].split(", ")
        return f"installing {names[0]}" if len(names) == 1 else f"installing {len(names)} packages: {', '.join(names[:4])}, ..."
    return None


def first_error(lines: Sequence[str]) -> str | None:
    """The first error in pip's output as one readable line, with the packages it is about. Later ones are its consequences."""
    for number, line in enumerate(lines):
        found = _ERROR.match(line)
        if found is None or found["message"].startswith(_NOT_A_CAUSE):
            continue
        message = found["message"].strip()
        following = [line.strip() for line in lines[number + 1 :]]
        if "DO NOT MATCH THE HASHES" in message and following:
            message = f"another file than the locked one (its hash differs): {following[0].rstrip(':')}"
        elif _CONFLICT in following:
            parties = takewhile(bool, following[following.index(_CONFLICT) + 1 :])
            message = f"{message.rstrip('.')}: {'; '.join(parties)}"
        # The list of versions that do exist can fill pages.
        return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE].rstrip(', ')} ..."
    return None
