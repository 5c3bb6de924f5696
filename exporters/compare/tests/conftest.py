"""A real Prometheus with two hours of measurements whose raw samples the tests hold as well."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import pytest
from portkit import free_port

from vigia_compare import looks
from vigia_testing import DEADLINE, eventually

SCRAPE = 15.0
WINDOW = 60.0
PERIOD = 7200.0
ATTRIBUTION = 3600.0
PHASE = 17.25
"""When in a minute Prometheus evaluates the rules, seconds: by a hash of the group's name."""
AHEAD = 2400.0
"""The data go on into the future, since the programs under test go by the clock and may be slow."""
FLOODS = (300.0, 1010.0, 1900.0, 2430.0, 3120.0)
"""When red floods for 90 s, seconds since the period of attribution began."""


@dataclass
class World:
    """What was written, and where to ask."""

    url: str
    end: float
    """When the newest window was recorded."""
    page: str = ""
    """All samples as OpenMetrics."""
    medians: dict[str, np.ndarray] = field(default_factory=dict)
    """Median round trip per window by path, from the raw samples, seconds."""
    lost: float = 0.0
    """Probes of blue that were lost in the period of attribution."""
    dropped: float = 0.0
    """Packets that its queue dropped while they were."""


@dataclass
class Page:
    """An OpenMetrics page with time stamps."""

    families: dict[str, tuple[str, list[str]]] = field(default_factory=dict)

    def add(
        self, family: str, kind: str, sample: str, labels: str, at: np.ndarray, values: np.ndarray
    ) -> None:
        lines = self.families.setdefault(family, (kind, []))[1]
        lines += [f"{sample}{{{labels}}} {v:.9g} {t:.3f}" for t, v in zip(at, values, strict=True)]

    def text(self) -> str:
        out = []
        for name, (kind, lines) in self.families.items():
            out += [f"# TYPE {name} {kind}", *lines]
        return "\n".join(out) + "\n# EOF\n"


PATHS = {  # centre of the round trip in us, how often probes are lost, attributes
    "direct": (20.0, 0.0, 'dataplane="none",encap="none",mode="normal",security="none",layer="underlay"'),
    "ovs-gre": (30.0, 0.0, 'dataplane="ovs",encap="gre",mode="normal",security="none",layer="overlay"'),
    "ovs-vxlan": (36.0, 0.02, 'dataplane="ovs",encap="vxlan",mode="normal",security="none",layer="overlay"'),
    "twin-vxlan": (36.0, 0.02, 'dataplane="ovs",encap="vxlan",mode="normal",security="none",layer="overlay"'),
    "ovs-openflow": (
        45.0,
        0.0,
        'dataplane="ovs",encap="gre",mode="openflow",security="none",layer="overlay"',
    ),
    "ipsec": (50.0, 0.0, 'dataplane="ovs",encap="gre",mode="normal",security="esp",layer="overlay"'),
}


def _ends(world: World, period: float) -> np.ndarray:
    """Ends of the windows of a period, and the instant at which the first begins."""
    return world.end - period + WINDOW * np.arange(int(period / WINDOW) + 1)


