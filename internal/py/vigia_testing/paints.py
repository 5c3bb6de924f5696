"""How soon a page is painted: what a visitor waits for, in a headless Chromium that knows nothing of it."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Browser

__all__ = ["BUDGET", "Paint", "missed", "paint", "table"]

BUDGET = 300.0
"""Milliseconds until the first contentful paint, which pages of 100 nodes promise on a quiet machine."""

_PATIENCE = 60_000.0
"""Milliseconds after which a page counts as broken."""

_WATCH = """(() => {
    const look = () => requestAnimationFrame(document.querySelector(%s)
        ? () => { globalThis.contentAt = performance.now(); } : look);
    look();
})()"""
"""Notes the frame after that in which an element is there; it comes from outside, past the page's policy."""

_TIMES = """() => {
    const [visit] = performance.getEntriesByType("navigation");
    const [first] = performance.getEntriesByName("first-contentful-paint");
    const done = visit.loadEventEnd > 0 && first && globalThis.contentAt !== undefined;
    return done && {answered: visit.responseStart, painted: first.startTime, content: globalThis.contentAt,
        size: visit.encodedBodySize};
}"""


@dataclass(frozen=True)
class Paint:
    """One visit. Times are milliseconds since the address was asked for."""

    answered: float
    """Until the first byte of the page."""
    painted: float
    """Until the first contentful paint: text or a picture of the page (W3C Paint Timing)."""
    content: float
    """Until what the visitor came for is painted."""
    size: int
    """Bytes of the page, as they were sent."""


def paint(browser: Browser, url: str, content: str, known: Any = None) -> Paint:
    """Visit a page with a fresh profile: no cache, no connection.

    ``content`` is a selector of what the visitor comes for; ``known`` is a profile's storage, which has the
    session of who signed in (Playwright's storage_state).
    """
    context = browser.new_context(viewport={"width": 1600, "height": 900}, storage_state=known)
    try:
        context.add_init_script(_WATCH % json.dumps(content))
        page = context.new_page()
        page.goto(url, wait_until="load", timeout=_PATIENCE)
        times = page.wait_for_function(_TIMES, timeout=_PATIENCE).json_value()
    finally:
        context.close()
    return Paint(**times)


def table(visits: Mapping[str, Sequence[Paint]]) -> str:
    """Return what was measured, one line for each kind of visit: medians, and the worst."""
    cores, load = os.cpu_count(), os.getloadavg()[0]
    lines = [
        f"{cores} cores, load {load:.1f}; milliseconds, medians (the worst)",
        f"{'':28} {'first byte':>12} {'first paint':>15} {'content':>15} {'KiB':>6}  budget",
    ]
    for what, found in visits.items():
        columns = [
            f"{statistics.median(values):.0f} ({max(values):.0f})"
            for values in zip(*((p.answered, p.painted, p.content) for p in found), strict=True)
        ]
        kib = max(p.size for p in found) / 1024
        verdict = "MISSED" if what in missed(visits) else "met"
        lines.append(
            f"{what:28} {columns[0]:>12} {columns[1]:>15} {columns[2]:>15} {kib:6.0f}  "
            f"{BUDGET:.0f} ms {verdict} (n = {len(found)})"
        )
    return "\n".join(lines) + "\n"


def missed(visits: Mapping[str, Sequence[Paint]]) -> list[str]:
    """Return the kinds of visits whose median first paint took longer than is promised."""
    return [what for what, found in visits.items() if statistics.median(p.painted for p in found) > BUDGET]
