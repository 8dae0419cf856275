"""Reading the lock files that an environment is built from (see tools/lock.py, which writes them)."""

from __future__ import annotations

import re
from pathlib import Path

HASHED = "requirements.txt"
UNHASHED = "unhashed.txt"


def requirement_lines(path: Path) -> list[str]:
    """The requirements of a lock file without their hashes, comments and continuation marks."""
    joined = re.sub(r"\\\n", " ", path.read_text())
    lines = (re.sub(r"\s--hash=\S+", "", line).strip() for line in joined.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def pins(lock_dir: Path) -> dict[str, set[str]]:
    """Versions by distribution name, both files together; more than one where they depend on Python or the machine."""
    found: dict[str, set[str]] = {}
    for name in (HASHED, UNHASHED):
        for line in requirement_lines(lock_dir / name):
            distribution, version = line.split(";")[0].strip().split("==")
            found.setdefault(distribution, set()).add(version)
    return found
