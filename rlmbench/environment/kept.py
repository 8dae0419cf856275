"""Measurements of this machine that later runs cite: kept in the cache, one file per kind, name and machine.

A machine is its processor, cores, memory and GPUs; on another one, the measurement has to be made again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from rlmbench.environment.cache import cache_root
from rlmbench.environment.host import devices, host_facts
from rlmbench.errors import UserError
from rlmbench.files import write_atomically


def keep(kind: str, name: str, text: str) -> Path:
    """Keep `text` (JSON) as the latest measurement of its kind and name on this machine; returns the file.

    Raises:
        UserError: it cannot be written.
    """
    path = _path(kind, name)
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise UserError(f"{path}: what was measured could not be kept: {error.strerror}; RLMBENCH_CACHE names another cache") from None
    return path


def recall(kind: str, name: str) -> str | None:
    """What was kept, or None when nothing was measured on this machine (or the file cannot be read)."""
    try:
        return _path(kind, name).read_text()
    except (OSError, UnicodeDecodeError):
        return None


def _path(kind: str, name: str) -> Path:
    this = hashlib.sha256(json.dumps(machine()).encode()).hexdigest()[:12]
    return cache_root() / "measured" / kind / f"{name}-{this}.json"


def machine() -> list[Any]:
    """What makes this machine itself, for whatever is measured on it: processor, cores, memory in bytes, UUIDs of its GPUs."""
    host = host_facts()
    return [host["cpu_model"], host["cores"], host["memory_bytes"], [gpu["uuid"] for gpu in devices()]]
