"""Answers that a server of this kind may give, and answers that none should: data to the letter, or one error."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vigia_prometheus import BadAnswer, Prometheus, PrometheusError, Refused, Sample, Series, Unavailable
from vigia_testing import DEADLINE

URL = "http://prometheus.example:9090"
LABELS = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    max_size=4,
)
TIMES = st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000)


def response(body: object, status: int = 200) -> httpx.Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.Response(status, stream=httpx.ByteStream(raw))


def answered(body: object, status: int = 200) -> Prometheus:
    """Return a client whose server says the same to every question."""
    return transported(lambda _request: response(body, status))


def transported(handle: Callable[[httpx.Request], httpx.Response]) -> Prometheus:
    return Prometheus(URL, transport=httpx.MockTransport(handle))


def success(kind: str, result: object) -> dict[str, object]:
    return {"status": "success", "data": {"resultType": kind, "result": result}}


def as_go(value: float) -> str:
    """Write a number as strconv.FormatFloat(v, 'f', -1, 64) does, or with an exponent as its 'e' does."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value).removesuffix(".0")


# What Prometheus writes is read


@given(LABELS, TIMES, st.floats())
def test_every_sample_comes_through(labels: dict[str, str], at: float, value: float) -> None:
    with answered(success("vector", [{"metric": labels, "value": [at, as_go(value)]}])) as client:
        (found,) = client.instant("x")
    assert (found.labels, found.at, found.histogram) == (labels, at, None)
    assert found.value == value or (math.isnan(found.value) and math.isnan(value))


@given(st.lists(st.tuples(TIMES, st.floats(allow_nan=False)), max_size=10), LABELS)
def test_every_series_comes_through(points: list[tuple[float, float]], labels: dict[str, str]) -> None:
    values = [[at, as_go(value)] for at, value in points]
    with answered(success("matrix", [{"metric": labels, "values": values}])) as client:
        assert client.range("x", 1, 2, 1) == [Series(labels, points)]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e+06", 1e6),
        ("-0", -0.0),
        ("Inf", math.inf),
        ("1e400", math.inf),
    ],
)
def test_numbers_as_go_may_write_them(written: str, value: float) -> None:
    with answered(success("scalar", [1.5, written])) as client:
        assert client.instant("x") == [Sample({}, 1.5, value)]


@pytest.mark.parametrize(
    "written",
    [
        "",
        " 1",
        "1 ",
        "1\n",
        "1,5",
        "0x10",
        "1_000",
        "\N{ARABIC-INDIC DIGIT ONE}",
        "nan",
        "inf",
        "infinity",
        "--1",
        "1e",
        "e5",
        ".",
    ],
)
def test_numbers_that_only_python_or_nobody_reads(written: str) -> None:
    with (
        answered(success("scalar", [1.5, written])) as client,
        pytest.raises(BadAnswer, match="is no number"),
    ):
        client.instant("x")


@pytest.mark.parametrize("at", [None, "1", True, [1], {}, "NaN"])
def test_times_that_are_none(at: object) -> None:
    for body in (success("scalar", [at, "1"]), success("vector", [{"metric": {}, "value": [at, "1"]}])):
        with answered(body) as client, pytest.raises(BadAnswer, match="is no time"):
            client.instant("x")


@given(st.lists(st.floats(), max_size=20))
def test_a_total_is_the_sum_of_what_is_a_number(values: list[float]) -> None:
    rows = [{"metric": {"i": str(i)}, "value": [1, as_go(v)]} for i, v in enumerate(values)]
    expected = sum(v for v in values if not math.isnan(v))
    with answered(success("vector", rows)) as client:
        found = client.total("x")
    assert found == expected or (math.isnan(found) and math.isnan(expected)), "infinities may cancel out"


# What is asked


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60), TIMES)
def test_every_expression_arrives(expression: str, at: float) -> None:
    """Whatever is in it, line ends and percent signs among it, and of any length: in the body, not in the URL."""
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return response(success("vector", []))

    with transported(handle) as client:
        client.instant(expression * 50, at)
    (request,) = asked
    assert (request.method, request.url.path, request.url.query) == ("POST", "/api/v1/query", b"")
    form = parse_qs(request.content.decode(), keep_blank_values=True)
    assert form == {"query": [expression * 50], "time": [f"{at:.3f}"]}
    assert request.headers["accept-encoding"] == "identity"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_a_label_cannot_lead_to_another_page(label: str) -> None:
    paths: list[bytes] = []

    def handle(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path)
        return response({"status": "success", "data": []})

    with transported(handle) as client:
        client.label_values(label)
    (target,) = paths
    path, _, query = target.partition(b"?")
    assert path.startswith(b"/api/v1/") and path.endswith(b"/values") and query == b""
    if label not in (".", ".."):
        assert path.startswith(b"/api/v1/label/") and path.count(b"/") == 5 and b"#" not in path


