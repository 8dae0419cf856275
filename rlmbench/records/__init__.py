"""What a run leaves on disk, and how to read it again (docs/records.md)."""

from rlmbench.records.manifest import (
    MANIFEST,
    EnvironmentRecord,
    Failure,
    Manifest,
    ProcessLaunch,
    Times,
    Versions,
    read_manifest,
    write_manifest,
)
from rlmbench.records.store import LATEST, Run, find_run, list_runs, load
from rlmbench.records.supervisor import Supervisor

__all__ = [
    "LATEST",
    "MANIFEST",
    "EnvironmentRecord",
    "Failure",
    "Manifest",
    "ProcessLaunch",
    "Run",
    "Supervisor",
    "Times",
    "Versions",
    "find_run",
    "list_runs",
    "load",
    "read_manifest",
    "write_manifest",
]
