"""The console in a real browser: what a person on call sees and does, and what nobody can do to them."""

from __future__ import annotations

import os
import re
import sqlite3
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Request, Route, expect

from isolation_agent.clock import SystemClock
from isolation_agent.web.routes.console import CSP
from vigia_service.look import NAVIGATION
from vigia_testing import DEADLINE, eventually
from vigia_testing.browser import chromium

from ..support.process import AgentProcess
from ..support.world import API_TOKEN, World, alert, policy

HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u202e&lt;b&gt;"
)
PORTS = {
    "approve": "red",
    "reject": "blue",
    "revert": "green",
    "stop": "mauve",
    "keys": "amber",
    "live": "teal",
}

expect.set_options(timeout=DEADLINE * 1000)


class Console:
    """An agent with its enforcer, and a browser."""

    def __init__(self, world: World, agent: AgentProcess, browser: Browser) -> None:
        self.world = world
        self.agent = agent
        self.browser = browser
        self.viewer = ""

    def open(self, **options: Any) -> tuple[BrowserContext, Page, list[str]]:
        """A fresh browser profile on the console; returns what goes wrong on the page, too."""
        context = self.browser.new_context(**options)
        context.set_default_timeout(DEADLINE * 1000)
        context.route("**/console/console.js", _more_often)
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda e: wrong.append(str(e)))
        page.on("dialog", lambda d: _unwanted(d, wrong))
        page.on("request", lambda r: _only_ours(r, self.agent, wrong))
        page.goto(str(self.agent.http.base_url))
        return context, page, wrong

    def sign_in(self, token: str = API_TOKEN, **options: Any) -> tuple[BrowserContext, Page, list[str]]:
        context, page, wrong = self.open(**options)
        page.get_by_label("Your token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Limits in force")).to_be_visible()
        return context, page, wrong

    def flood(self, port: str, **extra: Any) -> None:
        """A flood and its alert."""
        tenant = PORTS[port]
        self.world.enforcer.flood(port)
        labels = {"policy": None, **extra.pop("labels", {})}
        got = self.agent.post(alert(SystemClock().now(), port, tenant, labels=labels, **extra))
        assert got.status_code == 200, got.text


def _more_often(route: Route) -> None:
    """Let the page ask the agent more often, so that nobody waits for it."""
    script = route.fetch()
    text = script.text()
    assert "const EVERY = 2000;" in text
    route.fulfill(response=script, body=text.replace("const EVERY = 2000;", "const EVERY = 250;"))


def _unwanted(dialog: Dialog, wrong: list[str]) -> None:
    wrong.append(f"dialog: {dialog.message}")
    dialog.dismiss()


def _only_ours(request: Request, agent: AgentProcess, wrong: list[str]) -> None:
    if not request.url.startswith(str(agent.http.base_url)):
        wrong.append(f"request to {request.url}")


@pytest.fixture(scope="module")
def console(quick_folder: Path) -> Iterator[Console]:
    folder = quick_folder / "console"
    folder.mkdir()
    world = World(folder, SystemClock())
    for port, tenant in PORTS.items():
        world.enforcer.add(port, tenant)
    world.enforcer.add("probe", "_watch", guarantee=None).offered = 25_000.0
    world.policies = [
        policy("by-hand", match={"alertname": "VigiaUdpFlood", "isolate": "approve"}, ttl="60s"),
        policy(ttl="60s"),
    ]
    world.guards = {"max_per_tenant": 50}
    viewer = world.add_user("viewer", "vera")
    agent = AgentProcess(world.write_files()).wait_until_ready()
    with chromium() as browser:
        made = Console(world, agent, browser)
        made.viewer = viewer
        yield made
    agent.stop()
    world.close()


