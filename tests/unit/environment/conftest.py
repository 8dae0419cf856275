"""A tiny package in a local folder stands for a framework: nothing here reaches an index."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rlmbench.adapter import EnvironmentSpec

MakeSpec = Callable[..., EnvironmentSpec]


def make_wheel(folder: Path, name: str, version: str, source: str) -> str:
    """Write a wheel with one module; returns the sha256 that a lock file names."""
    metadata = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": source,
        f"{metadata}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{metadata}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{metadata}/RECORD": record + f"{metadata}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """(folder with a wheel of toyframework 1.2.0, its sha256)."""
    folder = tmp_path_factory.mktemp("wheels")
    return folder, make_wheel(folder, "toyframework", "1.2.0", "ANSWER = 42\n")


@pytest.fixture
def offline_pip(monkeypatch: pytest.MonkeyPatch, wheels: tuple[Path, str]) -> None:
    """pip as a user might have configured it: no index, a folder of wheels."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels[0]))


@pytest.fixture
def make_spec(tmp_path: Path, wheels: tuple[Path, str]) -> MakeSpec:
    """A specification of `toy` for a CPU whose lock asks for `version` of the toy framework."""

    def make(version: str = "1.2.0", check_imports: tuple[str, ...] = ("toyframework",), sha256: str = wheels[1]) -> EnvironmentSpec:
        lock_dir = tmp_path / f"toy-cpu-{version}"
        lock_dir.mkdir(exist_ok=True)
        (lock_dir / "requirements.txt").write_text(f"# a comment\ntoyframework=={version} \\\n    --hash=sha256:{sha256}\n")
        (lock_dir / "unhashed.txt").write_text("# nothing depends on the index\n")
        return EnvironmentSpec("toy", "cpu", lock_dir, "a toy", check_imports, {"toyframework": version})

    return make
