"""A throw-away Grafana with Vigia's dashboards, and a browser that opens them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import yaml
from playwright.sync_api import Page, Response
from portkit import free_port

from vigia_dashboards.grafana import MISSING
from vigia_dashboards.model import Dashboard
from vigia_dashboards.pages import PAGES
from vigia_testing.browser import chromium

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 60_000
"""Milliseconds that a panel may take to appear."""
LOADED = 180_000
"""Milliseconds that a page, and a picture of it, may take."""

UNKNOWN = (MISSING, "NaN", "null", "undefined", "no data")
"""What Grafana writes into an address for what it does not know."""

IMAGE = re.compile(r"(?:docker\.io/)?grafana/grafana(?:-oss)?:\S+")
INI = """
[paths]
data = {folder}/data
logs = {folder}/log
plugins = {folder}/plugins
provisioning = {folder}/provisioning
[log]
mode = console
[server]
http_addr = 127.0.0.1
http_port = {port}
[analytics]
reporting_enabled = false
check_for_updates = false
check_for_plugin_updates = false
feedback_links_enabled = false
[plugins]
plugin_admin_enabled = false
[news]
news_feed_enabled = false
[security]
disable_gravatar = true
[snapshots]
external_enabled = false
[auth.anonymous]
enabled = true
org_role = Viewer
"""


def missing() -> str:
    """Why no Grafana can be had here; empty if one can."""
    home = os.environ.get("GRAFANA_HOME")
    if home:
        return ""  # a wrong one is a failure, not a reason to skip
    if _image():
        return ""
    return (
        "no Grafana: GRAFANA_HOME names no installation and Docker has no image grafana/grafana; "
        "no package registry carries it, see https://grafana.com/docs/grafana/latest/setup-grafana/installation/"
    )


def _image() -> str:
    if not shutil.which("docker"):
        return ""
    listed = subprocess.run(
        ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return next((i for i in listed.stdout.split() if IMAGE.fullmatch(i)), "")


def _command(folder: Path) -> list[str]:
    """How to start Grafana with the configuration of a folder."""
    home = os.environ.get("GRAFANA_HOME")
    ini = str(folder / "grafana.ini")
    if not home:
        mounts = ["-v", f"{folder}:{folder}", "-v", f"{ROOT}:{ROOT}:ro"]
        user = ["--user", f"{os.getuid()}:{os.getgid()}"]
        return ["docker", "run", "--rm", "--network=host", *user, *mounts, _image(), f"--config={ini}"]
    for program, words in (("grafana", ["server"]), ("grafana-server", [])):
        path = Path(home, "bin", program)
        if path.is_file():
            return [str(path), *words, f"--homepath={home}", f"--config={ini}"]
    raise AssertionError(f"GRAFANA_HOME={home}: has neither bin/grafana nor bin/grafana-server")


@dataclass
class Seen:
    """What opening one dashboard showed."""

    picture: Path
    problems: list[str] = field(default_factory=list)
    queries: int = 0
    """Answers to panels' queries."""


@dataclass(frozen=True)
class Grafana:
    """One that runs."""

    url: str
    log: Path

    def errors(self) -> list[str]:
        """Lines of its log of level error."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if re.search(r"\b(?:level=error|lvl=eror|lvl=crit)\b", line)]


@contextmanager
def grafana(folder: Path, prometheus: str) -> Iterator[Grafana]:
    """Provision and start one; it ends with the block."""
    port = free_port()
    _provision(folder, prometheus, port)
    log = folder / "console.log"
    with log.open("wb") as out:
        process = subprocess.Popen(_command(folder), stdout=out, stderr=subprocess.STDOUT, cwd=folder)
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 120
        while not _healthy(url):
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, "Grafana is not healthy within 120 s"
            time.sleep(0.5)
        yield Grafana(url, log)
    finally:
        process.terminate()
        process.wait(timeout=180)


def _provision(folder: Path, prometheus: str, port: int) -> None:
    """Write what deploy/grafana ships, with this Prometheus and this tree's dashboards."""
    shutil.copytree(ROOT / "deploy/grafana/provisioning", folder / "provisioning")
    for kind in ("plugins", "alerting", "notifiers"):
        (folder / "provisioning" / kind).mkdir(exist_ok=True)
    (source,) = (folder / "provisioning/datasources").glob("*.yaml")
    content = yaml.safe_load(source.read_text())
    content["datasources"][0]["url"] = prometheus
    source.write_text(yaml.safe_dump(content))
    (provider,) = (folder / "provisioning/dashboards").glob("*.yaml")
    content = yaml.safe_load(provider.read_text())
    content["providers"][0]["options"]["path"] = str(ROOT / "dashboards/json")
    provider.write_text(yaml.safe_dump(content))
    (folder / "grafana.ini").write_text(INI.format(folder=folder, port=port))


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/health", timeout=5, trust_env=False).json().get("database") == "ok"
    except (httpx.HTTPError, ValueError):
        return False


def look(server: Grafana, pages: list[Dashboard], pictures: Path) -> dict[str, Seen]:
    """Open every dashboard in headless Chromium, tall enough that every panel loads, and take its picture."""
    found = {}
    with chromium() as browser:
        for page in pages:
            tab = browser.new_page(viewport={"width": 1600, "height": 6000})
            tab.set_default_timeout(LOADED)
            found[page.uid] = _open(tab, server, page, pictures / f"{page.uid}.png")
            tab.close()
    return found


def _open(tab: Page, server: Grafana, page: Dashboard, picture: Path) -> Seen:
    seen = Seen(picture)

    def answered(response: Response) -> None:
        if "/api/ds/query" not in response.url and "/api/datasources/proxy" not in response.url:
            return
        seen.queries += 1
        body = response.text()
        if response.status >= 400 or '"error":' in body:
            seen.problems.append(f"{response.status} {response.url}: {body[:300]}")

    tab.on("response", answered)
    tab.on("pageerror", lambda e: seen.problems.append(f"script: {e}"))
    tab.goto(f"{server.url}/d/{page.uid}?from=now-15m&to=now&kiosk", wait_until="networkidle")
    for row in page.rows:
        for panel in row.panels:
            try:
                tab.get_by_text(panel.title, exact=True).first.wait_for(state="attached", timeout=PATIENCE)
            except Exception:
                seen.problems.append(f"panel {panel.title} is not there")
    for marked in tab.locator(
        "[data-testid*='Panel status error'], .panel-info-corner--error, [aria-label='Panel status error']"
    ).all():
        seen.problems.append(f"panel error: {marked.get_attribute('aria-label') or marked.text_content()}")
    for text in ("Panel plugin not found", "An unexpected error happened", "Dashboard not found"):
        if tab.get_by_text(text).count():
            seen.problems.append(text)
    seen.problems += [f"link to nowhere: {link}" for link in _links(tab) if not _leads(link)]
    tab.screenshot(path=picture)
    return seen


def _links(tab: Page) -> list[str]:
    """Addresses that cells and numbers open, with what Grafana put in for the row."""
    found: list[str] = tab.eval_on_selector_all(
        ".react-grid-item a[href*='/d/']", "all => all.map(a => a.getAttribute('href'))"
    )
    return found


def _leads(address: str) -> bool:
    """Whether a page of ours is opened, and every value was known."""
    parts = urlsplit(address)
    values = parse_qs(parts.query, keep_blank_values=True)
    known = all(v and v not in UNKNOWN and "${" not in v for vs in values.values() for v in vs)
    return known and parts.path.removeprefix("/d/").split("/")[0] in {p.uid for p in PAGES}
