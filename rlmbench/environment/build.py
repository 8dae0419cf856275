"""Building an environment from its lock files, once, however many ask for it.

Most of the time goes into hashing and unpacking, so two pips work side by side: torch by version, from whatever index
the user has, and everything else by hash. What torch needs besides (an index's CUDA build brings nvidia packages) is
completed after that, when the hashed packages are there and cannot be replaced. Byte code is left to the check, which
imports what a run imports: compiling all 12,000 files takes longer than all the rest, and a run reads 2,700 of them.
"""

from __future__ import annotations

import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rlmbench.environment import cache, pip
from rlmbench.environment.cache import Environment
from rlmbench.environment.check import (
    Finding,
    differences,
    inspection_command,
    inspection_environment,
    problems,
    read_finding,
)
from rlmbench.environment.exclusive import exclusive
from rlmbench.environment.lockfiles import HASHED, UNHASHED, requirement_lines
from rlmbench.environment.processes import SIGN_OF_LIFE_S, Command, CommandFailed, run_together
from rlmbench.errors import EnvironmentFailure

if TYPE_CHECKING:
    from rlmbench.adapter import EnvironmentSpec

Progress = Callable[[str], None]

# A command rather than a call: on a slow disk it takes long, and has to give signs of life.
_REMOVE = "import shutil, sys; shutil.rmtree(sys.argv[1])"


def ensure(
    spec: EnvironmentSpec,
    *,
    cache_dir: Path | None = None,
    progress: Progress = lambda phase: None,
    rebuild: bool = False,
) -> Environment:
    """The environment of `spec`: the one in the cache, or built now.

    `cache_dir` replaces `cache_root()`. `progress` is told what is being done, at least every 5 s. `rebuild` throws
    away a finished one. Concurrent callers build once: the others wait for the first.

    Raises:
        EnvironmentFailure: it cannot be built, or does not pass its check. Nothing half-built is left.
    """
    folder = cache.folder_of(spec, cache_dir)
    if not rebuild and (built := cache.load(folder)):
        return built
    with exclusive(cache.lock_path(folder), _Waiting(spec, progress)) as lock:
        if not rebuild and (built := cache.load(folder)):
            return built
        return _build_logged(spec, folder, lock, progress)


def _build_logged(spec: EnvironmentSpec, folder: Path, lock: int, progress: Progress) -> Environment:
    """Build with a log; when it fails, remove the half-built folder and name the first error.

    An interrupted build stays half-built, since removing it takes longer than a Ctrl-C should: the next one does that.
    """
    log_path = cache.log_path(folder)
    log_path.parent.mkdir(parents=True, exist_ok=True)
    again = f"see {log_path}; try again with `rlmbench env create {spec.name} --device {spec.device}`"
    try:
        with log_path.open("w") as log:
            try:
                return _build(spec, folder, lock, log, progress)
            except Exception:
                cache.discard(folder)
                raise
    except CommandFailed as failed:
        cause = pip.first_error(failed.output) or (failed.output[-1:] or [f"{failed.command.phase} ended with {failed}"])[0]
        raise EnvironmentFailure(f"{spec.name} for {spec.device} could not be built: {cause}; {again}") from failed
    except OSError as error:
        raise EnvironmentFailure(f"{spec.name} for {spec.device} could not be built: {error}; {again}") from error
    except EnvironmentFailure as error:
        raise EnvironmentFailure(f"{error}; {again}") from error


def _build(spec: EnvironmentSpec, folder: Path, lock: int, log: TextIO, progress: Progress) -> Environment:
    began = time.monotonic()
    python = folder / "bin" / "python"

    def run(*commands: Command) -> list[list[str]]:
        return run_together(commands, cwd=folder.parent, log=log, progress=progress, keep_open=(lock,))

    if folder.exists():
        (folder / cache.MARKER).unlink(missing_ok=True)
        run(Command([sys.executable, "-c", _REMOVE, str(folder)], "removing the earlier build", pip.environment()))
    progress("creating the virtual environment")
    venv.create(folder, symlinks=True)
    hashed, unhashed = requirement_lines(spec.lock_dir / HASHED), requirement_lines(spec.lock_dir / UNHASHED)
    if hashed or unhashed:
        _install(spec, python, hashed, unhashed, run)
    finding = _inspect(spec, python, run)
    if wrong := problems(finding, spec) + differences(finding, spec):
        raise EnvironmentFailure(f"{spec.name} for {spec.device} was built but cannot be used: {'; '.join(wrong)}")
    environment = Environment(
        python=python,
        key=cache.key_of(spec),
        packages=finding.packages,
        python_version=finding.python_version,
        torch=finding.torch,
        build_s=round(time.monotonic() - began, 1),
    )
    cache.finish(folder, environment)
    progress(f"{spec.name} for {spec.device} is ready after {environment.build_s:.0f} s")
    return environment


def _install(spec: EnvironmentSpec, python: Path, hashed: list[str], unhashed: list[str], run: Callable[..., list[list[str]]]) -> None:
    """Install the locked packages, and what those without hashes need besides."""
    if not pip.copy_into(python):
        run(Command([str(python), "-m", "ensurepip"], "installing pip", pip.environment()))
    names = ", ".join(line.partition(" ")[0] for line in unhashed)

    def install(what: str, *arguments: str) -> Command:
        return Command(pip.install_command(python, *arguments), f"installing {what}", pip.environment(), pip.phase)

    by_hash = install(f"{len(hashed)} locked packages", "--no-deps", "--require-hashes", "-r", str(spec.lock_dir / HASHED))
    run(by_hash, *([install(names, "--no-deps", *unhashed)] if unhashed else []))
    if unhashed:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
            constraints.write("\n".join(hashed) + "\n")
            constraints.flush()
            run(install(f"what {names} needs besides", "-c", constraints.name, *unhashed))


def _inspect(spec: EnvironmentSpec, python: Path, run: Callable[..., list[list[str]]]) -> Finding:
    def phase(line: str) -> str | None:
        return f"checking: {line}" if line.startswith("importing ") else None

    env = {name: value for name, value in inspection_environment().items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    [output] = run(Command(inspection_command(python, spec.check_imports), "checking imports", env, phase))
    finding = read_finding("\n".join(output))
    if finding is None:
        raise EnvironmentFailure(f"{spec.name} for {spec.device} was built but its check gave no answer")
    return finding


class _Waiting:
    """Says every few seconds that somebody else is building."""

    def __init__(self, spec: EnvironmentSpec, progress: Progress) -> None:
        self._text = f"waiting for another process that builds {spec.name} for {spec.device}"
        self._progress = progress
        self._next_at = 0.0

    def __call__(self) -> None:
        if time.monotonic() >= self._next_at:
            self._progress(self._text)
            self._next_at = time.monotonic() + SIGN_OF_LIFE_S
