"""The dashboards' committed JSON, and which panels have data in a Prometheus, asked as Grafana asks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vigia_dashboards.__main__ import FOLDER
from vigia_dashboards.live import TIMEOUT, ask, every_panel, offered
from vigia_dashboards.model import Dashboard
from vigia_dashboards.pages import PAGES
from vigia_dashboards.tables import at, holes
from vigia_prometheus import Prometheus


def document(page: Dashboard) -> Any:
    """Return the committed JSON of a page."""
    return json.loads((FOLDER / f"{page.uid}.json").read_text())


def panels_of(page: Dashboard) -> Iterator[Any]:
    """Yield the panels of the committed JSON, without the rows that they are in."""
    for panel in document(page)["panels"]:
        yield from panel.get("panels") or ([panel] if panel["type"] != "row" else [])


def by_title(page: Dashboard) -> dict[str, Any]:
    """Return the panels of the committed JSON by their titles."""
    return {panel["title"]: panel for panel in panels_of(page)}


def properties(panel: Any, heading: str) -> dict[str, Any]:
    """Return what is special of a column or series of a panel of the JSON, nothing if there is nothing."""
    return {
        p["id"]: p["value"]
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["options"] == heading
        for p in override["properties"]
    }


@contextmanager
def panels_at(url: str) -> Iterator[Panels]:
    """Ask the Prometheus at an address until the end of the block."""
    with Prometheus(url, TIMEOUT) as server:
        yield Panels(server)


class Panels:
    """Asks one Prometheus."""

    def __init__(self, server: Prometheus) -> None:
        self._server = server

    def empty(self) -> dict[str, list[str]]:
        """Titles of the panels without data, by uid of their page; an error of any query is a failure."""
        now = time.time()
        found: dict[str, list[str]] = {page.uid: [] for page in PAGES}
        for page, panel in every_panel():
            answers = [ask(self._server, q, now).series for q in panel.asked]
            if not any(answers):
                found[page.uid].append(panel.title)
        return found

    def holes(self) -> list[str]:
        """Cells of tables that have nothing in them though that is not normal; an error of any query is a failure."""
        now = time.time()
        return [
            f"{page.uid}: {hole}"
            for page, panel in every_panel()
            if panel.kind == "table"
            for hole in holes(panel, at(self._server, panel, now))
        ]

    def variables_without_values(self) -> list[str]:
        """Variables whose query finds nothing, as page.variable."""
        return [f"{p.uid}.{v.name}" for p in PAGES for v in p.variables if not offered(self._server, v)]


def quiet() -> set[tuple[str, str]]:
    """The short list: panels that are empty while all is well, by uid and title."""
    return {(page.uid, p.title) for page, p in every_panel() if p.quiet}
