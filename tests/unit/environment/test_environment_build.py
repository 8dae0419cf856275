"""Building: once, never half, and failures by their first error."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rlmbench.adapter import EnvironmentSpec
from rlmbench.environment import Environment, ensure, find, folder_of, remove, state
from rlmbench.environment.cache import MARKER
from rlmbench.errors import EXIT_ENVIRONMENT, EnvironmentFailure

MakeSpec = Callable[..., EnvironmentSpec]


@pytest.mark.usefixtures("offline_pip")
def test_two_callers_build_once_over_what_a_killed_build_left(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec, cache = make_spec(), tmp_path / "cache"
    half_built = folder_of(spec, cache)
    (half_built / "lib").mkdir(parents=True)
    (half_built / "lib" / "left_over.py").write_text("")
    assert find(spec, cache) is None
    assert state(spec, cache).half_built

    phases: list[str] = []
    results: list[Environment] = []
    threads = [threading.Thread(target=lambda: results.append(ensure(spec, cache_dir=cache, progress=phases.append))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)

    assert phases.count("creating the virtual environment") == 1
    assert any(phase.startswith("waiting for another process") for phase in phases)
    assert results[0] == results[1] == find(spec, cache)
    assert not (half_built / "lib" / "left_over.py").exists()
    environment = results[0]
    assert environment.packages["toyframework"] == "1.2.0"
    assert environment.torch is None
    answer = subprocess.run([environment.python, "-c", "import toyframework; print(toyframework.ANSWER)"], capture_output=True, check=True)
    assert answer.stdout == b"42\n"
    assert state(spec, cache).size_bytes

    # Killed while it is rebuilt: the marker is gone, so the folder does not count any more.
    marker = half_built / MARKER
    assert json.loads(marker.read_text())["key"] == environment.key
    marker.unlink()
    assert find(spec, cache) is None

    assert remove(spec, cache) == [half_built]
    assert not half_built.exists()
    assert remove(spec, cache) == []


@pytest.mark.usefixtures("offline_pip")
def test_failed_build_names_its_first_error_and_leaves_nothing(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec, cache = make_spec(version="9.9.9"), tmp_path / "cache"
    with pytest.raises(EnvironmentFailure) as caught:
        ensure(spec, cache_dir=cache)
    message = str(caught.value)
    assert caught.value.exit_code == EXIT_ENVIRONMENT
    assert "Could not find a version that satisfies the requirement toyframework==9.9.9 (from versions: 1.2.0)" in message
    assert "No matching distribution" not in message
    assert "rlmbench env create toy --device cpu" in message
    assert "\n" not in message
    folder = folder_of(spec, cache)
    assert not folder.exists()
    log = folder.parent / "logs" / f"{folder.name}.log"
    assert str(log) in message
    assert "No matching distribution" in log.read_text()


def test_missing_lock_file_is_named(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec()
    (spec.lock_dir / "unhashed.txt").unlink()
    with pytest.raises(EnvironmentFailure, match=r"no lock file .*unhashed\.txt"):
        ensure(spec, cache_dir=tmp_path)
