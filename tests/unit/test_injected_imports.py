"""What import-linter cannot see: the code that is injected into a framework's processes, where rlmbench is not installed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROBE = ROOT / "rlmbench" / "probe" / "inject"
INJECTED = {package.parent.name for package in PROBE.glob("*/__init__.py")}


def imported(nodes: Iterable[ast.AST]) -> set[str]:
    """Top-level names of the packages that `nodes` import; relative imports stay within their package."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).partition(".")[0])
    return names


def sources(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.py"))
    assert found, f"no source in {folder}"
    return found


@pytest.mark.parametrize("path", sources(PROBE), ids=lambda path: str(path.relative_to(PROBE)))
def test_the_probe_needs_only_the_standard_library(path: Path) -> None:
    """At import; torch and the like may be looked up inside functions, once the framework has imported them itself."""
    names = imported(ast.parse(path.read_text()).body)
    assert names <= sys.stdlib_module_names | INJECTED


@pytest.mark.parametrize("folder", [PROBE, *sorted((ROOT / "adapters").glob("*/inject"))], ids=lambda folder: folder.parent.name)
def test_nothing_injected_imports_rlmbench(folder: Path) -> None:
    outside = {"rlmbench", *(package.name for package in (ROOT / "adapters").iterdir())}
    for path in sources(folder):
        assert not imported(ast.walk(ast.parse(path.read_text()))) & outside, path
