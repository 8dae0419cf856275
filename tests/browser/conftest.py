"""Chromium for the pages, and the synthetic run they are made from."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

UNIT = Path(__file__).parents[1] / "unit"
sys.path[:0] = [str(Path(__file__).parent), str(UNIT / "report"), str(UNIT / "comparison")]

if TYPE_CHECKING:
    from opened import Opened
    from playwright.sync_api import Browser

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Headless Chromium, at CHROMIUM_PATH or where Debian puts it. Missing on CI, it is a failure and not a skip."""
    path = os.environ.get("CHROMIUM_PATH", "/usr/bin/chromium")
    if not os.access(path, os.X_OK):
        missing = f"no Chromium at {path}: install it (apt-get install chromium) or name it in CHROMIUM_PATH"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Opened]]:
    """Opens a file offline, waits until every chart is drawn, and closes it after the test."""
    from opened import opened

    contexts = []

    def opening(path: Path, width: int = 1280, scheme: str = "light") -> Opened:
        one = opened(chromium, path, width, scheme)
        contexts.append(one.context)
        return one

    yield opening
    for context in contexts:
        context.close()
