"""Benchmark of the pages of a site of 100 nodes, run by make bench-pages: how soon a browser paints them.

The program is the one that operators run, its Prometheus a real one with the data of the site: a full mesh
on two paths, ports, floods and limits of 50 tenants, and two hours of six compared paths. A first visitor is one
for whom nothing is known yet, so that Prometheus is asked; further ones come before it is asked again.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser
from portkit import free_port

from vigia_compare.looks import HOLD
from vigia_testing import eventually
from vigia_testing.browser import chromium
from vigia_testing.paints import Paint, missed, paint, table

from .conftest import PATHS, PHASE, SCRAPE, WINDOW, Page, World, _paths, start
from .test_service import Running

CONTENT = {"/": ".banners li", "/mesh": ".matrix td", "/tenants": ".tenants td", "/incidents": ".cards li"}
"""What the visitor of each page comes for."""

TENANTS = 50
FLOODS = 20
AHEAD = 1800.0
"""Seconds for which the data go on: a run takes a few minutes."""

SPARSE = 240.0
"""Seconds between samples of gauges: Prometheus looks back for five minutes."""


def site(page: Page, end: float, nodes: int, ports: int) -> None:
    """Write what Prometheus would have of a site: each node probes each other one on two paths, and has tenants' ports."""
    names = [f"node-{i:03}" for i in range(nodes)]
    at = end - 360.0 + SPARSE * np.arange(int((AHEAD + 360.0) / SPARSE))
    rng = np.random.default_rng(20)
    _mesh(page, names, at, rng)
    _ports(page, names, ports, end, rng)
    for job in ("probe", "exporter", "enforcer"):
        for name in names:
            page.add("up", "gauge", "up", f'job="vigia-{job}",node="{name}"', at, np.ones(at.size))
    hour = end - 3600.0 + SCRAPE * np.arange(int((3600.0 + AHEAD) / SCRAPE))
    for i in range(min(FLOODS, nodes)):
        _trouble(page, names[i], f"tenant-{i % TENANTS:02}", hour[i * 5 :: 1])


def _mesh(page: Page, names: Sequence[str], at: np.ndarray, rng: np.random.Generator) -> None:
    records = ("loss:ratio_rate1m", "rtt_seconds:p99_rate1m", "rtt_seconds:p99_median10m")
    for path in list(PATHS)[:2]:
        for src in names:
            p99 = 1e-3 * rng.lognormal(0.0, 1.0, len(names))
            for dst, usual in zip(names, p99, strict=True):
                if src == dst:
                    continue
                labels = f'src="{src}",dst="{dst}",path="{path}",tenant="_infra",probe="stamp-64"'
                loss = 0.02 if rng.random() < 0.01 else 0.0
                for record, value in zip(records, (loss, 1.2 * usual, usual), strict=True):
                    name = f"path:vigia_probe_{record}"
                    page.add(name, "gauge", name, labels, at, np.full(at.size, value))


def _ports(page: Page, names: Sequence[str], ports: int, end: float, rng: np.random.Generator) -> None:
    """Counters of ports, as they are scraped, and what each has bought."""
    scraped = end - 360.0 + SCRAPE * np.arange(int((AHEAD + 360.0) / SCRAPE))
    bought = end - 360.0 + SPARSE * np.arange(int((AHEAD + 360.0) / SPARSE))
    for i, node in enumerate(names):
        for k in range(ports):
            labels = f'node="{node}",port="{node}-{k}",tenant="tenant-{(i + k) % TENANTS:02}"'
            for direction in ("from_tenant", "to_tenant"):
                more = f'{labels},direction="{direction}"'
                sent = np.cumsum(rng.random(scraped.size) * 1e7)
                page.add("vigia_port_bytes", "counter", "vigia_port_bytes_total", more, scraped, sent)
                name = "vigia_isolation_guarantee_bytes_per_second"
                page.add(name, "gauge", name, more, bought, np.full(bought.size, 5e6))
            dropped = np.cumsum(rng.integers(0, 2, scraped.size)).astype(float)
            more = f'{labels},direction="from_tenant",reason="queue_full"'
            page.add("vigia_port_drops", "counter", "vigia_port_drops_total", more, scraped, dropped)


