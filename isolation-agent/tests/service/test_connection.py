"""Client connections have deadlines."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from gunicorn.config import Config

from isolation_agent.service.connection import Connection, DeadlineReader, linger


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_reads_what_is_there(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"hello")
    reader = DeadlineReader(ours, 30.0)
    assert reader.read(5) == b"hello"
    theirs.close()
    assert reader.read(1) == b""


def test_deadline_is_for_the_whole_request(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.02):
            theirs.send(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    reader = DeadlineReader(ours, 0.5)
    try:
        with pytest.raises(ConnectionResetError, match="took too long"):
            reader.read(1 << 20)
    finally:
        stop.set()
        thread.join()
    with pytest.raises(ConnectionResetError):
        reader.chunk()


def test_deadline_starts_with_the_first_read(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    reader = DeadlineReader(ours, 0.2)
    time.sleep(0.3)
    theirs.sendall(b"x")
    assert reader.chunk() == b"x"
    assert ours.gettimeout() == 0.2, "sending the answer has a time limit as well"


def connection(ours: socket.socket) -> Connection:
    made = Connection(Config(), ours, ("127.0.0.1", 1), ("127.0.0.1", 2), 30.0)
    made.init()
    return made


@pytest.mark.parametrize(
    ("sent", "read", "unread"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 0, False),
        (b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd", 4, False),
        (b"POST / HTTP/1.1\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000, 2, True),
        (b"POST / HTTP/1.1\r\nContent-Length: 400\r\n\r\n", 0, True),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 9, False),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", 0, True),
    ],
)
def test_knows_whether_a_body_is_left(
    pair: tuple[socket.socket, socket.socket], sent: bytes, read: int, unread: bool
) -> None:
    ours, theirs = pair
    theirs.sendall(sent)
    made = connection(ours)
    assert made.parser is not None
    message = next(made.parser)
    assert message.body is not None
    if read:
        message.body.read(read)
    assert made._has_unread() is unread


def test_connection_without_a_request_may_have_more_to_come(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    assert connection(pair[0])._has_unread() is True


def test_lingering_lets_the_client_send_and_then_read(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    ours.sendall(b"answer")
    got: list[bytes] = []

    def client() -> None:
        theirs.sendall(b"x" * (8 << 20))
        got.append(theirs.recv(100))
        theirs.close()

    thread = threading.Thread(target=client)
    thread.start()
    linger(ours)
    ours.close()
    thread.join()
    assert got == [b"answer"]


def test_lingering_ends(pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isolation_agent.service.connection._LINGER_SECONDS", 0.2)
    linger(pair[0])  # the client neither sends nor closes
    monkeypatch.setattr("isolation_agent.service.connection._LINGER_SECONDS", 600.0)
    monkeypatch.setattr("isolation_agent.service.connection._LINGER_BYTES", 10)
    pair[1].sendall(b"x" * 100)
    linger(pair[0])  # more than it is ready to read away
    pair[0].close()
    linger(pair[0])  # closed already
