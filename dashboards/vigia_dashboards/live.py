"""What every panel and variable finds in a real Prometheus, asked as Grafana asks; as a page of the docs.

python -m vigia_dashboards.live --prometheus http://127.0.0.1:9090 --write docs/reference/panels.md
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from vigia_dashboards.expressions import substituted
from vigia_dashboards.model import Dashboard, Panel, Query, Variable
from vigia_dashboards.pages import PAGES

__all__ = ["Found", "Server", "every_panel", "main", "page", "quantity"]

STEP = 15
LOOK_BACK = 900
BLOCKS = "▁▂▃▄▅▆▇█"
MAX_SPARKS = 30
NOTHING = "–"


class Unreachable(Exception):
    """Prometheus is away or refuses a query."""


class Server:
    """One Prometheus."""

    def __init__(self, url: str, timeout: float = 60.0) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise Unreachable(f"--prometheus {url}: is not a URL; write for example http://127.0.0.1:9090")
        self.url = url
        self._where = (parts.hostname, parts.port or 80, timeout)

    def ask(self, what: str, parameters: Mapping[str, str] | Sequence[tuple[str, str]] = ()) -> Any:
        """Return the data of an API call. Raises Unreachable."""
        host, port, timeout = self._where
        connection = HTTPConnection(host, port, timeout=timeout)
        try:
            connection.request("GET", f"/api/v1/{what}?{urlencode(parameters)}")
            body = json.loads(connection.getresponse().read())
        except (OSError, HTTPException, ValueError) as e:
            raise Unreachable(f"ask {self.url}: {e or type(e).__name__}; is Prometheus running?") from e
        finally:
            connection.close()
        if body["status"] != "success":
            raise Unreachable(f"{self.url} refuses {dict(parameters)}: {body.get('error')}")
        return body["data"]

    def found(self, query: Query, now: float) -> Found:
        """Evaluate a query over the last quarter of an hour. Raises Unreachable."""
        expression = substituted(query.expression)
        asked = {"start": f"{now - LOOK_BACK:.0f}", "end": f"{now:.0f}", "step": str(STEP)}
        series = self.ask("query_range", {"query": expression, **asked})["result"]
        return Found(query, [(s["metric"], [float(v) for _, v in s["values"]]) for s in series])

    def values(self, variable: Variable) -> list[str]:
        """Return what a variable offers. Raises Unreachable."""
        metric, label = variable.query.removeprefix("label_values(").removesuffix(")").split(", ")
        found: list[str] = self.ask(f"label/{label}/values", {"match[]": metric})
        return found


@dataclass(frozen=True)
class Found:
    """The series of one query: labels, and values oldest first."""

    query: Query
    series: Sequence[tuple[Mapping[str, str], Sequence[float]]]

    @property
    def sample(self) -> tuple[Mapping[str, str], Sequence[float]] | None:
        """The series with the most values that are numbers, the first of equals."""
        return max(self.series, key=lambda s: sum(map(math.isfinite, s[1])), default=None)


def every_panel() -> Iterator[tuple[Dashboard, Panel]]:
    """Yield every panel with its dashboard."""
    for dashboard in PAGES:
        for row in dashboard.rows:
            for panel in row.panels:
                yield dashboard, panel


_BIG = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (0.0, ""))
_SCALES: Mapping[str, tuple[Sequence[tuple[float, str]], str]] = {
    "s": (((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")), "s"),
    "percentunit": (((0.01, ""),), "%"),
    "bps": (_BIG, "bit/s"),
    "Bps": (_BIG, "B/s"),
    "pps": (_BIG, "packets/s"),
    "bytes": (_BIG, "B"),
    "ops": (_BIG, "/s"),
    "cps": (_BIG, "/s"),
}
"""Prefixes of a unit, largest first, and its symbol."""


def quantity(value: float, unit: str) -> str:
    """Return a value with its unit as Grafana shows it, to four digits."""
    if not math.isfinite(value):
        return "no number"
    if unit == "dateTimeFromNow":
        return datetime.fromtimestamp(value / 1000.0, UTC).isoformat(timespec="seconds")
    scales, symbol = _SCALES.get(unit, (((0.0, ""),), ""))
    scale, prefix = next((s for s in scales if abs(value) >= s[0]), scales[-1])
    return f"{value / (scale or 1.0):.4g} {prefix}{symbol}".strip()


def spark(values: Sequence[float]) -> str:
    """Return values as a row of blocks, from the least of them to the most."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return NOTHING
    low, high = min(finite), max(finite)
    width = math.ceil(len(finite) / MAX_SPARKS)
    means = [sum(finite[i : i + width]) / len(finite[i : i + width]) for i in range(0, len(finite), width)]
    span = (high - low) or 1.0
    return "".join(BLOCKS[round((v - low) / span * (len(BLOCKS) - 1))] for v in means)


