"""The client against servers that answer well, badly, slowly, or not at all."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vigia_http
from vigia_prometheus import (
    Access,
    Alert,
    BadAnswer,
    Histogram,
    Prometheus,
    PrometheusError,
    Refused,
    Sample,
    Series,
    TooLarge,
    Unavailable,
)

SECRET = "hunter2-token"


class Server:
    """Answers every request with what it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.status, self.body, self.headers = 200, b"", {"Content-Type": "application/json"}
        self.asked: list[tuple[str, str, dict[str, list[str]]]] = []
        self.seen: list[dict[str, str]] = []
        self.url = ""
        self.pieces: Callable[[], Iterator[bytes]] | None = None

    def answers(self, body: object, status: int = 200) -> None:
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status = status

    def gives(self, kind: str, result: object) -> None:
        self.answers({"status": "success", "data": {"resultType": kind, "result": result}})


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            parts = urlsplit(self.path)
            server.asked.append((self.command, parts.path, parse_qs(body or parts.query)))
            server.seen.append({k.lower(): v for k, v in self.headers.items()})
            self.send_response(server.status)
            for name, value in server.headers.items():
                self.send_header(name, value)
            if server.pieces is not None:
                self.send_header("Connection", "close")
                self.end_headers()
                try:
                    for piece in server.pieces():
                        self.wfile.write(piece)
                        self.wfile.flush()
                except OSError:
                    pass
                self.close_connection = True
                return
            self.send_header("Content-Length", str(len(server.body)))
            self.end_headers()
            self.wfile.write(server.body)

        do_GET = do_POST

    return Handler


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients here break off on purpose."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    http = Quiet(("127.0.0.1", 0), handler(made))
    made.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def client(server: Server) -> Iterator[Prometheus]:
    with Prometheus(server.url, timeout=60.0) as made:
        yield made


# Good answers


def test_instant(server: Server, client: Prometheus) -> None:
    server.gives(
        "vector",
        [
            {"metric": {"__name__": "up", "job": "x"}, "value": [1700000000.5, "1"]},
            {"metric": {}, "value": [1700000000, "+Inf"]},
            {"metric": {"a": "b"}, "value": [1700000000, "NaN"]},
        ],
    )
    first, second, third = client.instant("up", at=1700000000.5)
    assert first == Sample({"__name__": "up", "job": "x"}, 1700000000.5, 1.0)
    assert second.value == math.inf and math.isnan(third.value)
    assert server.asked == [("POST", "/api/v1/query", {"query": ["up"], "time": ["1700000000.500"]})]
    client.instant("up")
    assert "time" not in server.asked[-1][2], "now, by the server's clock"


def test_a_scalar_is_one_sample(server: Server, client: Prometheus) -> None:
    server.gives("scalar", [1.0, "2.5e-3"])
    assert client.instant("1") == [Sample({}, 1.0, 0.0025)]


def test_total_leaves_out_what_is_no_number(server: Server, client: Prometheus) -> None:
    server.gives("vector", [{"metric": {}, "value": [1, v]} for v in ("1", "NaN", "2.5")])
    assert client.total("x") == 3.5
    server.gives("vector", [])
    assert client.total("x") == 0


def test_range(server: Server, client: Prometheus) -> None:
    server.gives("matrix", [{"metric": {"a": "b"}, "values": [[1, "1"], [2.5, "-Inf"]]}])
    assert client.range("x", 1, 2.5, 0.75) == [Series({"a": "b"}, [(1.0, 1.0), (2.5, -math.inf)])]
    (asked,) = server.asked
    assert asked[:2] == ("POST", "/api/v1/query_range")
    assert asked[2] == {
        "query": ["x"],
        "start": ["1.000"],
        "end": ["2.500"],
        "step": ["0.750"],
        "nocache": ["1"],
    }


NATIVE = {
    "count": "11",
    "sum": "-3.5",
    "buckets": [
        [1, "-4", "-2", "1"],
        [3, "-0.001", "0.001", "2"],
        [0, "2", "4", "7.5"],
        [2, "4", "8", "0.5"],
    ],
}


