"""The README's first command, in a fresh copy of the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.frameworks.conftest import SHORT

ROOT = Path(__file__).parents[2]


def quickstart(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`scripts/quickstart`, called from elsewhere and without a terminal, as another program would."""
    command = [str(checkout / "scripts" / "quickstart"), *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    return subprocess.run(
        command, cwd="/", env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False
    )


def test_a_fresh_copy_comes_to_a_report_and_installs_once(tmp_path: Path) -> None:
    checkout = tmp_path / "check out"  # a path with a space is a path
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".*", "__pycache__", "results", "reports", "tests"))
    done = quickstart(checkout, "--json", *SHORT)
    assert done.returncode == 0, done.stderr[-4000:]
    (run,) = json.loads(done.stdout.splitlines()[-1])["runs"]
    assert (run["suite"], run["framework"], run["status"], run["audit"]["ok"]) == ("gsm8k_grpo", "trl", "ok", True)
    assert (checkout / "reports" / f"{run['id']}.html").stat().st_size > 10_000
    assert (checkout / ".venv" / "rlmbench-stamp").read_text().startswith("locked ")
    assert "rlmbench · " in done.stderr  # a sign of life while packages are installed

    again = quickstart(checkout, "--dry-run")
    assert again.returncode == 0, again.stderr[-4000:]
    assert "rlmbench · " not in again.stderr


def test_no_suitable_python_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".*", "__pycache__", "results", "reports", "tests"))
    command = [str(checkout / "scripts" / "quickstart")]
    done = subprocess.run(command, env={**os.environ, "PYTHON": "/nowhere/python"}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: no Python 3.11 or newer with venv (tried: /nowhere/python);")
    assert "apt-get install python3 python3-venv" in line