def page(server: Server, conditions: str, now: float) -> str:
    """Return the page. Raises Unreachable."""
    lines = [
        "# What every panel finds",
        "",
        "Written by `make panels` from a running demo: every query asked of its Prometheus as by Grafana,",
        f"variables at All, over {LOOK_BACK // 60} minutes in steps of {STEP} s.",
        "",
        conditions,
        "",
        "*Series* counts all that the query found. *Latest* and *shape* (least to most) are those of",
        "the series named. A panel without data says when that is normal.",
    ]
    for dashboard in PAGES:
        lines += ["", f"## {dashboard.title}", ""]
        for v in dashboard.variables:
            offered = server.values(v)
            shown = ", ".join(f"`{o}`" for o in offered[:6]) + (", ..." if len(offered) > 6 else "")
            lines.append(f"- variable `{v.name}`: {len(offered)} values ({shown or 'none'})")
        lines += ["", "| panel | query | series | latest | of | shape |", "|---|---|--:|--:|---|---|"]
        for row in dashboard.rows:
            for panel in row.panels:
                lines += [_row(panel, server.found(q, now), i == 0) for i, q in enumerate(panel.queries)]
    return "\n".join(lines) + "\n"


def _row(panel: Panel, found: Found, first: bool) -> str:
    query = " ".join(found.query.expression.split()).replace("|", "\\|")
    title = f"{panel.title}" if first else ""
    sample = found.sample
    if sample is None:
        why = f"no data; normal if {panel.quiet}" if panel.quiet else "no data"
        return f"| {title} | `{query}` | 0 | {why} | {NOTHING} | {NOTHING} |"
    labels, values = sample
    known = [v for v in values if math.isfinite(v)]
    latest = quantity(known[-1] if known else math.nan, panel.unit)
    return f"| {title} | `{query}` | {len(found.series)} | {latest} | {_name(labels)} | {spark(values)} |"


def _name(labels: Mapping[str, str]) -> str:
    left_out = ("__name__", "job", "instance")
    kept = [f"{k}={v}" for k, v in sorted(labels.items()) if k not in left_out and v]
    return f"`{' '.join(kept)}`".replace("|", "\\|") if kept else NOTHING


def _conditions(server: Server, now: float) -> str:
    build = server.ask("status/buildinfo")["version"]
    up = server.ask("query", {"query": "count(up == 1)", "time": f"{now:.0f}"})["result"]
    targets = up[0]["value"][1] if up else "0"
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return (
        f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M} UTC; Prometheus {build}, {targets} targets up; "
        f"Linux {platform.release().split('-')[0]}, {os.cpu_count()} processors, load {load}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; exit 1 if Prometheus is away or a panel that must have data has none."""
    parser = argparse.ArgumentParser(prog="vigia_dashboards.live", description=__doc__)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", help="server to ask")
    parser.add_argument("--write", type=Path, help="file to write; standard output if left out")
    options = parser.parse_args(arguments)
    try:
        server, now = Server(options.prometheus), time.time()
        text = page(server, _conditions(server, now), now)
        empty = [
            f"{d.uid}: {p.title}"
            for d, p in every_panel()
            if not p.quiet and not any(server.found(q, now).series for q in p.queries)
        ]
    except Unreachable as e:
        sys.stderr.write(f"vigia_dashboards.live: {e}\n")
        return 1
    if options.write:
        options.write.write_text(text)
    else:
        sys.stdout.write(text)
    for title in empty:
        sys.stderr.write(f"vigia_dashboards.live: {title} has no data, which is never normal there\n")
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