def test_native_histograms(server: Server, client: Prometheus) -> None:
    server.gives("vector", [{"metric": {}, "histogram": [1, NATIVE]}])
    (sample,) = client.instant("h")
    assert math.isnan(sample.value) and sample.histogram is not None
    found = sample.histogram
    assert (found.count, found.sum) == (11.0, -3.5)
    assert [(b.lower, b.upper, b.count, b.lower_closed, b.upper_closed) for b in found.buckets] == [
        (-4.0, -2.0, 1.0, True, False),
        (-0.001, 0.001, 2.0, True, True),
        (2.0, 4.0, 7.5, False, True),
        (4.0, 8.0, 0.5, False, False),
    ]
    server.gives("matrix", [{"metric": {}, "histograms": [[1, NATIVE], [2, {"count": "0", "sum": "0"}]]}])
    (series,) = client.range("h", 1, 2, 1)
    assert series.points == [] and series.histograms == ((1.0, found), (2.0, Histogram(0.0, 0.0, ())))
    server.gives("matrix", [{"metric": {}, "values": [[1, "2"]], "histograms": [[2, NATIVE]]}])
    (mixed,) = client.range("h", 1, 2, 1)
    assert mixed.points == [(1.0, 2.0)] and mixed.histograms == ((2.0, found),)


def test_series_labels_and_version(server: Server, client: Prometheus) -> None:
    server.answers({"status": "success", "data": [{"__name__": "up", "job": "a"}]})
    assert client.series(["up", '{job="a"}'], start=1, end=2) == [{"__name__": "up", "job": "a"}]
    asked = {"match[]": ["up", '{job="a"}'], "start": ["1.000"], "end": ["2.000"]}
    assert server.asked[-1] == ("POST", "/api/v1/series", asked)
    server.answers({"status": "success", "data": ["a", "b"]})
    assert client.label_values("a/../b", ["up"]) == ["a", "b"]
    assert server.asked[-1] == ("GET", "/api/v1/label/a%2F..%2Fb/values", {"match[]": ["up"]})
    server.answers({"status": "success", "data": {"version": "3.0.1"}})
    assert client.version() == "3.0.1"


ACTIVE = {
    "labels": {"alertname": "A", "tenant": "red"},
    "annotations": {"summary": "it floods"},
    "state": "firing",
    "activeAt": "2026-11-23T09:11:31.123456789Z",
    "value": "1e+00",
}


def test_alerts(server: Server, client: Prometheus) -> None:
    pending = {**ACTIVE, "state": "pending", "activeAt": "2026-11-23T10:11:31+01:00", "annotations": {}}
    server.answers({"status": "success", "data": {"alerts": [ACTIVE, pending]}})
    first, second = client.alerts()
    assert first == Alert({"alertname": "A", "tenant": "red"}, {"summary": "it floods"}, True, first.since)
    assert (first.since, second.since, second.firing) == (1795425091.123456, 1795425091.0, False)
    assert server.asked == [("GET", "/api/v1/alerts", {})]


@pytest.mark.parametrize(
    "wrong",
    [
        {"activeAt": "yesterday"},
        {"activeAt": "2026-11-23T09:11:31"},
        {"activeAt": 1},
        {"labels": {"a": 1}},
        {"labels": None},
        {"state": None},
        {"annotations": []},
    ],
)
def test_alerts_that_are_none(server: Server, client: Prometheus, wrong: dict[str, Any]) -> None:
    server.answers({"status": "success", "data": {"alerts": [{**ACTIVE, **wrong}]}})
    with pytest.raises(BadAnswer):
        client.alerts()


def test_warnings_and_new_fields_are_no_fault(server: Server, client: Prometheus) -> None:
    server.answers(
        {
            "status": "success",
            "warnings": ["w"],
            "infos": ["i"],
            "isPartial": False,
            "data": {"resultType": "vector", "result": [], "stats": {"timings": {}}},
        }
    )
    assert client.instant("x") == []


# Who asks