def _trouble(page: Page, node: str, tenant: str, at: np.ndarray) -> None:
    """A tenant floods from a node, is limited there, and an alert says so."""
    port = f'node="{node}",port="{node}-0",tenant="{tenant}"'
    alert = f'alertname="VigiaUdpFlood",severity="critical",node="{node}",tenant="{tenant}"'
    limit = f'{port},direction="from_tenant",protocol="udp"'
    for name, labels, value in (
        ("vigia_port_flood_score", port, 95.0),
        ("vigia_isolation_limit_bytes_per_second", limit, 5e6),
        ("ALERTS", f'{alert},alertstate="firing"', 1.0),
        ("ALERTS_FOR_STATE", alert, float(at[0])),
    ):
        page.add(name, "gauge", name, labels, at, np.full(at.size, value))


@contextmanager
def served(folder: Path, nodes: int, ports: int) -> Iterator[Running]:
    """Run the program beside a Prometheus with the site's data, and wait until it has compared."""
    url = f"http://127.0.0.1:{free_port()}"
    world = World(url, (time.time() - PHASE) // WINDOW * WINDOW + PHASE)
    page = Page()
    _paths(page, world, np.random.default_rng(7))
    site(page, world.end, nodes, ports)
    (folder / "page.txt").write_text(page.text())
    argv = ["promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "page.txt", folder / "data"]
    subprocess.run(argv, check=True, capture_output=True)
    (folder / "page.txt").unlink()
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    prometheus = start(url, folder)
    try:
        program = Running(folder, prometheus=url, every="60s")
        try:
            eventually(lambda: program.get("/v1/comparisons").status_code == 200, "a comparison", 300.0)
            yield program
        finally:
            program.process.send_signal(signal.SIGTERM)
            program.process.wait(timeout=60)
    finally:
        prometheus.terminate()
        prometheus.wait(timeout=60)


def visits(browser: Browser, url: str, rounds: int, further: int, pause: float) -> dict[str, list[Paint]]:
    """Visit all pages in turn, each when what was seen is forgotten, and some times more at once."""
    found: dict[str, list[Paint]] = {f"{p}, {who}": [] for p in CONTENT for who in ("first", "further")}
    order = list(CONTENT)
    for _ in range(rounds):
        for address in order:
            time.sleep(pause)
            found[f"{address}, first"].append(paint(browser, url + address, CONTENT[address]))
            found[f"{address}, further"] += [
                paint(browser, url + address, CONTENT[address]) for _ in range(further)
            ]
        order.append(order.pop(0))  # who comes first asks for what all pages have
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; 1 if a page is not painted as soon as is promised."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--ports", type=int, default=10, help="tenants' ports of each node")
    parser.add_argument("--rounds", type=int, default=5, help="first visits of each page")
    parser.add_argument("--further", type=int, default=3, help="further visits after each first one")
    parser.add_argument("--json", action="store_true", help="print data")
    asked = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="vigia-pages-") as name,
        served(Path(name), asked.nodes, asked.ports) as program,
        chromium() as browser,
    ):
        paint(browser, f"http://{program.listen}/-/healthy", "body")  # the browser has its own first time
        found = visits(browser, f"http://{program.listen}", asked.rounds, asked.further, HOLD + 1.0)
    if asked.json:
        sys.stdout.write(json.dumps({k: [asdict(p) for p in v] for k, v in found.items()}) + "\n")
    else:
        sys.stdout.write(f"vigia-compare, {asked.nodes} nodes, {asked.ports} ports each, {TENANTS} tenants: ")
        sys.stdout.write(table(found))
    return int(bool(missed(found)))


if __name__ == "__main__":
    sys.exit(main())
