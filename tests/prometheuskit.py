"""A real Prometheus that scrapes what a test says, native histograms and recording rules among it."""

from __future__ import annotations

import contextlib
import math
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml
from portkit import free_port

from vigia_prometheus import Prometheus, PrometheusError
from vigia_testing import eventually

__all__ = ["Classic", "Family", "Native", "answering", "encode", "rates_known", "running"]

ROOT = Path(__file__).resolve().parents[1]
CONTENT = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
PATIENCE = 600.0
STORED = 2.0
"""Seconds after which a scrape that was begun is stored, also that it failed: it may take one."""
SCHEMA = 3
"""Of native histograms: eight buckets for each doubling, as internal/catalog makes them."""


@dataclass(frozen=True)
class Native:
    """A native histogram: how many observations have which value. Values may be negative."""

    counts: Mapping[float, int]


@dataclass(frozen=True)
class Classic:
    """A histogram with bounds alone: how many observations are at most so large, the last count of all."""

    cumulative: Mapping[float, int]
    total: int


@dataclass(frozen=True)
class Family:
    """A metric family as it is scraped: its samples by their labels."""

    name: str
    type: str
    """counter, gauge or histogram."""
    samples: list[tuple[Mapping[str, str], float | Native | Classic]] = field(default_factory=list)


# Protocol buffers by hand: client_model, metrics.proto. The text format has no native histograms.

_TYPES = {"counter": 0, "gauge": 1, "histogram": 4}


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _signed(number: int, value: int) -> bytes:
    return _integer(number, value << 1 if value >= 0 else (-value << 1) - 1)


def _spans(counts: Mapping[float, int], span: int, delta: int) -> bytes:
    """Buckets of positive values: where each run of them begins, and each count as it differs from the last."""
    buckets: dict[int, int] = {}
    for value, n in counts.items():
        index = math.ceil(math.log2(value) * 2**SCHEMA)
        buckets[index] = buckets.get(index, 0) + n
    out, after, before = b"", 0, 0
    for index in sorted(buckets):
        out += _bytes(span, _signed(1, index - after) + _integer(2, 1))
        after = index + 1
    for _, n in sorted(buckets.items()):
        out += _signed(delta, n - before)
        before = n
    return out


def _native(h: Native) -> bytes:
    total = sum(h.counts.values())
    mean = sum(v * n for v, n in h.counts.items())
    zeros = h.counts.get(0.0, 0)
    head = (
        _integer(1, total) + _double(2, mean) + _signed(5, SCHEMA) + _double(6, 2.0**-24) + _integer(7, zeros)
    )
    negative = _spans({-v: n for v, n in h.counts.items() if v < 0}, 9, 10)
    return head + negative + _spans({v: n for v, n in h.counts.items() if v > 0}, 12, 13)


def _classic(h: Classic) -> bytes:
    buckets = b"".join(
        _bytes(3, _integer(1, n) + _double(2, bound)) for bound, n in sorted(h.cumulative.items())
    )
    return _integer(1, h.total) + _double(2, float(h.total)) + buckets


def encode(family: Family, at: float | None = None) -> bytes:
    """Return a family as a scrape has it, its length before it; its samples of a Unix time, if one is given."""
    stamp = b"" if at is None else _integer(6, round(at * 1000))
    histograms: dict[int, bytes] = {}  # samples may share one
    body = _bytes(1, family.name.encode()) + _integer(3, _TYPES[family.type])
    for labels, value in family.samples:
        metric = b"".join(
            _bytes(1, _bytes(1, k.encode()) + _bytes(2, v.encode())) for k, v in sorted(labels.items())
        )
        if isinstance(value, Native):
            if id(value) not in histograms:
                histograms[id(value)] = _bytes(7, _native(value))
            metric += histograms[id(value)]
        elif isinstance(value, Classic):
            metric += _bytes(7, _classic(value))
        else:
            metric += _bytes(3 if family.type == "counter" else 2, _double(1, value))
        body += _bytes(4, metric + stamp)
    return _varint(len(body)) + body


