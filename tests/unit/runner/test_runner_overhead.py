"""What `rlmbench overhead` refuses before it runs anything."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from rlmbench.cli.main import main


@pytest.mark.parametrize(
    ("suite", "said"), [("group_size_sweep", "group_size_sweep is a sweep"), ("gsm8k_grop", "did you mean 'gsm8k_grpo'")]
)
def test_a_suite_that_makes_no_pairs_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], suite: str, said: str
) -> None:
    def popen(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is to be started")

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert main(["overhead", suite, "-f", "reference"]) == 2
    out = capsys.readouterr()
    assert (out.out, len(out.err.splitlines())) == ("", 1)
    assert said in out.err
