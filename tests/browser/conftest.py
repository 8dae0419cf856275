"""Chromium for the pages, and the synthetic run they are made from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))

if TYPE_CHECKING:
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