@pytest.mark.parametrize(
    ("access", "sent"),
    [
        (Access(), None),
        (Access(bearer=SECRET), f"Bearer {SECRET}"),
        (Access(user="vigia", password=SECRET), "Basic dmlnaWE6aHVudGVyMi10b2tlbg=="),
    ],
    ids=["nobody", "token", "user"],
)
def test_credentials_are_sent_and_never_shown(
    server: Server, access: Access, sent: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.answers({"status": "error", "errorType": "bad_data", "error": "no"}, 400)
    with Prometheus(server.url, access=access) as client, pytest.raises(Refused) as refused:
        client.instant("x")
    assert server.seen[-1].get("authorization") == sent
    with Prometheus("http://127.0.0.1:1", access=access) as client, pytest.raises(Unavailable) as away:
        client.instant("x")
    for text in (str(refused.value), str(away.value), repr(access), repr(refused.value), caplog.text):
        assert SECRET not in text and "dmlnaWE6" not in text


def test_credentials_fit_together() -> None:
    with pytest.raises(ValueError, match="not by both"):
        Access(bearer="x", user="y", password="z")
    with pytest.raises(ValueError, match="go together"):
        Access(user="y")


def test_credentials_are_not_taken_to_another_server(server: Server) -> None:
    server.headers = {"Location": "http://127.0.0.1:1/elsewhere"}
    server.answers(b"", 307)
    with (
        Prometheus(server.url, access=Access(bearer=SECRET)) as client,
        pytest.raises(BadAnswer, match="307"),
    ):
        client.instant("x")
    assert len(server.asked) == 1


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is not the URL of a Prometheus server"):
        Prometheus("ftp://x")


# Bad answers


BAD = [
    b"",
    b"<html>not here</html>",
    b"[]",
    b"null",
    b'{"status":"success"}',
    b'{"status":"great","data":{}}',
    b'{"status":"success","data":[]}',
    b'{"status":"success","data":{"resultType":"vector"}}',
    b'{"status":"success","data":{"resultType":"matrix","result":[]}}',
    b'{"status":"success","data":{"resultType":"vector","result":{}}}',
    b'{"status":"success","data":{"resultType":"vector","result":[1]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":1},"value":[1,"1"]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,1]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[true,"1"]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":["1","1"]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"one"]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"0x1"]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1_0"]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"infinity"]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1e999,"1"]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[NaN,"1"]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{}]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"1","sum":"1","buckets":[[9,"1","2","3"]]}]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"1","a":"2"},"value":[1,"1"]}]}}',
    b'{"status":"success","data":{"resultType":"vector","result":[]},"data":{}}',
    b'{"status":"success","data":{"resultType":"vector","result":[]}} {}',
    b'{"status":"success","data":{"resultType":"vector","result":' + b"[" * 5000 + b"]" * 5000 + b"}}",
    b"\xff\xfe",
]  # fmt: skip


@pytest.mark.parametrize("body", BAD, ids=lambda b: b[-60:].decode("latin-1"))
def test_bad_answers_are_one_error(server: Server, client: Prometheus, body: bytes) -> None:
    server.answers(body)
    with pytest.raises(
        BadAnswer, match=r"answers 200 without a result: .*; is the URL that of a Prometheus API\?"
    ):
        client.instant("x")


def test_a_series_without_values_is_bad(server: Server, client: Prometheus) -> None:
    server.gives("matrix", [{"metric": {}}])
    with pytest.raises(BadAnswer, match="neither values nor histograms"):
        client.range("x", 1, 2, 1)
    server.gives("vector", [])
    with pytest.raises(BadAnswer, match="resultType is 'vector', not matrix"):
        client.range("x", 1, 2, 1)


def test_refusals_are_told_apart(server: Server, client: Prometheus) -> None:
    server.answers(
        {"status": "error", "errorType": "bad_data", "error": "parse error:\n\x1b[31mx" + "y" * 999}, 400
    )
    with pytest.raises(Refused, match=r"refuses rate\(x: parse error: {2}\[31mxy+$") as e:
        client.instant("rate(x")
    assert (e.value.status, e.value.kind) == (400, "bad_data")
    assert len(str(e.value)) < 400 and str(e.value).isprintable()
    server.answers({"status": "error", "errorType": 3, "error": None}, 503)
    with pytest.raises(Refused, match="no reason given") as e:
        client.instant("x")
    assert (e.value.status, e.value.kind) == (503, "")


def test_an_answer_that_is_too_large(server: Server) -> None:
    server.gives("vector", [{"metric": {"a": "x" * 100_000}, "value": [1, "1"]}])
    with (
        Prometheus(server.url, max_answer=50_000) as client,
        pytest.raises(TooLarge, match="ask for fewer series"),
    ):
        client.instant("x")
    with Prometheus(server.url, max_answer=200_000) as client:
        assert len(client.instant("x")) == 1


def test_an_answer_without_an_end(server: Server) -> None:
    stop = threading.Event()

    def forever() -> Iterator[bytes]:
        while not stop.is_set():
            yield b" " * (1 << 16)

    server.pieces = forever
    with Prometheus(server.url, timeout=600.0, max_answer=1 << 22) as client, pytest.raises(TooLarge):
        client.instant("x")
    stop.set()


def test_an_answer_that_drips(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, the answer does not: its time goes by faster, as a stall is no late byte here."""
    fast = SimpleNamespace(monotonic=lambda: 300.0 * time.monotonic())
    monkeypatch.setattr(vigia_http, "time", fast)
    stop = threading.Event()

    def drip() -> Iterator[bytes]:
        while not stop.wait(0.02):
            yield b" "

    server.pieces = drip
    with (
        Prometheus(server.url, timeout=600.0) as client,
        pytest.raises(Unavailable, match=r"answers too slowly: it is not complete within 600 s"),
    ):
        client.instant("x")
    stop.set()


def test_a_compressed_bomb_is_not_unpacked(server: Server, client: Prometheus) -> None:
    server.headers["Content-Encoding"] = "gzip"
    server.answers(gzip.compress(b" " * (100 << 20)))
    with pytest.raises(BadAnswer, match="it is compressed though that was not asked for"):
        client.instant("x")
    assert server.seen[-1]["accept-encoding"] == "identity"


def test_nobody_answers() -> None:
    with (
        Prometheus("http://127.0.0.1:1") as client,
        pytest.raises(Unavailable, match=r"does not answer: .*is it running"),
    ):
        client.instant("x")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            Prometheus(url, timeout=0.2) as client,
            pytest.raises(Unavailable, match=r"does not answer within 0\.2 s"),
        ):
            client.instant("x")


def test_what_is_no_http_at_all(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def babble() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(1000)
                sock.sendall(b"SSH-2.0-OpenSSH\r\n")

        thread = threading.Thread(target=babble)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Prometheus(url) as client, pytest.raises(Unavailable):
            client.instant("x")
        thread.join()


# Any answer: one of the declared errors, or data of the declared types

KEYS = st.sampled_from(["status", "data", "resultType", "result", "metric", "value", "values", "histogram", "buckets", "count", "sum", "error"])  # fmt: skip
LEAVES = (
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.sampled_from(["success", "error", "vector", "matrix", "scalar", "1", "NaN", "+Inf", "1e5", "x"])
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=40,
)
NEARLY = st.fixed_dictionaries(
    {
        "status": st.just("success"),
        "data": st.fixed_dictionaries(
            {
                "resultType": st.sampled_from(["vector", "matrix", "scalar"]),
                "result": JSON | st.lists(st.fixed_dictionaries({"metric": JSON}, optional={"value": JSON, "values": JSON, "histogram": JSON, "histograms": JSON}), max_size=3),
            }
        ),
    }
)  # fmt: skip


def answered(body: bytes, status: int = 200) -> Prometheus:
    """A client of a server that always answers this; the network is left out."""
    transport = httpx.MockTransport(lambda _: httpx.Response(status, stream=httpx.ByteStream(body)))
    return Prometheus("http://127.0.0.1:9090", transport=transport)


@given(answer=JSON | NEARLY, status=st.sampled_from([200, 400, 422, 500]))
def test_any_json_is_data_or_a_declared_error(answer: Any, status: int) -> None:
    with answered(json.dumps(answer).encode(), status) as client:
        with contextlib.suppress(PrometheusError):
            for sample in client.instant("x"):
                assert math.isfinite(sample.at)
                assert all(isinstance(v, str) for v in sample.labels.values())
        with contextlib.suppress(PrometheusError):
            for series in client.range("x", 1, 2, 1):
                assert all(math.isfinite(at) for at, _ in series.points)


@given(body=st.binary(max_size=300))
def test_any_bytes_are_a_declared_error(body: bytes) -> None:
    with answered(body) as client, pytest.raises(BadAnswer):
        client.instant("x")
