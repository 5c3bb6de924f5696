"""Which panels of the dashboards have data in a Prometheus, asked as Grafana asks."""

from __future__ import annotations

import time
from typing import Any

import httpx

from vigia_dashboards.expressions import substituted
from vigia_dashboards.model import Panel
from vigia_dashboards.pages import PAGES

STEP = 15
LOOK_BACK = 900


class Panels:
    """Asks one Prometheus."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=60, trust_env=False, verify=False)  # noqa: S501 - plain HTTP

    def close(self) -> None:
        self._client.close()

    def _get(self, what: str, **parameters: str) -> Any:
        body = self._client.get(f"/api/v1/{what}", params=parameters).json()
        assert body["status"] == "success", (parameters, body)
        return body["data"]

    def has_data(self, panel: Panel) -> bool:
        """Whether any query of the panel had a value in the last quarter of an hour; an error of any is a failure."""
        now = time.time()
        asked = {"start": f"{now - LOOK_BACK:.0f}", "end": f"{now:.0f}", "step": str(STEP)}
        answers = [
            self._get("query_range", query=substituted(q.expression), **asked)["result"]
            for q in panel.queries
        ]
        return any(answers)

    def empty(self) -> dict[str, list[str]]:
        """Titles of the panels without data, by uid of their page."""
        found: dict[str, list[str]] = {}
        for page in PAGES:
            for row in page.rows:
                found.setdefault(page.uid, []).extend(p.title for p in row.panels if not self.has_data(p))
        return found

    def variables_without_values(self) -> list[str]:
        """Variables whose query finds nothing, as page.variable."""
        empty = []
        for page in PAGES:
            for v in page.variables:
                metric, label = v.query.removeprefix("label_values(").removesuffix(")").split(", ")
                if not self._get(f"label/{label}/values", **{"match[]": metric}):
                    empty.append(f"{page.uid}.{v.name}")
        return empty


def quiet() -> set[tuple[str, str]]:
    """The short list: panels that are empty while all is well, by uid and title."""
    return {(page.uid, p.title) for page in PAGES for row in page.rows for p in row.panels if p.quiet}
