"""The pages in a real browser: they read at two widths, light and dark, by keyboard, and keep themselves up to date."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from werkzeug.serving import make_server

from vigia_compare.site import ALARMS, STATE
from vigia_compare.timeline import QUESTIONS
from vigia_prometheus import Sample, Series
from vigia_testing import DEADLINE
from vigia_testing.browser import chromium

from .made import BASE
from .test_web import ADDRESSES, EVIL, NOW, Site, _hostile, _mesh, evaluated

LOUD = """() => [...document.querySelectorAll("main *, header *, #strip *")].filter((node) => {
    const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest("svg, .visually-hidden, .skip")) return false;
    const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
        .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    let below = node, ground = [0, 0, 0, 0];
    while (below && (ground[3] ?? 1) === 0) {
        ground = parse(getComputedStyle(below).backgroundColor);
        if (ground.length === 3) ground.push(1);
        below = below.parentElement;
    }
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
}).map((node) => `${node.tagName}.${node.className}: ${node.textContent.trim().slice(0, 40)}`)"""
"""Elements with text of their own whose contrast is below what WCAG AA asks for."""

expect.set_options(timeout=DEADLINE * 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


def _in_trouble(site: Site) -> None:
    labels = {"node": "n1", "port": "n1-red-110", "tenant": "red"}
    site.answer(ALARMS, "floods", 91.0, **labels)
    site.answer(ALARMS, "limits", 5e6, direction="from_tenant", protocol="udp", **labels)
    site.answer(ALARMS, "alerts", 1.0, alertname="VigiaUdpFlood", severity="critical", tenant="red")
    site.answer(ALARMS, "harms", 1.0, node="n1", tenant="blue", offender="red", verdict="likely")
    for tenant, sent in (("red", 6e7), ("blue", 1e6), ("_infra", 2e5)):
        site.answer(STATE, "rate", sent, tenant=tenant, direction="from_tenant")
        site.answer(STATE, "loss", 0.02 if tenant == "blue" else 0.0, tenant=tenant)
    for tenant in ("red", "blue"):
        site.answer(STATE, "bought", 3e7, tenant=tenant, direction="from_tenant")
    site.answer(STATE, "lossy paths", 0.02, src="n1", dst="n2", path="gre", tenant="blue", probe="stamp-64")
    for kind in ("flood", "limit"):
        site.ranges[QUESTIONS[kind]] = [Series(labels, [(NOW - 300.0 + 15.0 * i, 80.0) for i in range(10)])]
    for record, i in (("vigia_probe_loss:ratio_rate1m", 0), ("vigia_probe_rtt_seconds:p99_rate1m", 1)):
        pairs = _mesh(4, lambda a, b: 0.02 if a == 0 else 0.0).pairs
        site.answers[f"max by (src, dst) (path:{record})"] = [
            Sample({"src": a, "dst": b}, NOW, v[i]) for (a, b), v in pairs.items()
        ]


class Served:
    """A site behind a listener of its own."""

    def __init__(self, site: Site) -> None:
        self.site = site
        site.monotonic = time.monotonic
        self._server = make_server("127.0.0.1", 0, site.client.application, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served(Site())
    _in_trouble(made.site)
    yield made
    made.close()


def opened(
    browser: Browser, served: Served, address: str, width: int = 1600, scheme: Any = "light"
) -> tuple[BrowserContext, Page, list[str]]:
    """A fresh profile on a page; returns what goes wrong on it, too."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(DEADLINE * 1000)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.on("request", lambda r: None if r.url.startswith(served.url) else wrong.append(r.url))
    page.goto(served.url + address)
    return context, page, wrong