def shot(page: Page, name: str) -> None:
    """Keep a picture for people to look at, if they ask for pictures."""
    folder = os.environ.get("VIGIA_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder, f"{name}.png"), full_page=True)


def card(page: Page, port: str) -> Any:
    return page.get_by_role("listitem").filter(has_text=f"port {port} on")


def button(inside: Any, verb: str) -> Any:
    """A card's button; its name says what it is about, too."""
    return inside.get_by_role("button", name=re.compile(f"^{verb} "))


def test_approve(console: Console) -> None:
    context, page, wrong = console.sign_in()
    console.flood("approve", labels={"isolate": "approve"})
    waiting = card(page, "approve")
    expect(waiting).to_contain_text("waits for approval")
    expect(waiting).to_contain_text("400 Mbit/s")
    expect(waiting).to_contain_text("flood score 85 of 100")
    shot(page, "waiting")
    button(waiting, "Approve").click()
    asked = page.get_by_role("dialog")
    expect(asked).to_contain_text("Approve this limit?")
    shot(page, "approve-dialog")
    asked.get_by_label("Reason").fill("seen on the wire")
    asked.get_by_role("button", name="Approve").click()
    expect(asked).to_be_hidden()
    expect(card(page, "approve")).to_contain_text("in force")
    assert console.world.enforcer.limit_of("approve") is not None
    shot(page, "limited")
    button(card(page, "approve"), "Details").click()
    detail = page.get_by_role("dialog")
    for text in (
        "by api@127.0.0.1",
        "seen on the wire",
        "approval requested",
        "limit verified",
        "A tenant floods",
    ):
        expect(detail).to_contain_text(text)
    shot(page, "detail")
    page.keyboard.press("Escape")
    expect(detail).to_be_hidden()
    assert wrong == []
    context.close()


def test_reject(console: Console) -> None:
    context, page, wrong = console.sign_in()
    console.flood("reject", labels={"isolate": "approve"})
    button(card(page, "reject"), "Reject").click()
    page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    expect(button(card(page, "reject"), "Approve")).to_have_count(0)
    eventually(
        lambda: [a for a in console.agent.actions() if a["port"] == "reject" and a["cause"] == "rejected"],
        "the action is over",
    )
    assert console.world.enforcer.limit_of("reject") is None
    assert wrong == []
    context.close()


def test_revert(console: Console) -> None:
    context, page, wrong = console.sign_in()
    console.flood("revert")
    expect(card(page, "revert")).to_contain_text("in force")
    button(card(page, "revert"), "Revert").click()
    asked = page.get_by_role("dialog")
    asked.get_by_role("button", name="Cancel").click()
    expect(asked).to_be_hidden()
    assert console.world.enforcer.limit_of("revert") is not None, "cancelled means cancelled"
    button(card(page, "revert"), "Revert").click()
    page.get_by_role("dialog").get_by_role("button", name="Revert").click()
    expect(button(card(page, "revert"), "Revert")).to_have_count(0)
    eventually(lambda: console.world.enforcer.limit_of("revert") is None, "the limit is gone")
    assert wrong == []
    context.close()


def test_keyboard_alone_is_enough(console: Console) -> None:
    context, page, wrong = console.open()
    expect(page.get_by_label("Your token")).to_be_focused()
    page.keyboard.type(API_TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Limits in force")).to_be_visible()
    console.flood("keys", labels={"isolate": "approve"})
    wanted = button(card(page, "keys"), "Approve")
    expect(wanted).to_be_visible()
    for _ in range(60):
        if wanted.evaluate("node => node === document.activeElement"):
            break
        page.keyboard.press("Tab")
    expect(wanted).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    expect(card(page, "keys")).to_contain_text("in force")
    assert wrong == []
    context.close()


def test_live_without_reloading_and_said_to_screen_readers(console: Console) -> None:
    context, page, wrong = console.sign_in()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    console.flood("live")
    expect(card(page, "live")).to_contain_text("in force")
    expect(page.locator("#said")).to_have_text(re.compile("is limited"))
    row = page.get_by_role("row").filter(has_text="teal")
    expect(row).to_contain_text("limited")
    expect(row.get_by_role("progressbar", name=re.compile("teal sends"))).to_have_count(1)
    for name in ("Waiting for approval", "Limits in force", "Tenants", "Latest actions"):
        expect(page.get_by_role("region", name=re.compile(name))).to_have_count(1)
    unnamed = page.get_by_role("button").evaluate_all(
        "nodes => nodes.filter(n => !(n.ariaLabel || n.textContent.trim())).length"
    )
    assert unnamed == 0
    assert wrong == []
    context.close()


def test_who_bought_nothing_is_not_above_it(console: Console) -> None:
    context, page, wrong = console.sign_in()
    row = page.get_by_role("row").filter(has_text="_watch")
    expect(row).to_contain_text("no contract")
    expect(row).to_contain_text("200 kbit/s")
    expect(row).not_to_contain_text("above guarantee")
    expect(row.get_by_role("progressbar")).to_have_count(0)
    assert wrong == []
    context.close()


def test_what_tenants_sent_is_drawn(console: Console) -> None:
    """With what was bought, for who bought something; the time under a limit is shaded."""
    context, page, wrong = console.sign_in()
    console.flood("approve")
    row = page.get_by_role("row").filter(has_text="red")
    picture = row.get_by_role("img", name=re.compile("red sent .* at most in the last 5 minutes"))
    expect(picture.locator("rect.limited").first).to_be_attached()
    eventually(
        lambda: len((picture.locator("polyline").get_attribute("points") or "").split()) >= 3,
        "each answer adds to the line",
    )
    assert picture.locator("line.guarantee").count() == 1
    assert page.get_by_role("row").filter(has_text="_watch").locator("line.guarantee").count() == 0
    shot(page, "tenants")
    assert wrong == []
    context.close()


def test_the_pages_beside_are_linked(console: Console) -> None:
    context, page, wrong = console.sign_in()
    bar = page.get_by_role("navigation", name="Pages")
    assert [link.inner_text() for link in bar.get_by_role("link").all()] == [e.text for e in NAVIGATION]
    assert bar.get_by_role("link", name="Mesh").get_attribute("href") == "http://127.0.0.1:9875/mesh"
    expect(bar.locator("[aria-current=page]")).to_have_text("Approvals and kill switch")
    bar.locator("[aria-current=page]").click()
    expect(page.get_by_role("heading", name="Limits in force")).to_be_visible()
    assert page.locator("h1").count() == 1
    assert wrong == []
    context.close()


def test_hostile_alert_text_is_inert(console: Console) -> None:
    context, page, wrong = console.sign_in()
    console.flood(
        "live",
        labels={"isolate": "approve", "severity": HOSTILE},
        annotations={"summary": HOSTILE, "description": "javascript:document.title='owned'"},
    )
    button(card(page, "live").first, "Details").click()
    expect(page.get_by_role("dialog")).to_contain_text("<img src=x onerror=")
    shot(page, "hostile")
    assert page.title().endswith("Approvals and kill switch – Vigia")
    assert page.locator("img, main script, dialog script").count() == 0
    assert wrong == []
    context.close()


def test_refused_alerts_are_shown_as_text(console: Console) -> None:
    context, page, wrong = console.sign_in()
    expect(page.get_by_role("region", name=re.compile("Refused alerts"))).to_be_hidden()
    bad = alert(SystemClock().now(), "live", "teal", annotations={"summary": HOSTILE})
    got = console.agent.post(bad | {"startsAt": "9999-01-01T00:00:00Z"})
    assert got.status_code == 202
    refused = page.get_by_role("region", name=re.compile("Refused alerts"))
    expect(refused).to_contain_text("alerts[0].startsAt: is not within 366 days before")
    expect(refused).to_contain_text("<img src=x onerror=")
    shot(page, "refused")
    assert page.locator("img, main script").count() == 0
    assert wrong == []
    context.close()


def test_expired_session_asks_to_sign_in_again_and_changes_nothing(console: Console) -> None:
    context, page, wrong = console.sign_in()
    page.get_by_role("button", name="Kill switch").click()
    with sqlite3.connect(console.world.dir / "agent.db", timeout=DEADLINE) as database:
        database.execute("UPDATE login_session SET expires_at = '2020-01-01 00:00:00.000000'")
    database.close()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_text("Your session has ended")).to_be_visible()
    expect(page.locator("main")).to_be_hidden()
    shot(page, "expired")
    assert console.agent.get("/v1/killswitch").json()["on"] is False
    page.get_by_label("Your token").fill("no such token, but long enough")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert").filter(has_text="not the token of any account")).to_be_visible()
    page.get_by_label("Your token").fill(API_TOKEN)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Limits in force")).to_be_visible()
    assert wrong == []
    context.close()


def test_a_viewer_sees_and_cannot_act(console: Console) -> None:
    context, page, wrong = console.sign_in(console.viewer)
    expect(page.get_by_text("vera (viewer)")).to_be_visible()
    for name in ("^Kill switch", "^Approve ", "^Reject ", "^Revert "):
        expect(page.get_by_role("button", name=re.compile(name))).to_have_count(0)
    refused = page.evaluate(
        """async () => {
            const me = await (await fetch("/v1/session")).json();
            const answer = await fetch("/v1/killswitch", {method: "PUT", body: '{"on": true}',
                headers: {"X-CSRF-Token": me.csrf, "Content-Type": "application/json"}});
            return answer.status;
        }"""
    )
    assert refused == 403
    assert wrong == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_a_phone(console: Console, scheme: Any) -> None:
    size = {"width": 360, "height": 740}
    context, page, wrong = console.sign_in(viewport=size, color_scheme=scheme, has_touch=True, is_mobile=True)
    expect(page.get_by_role("row").filter(has_text="teal")).to_be_visible()
    shot(page, f"phone-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360, "nothing sticks out"
    small = page.get_by_role("button").evaluate_all(
        "nodes => nodes.filter(n => n.checkVisibility() && n.getBoundingClientRect().height < 44).length"
    )
    assert small == 0, "every button is large enough for a thumb"
    assert wrong == []
    context.close()


def test_a_foreign_page_cannot_use_the_session(console: Console) -> None:
    context, page, wrong = console.sign_in()
    forged = page.evaluate(
        """async () => (await fetch("/v1/killswitch", {method: "PUT", body: '{"on": true}',
            headers: {"Content-Type": "application/json"}})).status"""
    )
    assert forged == 403, "the cookie alone is not enough"
    (cookie,) = context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert console.agent.get("/v1/killswitch").json()["on"] is False
    assert wrong == []
    context.close()


def test_the_first_paint_waits_for_the_page_alone(console: Console) -> None:
    """For no file: none comes until the top of the page is painted, in its colours."""
    context = console.browser.new_context()
    context.set_default_timeout(DEADLINE * 1000)
    held: list[Route] = []
    context.route("**/console/*", lambda route: held.append(route))
    page = context.new_page()
    page.goto(str(console.agent.http.base_url), wait_until="commit")
    page.wait_for_function('() => performance.getEntriesByName("first-contentful-paint").length === 1')
    assert page.locator("header").evaluate("n => getComputedStyle(n).display") == "flex", "as it stays"
    scripts = {"console.js", "model.js"}
    eventually(
        lambda: page.evaluate("1") and scripts <= {r.request.url.rpartition("/")[2] for r in held},
        "both scripts to be asked for, neither by the other",
    )
    for route in held:
        route.continue_()
    context.unroute_all()
    expect(page.get_by_label("Your token")).to_be_visible()
    context.close()


def test_the_page_fits_into_the_first_bytes_of_a_connection(console: Console) -> None:
    answer = console.agent.http.get("/")
    assert len(answer.content) < 10 * 1460, (
        "what a server sends before a browser has to say that it has it (RFC 6928)"
    )
    assert "stylesheet" not in answer.text


def test_nothing_inline_and_nothing_from_outside(console: Console) -> None:
    (styles,) = re.findall(r"<style>(.*?)</style>", console.agent.http.get("/").text, re.DOTALL)
    hashed = b64encode(sha256(styles.encode()).digest()).decode()
    assert f"; style-src 'sha256-{hashed}';" in CSP, "these styles, and no others"
    assert console.agent.http.get("/console/console.css").status_code == 404
    for path in (
        "/",
        "/console/console.js",
        "/console/model.js",
        "/console/icon.svg",
    ):
        answer = console.agent.http.get(path)
        assert answer.status_code == 200
        assert answer.headers["Content-Security-Policy"] == CSP
        assert "unsafe" not in CSP
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        text = re.sub(
            r'<a href="http://127\.0\.0\.1:9875/[a-z]*">', "", text
        )  # leads out, and fetches nothing
        assert not re.search(r"https?://|//[a-z]+\.", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text), path
        text = text.replace(f"<style>{styles}</style>", "")
        assert not re.search(r"<style|style=|\son\w+=|<script(?! type=\"module\" src=)", text), path


def test_kill_switch(console: Console) -> None:
    """Last, because it stops everything."""
    context, page, wrong = console.sign_in()
    console.flood("stop")
    expect(card(page, "stop")).to_contain_text("in force")
    page.get_by_role("button", name="Kill switch").click()
    asked = page.get_by_role("dialog")
    expect(asked).to_contain_text("Turn the kill switch on?")
    expect(asked).to_contain_text("removed from all nodes")
    asked.get_by_label("Reason").fill("maintenance")
    shot(page, "kill-dialog")
    asked.get_by_role("button", name="Turn it on").click()
    expect(page.get_by_text("The kill switch is on: all limits are removed")).to_be_visible()
    expect(page.get_by_text("No tenant is limited.")).to_be_visible()
    eventually(lambda: all(console.world.enforcer.limit_of(p) is None for p in PORTS), "every limit is gone")
    shot(page, "killed")
    page.get_by_role("button", name="Turn kill switch off").click()
    page.get_by_role("dialog").get_by_role("button", name="Turn it off").click()
    expect(page.get_by_role("button", name="Kill switch", exact=True)).to_be_visible()
    assert console.agent.get("/v1/killswitch").json()["on"] is False
    assert wrong == []
    context.close()
