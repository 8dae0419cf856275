from __future__ import annotations

import sys
from types import SimpleNamespace

import platformdirs
import pytest

from rlmbench.report import vega


@pytest.fixture
def bundles(monkeypatch: pytest.MonkeyPatch, tmp_path):
    """A stand-in for vl-convert that counts how often it bundles, and an empty cache folder."""
    made: list[str] = []

    def bundle(snippet: str | None) -> str:
        made.append("window.vegaEmbed=1;")
        return made[-1]

    monkeypatch.setitem(sys.modules, "vl_convert", SimpleNamespace(javascript_bundle=bundle))
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / name)
    vega.runtime.cache_clear()
    yield made
    vega.runtime.cache_clear()


def test_the_runtime_is_bundled_once_per_version(bundles: list[str]) -> None:
    first = vega.runtime()
    vega.runtime.cache_clear()
    assert vega.runtime() == first
    assert len(bundles) == 1


def test_a_cache_that_cannot_be_written_only_costs_time(bundles: list[str], monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "file")
    assert vega.runtime() == "window.vegaEmbed=1;"


def test_a_runtime_that_would_end_its_element_is_refused(bundles: list[str], monkeypatch) -> None:
    monkeypatch.setattr(sys.modules["vl_convert"], "javascript_bundle", lambda snippet: "a='</SCRIPT>'")
    with pytest.raises(ValueError, match="end its script element"):
        vega.runtime()
