"""Somebody else's adapter that cannot be used is told of in a line; the others go on working."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

import rlmbench.adapter
from rlmbench.adapter import broken_adapters, find_adapter, installed_adapters
from rlmbench.errors import UserError
from rlmbench.runner.cells import Request, make_plan

SOUND = EntryPoint("trl", "rlmbench_trl:adapter", "rlmbench.adapters")
UNIMPORTABLE = EntryPoint("mine", "no_such_module:adapter", "rlmbench.adapters")
EMPTY = EntryPoint("empty", "rlmbench.errors:UserError", "rlmbench.adapters")


@pytest.fixture
def points(monkeypatch):
    monkeypatch.setattr(rlmbench.adapter, "_points", lambda: {point.name: point for point in (SOUND, UNIMPORTABLE, EMPTY)})


def test_the_others_go_on_working(points):
    assert list(installed_adapters()) == ["trl"]
    assert find_adapter("trl").name == "trl"
    broken = broken_adapters()
    assert broken["mine"] == "no_such_module:adapter cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"
    assert broken["empty"].startswith("rlmbench.errors:UserError lacks environments, translate, launch")


def test_asking_for_it_is_an_error_of_one_line(points):
    with pytest.raises(UserError, match=r"^adapter mine: no_such_module:adapter cannot be loaded"):
        find_adapter("mine")
    with pytest.raises(UserError, match=r"^--framework all: adapter mine: .*; adapter empty: "):
        make_plan(Request("gsm8k_grpo", ("all",), "tiny"))
