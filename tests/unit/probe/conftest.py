"""The probe as a framework's process sees it: an interpreter with the inject folder first on its path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlmbench.probe import probe_environment

ADAPTER_SIDE = """
from rlmbench_probe import Gap, Hook, after_import, recorder

def role():
    return "driver"
"""


@dataclass(frozen=True)
class Probed:
    """What a probed process left behind. `events` are those of all its files, in file order."""

    returncode: int
    stdout: str
    stderr: str
    events: list[dict]
    files: list[Path]

    def of(self, ev: str) -> list[dict]:
        return [event for event in self.events if event["ev"] == ev]


@pytest.fixture
def probed(tmp_path: Path) -> Callable[..., Probed]:
    """Run a script as a framework's process: `framework` is an importable module, `hooks` what the adapter adds."""

    def run(script: str, *, framework: str = "", hooks: str = "def hooks(): return []", spans: bool = True) -> Probed:
        roots = tmp_path / "roots"
        roots.mkdir(exist_ok=True)
        (roots / "framework.py").write_text(textwrap.dedent(framework))
        (roots / "side.py").write_text(ADAPTER_SIDE + textwrap.dedent(hooks))
        (tmp_path / "main.py").write_text(textwrap.dedent(script))
        folder = tmp_path / "probe"
        folder.mkdir(exist_ok=True)
        env = {**os.environ, **probe_environment(folder, "side", enabled=spans, synchronize=False, roots=[roots])}
        done = subprocess.run([sys.executable, str(tmp_path / "main.py")], env=env, capture_output=True, text=True, timeout=60, check=False)
        files = sorted(folder.iterdir())
        events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return Probed(done.returncode, done.stdout, done.stderr, events, files)

    return run
