"""Pictures of pages in headless Chromium: the first screen, small enough for a repository."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grafanakit import Grafana
from PIL import Image
from playwright.sync_api import Browser, Page, Request, expect

__all__ = ["HEIGHT", "LARGEST", "VIEWS", "WIDTH", "Camera", "View", "small"]

WIDTH, HEIGHT, NARROW, PHONE = 1600, 1000, 1000, 400

LARGEST = 200_000
"""Bytes of a picture."""

WAIT = 120_000
"""Milliseconds that a page may take on a machine that is busy with a flood."""

QUIET = 4
"""Half seconds without a question after which a dashboard has all it wants."""


@dataclass(frozen=True)
class View:
    """How a page is looked at."""

    ending: str
    """Of the picture's name."""
    scheme: Any = "light"
    width: int = WIDTH


VIEWS = {
    v.ending.strip("-") or "light": v
    for v in (View(""), View("-dark", "dark"), View("-narrow", width=NARROW), View("-phone", width=PHONE))
}


def small(png: bytes) -> bytes:
    """Return a picture with as many colours as fit into the size that a picture may have. Raises ValueError if none do."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in (256, 128, 64, 32, 16):
        out = io.BytesIO()
        picture.quantize(colours, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
        if out.tell() <= LARGEST:
            return out.getvalue()
    raise ValueError(f"a picture of {picture.width} x {picture.height} does not fit into {LARGEST} bytes")


@dataclass
class Camera:
    """Takes pictures into a folder."""

    browser: Browser
    folder: Path
    say: Callable[[str], None]

    def web(self, name: str, url: str, ready: Callable[[Page], None], view: View) -> None:
        """Take a page."""
        with self._opened(view) as page:
            page.goto(url)
            ready(page)
            self._take(page, f"{name}{view.ending}")

    def dashboard(self, name: str, server: Grafana, page: str, at: float | None, view: View) -> None:
        """Take a dashboard, by uid and variables, as it is at a Unix time, once nothing on it is asked for any more."""
        with self._opened(view) as tab:
            if at is not None:
                tab.clock.set_system_time(datetime.fromtimestamp(at, UTC))
            waiting: set[Request] = set()
            answered: list[Request] = []

            def ended(request: Request) -> None:
                waiting.discard(request)
                answered.append(request)

            tab.on("request", lambda r: waiting.add(r) if "/api/" in r.url else None)
            tab.on("requestfinished", ended)
            tab.on("requestfailed", ended)
            tab.goto(f"{server.url}/d/{page}from=now-15m&to=now&kiosk&theme={view.scheme}")
            expect(tab.locator(".react-grid-item").first).to_be_visible()
            end, quiet, seen = time.monotonic() + WAIT / 1000, 0, -1
            while quiet < QUIET and time.monotonic() < end:
                tab.wait_for_timeout(500)
                still = not waiting and len(answered) == seen and any("/query" in r.url for r in answered)
                quiet, seen = quiet + 1 if still else 0, len(answered)
            self._take(tab, f"{name}{view.ending}")

    @contextmanager
    def _opened(self, view: View) -> Iterator[Page]:
        context = self.browser.new_context(
            viewport={"width": view.width, "height": HEIGHT}, color_scheme=view.scheme, timezone_id="UTC"
        )
        context.set_default_timeout(WAIT)
        yield context.new_page()
        context.close()

    def _take(self, page: Page, name: str) -> None:
        content = small(page.screenshot(animations="disabled"))
        (self.folder / f"{name}.png").write_bytes(content)
        self.say(f"{name}.png: {len(content) >> 10} KiB")


expect.set_options(timeout=WAIT)
