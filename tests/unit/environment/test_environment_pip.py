"""pip's output, as pip 23 and 26 print it."""

from __future__ import annotations

import importlib.metadata
import py_compile
import sys
from importlib.util import cache_from_source
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlmbench.environment import pip


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("  Downloading trl-1.16.0-py3-none-any.whl.metadata (12 kB)", "downloading trl-1.16.0-py3-none-any.whl.metadata (12 kB)"),
        ("Downloading numpy-2.4.6-cp311-cp311-manylinux.whl (16.4 MB)", "downloading numpy-2.4.6-cp311-cp311-manylinux.whl (16.4 MB)"),
        ("  Using cached rich-15.0.0-py3-none-any.whl (310 kB)", "taking from pip's cache rich-15.0.0-py3-none-any.whl (310 kB)"),
        ("Processing /wheels/torch-2.13.0+cpu-cp311.whl", "reading torch-2.13.0+cpu-cp311.whl"),
        ("Installing collected packages: torch", "installing torch"),
        ("Installing collected packages: a, b, c, d, e, f", "installing 6 packages: a, b, c, d, ..."),
        ("Collecting trl==1.16.0 (from -r requirements.txt (line 7))", None),
        ("WARNING: Location 'file:///somewhere/' is ignored: it is neither a file nor a directory.", None),
    ],
)
def test_phase(line: str, phase: str | None) -> None:
    assert pip.phase(line) == phase


def test_first_error_is_the_cause_and_not_the_last_line() -> None:
    output = [
        "Looking in links: /wheels",
        "WARNING: Location 'file:///somewhere/' is ignored: it is neither a file nor a directory.",
        "ERROR: Could not find a version that satisfies the requirement torch==99 (from versions: 2.13.0)",
        "ERROR: No matching distribution found for torch==99",
    ]
    assert pip.first_error(output) == "Could not find a version that satisfies the requirement torch==99 (from versions: 2.13.0)"


def test_first_error_of_a_failed_source_build() -> None:
    assert (
        pip.first_error(["Collecting x", "  error: subprocess-exited-with-error", "ERROR: Failed to build x"])
        == "subprocess-exited-with-error"
    )


def test_versions_for_other_pythons_are_not_the_cause() -> None:
    output = ["ERROR: Ignored the following versions that require a different python version: 0.0.0", "ERROR: Could not find trl==9"]
    assert pip.first_error(output) == "Could not find trl==9"


def test_a_conflict_names_its_parties() -> None:
    output = [
        "ERROR: Cannot install torch==2.99.0 because these package versions have conflicting dependencies.",
        "",
        "The conflict is caused by:",
        "    The user requested torch==2.99.0",
        "    The user requested (constraint) torch<=2.14.1",
        "",
        "To fix this you could try to: ...",
    ]
    assert pip.first_error(output) == (
        "Cannot install torch==2.99.0 because these package versions have conflicting dependencies: "
        "The user requested torch==2.99.0; The user requested (constraint) torch<=2.14.1"
    )


def test_a_wrong_hash_names_the_package() -> None:
    output = [
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, ...",
        "    xxhash==4.1.0 from file:///wheels/xxhash.whl (from -r requirements.txt (line 9)):",
        "        Expected sha256 00",
    ]
    assert pip.first_error(output) == (
        "another file than the locked one (its hash differs): xxhash==4.1.0 from file:///wheels/xxhash.whl (from -r requirements.txt (line 9))"
    )


def test_long_list_of_versions_is_shortened() -> None:
    message = pip.first_error(["ERROR: Could not find x==9 (from versions: " + ", ".join(f"1.0.{n}" for n in range(500)) + ")"])
    assert message is not None
    assert message.startswith("Could not find x==9 (from versions: 1.0.0, 1.0.1")
    assert message.endswith(" ...")
    assert len(message) <= 304


def test_no_error() -> None:
    assert pip.first_error(["Successfully installed x", "0 error: none"]) is None


def test_environment_keeps_the_users_configuration_and_drops_what_misdirects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    environment = pip.environment()
    assert environment["PIP_FIND_LINKS"] == "/wheels"
    assert "PIP_USER" not in environment
    assert "PYTHONPATH" not in environment


def test_pip_is_copied_with_what_there_is_of_its_byte_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pip that was installed without byte code and has run since: its own list of files names none."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "cache"))
    source = tmp_path / "beside" / "pip" / "__main__.py"
    source.parent.mkdir(parents=True)
    source.write_text("")
    (source.parent / "never_run.py").write_text("")
    py_compile.compile(str(source))
    beside = importlib.metadata.PathDistribution(source.parents[1] / "pip-26.0.dist-info")
    files = [importlib.metadata.PackagePath("pip", name) for name in ("__main__.py", "never_run.py")]
    for file in files:
        file.dist = beside
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: SimpleNamespace(files=files))
    site = tmp_path / "lib" / "python3" / "site-packages"
    site.mkdir(parents=True)
    assert pip.copy_into(tmp_path / "bin" / "python")
    copy = site / "pip" / "__main__.py"
    assert copy.stat().st_mtime_ns == source.stat().st_mtime_ns
    assert [path.name for path in (site / "pip").rglob("*.pyc")] == [Path(cache_from_source(str(source))).name]