def _at(instants: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The newest samples at instants."""
    return np.asarray(values[np.searchsorted(at, instants, side="right") - 1])


def _recorded(page: Page, what: str, labels: str, at: np.ndarray, values: np.ndarray) -> None:
    page.add(f"path:{what}", "gauge", f"path:{what}", labels, at, values)


def _paths(page: Page, world: World, rng: np.random.Generator) -> None:
    """What the rules record of each path by the minute, from 400 samples in each, and its counters by scrape."""
    minutes = world.end - PERIOD + WINDOW * np.arange(1, int((PERIOD + AHEAD) / WINDOW) + 1)
    at = world.end - PERIOD - WINDOW + SCRAPE * np.arange(1, int((PERIOD + AHEAD + WINDOW) / SCRAPE) + 1)
    total = 100.0 * np.arange(1, at.size + 1)
    for path, (centre, loss, attributes) in PATHS.items():
        labels = f'src="a",dst="b",path="{path}",tenant="_infra",probe="stamp-64"'
        drift = rng.lognormal(0.0, 0.02, minutes.size)[:, None]
        samples = centre * 1e-6 * drift * rng.lognormal(0.0, 0.1, (minutes.size, 400))
        world.medians[path] = np.median(samples, axis=1)[: int(PERIOD / WINDOW)]
        for name, quantile in (("p50", 0.5), ("p99", 0.99)):
            values = np.quantile(samples, quantile, axis=1)
            _recorded(page, f"vigia_probe_rtt_seconds:{name}_rate1m", labels, minutes, values)
        spread = np.subtract(*np.quantile(np.diff(samples, axis=1), (0.75, 0.25), axis=1))
        _recorded(page, "vigia_probe_delay_variation_seconds:iqr_rate1m", labels, minutes, spread)
        lost = np.cumsum(rng.binomial(100, loss, at.size)).astype(float)
        for name, counter in (("sent", total), ("lost", lost)):
            rate = (counter[3:] - counter[:-3]) / (3 * SCRAPE)
            _recorded(page, f"vigia_probe_{name}:rate1m", labels, at[3:], rate)
        page.add("vigia_probe_sent", "counter", "vigia_probe_sent_total", labels, at, total)
        page.add(
            "vigia_probe_lost", "counter", "vigia_probe_lost_total", f'{labels},cause="unknown"', at, lost
        )
        page.add(
            "vigia_path_info",
            "gauge",
            "vigia_path_info",
            f'path="{path}",placement="remote",{attributes},node="a"',
            at,
            np.ones(at.size),
        )
    for path, factor in (("ovs-gre", 1.1e7), ("ovs-vxlan", 1.0e7)):
        labels = f'src="a",dst="b",path="{path}",tenant="_infra",probe="bulk-tcp",protocol="tcp"'
        own = np.repeat(rng.normal(1.0, 0.02, at.size // 40 + 1), 40)[: at.size]
        page.add(
            "vigia_bulk_goodput_bytes_per_second",
            "gauge",
            "vigia_bulk_goodput_bytes_per_second",
            labels,
            at,
            factor * own,
        )


def _tenants(page: Page, world: World, rng: np.random.Generator) -> None:
    """Counters by the second, scraped every 15 s: red floods now and then, blue suffers, green does its own thing."""
    begun = world.end - ATTRIBUTION
    seconds = begun - 2 * WINDOW + np.arange(ATTRIBUTION + 2 * WINDOW + AHEAD)
    flood = np.logical_or.reduce([(seconds >= begun + f) & (seconds < begun + f + 90.0) for f in FLOODS])
    scraped = {job: slice(first, None, int(SCRAPE)) for job, first in (("exporter", 3), ("probe", 11))}

    def add(job: str, family: str, labels: str, growth: np.ndarray) -> np.ndarray:
        counter, where = np.cumsum(growth.astype(float)), scraped[job]
        page.add(family, "counter", f"{family}_total", labels, seconds[where], counter[where])
        ends = _at(_ends(world, ATTRIBUTION), seconds[where], counter[where])
        return np.diff(ends)

    traffic = {
        "red": 1e5 + 5e7 * flood,
        "blue": np.full(seconds.size, 1e6),
        "green": 1e6 * rng.random(seconds.size),
    }
    for tenant, rate in traffic.items():
        labels = f'node="n1",port="{tenant}-1",tenant="{tenant}",direction="from_tenant"'
        add("exporter", "vigia_port_bytes", labels, rate)
    labels = 'src="n1",dst="n2",path="ovs-gre",tenant="blue",probe="stamp-64",node="n1"'
    add("probe", "vigia_probe_sent", labels, np.full(seconds.size, 20.0))
    chance = np.where(flood, 0.3, 0.0)
    lost = add("probe", "vigia_probe_lost", f'{labels},cause="unknown"', rng.binomial(20, chance))
    world.lost = float(lost.sum())
    _fast(page, seconds[flood])
    drops = {"queue_full": 50 * flood + rng.poisson(1, seconds.size), "policed": rng.poisson(3, seconds.size)}
    for reason, counts in drops.items():
        more = f'node="n1",port="blue-1",tenant="blue",direction="from_tenant",reason="{reason}"'
        grew = add("exporter", "vigia_port_drops", more, counts)
        if reason == "queue_full":
            world.dropped = float(grew[lost > 0].sum())


def _fast(page: Page, at: np.ndarray) -> None:
    """The pages of a second while red floods, and what it bought."""

    def add(metric: str, part: str, labels: str, value: float) -> None:
        values = np.full(at.size, value)
        page.add(metric, "gauge", metric, f'job="vigia-{part}-fast",node="n1",{labels}', at, values)

    port, target = 'port="red-1",tenant="red"', 'src="n1",dst="n2",path="ovs-gre",tenant="blue",probe="p"'
    add("vigia_port_flood_score", "exporter", port, 97.0)
    add("vigia_port_udp_destination_ports", "exporter", port, 700.0)
    add("vigia_isolation_guarantee_bytes_per_second", "enforcer", f'{port},direction="from_tenant"', 5e6)
    add("vigia_probe_recent_loss_ratio", "probe", target, 0.3)


def _ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "prometheus ended"
    try:
        return httpx.get(f"{url}/-/ready", timeout=60, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages give up a look that this process had no processor for; only a fault takes so long."""
    monkeypatch.setattr(looks, "PATIENCE", DEADLINE)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("prometheus")
    url = f"http://127.0.0.1:{free_port()}"
    world = World(url, (time.time() - PHASE) // WINDOW * WINDOW + PHASE)
    page, rng = Page(), np.random.default_rng(7)
    _paths(page, world, rng)
    _tenants(page, world, rng)
    world.page = page.text()
    (folder / "page.txt").write_text(world.page)
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "page.txt", folder / "data"],
        check=True,
        capture_output=True,
    )
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    process = start(url, folder)
    try:
        yield world
    finally:
        process.terminate()
        process.wait(timeout=DEADLINE)


def start(url: str, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--storage.tsdb.retention.time=10d",
                f"--web.listen-address={url.removeprefix('http://')}",
            ],
            stdout=log,
            stderr=log,
        )
    eventually(lambda: _ready(url, process), "prometheus to be ready")
    return process
