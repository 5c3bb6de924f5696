"""Paints of small pages: the times are in their order, visits know nothing of each other, and tables judge by medians."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser

from vigia_testing import DEADLINE
from vigia_testing.browser import chromium
from vigia_testing.paints import BUDGET, Paint, missed, paint, table

PAGE = b"""<!doctype html><html lang="en"><title>t</title><script src="/late.js" defer></script>
<body><h1>Words</h1></body></html>"""
SCRIPT = b"""const add = () => { const p = document.createElement("p"); p.id = "late"; p.textContent = "Late";
document.body.append(p); };
setTimeout(add, document.cookie === "" ? 200 : 0);"""
POLICY = "default-src 'none'; script-src 'self'; require-trusted-types-for 'script'"
LATER = 200.0


class Site(ThreadingHTTPServer):
    """A page whose content comes late, by a script, under a strict policy."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = SCRIPT if self.path == "/late.js" else PAGE
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if body is SCRIPT else "text/html")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "max-age=3600")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_what_comes_late_is_painted_late(browser: Browser, site: Site) -> None:
    found = paint(browser, site.url, "#late")
    assert 0.0 < found.answered <= found.painted
    assert found.content - found.answered > LATER
    assert found.size == len(PAGE)


def test_content_that_is_there_is_seen_under_a_strict_policy(browser: Browser, site: Site) -> None:
    found = paint(browser, site.url, "h1")
    assert found.content > found.answered > 0.0


def test_each_visit_is_the_first(browser: Browser, site: Site) -> None:
    for _ in range(2):
        paint(browser, site.url, "#late")
    assert [p for p in site.asked if p == "/late.js"] == ["/late.js"] * 2, "nothing is kept in between"
    assert site.asked.count("/") == 2


def test_a_session_is_brought_along(browser: Browser, site: Site) -> None:
    cookie = {"name": "a", "value": "b", "domain": "127.0.0.1", "path": "/", "expires": -1}
    cookie |= {"httpOnly": False, "secure": False, "sameSite": "Lax"}
    assert paint(browser, site.url, "#late", {"cookies": [cookie], "origins": []}).content > 0.0
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.url, timeout=DEADLINE * 1000)
    assert page.evaluate("document.cookie") == "", "and left to nobody else"
    context.close()


FAST = Paint(answered=10.0, painted=50.0, content=60.0, size=2048)
SLOW = replace(FAST, painted=BUDGET + 1.0)


def test_the_median_is_judged_and_the_worst_is_said() -> None:
    visits = {"one": [FAST, FAST, SLOW], "other": [SLOW, SLOW, FAST]}
    assert missed(visits) == ["other"]
    lines = table(visits).splitlines()
    assert "cores, load " in lines[0]
    (one,) = [line for line in lines if line.startswith("one ")]
    assert one.split()[1:] == [
        "10",
        "(10)",
        "50",
        "(301)",
        "60",
        "(60)",
        "2",
        "300",
        "ms",
        "met",
        "(n",
        "=",
        "3)",
    ]
    (other,) = [line for line in lines if line.startswith("other ")]
    assert "301 (301)" in other and other.endswith("300 ms MISSED (n = 3)")


def test_as_soon_as_promised_is_soon_enough() -> None:
    assert missed({"just": [replace(FAST, painted=BUDGET)]}) == []
