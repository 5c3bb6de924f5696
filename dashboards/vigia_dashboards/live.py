"""What every panel and variable finds in a real Prometheus, asked as Grafana asks; as a page of the docs.

python -m vigia_dashboards.live --prometheus http://127.0.0.1:9090 --write docs/reference/panels.md
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vigia_dashboards.expressions import substituted
from vigia_dashboards.model import Dashboard, Panel, Query, Unit, Variable
from vigia_dashboards.pages import PAGES
from vigia_prometheus import Prometheus, PrometheusError
from vigia_text import numbers

__all__ = ["Found", "ask", "every_panel", "main", "offered", "page", "shown"]

STEP = 15
LOOK_BACK = 900
BLOCKS = "▁▂▃▄▅▆▇█"
MAX_SPARKS = 30
TIMEOUT = 60.0
AGAIN = 10.0
"""Seconds from one look at panels without data to the next."""
MOST_WAIT = 3600.0


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


def ask(server: Prometheus, query: Query, now: float) -> Found:
    """Evaluate a query over the last quarter of an hour. Raises PrometheusError."""
    series = server.range(substituted(query.expression), now - LOOK_BACK, now, STEP)
    return Found(query, [(s.labels, [value for _, value in s.points]) for s in series])


def offered(server: Prometheus, variable: Variable) -> list[str]:
    """Return what a variable offers. Raises PrometheusError."""
    selector, label = variable.query.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
    return server.label_values(label, [substituted(selector)])


_UNITS: Mapping[Unit, Callable[[float], str]] = {
    "s": numbers.seconds,
    "percentunit": numbers.percent,
    "bps": numbers.bits_per_second,
    "Bps": lambda v: f"{numbers.size(v)}/s",
    "bytes": numbers.size,
    "B": lambda v: f"{v:.0f} B",
    "pps": lambda v: numbers.quantity(v, "packets/s"),
    "ops": lambda v: numbers.quantity(v, "operations/s"),
    "cps": lambda v: numbers.quantity(v, "events/s"),
    "cpm": lambda v: numbers.quantity(v, "a minute"),
    "dateTimeFromNow": lambda v: datetime.fromtimestamp(v / 1000.0, UTC).isoformat(timespec="seconds"),
}
"""How values of Grafana's units are written; others have none."""


def shown(value: float, unit: Unit) -> str:
    """Return a value with its unit."""
    return _UNITS.get(unit, _plain)(value) if math.isfinite(value) else "no number"


def _plain(value: float) -> str:
    return numbers.count(value) if value.is_integer() else numbers.quantity(value, "").strip()


def spark(values: Sequence[float]) -> str:
    """Return values as a row of blocks, from the least of them to the most."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return numbers.MISSING
    low, high = min(finite), max(finite)
    width = math.ceil(len(finite) / MAX_SPARKS)
    means = [sum(finite[i : i + width]) / len(finite[i : i + width]) for i in range(0, len(finite), width)]
    span = (high - low) or 1.0
    return "".join(BLOCKS[round((v - low) / span * (len(BLOCKS) - 1))] for v in means)


def page(server: Prometheus, conditions: str, now: float) -> str:
    """Return the page. Raises PrometheusError."""
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
            values = offered(server, v)
            some = ", ".join(f"`{o}`" for o in values[:6]) + (", ..." if len(values) > 6 else "")
            lines.append(f"- variable `{v.name}`: {len(values)} values ({some or 'none'})")
        if dashboard.variables:
            lines.append("")
        lines += ["| panel | query | series | latest | of | shape |", "|---|---|--:|--:|---|---|"]
        for row in dashboard.rows:
            for panel in row.panels:
                lines += [_row(panel, ask(server, q, now), i == 0) for i, q in enumerate(panel.asked)]
    return "\n".join(lines) + "\n"


def _row(panel: Panel, found: Found, first: bool) -> str:
    query = " ".join(found.query.expression.split()).replace("|", "\\|")
    title = f"{panel.title}" if first else ""
    sample = found.sample
    if sample is None:
        why = f"no data; normal if {panel.quiet}" if panel.quiet else "no data"
        return f"| {title} | `{query}` | 0 | {why} | {numbers.MISSING} | {numbers.MISSING} |"
    labels, values = sample
    known = [v for v in values if math.isfinite(v)]
    latest = shown(known[-1] if known else math.nan, found.query.unit or panel.unit)
    return f"| {title} | `{query}` | {len(found.series)} | {latest} | {_name(labels)} | {spark(values)} |"


def _name(labels: Mapping[str, str]) -> str:
    left_out = ("__name__", "job", "instance")
    kept = [f"{k}={v}" for k, v in sorted(labels.items()) if k not in left_out and v]
    return f"`{' '.join(kept)}`".replace("|", "\\|") if kept else numbers.MISSING


def _conditions(server: Prometheus, now: float) -> str:
    targets = server.total("count(up == 1)", now)
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return (
        f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M} UTC; Prometheus {server.version()}, "
        f"{targets:.0f} targets up; Linux {platform.release().split('-')[0]}, "
        f"{os.cpu_count()} processors, load {load}."
    )


def _without_data(server: Prometheus, patience: float) -> list[str]:
    """Return the panels that lack data that they must have, for so many seconds. Raises PrometheusError."""
    until = time.monotonic() + patience
    waiting = [(d, p) for d, p in every_panel() if not p.quiet]
    while True:
        now = time.time()
        waiting = [(d, p) for d, p in waiting if not any(ask(server, q, now).series for q in p.asked)]
        left = until - time.monotonic()
        if not waiting or left <= 0:
            return [f"{d.uid}: {p.title}" for d, p in waiting]
        if sys.stderr.isatty():
            sys.stderr.write(f"waiting for data of {len(waiting)} panels, {left:.0f} s at most\n")
        time.sleep(min(AGAIN, left))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; exit 1 if Prometheus is away or a panel that must have data has none."""
    parser = argparse.ArgumentParser(prog="vigia_dashboards.live", description=__doc__)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", help="server to ask")
    parser.add_argument("--write", type=Path, help="file to write; standard output if left out")
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long to wait for panels without data: a young site has not measured all yet",
    )
    options = parser.parse_args(arguments)
    if not 0 <= options.wait <= MOST_WAIT:
        parser.error(f"--wait {options.wait:g}: write 0 to {MOST_WAIT:g} seconds")
    try:
        prometheus = Prometheus(options.prometheus, TIMEOUT)
    except ValueError as e:
        parser.error(f"--prometheus {options.prometheus}: {e}")
    try:
        with prometheus as server:
            empty = _without_data(server, options.wait)
            now = time.time()
            text = page(server, _conditions(server, now), now)
    except PrometheusError as e:
        sys.stderr.write(f"vigia_dashboards.live: cannot write the page: {e}\n")
        return 1
    if options.write:
        options.write.write_text(text)
        said = f"{len(empty)} lack it" if empty else "every one that must have data has some"
        sys.stdout.write(f"{options.write}: what {len(list(every_panel()))} panels find; {said}\n")
    else:
        sys.stdout.write(text)
    for title in empty:
        sys.stderr.write(f"vigia_dashboards.live: {title} has no data, which is never normal there\n")
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
