"""A headless Chromium for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from vigia_testing import DEADLINE

__all__ = ["chromium"]

_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Tests run as root, without a graphics card, and nothing but a page may ask the network."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser for the block. Raises FileNotFoundError if there is none."""
    program = shutil.which("chromium")
    if not program:
        raise FileNotFoundError("chromium is missing; run tools/bootstrap.sh test")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=list(_ARGUMENTS), timeout=DEADLINE * 1000
        )
        try:
            yield browser
        finally:
            browser.close()