def shot(page: Page, name: str) -> None:
    """Keep a picture for people to look at, if they ask for pictures."""
    folder = os.environ.get("VIGIA_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder, f"{name}.png"), full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1600, 1000, 400])
def test_pages_read(browser: Browser, served: Served, width: int, scheme: str) -> None:
    """Nothing sticks out, nothing is too faint, and the answer is on the first screen."""
    for address, first in zip(
        ADDRESSES, (".banners .answer", ".matrix", ".tenants", ".cards li"), strict=True
    ):
        context, page, wrong = opened(browser, served, address, width, scheme)
        expect(page.locator("#pulse")).to_have_text("live")
        shot(page, f"web{address.replace('/', '-')}-{width}-{scheme}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        box = page.locator(first).first.bounding_box()
        assert box is not None and box["y"] < 900, address
        assert page.evaluate(LOUD) == [], address
        assert page.locator("h1").count() == 1
        assert wrong == [], address
        context.close()


LONG = ("linuxbridge-vxlan", "ovs-openflow-set-priority", "ipsec-ovs-vxlan", "direct")


def _of_a_lab(site: Site) -> None:
    """Names as long as those of the lab, and more measures than a screen is wide."""
    paths = {p: BASE * (i + 1) for i, p in enumerate(LONG)}
    measures = (
        "rtt",
        "rtt_p99",
        "jitter",
        "loss",
        "tcp_throughput",
        "udp_throughput",
        "tcp_rtt",
        "udp_jitter",
    )
    site.found = evaluated(**dict.fromkeys(measures, paths))
    for node in ("n1", "n2"):
        site.answer(
            STATE, "lossy paths", 0.02, src=node, dst="n3", path=LONG[1], tenant="blue", probe="stamp-64-ipv6"
        )


@pytest.mark.parametrize("width", [1000, 400])
@pytest.mark.parametrize("address", ADDRESSES)
def test_what_is_wide_is_scrolled_in_its_place(
    browser: Browser, served: Served, address: str, width: int
) -> None:
    _of_a_lab(served.site)
    context, page, wrong = opened(browser, served, address, width)
    expect(page.locator("#pulse")).to_have_text("live")
    shot(page, f"web{address.replace('/', '-')}-lab-{width}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "also of what cannot be seen"
    for told in page.locator(".told").all():
        box = told.bounding_box()
        assert box is not None and box["x"] + box["width"] <= width, "a caption is read without scrolling"
    assert wrong == []
    context.close()


@pytest.mark.parametrize(
    ("address", "cells", "labels"),
    [
        ("/tenants", '.tenants tr:nth-child(1) td', ["State", "Bought", "Sends", "Probes lost", "RTT p99", "Dropped"]),
        ("/tenants", "#paths tr:nth-child(1) td", ["From", "To", "Tenant", "Probe", "State", "Probes lost"]),
        ("/incidents", "#hour tr:nth-child(1) td", ["Began", "Lasted", "Kind", "What"]),
        ("/", "#evidence tr:nth-child(1) td", ["Why", "By", "Interval", "e", "n", "Verdict", "Since"]),
    ],
)  # fmt: skip
def test_on_a_phone_rows_are_read_downwards(
    browser: Browser, served: Served, address: str, cells: str, labels: list[str]
) -> None:
    """What decides is not to the right of the screen, and each value says what it is."""
    _of_a_lab(served.site)
    context, page, _ = opened(browser, served, address, 400)
    row = page.locator(cells)
    expect(row.first).to_be_visible()
    for cell in row.all():
        box = cell.bounding_box()
        assert box is None or box["x"] + box["width"] <= 400
    shown = [c.evaluate("n => getComputedStyle(n, '::before').content") for c in row.all() if c.is_visible()]
    assert [label for label in labels if f'"{label}"' not in shown] == []
    context.close()


def test_the_keyboard_is_enough(browser: Browser, served: Served) -> None:
    context, page, wrong = opened(browser, served, "/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.id === 'main'")
    for name in ("Comparison", "Mesh", "Tenants", "Incidents"):
        link = page.get_by_role("navigation", name="Pages").get_by_role("link", name=name)
        link.focus()
        assert link.evaluate("n => getComputedStyle(n).outlineStyle") == "solid", (
            "who has the keyboard sees where"
        )
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("What happened")
    field = page.get_by_label("At (UTC)")
    field.focus()
    page.keyboard.type("30m")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="now", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile("^At "))).to_be_visible()
    assert wrong == []
    context.close()


def test_who_cannot_see_it_is_told_the_same(browser: Browser, served: Served) -> None:
    context, page, _ = opened(browser, served, "/")
    for name in ("The answer, by measure", "Paths and measures", "Not known yet"):
        expect(page.get_by_role("region", name=name).first).to_be_visible()
    expect(page.get_by_role("row", name="gre").first).to_contain_text("wins")
    expect(page.get_by_role("img", name="RTT (stamp-64), remote, by time")).to_be_visible()
    expect(page.get_by_role("progressbar", name="Loss, share of the evidence")).to_be_visible()
    page.goto(f"{served.url}/tenants")
    red = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="red", exact=True))
    expect(red).to_contain_text("floods, limited, above guarantee")
    expect(page.get_by_role("meter", name="red sends 200 % of what it bought")).to_be_visible()
    context.close()


