"""Styles inside of a page: what people read is left out, a browser takes them, and no others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser

from vigia_service.styles import Styles
from vigia_testing import DEADLINE
from vigia_testing.browser import chromium

SHEET = """/* of a page:
   two lines */
:root { --ink: rgb(1, 2, 3); }
@media (max-width: 40rem) {
  h1 { color: var(--ink); }   /* <b> */
}
p::before { content: "é"; }
"""


def test_what_is_for_people_is_left_out() -> None:
    assert Styles.of(SHEET).text == (
        ":root { --ink: rgb(1, 2, 3); }\n@media (max-width: 40rem) {\nh1 { color: var(--ink); }\n}\n"
        'p::before { content: "é"; }'
    )


def test_the_source_is_of_the_bytes_that_are_sent() -> None:
    found = Styles.of("p { margin: 0; }")
    assert found.source == "'sha256-ZMIWxFqsI8wXm9tNjoL6Cyi5nRfO7zhfynHh3P3TR9s='"
    assert Styles.of("/* other words */ p { margin: 0; }\n") == found
    assert Styles.of("p { margin: 1px; }").source != found.source


@pytest.mark.parametrize("css", ["</style><script>", 'p::before { content: "<"; }'])
def test_what_a_page_takes_for_markup_is_refused(css: str) -> None:
    with pytest.raises(ValueError, match=r"styles have a < in .*<.*: .* write \\3c"):
        Styles.of(css)


def test_a_value_of_two_lines_stays_one_of_two_words() -> None:
    assert Styles.of("main\n  p { color: red; }").text == "main\np { color: red; }"


def test_no_styles_are_styles() -> None:
    assert Styles.of("").text == ""


class Handler(BaseHTTPRequestHandler):
    """A page with two styles, of which its policy names one."""

    styles = Styles.of('p { color: rgb(1, 2, 3); } p::before { content: "é"; }')
    other = "p { background-color: rgb(4, 5, 6); }"

    def do_GET(self) -> None:
        body = (
            f'<!doctype html><meta charset="utf-8"><style>{self.styles.text}</style>'
            f'<style>{self.other}</style><p style="margin-left: 7px">Words</p>'
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        policy = f"default-src 'none'; style-src {self.styles.source}"
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


def test_a_browser_takes_these_styles_and_no_others(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(address, timeout=DEADLINE * 1000)
    found = page.evaluate("""() => {
        const {color, backgroundColor, marginLeft} = getComputedStyle(document.querySelector("p"));
        return [color, backgroundColor, marginLeft];
    }""")
    page.close()
    assert found == ["rgb(1, 2, 3)", "rgba(0, 0, 0, 0)", "0px"]
