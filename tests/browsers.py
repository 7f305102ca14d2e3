"""A real browser for tests: the system's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def start_browser() -> Iterator[Any]:
    """The body of a fixture: yields a browser, or skips where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'lwd[browser]'")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser ({', '.join(BROWSERS)}) is installed")
    root = getattr(os, "geteuid", lambda: 1)() == 0  # Chromium's sandbox refuses to run as root
    with api.sync_playwright() as play:
        running = play.chromium.launch(executable_path=program, args=["--no-sandbox"] if root else [])
        yield running
        running.close()
