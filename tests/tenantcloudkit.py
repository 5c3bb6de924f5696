"""A node's real exposition of two tenants, and a Prometheus and a proxy before it that know both of them or one alone."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml
from portkit import free_ports
from prometheuskit import CONTENT, Family, encode
from tenantkit import Question, ask, telling, tells

from vigia_testing import eventually

__all__ = [
    "BLUE",
    "PROXY",
    "RED",
    "ROOT",
    "Asked",
    "Capture",
    "Front",
    "capture",
    "flooded",
    "nothing_comes_out",
    "program",
    "relabelling",
    "serving",
    "unit",
]

ROOT = Path(__file__).resolve().parents[1]
RED, BLUE = "8c51f2de41f84a1d9e1c1b6f0f2a7c11", "e0b7a4c29d7d4f0fa6b93c55d1e8f922"
"""Projects: the one that asks, and the one that is to stay hidden."""
PROXY = ROOT / "bin/prom-label-proxy"
HTTP = httpx.Client(trust_env=False, timeout=60.0)

Relabelling = list[dict[str, Any]]


@dataclass(frozen=True)
class Capture:
    """What a node exports of two tenants."""

    own: str
    other: str
    pages: Mapping[str, tuple[str, bytes]]
    """By job: their types, and what they have."""


Front = Callable[[str, str, str, Path], contextlib.AbstractContextManager[str]]
"""What is before a Prometheus, of its URL, for a label and a tenant, with its files in a folder: yields where it answers."""


def relabelling(label: str = "project") -> Relabelling:
    """Return what is shipped, for a label."""
    rules: Relabelling = yaml.safe_load((ROOT / "deploy/tenants/relabel.yml").read_text())
    for rule in rules:
        rule["target_label"] = label
    return rules


def unit(label: str, tenant: str, prometheus: str, listen: str) -> list[str]:
    """Return the command of the unit that is shipped, as systemd runs it."""
    text = (ROOT / "deploy/tenants/prom-label-proxy@.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    command = command.replace("%i", tenant).replace("-label=project", f"-label={label}")
    command = command.replace("${PROMETHEUS}", prometheus).replace("${LISTEN}", listen)
    return [str(PROXY), *command.split()[1:]]


def capture(folder: Path, own: str = RED, other: str = BLUE) -> Capture:
    """Run vigia-exporter and vigia-probe on a node of their own with ports and paths of both tenants; keep their pages."""
    ports = {"red": ("1f0a", own), "blue": ("2f0b", other), "infra": ("3f0c", "_infra")}
    listed = [
        {"device": f"tap-{n}", "port": p, "tenant": t, "network": f"net-{n}"} for n, (p, t) in ports.items()
    ]
    named = [{"id": own, "name": "Red"}, {"id": other, "name": "Blue"}]
    path = {"name": "ovs-vxlan", "dataplane": "ovs", "encap": "vxlan", "mode": "normal", "security": "none"}
    target = {"path": "ovs-vxlan", "probe": "fast", "address": "127.0.0.1:8620"}
    documents: dict[str, Any] = {
        "ports": {"version": 1, "ports": listed},
        "exporter": {
            "node": "node1",
            "ports_file": f"{folder}/ports.yaml",
            "tenants": named,
            "bpf": {"pin_dir": "/sys/fs/bpf/vigia"},
        },
        "probe": {
            "node": "node1",
            "reflector": {"listeners": [{"address": "127.0.0.1:8620"}]},
            "paths": [{**path, "layer": "overlay", "placement": "remote"}],
            "classes": [{"name": "fast", "protocol": "stamp", "interval": "100ms", "size": 64}],
            "targets": [
                {**target, "dst": "node2", "tenant": own},
                {**target, "dst": "node3", "tenant": other},
            ],
        },
    }
    for name, document in documents.items():
        (folder / f"{name}.yaml").write_text(json.dumps(document))
    apart = ["unshare", "--mount", "--net", "--propagation", "private", "--fork", "--kill-child"]
    script = [
        *apart,
        "timeout",
        "600",
        "sh",
        str(ROOT / "tests/tenants/cloud.sh"),
        str(ROOT / "bin"),
        str(folder),
    ]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    said = "".join(f.read_text() for f in folder.glob("*.log"))
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{said}"
    pages = {
        n: ((folder / f"{n}.type").read_text(), (folder / f"{n}.page").read_bytes())
        for n in ("exporter", "probe")
    }
    return Capture(own, other, {**pages, "agent": flooded(own, other)})


def flooded(own: str, other: str) -> tuple[str, bytes]:
    """Return a page of what the enforcer and vigia-compare say after a flood between two tenants, and its type."""
    return CONTENT, b"".join(map(encode, _flood(own, other)))


def _flood(red: str, blue: str) -> list[Family]:
    """It takes a flood to make them say so."""
    both = ((red, blue), (blue, red))
    verdict = {"node": "node1"}
    where = {**verdict, "direction": "from_tenant"}
    return [
        Family(
            "vigia_isolation_taken_bytes_total",
            "counter",
            [({"tenant": own, "taker": other, "direction": "from_tenant"}, 3e9) for own, other in both],
        ),
        Family(
            "vigia_compare_interference_verdict",
            "gauge",
            [
                ({**verdict, "tenant": own, "verdict": "attributed", "offender": other}, 1.0)
                for own, other in both
            ],
        ),
        Family("vigia_compare_interference_own_share_ratio", "gauge", [({**verdict, "tenant": red}, 0.25)]),
        Family(
            "vigia_isolation_limit_bytes_per_second",
            "gauge",
            [
                ({**where, "port": p, "tenant": t, "protocol": "udp"}, rate)
                for p, t, rate in (("1f0a", red, 5e6), ("2f0b", blue, 7e6))
            ],
        ),
        Family(
            "vigia_port_drops_total",
            "counter",
            [
                ({**where, "port": p, "tenant": t, "reason": "queue_full"}, n)
                for p, t, n in (("1f0a", red, 100.0), ("2f0b", blue, 9000.0))
            ],
        ),
    ]


@dataclass(frozen=True)
class Asked:
    """Where to ask: the proxies, and the Prometheus behind each; the first knows all, the other (alone) one tenant."""

    label: str
    proxy: str
    alone: str
    prometheus: str
    prometheus_alone: str
    at: float
    """When both knew all pages, as a Unix time."""


@contextlib.contextmanager
def _pages(pages: Mapping[str, tuple[str, bytes]]) -> Iterator[str]:
    class Target(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = pages[self.path.removeprefix("/")]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # a Prometheus that is being stopped
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Target) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextlib.contextmanager
def program(words: Sequence[str], ready: str, log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(httpx.TransportError):
            return HTTP.get(ready).status_code == 200
        return False

    try:
        eventually(answers, lambda: f"{words[0]} is ready: {log.read_text()[-2000:]}")
        yield
    finally:
        process.terminate()
        process.wait(timeout=180)


@contextlib.contextmanager
def _prometheus(folder: Path, target: str, jobs: Iterable[str], relabel: Relabelling) -> Iterator[str]:
    """A Prometheus with the shipped rules that scrapes the pages as jobs; yields its URL."""
    prometheus = shutil.which("prometheus")
    assert prometheus, "prometheus is missing; run tools/bootstrap.sh test"
    folder.mkdir()
    (port,) = free_ports(1)
    scrapes = [
        {
            "job_name": name,
            "metrics_path": f"/{name}",
            "static_configs": [{"targets": [target], "labels": {"node": "node1", "instance": "node1"}}],
            "metric_relabel_configs": relabel,
        }
        for name in jobs
    ]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "alert-rules/*.rules.yml")],
        "scrape_configs": scrapes,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    words = [prometheus, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    words += [f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=native-histograms,exemplar-storage"]
    with program(words, f"http://127.0.0.1:{port}/-/ready", folder / "log"):
        yield f"http://127.0.0.1:{port}"


def _since(servers: Sequence[str], jobs: int) -> float:
    """Wait until every page was scraped for ten seconds; return an instant at which each Prometheus surely has them all.

    Each has one sample of each second just before it: no answer differs because one of them was late.
    """
    query = f"min(min_over_time(up[8s])) == 1 and count(up) == {jobs} and count(up offset 9s) == {jobs}"
    query += "".join(f" and {of}(count_over_time(up[5s])) == 5" for of in ("min", "max"))

    def known() -> float | None:
        at = round(time.time() - 2, 3)  # what was scraped until then has been stored
        asked = {"query": query, "time": f"{at:.3f}"}
        answers = [HTTP.get(f"{url}/api/v1/query", params=asked).json() for url in servers]
        return at if all(answer["data"]["result"] for answer in answers) else None

    at = eventually(known, "every page to be scraped for a while", 300)
    assert at
    return at


@contextlib.contextmanager
def shipped(label: str, tenant: str, prometheus: str, folder: Path) -> Iterator[str]:
    """Run the proxy of a tenant as the unit says."""
    (port,) = free_ports(1)
    words = unit(label, tenant, prometheus, f"127.0.0.1:{port}")
    with program(words, f"http://127.0.0.1:{port}/healthz", folder / "proxy.log"):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def serving(
    folder: Path, found: Capture, label: str, relabel: Relabelling | None = None, front: Front = shipped
) -> Iterator[Asked]:
    """The proxy as it is shipped before a Prometheus that knows both tenants, and before one that knows the first alone."""
    rules = relabelling(label) if relabel is None else relabel
    hidden = [
        {"source_labels": [name], "regex": found.other, "action": "drop"}
        for name in ("tenant", "taker", "offender")
    ]
    with contextlib.ExitStack() as held:
        target = held.enter_context(_pages(found.pages))
        behind, before = [], []
        for name, relabelled in (("all", rules), ("alone", [*hidden, *rules])):
            prometheus = held.enter_context(_prometheus(folder / name, target, found.pages, relabelled))
            behind.append(prometheus)
            before.append(held.enter_context(front(label, found.own, prometheus, folder / name)))
        at = _since(behind, len(found.pages))
        yield Asked(label, before[0], before[1], behind[0], behind[1], at)


def nothing_comes_out(cloud: Asked, asking: Sequence[Question]) -> int:
    """Assert that no answer tells of the other tenant; return how many have something of the one that asks."""
    then = [q for q in asking if str(cloud.at) in str(q)]
    assert telling(cloud.proxy, cloud.alone, then) == []
    for q in (q for q in asking if q not in then):
        # What is so now differs for a moment where one of the two was late to scrape, or to evaluate a rule.
        eventually(
            lambda q=q: not tells(cloud.proxy, cloud.alone, q),  # type: ignore[misc]
            f"nothing of others in the answer to {q}",
        )
    return sum(not ask(cloud.proxy, q).empty for q in asking)
