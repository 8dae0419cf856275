"""Measurements of this machine that later runs cite: kept in the cache, one file per kind, name and machine.

A machine is its processor, cores, memory and GPUs; on another one, the measurement has to be made again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from rlmbench.environment.cache import cache_root
from rlmbench.environment.host import devices, host_facts
from rlmbench.files import write_atomically


def keep(kind: str, name: str, text: str) -> Path:
    """Keep `text` (JSON) as the latest measurement of its kind and name on this machine; returns the file."""
    path = _path(kind, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
    return path


def recall(kind: str, name: str) -> str | None:
    """What was kept, or None when nothing was measured on this machine."""
    try:
        return _path(kind, name).read_text()
    except OSError:
        return None


def _path(kind: str, name: str) -> Path:
    return cache_root() / "measured" / kind / f"{name}-{_machine()}.json"


def _machine() -> str:
    host = host_facts()
    facts = [host["cpu_model"], host["cores"], host["memory_bytes"], [gpu["uuid"] for gpu in devices()]]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
