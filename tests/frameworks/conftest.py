"""Real runs of real frameworks, through the command line as a user would start them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rlmbench


@dataclass(frozen=True)
class Result:
    """What a command left: exit code, output, and the JSON object of its last line (None if it printed none)."""

    returncode: int
    stdout: str
    stderr: str
    document: dict[str, Any] | None
    folder: Path

    @property
    def run(self) -> dict[str, Any]:
        """The figures of the only run."""
        assert self.document is not None, self.stderr[-4000:]
        (run,) = self.document["runs"]
        return run

    @property
    def record(self) -> Any:
        """The record of the only run."""
        return rlmbench.load(self.folder / self.run["path"])

    def ok(self) -> Result:
        """This result, which must be that of a run that ended well."""
        assert self.returncode == 0, self.stderr[-4000:]
        assert (self.run["status"], self.run["audit"]["ok"], self.run["violations"]) == ("ok", True, [])
        return self


@dataclass(frozen=True)
class All:
    """One command with every framework: its result, and each framework's figures and record by name; `profiles` are those of its profile run."""

    result: Result
    figures: dict[str, dict[str, Any]]
    left_in_temporary: list[str]
    records: dict[str, Any]
    profiles: dict[str, tuple[dict[str, Any], Any]]


@pytest.fixture(scope="session")
def all_grpo(tmp_path_factory: pytest.TempPathFactory) -> All:
    """GRPO with every framework in one campaign, three steps, in strict order: one run of each, which several tests read, and a profile run."""
    folder = tmp_path_factory.mktemp("all")
    fields = {"measurement__steps": 3, "measurement__strict_order": True, "measurement__wall_timeout_s": FIRST_RUN_TIMEOUT_S}
    temporary = Path(tempfile.mkdtemp(prefix="all-"))  # short: sockets lie in it
    arguments = ("gsm8k_grpo", "--framework", "all", *settings(**fields), "--profile")
    result = run_command(folder, arguments, {"TMPDIR": str(temporary)}, timeout_s=2 * FIRST_RUN_TIMEOUT_S)
    left = sorted(path.name for path in temporary.rglob("*"))
    shutil.rmtree(temporary)
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.document is not None
    of_pass = {which: [run for run in result.document["runs"] if run["run_pass"] == which] for which in ("measure", "profile")}
    figures = {run["framework"]: run for run in of_pass["measure"]}
    records = {name: rlmbench.load(folder / run["path"]) for name, run in figures.items()}
    profiles = {run["framework"]: (run, rlmbench.load(folder / run["path"])) for run in of_pass["profile"]}
    return All(result, figures, left, records, profiles)


@pytest.fixture
def rlmbench_run(tmp_path: Path) -> Callable[..., Result]:
    """``rlmbench run <arguments> --json`` in a folder of its own."""

    def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
        return run_command(tmp_path, arguments, env)

    return run


def run_command(folder: Path, arguments: Sequence[str], env: dict[str, str] | None = None, timeout_s: float = 1500) -> Result:
    """``rlmbench run <arguments> --json`` in `folder`."""
    command = [sys.executable, "-m", "rlmbench", "run", *arguments, "--json"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    lines = done.stdout.splitlines()
    document = json.loads(lines[-1]) if lines else None
    return Result(done.returncode, done.stdout, done.stderr, document, folder)


def settings(**fields: Any) -> list[str]:
    """``--set`` arguments; a double underscore stands for a dot."""
    return [word for name, value in fields.items() for word in ("--set", f"{name.replace('__', '.')}={json.dumps(value)}")]


FIRST_RUN_TIMEOUT_S = 1200.0
"""The first run in a fresh OpenRLHF environment compiles DeepSpeed's operators: 3 minutes of processor time."""

SHORT = settings(measurement__steps=2, workload__prompts_per_step=4, optimization__mini_batch_samples=16)
"""Two steps of 16 samples: enough to train, be measured and be audited."""
