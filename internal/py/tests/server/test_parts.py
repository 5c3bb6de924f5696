"""Answers that come in parts: what an application wants sent is sent while it makes the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .serving import PATIENCE, head, read_all, read_answer, serving

TOP, REST = b"the top", b"the rest"


class Slow:
    """An application that makes the rest of its answer once it is told to."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = parts or (TOP, b"", REST)
        self.told = threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        *before, last = self.parts
        yield from before
        if environ["PATH_INFO"] != "/at-once":
            assert self.told.wait(PATIENCE)
        yield last


def test_an_empty_part_sends_what_there_is() -> None:
    app = Slow()
    with serving(app=app) as running, running.connect() as sock:
        sock.sendall(head("GET", "/", "Connection: close"))
        seen = b""
        while TOP not in seen:
            data = sock.recv(1 << 16)
            assert data, seen
            seen += data
        assert REST not in seen and b"transfer-encoding: chunked" in seen.lower()
        app.told.set()
        seen += read_all(sock)
    assert seen.index(TOP) < seen.index(REST) and seen.endswith(b"0\r\n\r\n")


def test_whoever_speaks_http_1_0_gets_the_same_without_chunks() -> None:
    app = Slow()
    app.told.set()
    with serving(app=app) as running:
        answer = running.send(b"GET / HTTP/1.0\r\n\r\n", end=False)
    assert answer.endswith(b"\r\n\r\n" + TOP + REST) and b"chunked" not in answer.lower()


@pytest.mark.parametrize("parts", [(TOP, REST), (b"", TOP + REST), (b"", b"", TOP, REST)])
def test_without_anything_to_send_it_stays_one_answer_of_known_length(parts: tuple[bytes, ...]) -> None:
    """An empty part at the beginning sends nothing, and a whole answer announces its length."""
    with serving(app=Slow(*parts)) as running, running.connect() as sock:
        for _ in range(2):
            sock.sendall(head("GET", "/at-once"))
            assert read_answer(sock).endswith(b"\r\n\r\n" + TOP + REST)


def test_the_connection_is_kept_after_an_answer_in_parts() -> None:
    app = Slow()
    app.told.set()
    with serving(app=app) as running, running.connect() as sock:
        for _ in range(2):
            sock.sendall(head("GET", "/"))
            seen = b""
            while not seen.endswith(b"0\r\n\r\n"):
                data = sock.recv(1 << 16)
                assert data, seen
                seen += data
            assert TOP in seen and REST in seen


def test_who_fails_after_a_part_is_cut_off() -> None:
    """Half of a page must not pass for a page."""

    def fails(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield TOP
        yield b""
        raise RuntimeError("a mistake")

    with serving(app=fails) as running:
        answer = running.get("/")
    assert TOP in answer and not answer.endswith(b"0\r\n\r\n")
