"""Does an interpreter hold what an environment's specification asks for?"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlmbench.environment.cache import Environment
from rlmbench.errors import EnvironmentFailure, UserError

if TYPE_CHECKING:
    from rlmbench.adapter import EnvironmentSpec

CHECK_TIMEOUT_S = 600.0
_INSPECTION = Path(__file__).with_name("inspection.py")


@dataclass(frozen=True)
class Finding:
    """What an interpreter says of itself: `failures` maps a module that cannot be imported to its error and traceback."""

    python_version: str
    packages: Mapping[str, str]
    failures: Mapping[str, Mapping[str, str]]
    torch: Mapping[str, Any] | None


def inspection_command(python: Path, modules: tuple[str, ...]) -> list[str]:
    """The command that prints a `Finding` for `python` as its last line.

    The source is handed over by ``-c``: run as a file, its folder would come first on the import path.
    """
    return [str(python), "-c", _INSPECTION.read_text(), *modules]


def inspection_environment() -> dict[str, str]:
    """The environment to inspect in: the user's own, with one thread, no look at the hub, and byte code kept."""
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"}
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | quiet


def read_finding(output: str) -> Finding | None:
    """The finding in the last line of the inspection's output; None when it ended before printing one."""
    lines = output.strip().splitlines()
    try:
        return Finding(**json.loads(lines[-1]))
    except (IndexError, TypeError, json.JSONDecodeError):
        return None


def inspect(python: Path, modules: tuple[str, ...]) -> Finding:
    """Ask `python` what it holds, importing `modules` there.

    Raises:
        EnvironmentFailure: it cannot be started, or ends without an answer.
    """
    command = inspection_command(python, modules)
    try:
        # The root folder as working folder: whatever lies in the user's must not stand in for an installed package.
        ended = subprocess.run(
            command, env=inspection_environment(), cwd="/", capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False
        )
    except OSError as error:
        raise EnvironmentFailure(f"{python} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailure(f"{python} did not finish importing {', '.join(modules)} within {CHECK_TIMEOUT_S:.0f} s") from error
    finding = read_finding(ended.stdout)
    if finding is None:
        how = f"signal {-ended.returncode}" if ended.returncode < 0 else f"exit code {ended.returncode}"
        last = (ended.stderr or ended.stdout).strip().splitlines()[-1:] or ["no output"]
        raise EnvironmentFailure(f"{python} ended with {how} while importing {', '.join(modules)}: {last[0]}")
    return finding


def problems(finding: Finding, spec: EnvironmentSpec) -> list[str]:
    """What forbids running `spec` with this interpreter: a missing package or another major version, else a failed import.

    Only the first failed import is named: those after it mostly fail for the same reason.
    """
    found = []
    for name, wanted in spec.versions.items():
        have = finding.packages.get(name)
        if have is None:
            found.append(f"{name} is not installed, {wanted} is needed")
        elif _major(have) != _major(wanted):
            found.append(f"{name} is {have}, not {wanted}: another major version")
    if not found and finding.failures:
        module, failure = next(iter(finding.failures.items()))
        found.append(f"import {module} fails: {failure['error'].splitlines()[0]}")
    return found


def differences(finding: Finding, spec: EnvironmentSpec) -> list[str]:
    """Other versions than the specification's, build suffixes such as ``+cpu`` aside."""
    return [
        f"{name} is {have}, not {wanted}"
        for name, wanted in spec.versions.items()
        if (have := finding.packages.get(name)) is not None and _release(have) != wanted and _major(have) == _major(wanted)
    ]


def check(subject: Environment | Path, spec: EnvironmentSpec) -> list[str]:
    """Every reason why `subject` cannot run `spec`; empty when it can. An environment built here must match exactly.

    Raises:
        EnvironmentFailure: its interpreter cannot be started, or ends without an answer.
    """
    built_here = isinstance(subject, Environment) and subject.build_s is not None
    finding = inspect(subject.python if isinstance(subject, Environment) else subject, spec.check_imports)
    return problems(finding, spec) + (differences(finding, spec) if built_here else [])


def use_python(path: str | Path, spec: EnvironmentSpec, progress: Callable[[str], None] = lambda phase: None) -> Environment:
    """The user's own interpreter as an environment, once it passes the check.

    `path` is an interpreter, the folder of a virtual environment, or a command on the PATH. Other minor versions than
    the specification's are allowed and listed in the environment's `notes`.

    Raises:
        UserError: there is no such interpreter.
        EnvironmentFailure: it lacks a package, has another major version of one, or cannot import what is needed.
    """
    python = _interpreter(path)
    progress(f"checking {python}: importing {', '.join(spec.check_imports)}")
    finding = inspect(python, spec.check_imports)
    notes = tuple(differences(finding, spec))
    if wrong := problems(finding, spec):
        causes = "; ".join(dict.fromkeys([*wrong, *notes]))
        raise EnvironmentFailure(f"{python} cannot run {spec.name}: {causes}; without --python rlmbench builds an environment of its own")
    content = json.dumps([str(python), finding.python_version, dict(finding.packages)])
    return Environment(
        python=python,
        key=hashlib.sha256(content.encode()).hexdigest(),
        packages=finding.packages,
        python_version=finding.python_version,
        torch=finding.torch,
        notes=notes,
    )


def _interpreter(path: str | Path) -> Path:
    """The absolute path of an interpreter; links are kept, since a virtual environment is known by its link's place."""
    given = Path(path).expanduser()
    if given.is_dir():
        given = given / "bin" / "python"
    found = shutil.which(str(given))
    if found is None:
        raise UserError(f"no executable Python at {given}: give an interpreter, a virtual environment's folder or a command on the PATH")
    return Path(found).absolute()


def _release(version: str) -> str:
    return version.partition("+")[0]


def _major(version: str) -> str:
    return _release(version).partition(".")[0]
