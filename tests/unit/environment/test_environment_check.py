"""Interpreters of the user's own: what is missing is said, before anything starts."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlmbench.adapter import EnvironmentSpec
from rlmbench.environment import check, use_python
from rlmbench.environment.check import Finding, differences, problems, read_finding
from rlmbench.errors import EXIT_USAGE, EnvironmentFailure, UserError

MakeSpec = Callable[..., EnvironmentSpec]
TRL = {"trl": "1.16.0", "torch": "2.13.0"}


def finding(failures: dict[str, dict[str, str]] | None = None, **packages: str) -> Finding:
    return Finding("3.11.7", packages, failures or {}, None)


def test_a_build_suffix_is_no_difference(make_spec: MakeSpec) -> None:
    spec = dataclasses.replace(make_spec(), versions=TRL)
    found = finding(trl="1.16.0", torch="2.13.0+cpu")
    assert problems(found, spec) == []
    assert differences(found, spec) == []


def test_another_minor_version_is_noted_another_major_refused(make_spec: MakeSpec) -> None:
    spec = dataclasses.replace(make_spec(), versions=TRL)
    found = finding(trl="1.12.0", torch="3.0.0")
    assert differences(found, spec) == ["trl is 1.12.0, not 1.16.0"]
    assert problems(found, spec) == ["torch is 3.0.0, not 2.13.0: another major version"]


def test_missing_package_hides_the_imports_that_fail_for_it(make_spec: MakeSpec) -> None:
    spec = dataclasses.replace(make_spec(), versions=TRL)
    failures = {"trl": {"error": "ModuleNotFoundError: No module named 'trl'", "traceback": ""}}
    assert problems(finding(failures, torch="2.13.0"), spec) == ["trl is not installed, 1.16.0 is needed"]
    broken = {"trl": {"error": "ImportError: libfoo.so\nmore", "traceback": ""}, "b": {"error": "ImportError: trl", "traceback": ""}}
    assert problems(finding(broken, trl="1.16.0", torch="2.13.0"), spec) == ["import trl fails: ImportError: libfoo.so"]


def test_own_interpreter_that_has_it(make_spec: MakeSpec) -> None:
    import packaging

    spec = dataclasses.replace(make_spec(), check_imports=("packaging", "json"), versions={"packaging": packaging.__version__})
    environment = use_python(sys.executable, spec)
    assert environment.python == Path(sys.executable)
    assert environment.packages["packaging"] == packaging.__version__
    assert environment.build_s is None
    assert len(environment.key) == 64
    assert environment.notes == ()
    assert check(environment, spec) == []


def test_own_interpreter_that_lacks_it(make_spec: MakeSpec) -> None:
    with pytest.raises(EnvironmentFailure, match=r"cannot run toy: toyframework is not installed, 1\.2\.0 is needed"):
        use_python(Path(sys.executable), make_spec())


def test_no_interpreter_there(make_spec: MakeSpec, tmp_path: Path) -> None:
    for wrong in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UserError, match="no executable Python") as caught:
            use_python(wrong, make_spec())
        assert caught.value.exit_code == EXIT_USAGE


def test_interpreter_that_dies_is_explained(make_spec: MakeSpec, tmp_path: Path) -> None:
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\necho 'cannot load libcuda' >&2\nkill -9 $$\n")
    dying.chmod(0o755)
    with pytest.raises(EnvironmentFailure, match="signal 9 while importing toyframework: cannot load libcuda"):
        use_python(dying, make_spec())


@pytest.mark.parametrize("output", ["", "importing torch", "[]", '{"python_version": "3.11"}'])
def test_an_answer_cut_short_is_none(output: str) -> None:
    assert read_finding(output) is None
