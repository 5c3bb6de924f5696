"""A Prometheus with the shipped configuration and rules, and the pages of a site for it to scrape."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import yaml

from sitecost import node, processes

ROOT = node.ROOT
ADDRESS = "127.0.0.1:9090"
URL = f"http://{ADDRESS}"
AGENTS = ("probe", "exporter", "enforcer")
PATIENCE = 1800.0
"""For reading a large write-ahead log on a slow machine."""
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^}]*\})? (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Programs:
    """What a site is made of."""

    folder: Path
    """Where the programs of this folder are."""
    prometheus: Path


@dataclass
class Running:
    """The two processes of a site."""

    prometheus: subprocess.Popen[bytes]
    pages: subprocess.Popen[bytes]
    client: httpx.Client = field(
        default_factory=lambda: httpx.Client(base_url=URL, timeout=300.0, trust_env=False)
    )

    def own(self) -> Mapping[str, float]:
        """Return Prometheus's metrics of itself, series as name{labels}."""
        text = self.client.get("/metrics").text
        return {f"{name}{labels}": float(value) for name, labels, value in _SAMPLE.findall(text)}


def configure(folder: Path, nodes: int, size: node.Size) -> None:
    """Write prometheus.yml and rules as shipped, and the files that name the targets."""
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "deploy/prometheus/prometheus.yml", folder)
    (folder / "rules").mkdir()
    for file in (ROOT / "alert-rules").glob("*.rules.yml"):
        shutil.copy(file, folder / "rules")
    (folder / "targets").mkdir()
    shipped = yaml.safe_load((folder / "prometheus.yml").read_text())
    files = {
        Path(name).name
        for job in shipped["scrape_configs"]
        for discovery in job.get("file_sd_configs", ())
        for name in discovery["files"]
    }
    for name in files:
        (folder / "targets" / name).write_text("[]")
    for agent in AGENTS:
        (folder / "targets" / f"vigia-{agent}.json").write_text(node.targets(nodes, agent))
    if size.node_exporter:
        (folder / "targets" / "node.json").write_text(node.targets(nodes, "node"))
    (folder / "targets" / "prometheus.json").write_text(f'[{{"targets": ["{ADDRESS}"]}}]')


@contextlib.contextmanager
def running(
    folder: Path, data: Path, programs: Programs, captures: Path, options: Mapping[str, str]
) -> Iterator[Running]:
    """Serve the pages and run Prometheus on a data directory until the end of the block; both are up and scraped."""
    argv = [
        str(programs.folder / "pages"),
        f"--captures={captures}",
        *(f"--{k}={v}" for k, v in options.items()),
    ]
    with contextlib.ExitStack() as stack:
        pages = subprocess.Popen(argv, stdout=subprocess.PIPE)
        stack.callback(processes.stop, pages, PATIENCE)
        assert pages.stdout is not None
        if pages.stdout.readline() != b"ready\n":
            raise RuntimeError("the pages are not served; see above")
        log = stack.enter_context((folder / "prometheus.log").open("ab"))
        prometheus = subprocess.Popen(
            [
                str(programs.prometheus),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={data}",
                "--storage.tsdb.retention.time=31d",
                f"--web.listen-address={ADDRESS}",
                "--enable-feature=native-histograms",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        stack.callback(processes.stop, prometheus, PATIENCE)
        site = Running(prometheus, pages)
        stack.callback(site.client.close)
        _await_ready(site, folder)
        yield site


def _await_ready(site: Running, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(httpx.TransportError):
            if site.client.get("/-/ready").status_code == 200:
                return
        if site.prometheus.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"Prometheus does not start:\n{(folder / 'prometheus.log').read_text()[-2000:]}"
            )
        time.sleep(0.5)