def test_a_page_keeps_itself_up_to_date_around_who_is_in_it(browser: Browser, served: Served) -> None:
    served.site.answers.clear()
    context, page, wrong = opened(browser, served, "/incidents")
    expect(page.locator("#strip")).to_contain_text("no floods")
    page.get_by_label("At (UTC)").focus()
    page.keyboard.type("1")
    _in_trouble(served.site)
    expect(page.locator("#strip")).to_contain_text("1 flood")
    expect(page.get_by_role("heading", name="red floods")).to_be_visible()
    page.keyboard.type("h")
    expect(page.get_by_label("At (UTC)")).to_have_value("1h")
    served.close()
    expect(page.locator("#pulse")).to_contain_text("no answer for")
    expect(page.get_by_role("heading", name="red floods")).to_be_visible()
    assert [w for w in wrong if "ERR_CONNECTION_REFUSED" not in w and "Failed to fetch" not in w] == []
    context.close()
    served.close = lambda: None  # type: ignore[method-assign]


@pytest.mark.parametrize("address", ADDRESSES)
def test_names_do_nothing_in_a_browser(browser: Browser, served: Served, address: str) -> None:
    served.site.found = evaluated(rtt={EVIL: BASE, "gre": 3.0 * BASE})
    _hostile(served.site)
    context, page, wrong = opened(browser, served, address)
    expect(page.locator("#pulse")).to_have_text("live")
    page.evaluate("globalThis.dispatchEvent(new Event('visibilitychange'))")
    assert page.locator("img").count() == 0 and wrong == []
    context.close()


def _with_100_nodes(site: Site) -> None:
    for record, i in (("vigia_probe_loss:ratio_rate1m", 0), ("vigia_probe_rtt_seconds:p99_rate1m", 1)):
        site.answers[f"max by (src, dst) (path:{record})"] = [
            Sample({"src": a, "dst": b}, NOW, v[i]) for (a, b), v in _mesh(100).pairs.items()
        ]


def test_100_nodes_are_one_page(browser: Browser, served: Served) -> None:
    _with_100_nodes(served.site)
    context, page, wrong = opened(browser, served, "/mesh")
    expect(page.locator(".matrix td")).to_have_count(10_000)
    shot(page, "web-mesh-100")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1600 and wrong == []
    assert page.locator(".wide").first.evaluate("n => n.scrollWidth <= n.clientWidth"), "all of it is seen"
    context.close()


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_first_paint_waits_for_the_first_bytes_alone(
    browser: Browser, served: Served, address: str
) -> None:
    """For no file, and not for Prometheus: neither answers until the top of the page is painted, in its colours."""
    asked, answers = threading.Event(), threading.Event()
    served.site.before = lambda: (asked.set(), answers.wait(DEADLINE))
    context = browser.new_context()
    context.set_default_timeout(DEADLINE * 1000)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)
        if answers.is_set():  # a browser that had no processor asks for it now
            route.continue_()

    context.route("**/assets/*", hold)
    page = context.new_page()
    had: list[str] = []
    page.on("requestfinished", lambda r: had.append(r.url))
    page.goto(served.url + address, wait_until="commit")
    page.wait_for_function('() => performance.getEntriesByName("first-contentful-paint").length === 1')
    link = page.get_by_role("navigation", name="Pages").locator("[aria-current]")
    assert link.evaluate("n => getComputedStyle(n).boxShadow") != "none", "as it stays"
    assert page.locator("main").count() == 0 and had == []
    waiting = list(held)
    answers.set()
    for route in waiting:
        route.continue_()
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator("#pulse")).to_have_text("live")
    assert {r.request.url.rpartition("/")[2] for r in held} <= {"live.js", "icon.svg"}
    assert asked.is_set(), "Prometheus was asked meanwhile"
    context.close()


def test_the_past_asks_for_nothing_more(browser: Browser, served: Served) -> None:
    context, page, wrong = opened(browser, served, "/incidents?at=1h")
    expect(page.locator("#pulse")).to_have_text("")
    expect(page.get_by_role("heading", name=re.compile("^At "))).to_be_visible()
    assert wrong == []
    context.close()
