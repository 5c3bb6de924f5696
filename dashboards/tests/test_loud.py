"""Panels that are empty while all is well show something when it is not: asked of a real Prometheus.

It scrapes a target that has every series these panels ask for, native histograms among them.
"""

from __future__ import annotations

import math
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import promql_parser
import pytest
import yaml

import vigia_catalog
from vigia_dashboards.expressions import TARGET_LABELS, labels_of, recorded, selectors, substituted
from vigia_dashboards.live import Server, Unreachable, every_panel
from vigia_dashboards.model import Panel, Query

QUIET = [(page, panel) for page, panel in every_panel() if panel.quiet]
NATIVE = {m.name for m in vigia_catalog.load().values() if m.type == "histogram"}
GROWING = ("_total", "_bucket", "_sum", "_count")
CONTENT = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"

Series = tuple[str, tuple[tuple[str, str], ...]]


def asked(panel: Panel) -> Iterator[Series]:
    """The series that a panel selects: a value for each of their labels, the one that is asked for if one is."""
    for query in panel.queries:
        for selector in selectors(substituted(query.expression)):
            name = str(selector.name)
            assert name not in recorded(), "a recorded series needs those that it is made of"
            labels = dict.fromkeys((labels_of(name) or set()) - TARGET_LABELS, "x")
            labels |= {m.name: _matching(m) for m in selector.matchers.matchers if m.name in labels}
            for bound in ("0.1", "+Inf") if "le" in labels else ("",):
                wanted = {**labels, "le": bound} if bound else labels
                yield name, tuple(sorted(wanted.items()))


def _matching(matcher: promql_parser.Matcher) -> str:
    """A value that a matcher lets pass."""
    value = matcher.value
    if matcher.op == promql_parser.MatchOp.Re:
        return value.split("|")[0].replace(".*", "").replace(".+", "x") or "x"
    return value if matcher.op == promql_parser.MatchOp.Equal else "x"


# What Prometheus scrapes native histograms in: protocol buffers, written by hand (client_model, metrics.proto).


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _signed(field: int, value: int) -> bytes:
    return _integer(field, value << 1 ^ value >> 63)


def family(name: str, series: list[Mapping[str, str]], at: float) -> bytes:
    """A metric family, its length before it; counts grow with the time."""
    native = name in NATIVE
    body = _bytes(1, name.encode()) + _integer(3, 4 if native else 1)
    for labels in series:
        metric = b"".join(
            _bytes(1, _bytes(1, k.encode()) + _bytes(2, v.encode())) for k, v in sorted(labels.items())
        )
        if native:
            metric += _bytes(7, _histogram(int(10 * at)))
        else:
            metric += _bytes(2, _double(1, 10 * at if name.endswith(GROWING) else 1.0))
        body += _bytes(4, metric)
    return _varint(len(body)) + body


def _histogram(count: int) -> bytes:
    """So many observations in the bucket that ends at 1."""
    head = _integer(1, count) + _double(2, count * 0.9) + _signed(5, 3) + _double(6, 1e-9) + _integer(7, 0)
    return head + _bytes(12, _signed(1, 0) + _integer(2, 1)) + _signed(13, count)


def exposition(series: set[Series], at: float) -> bytes:
    names = sorted({name for name, _ in series})
    return b"".join(family(n, [dict(labels) for m, labels in sorted(series) if m == n], at) for n in names)


class _Target(BaseHTTPRequestHandler):
    series: set[Series] = {s for _, panel in QUIET for s in asked(panel)}

    def do_GET(self) -> None:
        body = exposition(self.series, time.time() % 1e6)
        self.send_response(200)
        self.send_header("Content-Type", CONTENT)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    program = shutil.which("prometheus")
    assert program, "prometheus is missing; run tools/bootstrap.sh test"
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Target) as target, socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
        s.close()
        threading.Thread(target=target.serve_forever, args=(0.05,), daemon=True).start()
        targets = [{"targets": [f"127.0.0.1:{target.server_port}"], "labels": {"node": "x"}}]
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "x", "static_configs": targets}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        words += [f"--web.listen-address={address}", "--enable-feature=native-histograms"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([program, *words], stdout=log, stderr=subprocess.STDOUT)
        try:
            server = Server(f"http://{address}")
            _await(server, process, folder / "log")
            yield server
        finally:
            process.terminate()
            process.wait(timeout=60)
            target.shutdown()


def _await(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until four scrapes are stored, of which rates can be made."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            found = server.ask("query", {"query": 'count_over_time(up{job="x"}[1m]) >= 4'})["result"]
        except Unreachable:
            found = []
        if found:
            return
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-2000:])


@pytest.mark.parametrize(("page", "panel"), QUIET, ids=lambda x: getattr(x, "uid", getattr(x, "title", "")))
def test_it_is_loud_when_something_happens(prometheus: Server, page: object, panel: Panel) -> None:
    now = time.time()
    for query in panel.queries:
        found = prometheus.found(query, now)
        assert found.series, query.expression
        assert found.sample is not None and any(map(math.isfinite, found.sample[1])), "no number"


def test_without_those_series_they_are_quiet(prometheus: Server) -> None:
    """The target is why they are loud: a name that it does not have finds nothing."""
    assert not prometheus.found(Query("vigia_nothing_total"), time.time()).series


def test_the_list_is_short_and_gives_reasons() -> None:
    every = list(every_panel())
    assert len(QUIET) < len(every) / 2
    assert all(len(panel.quiet) > 10 for _, panel in QUIET)
