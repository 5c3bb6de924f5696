"""Requests as clients make them, well and badly, and what the application sees of them."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from vigia_service.errors import ServiceError
from vigia_service.server import listen
from vigia_service.server.listener import address_of
from vigia_testing import eventually

from .serving import PATIENCE, Running, head, read_all, read_answer, serving, status_of


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(body_bytes=1 << 20, head_bytes=8 << 10) as made:
        yield made


def client(running: Running) -> httpx.Client:
    host, port = running.address
    return httpx.Client(base_url=f"http://{host}:{port}", trust_env=False, timeout=PATIENCE)


def test_an_application_sees_its_request(running: Running) -> None:
    with client(running) as http:
        seen = http.get("/about?a=b%20c", headers=[("X-Two", "1"), ("X-Two", "2"), ("X_Two", "3")]).json()
    assert seen["REMOTE_ADDR"] == seen["SERVER_NAME"] == "127.0.0.1"
    assert seen["SERVER_PORT"] == str(running.address[1])
    assert seen["SERVER_PROTOCOL"] == "HTTP/1.1"
    assert (seen["PATH_INFO"], seen["QUERY_STRING"]) == ("/about", "a=b%20c")
    assert (seen["wsgi.url_scheme"], seen["clients"]) == ("http", [])
    assert seen["HTTP_X_TWO"] == "1,2", "a header with an underscore cannot pass for another"


@pytest.mark.parametrize(
    ("target", "rest"),
    [
        ("/about/a%2Fb", "a/b"),
        ("/about/%C3%A9", "é"),
        ("http://x/about/proxy", "proxy"),
        ("/about/a;b=c", "a;b=c"),
    ],
)
def test_paths_are_decoded(running: Running, target: str, rest: str) -> None:
    raw = running.send(head("GET", target, "Connection: close"))
    assert json.loads(raw.partition(b"\r\n\r\n")[2]) == {"rest": rest}


def test_bodies_come_back(running: Running) -> None:
    def parts() -> Iterator[bytes]:
        for i in range(50):
            yield bytes([65 + i % 26]) * (i * 100)

    with client(running) as http:
        assert http.post("/echo", content=b"").content == b""
        assert http.post("/echo", content=b"abc" * 100_000).content == b"abc" * 100_000
        assert http.post("/echo", content=parts()).content == b"".join(parts()), "in chunks"


def test_one_connection_serves_many_requests(running: Running) -> None:
    with running.connect() as sock:
        for _ in range(20):
            sock.sendall(head("POST", "/echo", "Content-Length: 3") + b"abc")
            assert read_answer(sock).endswith(b"\r\n\r\nabc")


def test_requests_that_are_sent_at_once_are_answered_in_order(running: Running) -> None:
    many = b"".join(head("POST", "/echo", "Content-Length: 2") + b"%02d" % i for i in range(30))
    raw = running.send(many + head("GET", "/-/healthy", "Connection: close"), end=False)
    assert [raw.count(b"\r\n\r\n%02dHTTP" % i) for i in range(30)] == [1] * 30
    assert raw.endswith(b"healthy\n")


def test_old_clients_and_head_requests(running: Running) -> None:
    assert running.send(b"GET /-/healthy HTTP/1.0\r\n\r\n", end=False).endswith(b"\r\n\r\nhealthy\n")
    with client(running) as http:
        answer = http.head("/-/healthy")
        assert (answer.content, answer.headers["Content-Length"]) == (b"", "8")
        assert "Date" in answer.headers
        assert http.get("/-/healthy").text == "healthy\n", "on the same connection"


def test_a_client_may_close_its_side_and_read_on(running: Running) -> None:
    assert running.send(head("GET", "/-/healthy"), end=True).endswith(b"healthy\n")


def test_a_client_that_asks_first_is_told_to_go_on(running: Running) -> None:
    with running.connect() as sock:
        sock.sendall(head("POST", "/echo", "Content-Length: 3", "Expect: 100-continue"))
        told = sock.recv(1000)
        assert told.startswith(b"HTTP/1.1 100 ")
        sock.sendall(b"abc")
        assert read_answer(sock).endswith(b"abc")
        sock.sendall(head("POST", "/ignore", "Content-Length: 1000000", "Expect: 100-continue"))
        assert read_answer(sock).startswith(b"HTTP/1.1 401 "), "not told to send what nobody reads"
        assert read_all(sock) == b""


NO_REQUESTS = [
    (b"nonsense\r\n\r\n", 400),
    (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 505),
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX : y\r\n\r\n", 400),
    (b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431),
    (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 3000 + b"\r\n", 431),
    (b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 501),
    (head("POST", "/echo", "Content-Length: -5"), 400),
    (head("POST", "/echo", "Content-Length: 5", "Content-Length: 6"), 400),
    (head("POST", "/echo", "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
    (head("POST", "/echo", "Transfer-Encoding: gzip"), 501),
    (head("POST", "/echo", "Transfer-Encoding: chunked") + b"zz\r\n", 400),
    (head("POST", "/echo", "Content-Length: 10") + b"{}", 400),
    (head("POST", "/echo", "Content-Length: 1048577"), 413),
    (head("POST", "/echo", "Transfer-Encoding: chunked") + b"100000\r\n" + b" " * (1 << 20) + b"\r\n1\r\nx\r\n0\r\n\r\n", 413),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x", 400),
    (b"", 0),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "status"), NO_REQUESTS, ids=lambda v: str(v)[:40])
def test_what_is_no_request_is_refused(running: Running, raw: bytes, status: int) -> None:
    assert status_of(running.send(raw)) == status
    assert status_of(running.get()) == 200


def test_a_refused_body_is_read_away_so_that_the_answer_arrives(running: Running) -> None:
    with running.connect() as sock:
        sock.sendall(head("POST", "/echo", f"Content-Length: {64 << 20}"))
        for _ in range(64):
            sock.sendall(b" " * (1 << 20))
        assert status_of(read_all(sock)) == 413


def test_an_application_that_reads_nothing_refuses_before_the_body_comes(running: Running) -> None:
    with running.connect() as sock:
        sock.sendall(head("POST", "/ignore", "Content-Length: 1000000"))
        answer = read_answer(sock)
        assert status_of(answer) == 401
        assert b"Connection: close" in answer


# Applications with mistakes


def answering(
    status: str, headers: list[tuple[str, str]], body: Iterable[bytes]
) -> Callable[..., Iterable[bytes]]:
    def app(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response(status, headers)
        return body

    return app


def broken() -> Iterator[bytes]:
    yield b"x" * 300_000
    raise RuntimeError("in the middle")


def test_an_application_that_fails_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_environ: object, _start: object) -> Iterable[bytes]:
        raise RuntimeError("a secret detail")

    with serving(app=fails) as running:
        raw = running.get()
        assert status_of(raw) == 500
        assert b"secret" not in raw
        assert "cannot answer a request" in caplog.text and "a secret detail" in caplog.text
    with serving(app=lambda _environ, _start: [b"no head"]) as running:
        assert status_of(running.get()) == 500


def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one() -> None:
    with serving(app=answering("200 OK", [], broken())) as running:
        raw = running.get()
        assert raw.startswith(b"HTTP/1.1 200 ")
        assert not raw.endswith(b"0\r\n\r\n"), "the end of a chunked body"


@pytest.mark.parametrize(
    "app",
    [
        answering("200 OK", [("Content-Length", "5")], [b"far too long"]),
        answering("200 OK", [("X-Bad", "a\r\nInjected: yes")], [b"x"]),
    ],
)
def test_headers_that_are_wrong_cut_the_connection(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    with serving(app=app) as running:
        assert b"Injected" not in running.get()
        assert "cannot send an answer" in caplog.text


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_answers_without_a_body(status: str) -> None:
    with serving(app=answering(status, [], [])) as running:
        raw = running.get()
        assert raw.endswith(b"\r\n\r\n") and b"ength" not in raw


def test_what_an_application_opens_is_closed() -> None:
    class Body:
        closed = False

        def __iter__(self) -> Iterator[bytes]:
            return iter([b"", b"ab", b"c"])

        def close(self) -> None:
            Body.closed = True

    with serving(app=answering("200 OK", [("Content-Type", "text/plain")], Body())) as running:
        raw = running.get()
        assert raw.endswith(b"\r\n\r\nabc") and b"Content-Length: 3" in raw
        eventually(lambda: Body.closed, "the body to be closed")


# Listening


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "service.sock"
    with serving(where=f"unix:{path}") as running:
        assert path.stat().st_mode & 0o777 == 0o660
        assert running.get().endswith(b"healthy\n")
        assert running.server.addresses == [f"unix:{path}"]
        with pytest.raises(ServiceError, match="is in use"):
            listen(f"unix:{path}")
    assert not path.exists(), "it goes with the server"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    with serving(where=f"unix:{path}") as running:
        assert status_of(running.get()) == 200, "a dead process's socket is replaced"


def test_addresses() -> None:
    with listen("127.0.0.1:0") as sock:
        where = address_of(sock)
        assert where.startswith("127.0.0.1:")
        with pytest.raises(ServiceError, match=f"listen: {where}: is in use; stop the process that holds it"):
            listen(where)
    with listen("[::1]:0") as sock:
        assert address_of(sock).startswith("[::1]:")


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("no.such.host.invalid:1", "is not an address of this machine"),
        ("127.0.0.1:port", "is not an address of this machine: no port"),
        ("203.0.113.1:9874", "cannot listen: Cannot assign requested address; choose another address"),
        ("unix:/absent/x.sock", "cannot listen: No such file or directory"),
        ("unix:/etc/passwd", "is in use"),
    ],
)
def test_addresses_that_are_none(where: str, problem: str) -> None:
    with pytest.raises(ServiceError, match=f"listen: .*{problem}"):
        listen(where)