Page = Callable[[], Iterable[Family]]


def answering(page: Callable[[str], bytes]) -> type[BaseHTTPRequestHandler]:
    """Return the handler of a target whose pages, by their path, are encoded families."""

    class Target(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page(self.path)
            self.send_response(200)
            self.send_header("Content-Type", CONTENT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Target


def _configuration(folder: Path, address: str, jobs: Iterable[str], labels: Mapping[str, str]) -> None:
    """Each job is a page of one target; the rules as shipped, but asked every second."""
    config: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [f"{folder}/*.rules.yml"],
        "scrape_configs": [
            {
                "job_name": job,
                "metrics_path": f"/{job}",
                "static_configs": [{"targets": [address], "labels": dict(labels)}],
            }
            for job in jobs
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    for file in (ROOT / "alert-rules").glob("*.rules.yml"):
        document = yaml.safe_load(file.read_text())
        for group in document["groups"]:
            group["interval"] = "1s"
        (folder / file.name).write_text(yaml.safe_dump(document))


@contextlib.contextmanager
def running(folder: Path, pages: Mapping[str, Page], labels: Mapping[str, str]) -> Iterator[Prometheus]:
    """A Prometheus that scrapes every second; each page is a job, and all targets have the labels."""
    program = shutil.which("prometheus")
    assert program, "prometheus is missing; run tools/bootstrap.sh test"

    def encoded(path: str) -> bytes:
        return b"".join(map(encode, pages[path.removeprefix("/")]()))

    with ThreadingHTTPServer(("127.0.0.1", 0), answering(encoded)) as target:
        address = f"127.0.0.1:{free_port()}"
        threading.Thread(target=target.serve_forever, args=(0.05,), daemon=True).start()
        _configuration(folder, f"127.0.0.1:{target.server_port}", pages, labels)
        words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        words += [f"--web.listen-address={address}", "--enable-feature=native-histograms"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([program, *words], stdout=log, stderr=subprocess.STDOUT)
        try:
            with Prometheus(f"http://{address}", 60.0) as server:
                _await_up(server, process, folder / "log", len(pages))
                yield server
        finally:
            process.terminate()
            process.wait(timeout=180)
            target.shutdown()


def _await_up(server: Prometheus, process: subprocess.Popen[bytes], log: Path, jobs: int) -> None:
    def said() -> str:
        return log.read_text(errors="replace")[-2000:]

    def up() -> bool:
        assert process.poll() is None, said()
        with contextlib.suppress(PrometheusError):
            return len(server.instant("up == 1")) == jobs
        return False

    eventually(up, lambda: f"all targets to be up: {said()}", PATIENCE)


def rates_known(server: Prometheus, since: float) -> float:
    """Wait until everything was scraped, and every rule evaluated, several times since an instant.

    Returns an instant at which no series is stale: before it every scrape of five seconds was answered in time.
    """
    ready = math.inf

    def known() -> float | None:
        nonlocal ready
        groups = httpx.get(f"{server.url}/api/v1/rules", timeout=60.0, trust_env=False).json()["data"][
            "groups"
        ]
        now = time.time()
        at = round(now - STORED, 3)
        evaluated = min(
            (datetime.fromisoformat(g["lastEvaluation"]).timestamp() for g in groups), default=now
        )
        if evaluated > since + 4:
            ready = min(ready, now)
        window = max(int(at - since), 1)
        broken = [r["name"] + ": " + r["lastError"] for g in groups for r in g["rules"] if r.get("lastError")]
        assert not broken, broken
        answered = f"min(sum_over_time(up[{window}s])) >= 5 and min(min_over_time(up[5s])) == 1"
        return at if at >= ready and server.instant(answered, at) else None

    at = eventually(known, "every target to be scraped and every rule to be evaluated", PATIENCE)
    assert at
    return at
