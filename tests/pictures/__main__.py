"""The command line: `python -m pictures` in tests/, which `make pictures` runs."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grafanakit import Grafana, grafana
from playwright.sync_api import Browser, Page, expect

import pictures
from pictures.camera import VIEWS, Camera
from pictures.kept import keep, moments, served
from pictures.scene import VICTIM, Scene, carrying, flooded, own, settled
from vigia_dashboards.pages import PAGES
from vigia_dashboards.pages.own import OWN
from vigia_testing.browser import chromium

IMAGES = Path(__file__).resolve().parents[2] / "docs/images"
WEB = {"comparison": "/", "mesh": "/mesh", "tenants": "/tenants", "incident": "/incidents"}
DASHBOARDS = {page.uid.replace("vigia-", "dashboard-", 1): page.uid for page in PAGES if page is not OWN}
"""The operator's; a tenant's own page asks through a proxy."""
CHOSEN = {
    "dashboard-path": "var-path=linuxbridge-vxlan&var-probe=stamp-64&",
    "dashboard-incident": f"var-tenant={VICTIM}&",
}
"""What pages on one thing are opened with."""
NAMES = (*WEB, "console", *DASHBOARDS)
EXTRA = {
    "dark": ("comparison", "tenants-flood", "console-flood", "dashboard-now-flood", "dashboard-comparison"),
    "narrow": ("tenants-flood", "dashboard-now-flood", "dashboard-tenants-flood"),
}
"""Pictures that docs/images has in other views than the usual one, to keep the repository small."""


WATCHED = """() => (document.querySelector("polyline.sent")?.getAttribute("points") ?? "").split(" ").length >= 10"""
"""Whether the console has watched the tenants for some seconds, of which it draws a line."""


def named(name: str, *, flood: bool) -> str:
    """Return what the picture of a page is called. That of an incident is of a flood."""
    if name == "incident":
        return "incident" if flood else "incident-quiet"
    return f"{name}-flood" if flood else name


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the pictures that were asked for and return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    names = options.only or [n for n in NAMES if n not in DASHBOARDS or os.environ.get("GRAFANA_HOME")]
    _check(parser, options, names)
    with chromium() as browser:
        work = Work(browser, options.output, names, options.view)
        if options.kept:
            work.dashboards(options.kept)
        elif options.url:
            token = options.token_file.read_text().strip() if options.token_file else ""
            scene = Scene(options.url.rstrip("/"), options.console.rstrip("/"), token, options.prometheus)
            work.web(scene, flood=False)
            if scene.prometheus:
                with _grafana(scene.prometheus) as server:
                    work.board(server, None, flood=False)
        else:
            with _folder(options.keep) as folder:
                work.lab(folder)
                work.dashboards(folder)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pictures", description=pictures.__doc__)
    add = parser.add_argument
    add("--only", action="append", choices=NAMES, default=[], help="this page alone (repeatable)")
    add("--view", action="append", choices=VIEWS, default=[], help="default: light, and others of some pages")
    add("--output", type=Path, default=IMAGES, help="default: docs/images")
    add(
        "--url",
        help="of a vigia-compare that runs, as http://127.0.0.1:9875; default: a lab of its own, with a flood",
    )
    add("--console", default="", help="with --url: of the isolation agent, as http://127.0.0.1:9874")
    add("--token-file", type=Path, help="with --console: the token to sign in with")
    add("--prometheus", default="", help="with --url: the dashboards' Prometheus, as http://127.0.0.1:9090")
    add("--keep", type=Path, help="where to keep what the lab's Prometheus has, for --kept")
    add("--kept", type=Path, help="take the dashboards again, of what --keep has kept, without a lab")
    return parser


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace, names: Sequence[str]) -> None:
    """Refuse what cannot be done before anything is started."""
    if bool(options.console) != bool(options.token_file):
        parser.error("--console and --token-file go together: the console asks for a token")
    if not options.output.is_dir():
        parser.error(f"--output: {options.output} is no folder; make it")
    if any(n in DASHBOARDS for n in names) and not os.environ.get("GRAFANA_HOME"):
        parser.error("dashboards need a Grafana: set GRAFANA_HOME to the folder of an installation")
    if options.kept:
        try:
            moments(options.kept)
        except ValueError as e:
            parser.error(f"--kept: {e}")


def say(text: str) -> None:
    """Tell what is done."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass
class Work:
    """What is to be taken."""

    browser: Browser
    output: Path
    names: Sequence[str]
    views: Sequence[str]
    """All pages in these; empty: all as usual, and those of EXTRA in others."""

    def lab(self, folder: Path) -> None:
        """Take the pages of a lab of its own, and keep what its Prometheus has."""
        when = {}
        with own(say) as scene:
            settled(scene, say)
            with carrying(scene, say):
                when["quiet"] = time.time()
                self.web(scene, flood=False)
                with flooded(scene, say):
                    self.web(scene, flood=True)
                    when["flood"] = time.time()
            keep(scene.data, folder, when)

    def web(self, scene: Scene, *, flood: bool) -> None:
        """Take the web pages in one state."""
        for name in self.names:
            if name in WEB:
                self._page(named(name, flood=flood), scene.comparison + WEB[name], live)
            elif name == "console" and scene.console:
                self._page(named(name, flood=flood), scene.console, signing_in(scene.token))

    def dashboards(self, folder: Path) -> None:
        """Take the dashboards of what was kept."""
        if not any(n in DASHBOARDS for n in self.names):
            return
        with served(folder) as prometheus, _grafana(prometheus) as server:
            for name, at in moments(folder).items():
                self.board(server, at, flood=name == "flood")

    def board(self, server: Grafana, at: float | None, *, flood: bool) -> None:
        """Take the dashboards in one state."""
        for name in self.names:
            if name in DASHBOARDS:
                file = named(name, flood=flood)
                for view in self._views(file):
                    page = f"{DASHBOARDS[name]}?{CHOSEN.get(name, '')}"
                    self._camera.dashboard(file, server, page, at, VIEWS[view])

    def _page(self, file: str, url: str, ready: Callable[[Page], None]) -> None:
        for view in self._views(file):
            self._camera.web(file, url, ready, VIEWS[view])

    def _views(self, file: str) -> Sequence[str]:
        return self.views or ("light", *(view for view, files in EXTRA.items() if file in files))

    @property
    def _camera(self) -> Camera:
        return Camera(self.browser, self.output, say)


def live(page: Page) -> None:
    """Wait until a page of vigia-compare has been brought up to date."""
    expect(page.locator("#pulse")).to_have_text("live")


def signing_in(token: str) -> Callable[[Page], None]:
    """Return what signs in to the console and waits for what it shows."""

    def ready(page: Page) -> None:
        page.get_by_label("Your token").fill(token)
        page.keyboard.press("Enter")
        expect(page.locator("#main")).to_be_visible()
        expect(page.locator("#tenants-table")).to_be_visible()
        expect(page.locator("#pulse")).to_have_text("live")
        page.wait_for_function(WATCHED)

    return ready


@contextmanager
def _grafana(prometheus: str) -> Iterator[Grafana]:
    """Start a Grafana for the block."""
    with tempfile.TemporaryDirectory() as folder, grafana(Path(folder), prometheus) as server:
        yield server


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    """Yield the folder to keep data in: the given one, or one that goes with the block."""
    if given:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
