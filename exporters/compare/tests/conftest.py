"""A real Prometheus with two hours of measurements whose raw samples the tests hold as well."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import pytest

from vigia_testing import eventually

SCRAPE = 15.0
WINDOW = 60.0
PERIOD = 7200.0
AHEAD = 2400.0
"""The data go on into the future, since the programs under test go by the clock and may be slow."""
BOUNDS = np.concatenate([np.arange(1e-6, 1e-4, 1e-6), [1e-3]])


@dataclass
class World:
    """What was written, and where to ask."""

    url: str
    end: float
    medians: dict[str, np.ndarray] = field(default_factory=dict)
    """Median round trip per window by path, from the raw samples, seconds."""
    lost: float = 0.0
    """Probes of blue that were lost in the last ten minutes."""
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


def _paths(page: Page, world: World, rng: np.random.Generator) -> None:
    at = world.end - PERIOD - SCRAPE + SCRAPE * np.arange(int((PERIOD + AHEAD) / SCRAPE) + 2)
    for path, (centre, loss, attributes) in PATHS.items():
        labels = f'src="a",dst="b",path="{path}",tenant="_infra",probe="stamp-64"'
        drift = np.repeat(rng.lognormal(0.0, 0.02, at.size // 4 + 2), 4)[2 : at.size + 2, None]
        samples = centre * 1e-6 * drift * rng.lognormal(0.0, 0.1, (at.size, 100))
        measured = 2 + int(PERIOD / SCRAPE)
        per_window = samples[2:measured].reshape(-1, 4 * 100)
        world.medians[path] = np.median(per_window, axis=1)
        counts = np.cumsum((samples[:, :, None] <= BOUNDS).sum(axis=1), axis=0)
        for i, bound in enumerate(BOUNDS):
            page.add(
                "vigia_probe_rtt_seconds",
                "histogram",
                "vigia_probe_rtt_seconds_bucket",
                f'{labels},le="{bound:.6g}"',
                at,
                counts[:, i],
            )
        total = 100.0 * np.arange(1, at.size + 1)
        page.add(
            "vigia_probe_rtt_seconds",
            "histogram",
            "vigia_probe_rtt_seconds_bucket",
            f'{labels},le="+Inf"',
            at,
            total,
        )
        page.add("vigia_probe_sent", "counter", "vigia_probe_sent_total", labels, at, total)
        lost = np.cumsum(rng.binomial(100, loss, at.size)) if loss else np.zeros(at.size)
        page.add(
            "vigia_probe_lost", "counter", "vigia_probe_lost_total", f'{labels},cause="unknown"', at, lost
        )
        page.add(
            "vigia_path_info",
            "gauge",
            "vigia_path_info",
            f'path="{path}",placement="remote",{attributes}',
            at,
            np.ones(at.size),
        )
    runs = np.repeat(rng.normal(1.0, 0.02, at.size // 40 + 1), 40)[: at.size]
    for path, factor in (("ovs-gre", 1.1e7), ("ovs-vxlan", 1.0e7)):
        labels = f'src="a",dst="b",path="{path}",tenant="_infra",probe="bulk-tcp",protocol="tcp"'
        own = np.repeat(rng.normal(1.0, 0.02, at.size // 40 + 1), 40)[: at.size]
        page.add(
            "vigia_bulk_goodput_bytes_per_second",
            "gauge",
            "vigia_bulk_goodput_bytes_per_second",
            labels,
            at,
            factor * own * runs**0,
        )


def _tenants(page: Page, world: World, rng: np.random.Generator) -> None:
    """Ten minutes by the second: red floods now and then, blue suffers, green does its own thing."""
    at = world.end - 601 + np.arange(602.0 + AHEAD)
    flood = (at - at[0]) % 250 >= 220
    traffic = {"red": 1e5 + 5e7 * flood, "blue": np.full(at.size, 1e6), "green": 1e6 * rng.random(at.size)}
    for tenant, rate in traffic.items():
        labels = f'node="n1",port="{tenant}-1",tenant="{tenant}",direction="from_tenant"'
        page.add("vigia_port_bytes", "counter", "vigia_port_bytes_total", labels, at, np.cumsum(rate))
    labels = 'src="n1",dst="n2",path="ovs-gre",tenant="blue",probe="stamp-64",node="n1"'
    lost = rng.binomial(20, np.where(flood, 0.3, 0.0))
    page.add("vigia_probe_sent", "counter", "vigia_probe_sent_total", labels, at, 20.0 * np.arange(at.size))
    page.add(
        "vigia_probe_lost",
        "counter",
        "vigia_probe_lost_total",
        f'{labels},cause="unknown"',
        at,
        np.cumsum(lost),
    )
    past = slice(2, 602)
    world.lost = float(lost[past].sum())
    drops = {"queue_full": 50 * flood + rng.poisson(1, at.size), "policed": rng.poisson(3, at.size)}
    world.dropped = float(drops["queue_full"][past][flood[past]].sum())
    for reason, counts in drops.items():
        more = f'node="n1",port="blue-1",tenant="blue",direction="from_tenant",reason="{reason}"'
        page.add("vigia_port_drops", "counter", "vigia_port_drops_total", more, at, np.cumsum(counts))


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def _ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "prometheus ended"
    try:
        return httpx.get(f"{url}/-/ready", timeout=2, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("prometheus")
    url = f"http://127.0.0.1:{_free_port()}"
    world = World(url, time.time() // WINDOW * WINDOW)
    page, rng = Page(), np.random.default_rng(7)
    _paths(page, world, rng)
    _tenants(page, world, rng)
    (folder / "page.txt").write_text(page.text())
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "page.txt", folder / "data"],
        check=True,
        capture_output=True,
    )
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    process = _start(url, folder)
    try:
        yield world
    finally:
        process.terminate()
        process.wait(timeout=30)


def _start(url: str, folder: Path) -> subprocess.Popen[bytes]:
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