# What no Prometheus says


@pytest.mark.parametrize("status", [204, 301, 400, 401, 403, 404, 418, 429, 500, 502, 503, 599])
@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b'{"message": "no"}', b'"success"', b"7"])
def test_pages_of_proxies_are_no_answers(status: int, body: bytes) -> None:
    with (
        answered(body, status) as client,
        pytest.raises(BadAnswer, match=f"answers {status} without a result"),
    ):
        client.instant("x")


def test_a_redirect_is_not_followed() -> None:
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        found = response(b"", 302)
        found.headers["Location"] = "http://other.example/"
        return found

    with transported(handle) as client, pytest.raises(BadAnswer, match="302"):
        client.instant("x")
    assert asked == [f"{URL}/api/v1/query"]


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("bad_data", "bad_data"), ("execution", "execution"), (None, ""), (7, ""), ([], ""), ({"a": 1}, "")],
)
@pytest.mark.parametrize("status", [200, 400, 422, 503])
def test_an_error_is_one_whatever_its_status(kind: object, shown: str, status: int) -> None:
    with (
        answered({"status": "error", "errorType": kind, "error": "too\nmany"}, status) as client,
        pytest.raises(Refused, match=r"refuses up: too many$") as e,
    ):
        client.instant("up")
    assert (e.value.status, e.value.kind) == (status, shown)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "1", "success", "error", "vector"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["status", "data", "result", "resultType", "metric", "value", "values", "version"]),
        inner,
        max_size=4,
    ),
    max_leaves=15,
)


@given(JSON, st.sampled_from(["scalar", "vector", "matrix", "string", "streams", ""]))
def test_any_result_is_data_or_a_declared_error(result: Any, kind: str) -> None:
    questions: list[Callable[[Prometheus], object]] = [
        lambda c: c.instant("x"),
        lambda c: c.range("x", 1, 2, 1),
        lambda c: c.total("x"),
        lambda c: c.series(["x"]),
        lambda c: c.label_values("x"),
        lambda c: c.version(),
    ]
    for body in (success(kind, result), {"status": "success", "data": result}):
        with answered(body) as client:
            for ask in questions:
                try:
                    ask(client)
                except PrometheusError as e:
                    assert str(e).startswith(f"Prometheus at {URL} ") and str(e).isprintable()
                    assert len(str(e)) < 500


def test_a_version_is_one_line() -> None:
    with answered({"status": "success", "data": {"version": "3.0\n\x1b[31m" + "x" * 999}}) as client:
        version = client.version()
    assert version.startswith("3.0  [31mx") and version.isprintable() and len(version) <= 300


# Connections


@pytest.fixture
def raw_server() -> Iterator[tuple[str, list[bytes], threading.Semaphore]]:
    """Answers each connection with the next of some bytes, closes it, and then lets go of the semaphore."""
    say: list[bytes] = []
    closed = threading.Semaphore(0)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock:
                    sock.recv(65_536)
                    sock.sendall(say.pop(0) if say else b"")
                closed.release()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", say, closed
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


GOOD = json.dumps(success("vector", [{"metric": {}, "value": [1, "7"]}])).encode()


def test_a_client_goes_on_after_any_failure(
    raw_server: tuple[str, list[bytes], threading.Semaphore],
) -> None:
    """A connection that broke is not used again, and what was left in it is no answer to the next question."""
    url, say, closed = raw_server
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(GOOD), GOOD)
    broken = [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + GOOD,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" + whole,
        whole.replace(b'"7"', b'"no"', 1),
    ]
    with Prometheus(url, 20.0) as client:
        for raw in broken:
            say[:] = [raw]
            with pytest.raises((Unavailable, BadAnswer)):
                client.instant("x")
            assert closed.acquire(timeout=DEADLINE)  # no question goes into a connection that is about to end
            say[:] = [whole]
            assert [s.value for s in client.instant("x")] == [7.0], raw
            assert closed.acquire(timeout=DEADLINE)
