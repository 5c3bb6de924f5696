"""Where one request ends and the next begins: what two programs could read differently is never carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from werkzeug.exceptions import HTTPException

from vigia_service.server import Limits
from vigia_testing import eventually

from .serving import Running, head, read_all, read_answer, serving, status_of

HEAD_BYTES = 8 << 10
SMUGGLED = head("GET", "/smuggled", "Connection: close")
ANY = settings(max_examples=60, deadline=None)


@dataclass
class Witness:
    """An application that remembers every request whose body it could read to the end."""

    requests: list[tuple[str, str, bytes]] = field(default_factory=list)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path == "/unread":
            start_response("401 Unauthorized", [])
            return [b"not for you"]
        try:
            body = environ["wsgi.input"].read()
        except HTTPException as e:
            return e(environ, start_response)
        self.requests.append((method, path, body))
        start_response("200 OK", [("Content-Type", "application/octet-stream")])
        return [f"{method} {path} ".encode() + body]

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _ in self.requests]


@pytest.fixture(scope="module")
def witness() -> Witness:
    return Witness()


@pytest.fixture(scope="module")
def running(witness: Witness) -> Iterator[Running]:
    with serving(app=witness, body_bytes=1 << 20, head_bytes=HEAD_BYTES) as made:
        yield made


@pytest.fixture(autouse=True)
def forget(witness: Witness) -> None:
    witness.requests.clear()


def chunked(parts: Iterable[bytes], extension: bytes = b"", trailers: bytes = b"") -> bytes:
    chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in parts)
    return chunks + b"0" + extension + b"\r\n" + trailers + b"\r\n"


def pieces(raw: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    """Cut bytes at some places."""
    at = 0
    for cut in sorted({c % (len(raw) + 1) for c in cuts}):
        yield raw[at:cut]
        at = cut
    yield raw[at:]


def answers(raw: bytes, methods: Sequence[str]) -> list[tuple[int, bytes]]:
    """Read answers as a strict client does: status and body of each, and nothing may be left over."""
    found = []
    for method in methods:
        http = h11.Connection(h11.CLIENT)
        http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        http.send(h11.EndOfMessage())
        http.receive_data(raw)
        status, body = 0, b""
        while True:
            event = http.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                assert isinstance(event, h11.EndOfMessage), (method, event, raw)
                break
        found.append((status, body))
        raw = http.trailing_data[0]
    assert raw == b""
    return found


# What is whole is read, in whatever pieces it comes


@ANY
@given(
    parts=st.lists(st.binary(min_size=1, max_size=300), max_size=6),
    extension=st.sampled_from([b"", b";a", b";a=b", b';a="b c"']),
    trailers=st.sampled_from([b"", b"X-Sum: 1\r\n", b"A: b\r\nC: d\r\n"]),
    cuts=st.lists(st.integers(0, 4000), max_size=5),
)
def test_a_body_in_chunks_is_what_was_sent(
    running: Running, parts: list[bytes], extension: bytes, trailers: bytes, cuts: list[int]
) -> None:
    raw = head("POST", "/echo", "Transfer-Encoding: chunked") + chunked(parts, extension, trailers)
    with running.connect() as sock:
        for piece in pieces(raw, cuts):
            sock.sendall(piece)
        assert read_answer(sock).endswith(b"\r\n\r\nPOST /echo " + b"".join(parts))
        sock.sendall(head("GET", "/next", "Connection: close"))
        assert read_all(sock).endswith(b"GET /next "), "the next request begins where the body ended"


REQUEST = st.tuples(
    st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"]),
    st.sampled_from(["none", "length", "chunked"]),
    st.binary(max_size=200),
)


def written(number: int, method: str, form: str, body: bytes) -> bytes:
    path = f"/{number}"
    if form == "length":
        return head(method, path, f"Content-Length: {len(body)}") + body
    if form == "chunked":
        return head(method, path, "Transfer-Encoding: chunked") + chunked([body] if body else [])
    return head(method, path)


@ANY
@given(requests=st.lists(REQUEST, min_size=1, max_size=8), cuts=st.lists(st.integers(0, 4000), max_size=6))
def test_requests_in_any_pieces_are_answered_one_by_one(
    running: Running, witness: Witness, requests: list[tuple[str, str, bytes]], cuts: list[int]
) -> None:
    witness.requests.clear()
    raw = b"".join(written(i, *r) for i, r in enumerate(requests))
    with running.connect() as sock:
        for piece in pieces(raw + head("GET", "/end", "Connection: close"), cuts):
            sock.sendall(piece)
        found = answers(read_all(sock), [m for m, _, _ in requests] + ["GET"])
    sent = [(m, f"/{i}", b"" if form == "none" else body) for i, (m, form, body) in enumerate(requests)]
    assert witness.requests == [*sent, ("GET", "/end", b"")]
    expected = [b"" if m == "HEAD" else f"{m} {p} ".encode() + b for m, p, b in witness.requests]
    assert found == [(200, body) for body in expected]


# What is not whole, or could be read in two ways


@pytest.mark.parametrize(
    "rest",
    [
        b"g\r\n",
        b"\r\n",
        b"-1\r\nx\r\n",
        b"+3\r\nabc\r\n",
        b"0x3\r\nabc\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3\r\nabcXX0\r\n\r\n",
        b"f" * 21 + b"\r\n",
        b"3;" + b"x" * (4 * HEAD_BYTES),
        b"3\r\nab",
        b"3\r\nabc\r\n",
        b"3\r\nabc\r\n0\r\nX: y",
        b"0\r\nnonsense\r\n\r\n",
        b"0\r\n" + b"X: y\r\n" * HEAD_BYTES,
    ],
    ids=lambda v: str(v[:24]),
)
def test_a_body_that_breaks_off_is_an_error_and_no_body(
    running: Running, witness: Witness, rest: bytes
) -> None:
    raw = running.send(head("POST", "/echo", "Transfer-Encoding: chunked") + chunked([b"good"])[:-5] + rest)
    assert status_of(raw) == 400
    assert raw.count(b"HTTP/1.1 ") == 1
    assert witness.requests == []


@pytest.mark.parametrize(
    "fields",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 0"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5, 6"],
        ["Content-Length: +5"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5 5"],
        ["Content-Length: 1e1"],
        ["Content-Length: \u00b2"],
        ["Content-Length:"],
        ["Content-Length: " + "9" * 100],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding : chunked"],
        ["Transfer-Encoding\x00: chunked"],
        ["X: y\rTransfer-Encoding: chunked"],
        ["X: \x00"],
        [": chunked"],
        ["Transfer-Encoding"],
    ],
    ids=lambda v: " and ".join(v)[:60],
)
def test_what_two_programs_could_read_differently_is_refused(
    running: Running, witness: Witness, fields: list[str]
) -> None:
    """Nor is what follows it taken for a request of its own."""
    raw = running.send(head("POST", "/echo", *fields) + b"0\r\n\r\n" + SMUGGLED)
    assert status_of(raw) in (400, 413, 431, 501)
    assert raw.count(b"HTTP/1.1 ") == 1
    assert witness.requests == []


def test_a_header_that_begins_with_a_space_belongs_to_none(running: Running, witness: Witness) -> None:
    raw = b"POST /echo HTTP/1.1\r\n Transfer-Encoding: chunked\r\nHost: x\r\n\r\n0\r\n\r\n" + SMUGGLED
    assert status_of(running.send(raw)) == 400
    assert witness.requests == []


@pytest.mark.parametrize("form", ["Content-Length: {}", "Transfer-Encoding: chunked"])
def test_a_body_that_nobody_reads_is_no_request(running: Running, witness: Witness, form: str) -> None:
    """A connection on which the application has refused a body ends."""
    sent = SMUGGLED * (Limits().gathered_bytes // len(SMUGGLED) + 1)
    body = sent if "{" in form else b"%x\r\n%b\r\n" % (len(sent), sent)
    raw = running.send(head("POST", "/unread", form.format(2 * len(sent))) + body, end=False)
    assert status_of(raw) == 401 and raw.count(b"HTTP/1.1 ") == 1
    assert witness.requests == []


@pytest.mark.parametrize(
    "last",
    [
        head("GET", "/last", "Connection: close"),
        head("GET", "/last", "connection: Keep-Alive, CLOSE"),
        b"GET /last HTTP/1.0\r\n\r\n",
    ],
)
def test_nothing_is_carried_out_after_the_last_request(
    running: Running, witness: Witness, last: bytes
) -> None:
    raw = running.send(head("GET", "/first") + last + SMUGGLED, end=False)
    assert answers(raw, ["GET", "GET"]) == [(200, b"GET /first "), (200, b"GET /last ")]
    assert witness.paths == ["/first", "/last"]


def test_nothing_is_carried_out_after_what_is_no_request(running: Running, witness: Witness) -> None:
    raw = running.send(head("GET", "/first") + b"nonsense\r\n\r\n" + SMUGGLED)
    assert [status for status, _ in answers(raw, ["GET", "GET"])] == [200, 400]
    assert witness.paths == ["/first"]


# Other protocols


@pytest.mark.parametrize(
    "fields",
    [
        ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"],
        ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: eA==", "Sec-WebSocket-Version: 13"],
    ],
)
def test_other_protocols_are_not_switched_to(running: Running, witness: Witness, fields: list[str]) -> None:
    with running.connect() as sock:
        sock.sendall(head("GET", "/plain", *fields))
        answer = read_answer(sock)
        assert status_of(answer) == 200 and b"pgrade" not in answer
    assert witness.paths == ["/plain"]


def test_the_preface_of_http_2_is_refused(running: Running, witness: Witness) -> None:
    assert status_of(running.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) in (400, 505)
    assert witness.requests == []


# Bounds


def sized(total: int) -> bytes:
    """Return a request whose target and headers have this size, as the server counts it."""
    fixed = len("/sized") + len("Host" + "x") + 4 + len("Connection" + "close") + 4 + len("X") + 4
    return head("GET", "/sized", "Connection: close", "X: " + "a" * (total - fixed))


def test_a_head_as_large_as_allowed_is_read_and_a_larger_one_is_not(
    running: Running, witness: Witness
) -> None:
    assert status_of(running.send(sized(HEAD_BYTES - 100))) == 200
    assert status_of(running.send(sized(HEAD_BYTES + 1))) == 431
    assert witness.paths == ["/sized"]


@pytest.mark.parametrize("form", ["length", "chunked"])
def test_a_body_as_large_as_allowed_is_read_and_a_larger_one_is_not(
    running: Running, witness: Witness, form: str
) -> None:
    most = b"x" * (1 << 20)
    for body, status in ((most, 200), (most + b"x", 413)):
        assert status_of(running.send(written(0, "POST", form, body))) == status
    assert [len(body) for *_, body in witness.requests] == [1 << 20]


def test_many_small_chunks_are_one_body(running: Running, witness: Witness) -> None:
    raw = head("POST", "/echo", "Transfer-Encoding: chunked", "Connection: close") + chunked([b"x"] * 20_000)
    assert status_of(running.send(raw)) == 200
    assert witness.requests == [("POST", "/echo", b"x" * 20_000)]


def test_a_client_that_leaves_within_a_body_is_no_request(running: Running, witness: Witness) -> None:
    for raw in (
        head("POST", "/echo", "Content-Length: 10") + b"12345",
        head("POST", "/echo", "Transfer-Encoding: chunked") + b"a\r\n12345",
    ):
        with running.connect() as sock:
            sock.sendall(raw)
    eventually(lambda: status_of(running.get("/after")) == 200, "the server to go on")
    assert witness.paths == ["/after"]
