"""The committed lock files, and the tool that writes them."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rlmbench.adapter import EnvironmentSpec
from rlmbench.environment.lockfiles import pins, requirement_lines
from rlmbench_trl.environments import ENVIRONMENTS as TRL
from rlmbench_verl.environments import ENVIRONMENTS as VERL

ENVIRONMENTS = (*TRL, *VERL)

ROOT = Path(__file__).parents[3]


def _lock_tool() -> ModuleType:
    specification = importlib.util.spec_from_file_location("lock_tool", ROOT / "tools" / "lock.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["lock_tool"] = module
    specification.loader.exec_module(module)
    return module


lock_tool = _lock_tool()

RESOLVED = """\
numpy==2.4.6 \\
    --hash=sha256:bb \\
    --hash=sha256:aa
    # via
    #   -r requirements.in
    #   trl
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:cc
    # via trl
cuda-toolkit==13.0 ; sys_platform == 'linux' \\
    --hash=sha256:dd
    # via torch
nvidia-cublas==13.1 \\
    --hash=sha256:ee
    # via cuda-toolkit
triton==3.7.1 \\
    --hash=sha256:ff
    # via
    #   torch
    #   xgrammar
torch==2.13.0 \\
    --hash=sha256:99
    # via -r requirements.in
"""


@pytest.mark.parametrize("spec", ENVIRONMENTS, ids=lambda spec: f"{spec.name}-{spec.device}")
def test_locks_pin_what_the_adapter_promises(spec: EnvironmentSpec) -> None:
    found = pins(spec.lock_dir)
    assert {name: {version} for name, version in spec.versions.items()}.items() <= found.items()
    lock = (spec.lock_dir / "requirements.txt").read_text()
    assert "torch" not in {line.split("==")[0] for line in requirement_lines(spec.lock_dir / "requirements.txt")}
    blocks = re.split(r"\n(?=[a-z0-9])", lock)[1:]
    assert len(blocks) == len(requirement_lines(spec.lock_dir / "requirements.txt"))
    assert all("--hash=sha256:" in block for block in blocks)
    assert ("not run" in lock) == (spec.device == "cuda")
    assert "://" not in lock


def test_names_and_devices_are_unique() -> None:
    keys = [(spec.name, spec.device) for spec in ENVIRONMENTS]
    assert sorted(keys) == [(name, device) for name in ("trl", "trl-ppo", "trl-vllm", "verl") for device in ("cpu", "cuda")]


def test_parse() -> None:
    numpy, colorama, *_ = lock_tool.parse(RESOLVED)
    assert (numpy.name, numpy.version, numpy.marker, numpy.hashes) == ("numpy", "2.4.6", None, ("sha256:aa", "sha256:bb"))
    assert numpy.needed_by == {"trl"}
    assert colorama.marker == "sys_platform == 'win32'"
    assert lock_tool.on_linux(numpy)
    assert not lock_tool.on_linux(colorama)


def test_what_belongs_to_torchs_build_is_left_to_it() -> None:
    """cuda-toolkit only serves torch and nvidia-cublas only cuda-toolkit; triton also serves xgrammar, so it stays."""
    hashed, unhashed = lock_tool.split([pin for pin in lock_tool.parse(RESOLVED) if lock_tool.on_linux(pin)])
    assert [pin.name for pin in hashed] == ["numpy", "triton"]
    assert [pin.name for pin in unhashed] == ["torch"]


def test_written_files_are_read_back(tmp_path: Path) -> None:
    (tmp_path / "requirements.in").write_text("# What it is.\n# Status: resolved, not run.\nnumpy\n# Not in the header.\ntorch\n")
    lock_tool.write(tmp_path, *lock_tool.split(lock_tool.parse(RESOLVED)))
    lock = (tmp_path / "requirements.txt").read_text()
    assert lock.splitlines()[1:3] == ["# What it is.", "# Status: resolved, not run."]
    assert "Not in the header" not in lock
    assert requirement_lines(tmp_path / "requirements.txt") == [
        "numpy==2.4.6",
        "colorama==0.4.6 ; sys_platform == 'win32'",
        "triton==3.7.1",
    ]
    assert pins(tmp_path) == {"numpy": {"2.4.6"}, "colorama": {"0.4.6"}, "triton": {"3.7.1"}, "torch": {"2.13.0"}}
