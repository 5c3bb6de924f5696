"""A real Prometheus that scrapes a target with a native histogram, and every question of the client."""

from __future__ import annotations

import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from portkit import free_port

from vigia_prometheus import Prometheus, PrometheusError, Refused, Series
from vigia_testing import eventually

PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | float | bytes | str) -> bytes:
    """A field of a protobuf message; integers are varints, signed ones have to be zigzag already."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def zigzag(value: int) -> int:
    return value * 2 if value >= 0 else -value * 2 - 1


def exposition() -> bytes:
    """Schema 0: buckets (1, 2] with 3 observations and (2, 4] with 5, two at zero, 10 in all."""
    span = field(1, zigzag(1)) + field(2, 2)
    deltas = field(13, zigzag(3)) + field(13, zigzag(2))
    histogram = field(1, 10) + field(2, 21.5) + field(5, zigzag(0)) + field(6, 0.001) + field(7, 2)
    metric = field(1, field(1, "path") + field(2, "lb1")) + field(7, histogram + field(12, span) + deltas)
    family = field(1, "rtt_seconds") + field(2, "help") + field(3, 4) + field(4, metric)
    return varint(len(family)) + family


class Target(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", PROTOBUF)
        self.end_headers()
        self.wfile.write(exposition())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    target = ThreadingHTTPServer(("127.0.0.1", 0), Target)
    thread = threading.Thread(target=target.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs: [{{job_name: probe, static_configs: [{{targets: ['127.0.0.1:{target.server_address[1]}']}}]}}]\n"
    )
    address = f"127.0.0.1:{free_port()}"
    argv = [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={address}",
        "--enable-feature=native-histograms",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            with Prometheus(f"http://{address}", timeout=30.0) as client:
                eventually(lambda: scraped(client, process, folder / "log"), "a scrape")
                yield client
        finally:
            process.terminate()
    target.shutdown()
    thread.join()
    target.server_close()


def scraped(client: Prometheus, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        return bool(client.instant("rtt_seconds"))
    except PrometheusError:
        return False


def test_a_native_histogram_is_what_was_exposed(prometheus: Prometheus) -> None:
    # A stalled machine may have failed the last scrape, and then there is nothing for a second.
    (sample,) = eventually(lambda: prometheus.instant("rtt_seconds"), "a scrape that went well")
    assert sample.labels["path"] == "lb1"
    found = sample.histogram
    assert found is not None and (found.count, found.sum) == (10.0, 21.5)
    zero, first, second = found.buckets
    assert (zero.lower, zero.upper, zero.count) == (-0.001, 0.001, 2.0)
    assert zero.lower_closed and zero.upper_closed
    assert (first.lower, first.upper, first.count) == (1.0, 2.0, 3.0)
    assert (second.lower, second.upper, second.count) == (2.0, 4.0, 5.0)
    assert (second.lower_closed, second.upper_closed) == (False, True)


def test_a_range_has_the_histograms_too(prometheus: Prometheus) -> None:
    def ranges() -> tuple[float, list[Series], list[Series]]:
        """Ask for three seconds, in which a stalled machine may have scraped nothing."""
        now = time.time()
        return now, prometheus.range("rtt_seconds", now - 3, now, 1), prometheus.range("up", now - 3, now, 1)

    def good() -> tuple[float, Series, Series] | None:
        now, histograms, ups = ranges()
        whole = len(histograms) == len(ups) == 1 and {v for _, v in ups[0].points} == {1.0}
        return (now, histograms[0], ups[0]) if whole else None

    now, series, up = eventually(good, "three seconds of scrapes that went well")
    assert series.histograms and not series.points
    assert all(h.count == 10.0 and now - 4 < at <= now + 0.01 for at, h in series.histograms)
    assert up.points


def test_the_other_questions(prometheus: Prometheus) -> None:
    eventually(lambda: prometheus.total("up") == 1.0, "a scrape that went well")
    eventually(lambda: prometheus.instant("scalar(up)")[0].value == 1.0, "a scrape that went well")
    assert [s["path"] for s in prometheus.series(["rtt_seconds"])] == ["lb1"]
    assert prometheus.label_values("job") == ["probe"]
    assert prometheus.label_values("path", ["up"]) == []
    assert prometheus.version()[0].isdigit()


def test_its_refusal(prometheus: Prometheus) -> None:
    with pytest.raises(Refused, match=r"refuses rate\(up: .*parse error") as e:
        prometheus.instant("rate(up")
    assert (e.value.status, e.value.kind) == (400, "bad_data")
