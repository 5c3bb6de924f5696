"""Whatever a client sends: an answer or a closed connection, and the next client is served."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vigia_testing import eventually

from .serving import Running, head, read_all, serving, status_of

EXAMPLES = settings(deadline=None, max_examples=150)

REQUEST = re.compile(rb"HTTP/1\.1 ([1-5]\d\d) ")

TOKENS = st.sampled_from(
    [
        b"GET ", b"POST ", b"HEAD ", b"OPTIONS ", b"CONNECT ", b"/echo", b"/-/healthy", b"/ignore", b"*", b"http://x/echo",
        b" HTTP/1.1", b" HTTP/1.0", b" HTTP/0.9", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"Host: x", b"Host:", b"Connection: close",
        b"Connection: keep-alive", b"Connection: upgrade", b"Upgrade: h2c", b"Expect: 100-continue", b"Content-Length: 3",
        b"Content-Length: 99999999999999999999", b"Content-Length: -1", b"Content-Length: 0", b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip", b"0\r\n\r\n", b"3\r\nabc\r\n", b"ffffffff\r\n", b"abc", b": ", b"\x00", b"\xff\xfe", b"%00", b"%zz",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01",
    ]
)  # fmt: skip


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(threads=2, body_seconds=0.2, body_bytes=1 << 16) as made:
        yield made


@pytest.fixture(scope="module")
def patient() -> Iterator[Running]:
    """A server that is content with a client that gets no processor between two pieces."""
    with serving(threads=2, body_bytes=1 << 16) as made:
        yield made


def is_clean(running: Running, raw: bytes) -> None:
    """Answers are answers, and nothing of the request is left in the server."""
    assert raw == b"" or REQUEST.match(raw), raw
    assert 500 not in {int(m) for m in re.findall(rb"HTTP/1\.1 (\d+) ", raw)}, "that would be our mistake"
    assert status_of(running.get()) == 200


@EXAMPLES
@given(raw=st.binary(max_size=300))
def test_any_bytes(running: Running, raw: bytes) -> None:
    is_clean(running, running.send(raw))


@EXAMPLES
@given(parts=st.lists(TOKENS, max_size=25))
def test_any_pieces_of_requests(running: Running, parts: list[bytes]) -> None:
    is_clean(running, running.send(b"".join(parts)))


@EXAMPLES
@given(parts=st.lists(TOKENS | st.binary(max_size=20), max_size=8))
def test_any_headers_of_a_request(running: Running, parts: list[bytes]) -> None:
    raw = b"POST /echo HTTP/1.1\r\nHost: x\r\nX: " + b"\r\n".join(parts) + b"\r\n\r\nabc"
    is_clean(running, running.send(raw))


@EXAMPLES
@given(body=st.binary(max_size=400), cuts=st.lists(st.integers(0, 600), max_size=6))
def test_requests_in_any_pieces_are_the_same_request(patient: Running, body: bytes, cuts: list[int]) -> None:
    raw = head("POST", "/echo", f"Content-Length: {len(body)}", "Connection: close") + body
    bounds = sorted({0, len(raw), *(c for c in cuts if c < len(raw))})
    with patient.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for begin, end in pairwise(bounds):
            sock.sendall(raw[begin:end])
        assert read_all(sock).partition(b"\r\n\r\n")[2] == body


@EXAMPLES
@given(raw=st.lists(TOKENS, max_size=10).map(b"".join), reset=st.booleans())
def test_clients_that_go_away_at_any_moment(running: Running, raw: bytes, reset: bool) -> None:
    with contextlib.suppress(OSError), running.connect() as sock:
        sock.sendall(raw)
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    assert status_of(running.get()) == 200


def test_nothing_is_left_of_all_of_them(running: Running) -> None:
    server = running.server
    eventually(lambda: not (server._serving or server._waiting or server._tasks), "all connections to end")
