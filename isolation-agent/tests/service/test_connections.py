"""Hostile connections to one running agent."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolation_agent.clock import SystemClock
from vigia_testing import DEADLINE, eventually

from ..support.process import AgentProcess
from ..support.sockets import head_of, read_all, status_of
from ..support.world import PORT, World, alert, payload
from .conftest import Start, in_real_time

THREADS = 2
CLOSE = "Connection: close"


@pytest.fixture(scope="module")
def place(quick_folder: Path) -> Iterator[World]:
    folder = quick_folder / "connections"
    folder.mkdir()
    made = in_real_time(folder)
    made.extra["limits"] = {"threads": THREADS, "request_time": "3s", "body_bytes": 2 << 20}
    yield made
    made.close()


@pytest.fixture(scope="module")
def agent(place: World) -> Iterator[AgentProcess]:
    made = AgentProcess(place.write_files()).wait_until_ready()
    yield made
    made.stop()


def connect(agent: AgentProcess) -> socket.socket:
    return socket.create_connection(agent.address, timeout=DEADLINE)


def memory(agent: AgentProcess) -> int:
    """Resident size in bytes."""
    text = Path(f"/proc/{agent.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024


def answer_to_large(agent: AgentProcess, header: str, chunk: bytes, last: bytes = b"") -> int:
    """Send a hundred chunks of a megabyte and return the status of the answer; 0 if the client was cut off before.

    A client has a second to send the rest of what is refused.
    """
    with connect(agent) as s:
        s.sendall(head_of("POST", "/v1/webhook/alertmanager", header))
        try:
            for _ in range(100):
                s.sendall(chunk)
            s.sendall(last)
            return status_of(read_all(s))
        except ConnectionError:
            return 0


def test_hundred_megabytes_are_refused_and_the_answer_arrives(agent: AgentProcess) -> None:
    before = memory(agent)
    eventually(
        lambda: answer_to_large(agent, f"Content-Length: {100 << 20}", b" " * (1 << 20)) == 413,
        "a client that is quick to get its answer",
    )
    assert memory(agent) - before < 48 << 20


def test_hundred_megabytes_in_chunks(agent: AgentProcess) -> None:
    before = memory(agent)
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    eventually(
        lambda: answer_to_large(agent, "Transfer-Encoding: chunked", chunk, b"0\r\n\r\n") == 413,
        "a client that is quick to get its answer",
    )
    assert memory(agent) - before < 48 << 20


def test_chunked_message_is_taken(place: World, agent: AgentProcess) -> None:
    place.enforcer.flood(PORT)
    body = json.dumps(payload(alert(SystemClock().now()))).encode()
    pieces = [body[i : i + 100] for i in range(0, len(body), 100)]
    with connect(agent) as s:
        s.sendall(head_of("POST", "/v1/webhook/alertmanager", "Transfer-Encoding: chunked", CLOSE))
        for piece in pieces:
            s.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        s.sendall(b"0\r\n\r\n")
        assert status_of(read_all(s)) == 200
    agent.wait_for_state("active")


def test_refused_without_a_token_before_the_body_is_read(agent: AgentProcess) -> None:
    with connect(agent) as s:
        head = head_of("POST", "/v1/webhook/alertmanager", "Content-Length: 1000000", token="x" * 20)
        s.sendall(head)  # and nothing more
        s.shutdown(socket.SHUT_WR)
        assert status_of(read_all(s)) == 401


NO_REQUESTS = [
    b"nonsense\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    b"POST /-/reload HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"POST /-/reload HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /-/reload HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    head_of("POST", "/v1/webhook/alertmanager", "Transfer-Encoding: chunked") + b"zz\r\n",
    head_of("POST", "/v1/webhook/alertmanager", "Content-Length: 10") + b"{}",
]


def test_requests_that_are_none(place: World, agent: AgentProcess) -> None:
    before = len(agent.actions())
    for raw in NO_REQUESTS:
        with connect(agent) as s:
            s.sendall(raw)
            s.shutdown(socket.SHUT_WR)
            status = status_of(read_all(s))
            assert status in (0, 400, 401, 413, 414, 431, 501, 505), raw[:60]
    assert agent.get("/-/healthy").status_code == 200
    assert len(agent.actions()) == before
    assert "config.reloaded" not in place.audit_path.read_text()


def test_slow_clients_hold_up_neither_health_nor_alerts(agent: AgentProcess) -> None:
    """More slow clients than threads, none with a whole request: everybody else is served meanwhile."""
    silent = [connect(agent) for _ in range(20)]
    slow = [connect(agent) for _ in range(3)]
    for s in slow:
        s.sendall(head_of("POST", "/v1/webhook/alertmanager", "Content-Length: 1000")[:-4])
    body = [connect(agent) for _ in range(THREADS)]
    for s in body:
        s.sendall(head_of("PUT", "/v1/killswitch", "Content-Length: 1000", token="x" * 20) + b"x")
    try:
        begun = time.monotonic()
        assert agent.get("/-/healthy").status_code == 200
        assert agent.post(alert(SystemClock().now())).status_code == 200
        unfinished = [s for s in silent + slow if not closed(s)]
        assert unfinished or time.monotonic() - begun > 3, "served while the slow ones were still there"
        for s in silent + slow:
            assert status_of(read_all(s)) in (0, 408), "closed after its time"
        for s in body:
            assert status_of(read_all(s)) == 408, "nobody was asked before the body was there"
    finally:
        for s in silent + slow + body:
            s.close()
    assert agent.get("/-/ready").status_code == 200


UNAUTHENTICATED = [
    ("POST", "/v1/session", "Content-Length: 100"),
    ("POST", "/v1/session", "Transfer-Encoding: chunked"),
    ("POST", "/v1/session", "Content-Length: 100", "Expect: 100-continue"),
    ("POST", "/-/reload", "Content-Length: 2"),
    ("POST", "/v1/actions", "Content-Length: 65536"),
    ("PUT", "/v1/killswitch", "Content-Length: 100"),
    ("DELETE", "/v1/session", "Content-Length: 100"),
    ("POST", "/v1/simulate", "Transfer-Encoding: chunked"),
    ("POST", "/no/such/route", "Content-Length: 100"),
    ("GET", "/", "Content-Length: 100"),
]


def test_slow_bodies_without_a_token_hold_no_thread(live: World, start: Start) -> None:
    """More of them than threads at every kind of route, and a deadline that this test would not survive."""
    live.extra["limits"] = {"threads": THREADS, "request_time": "1h"}
    agent = start()
    slow = []
    try:
        for method, path, *headers in UNAUTHENTICATED:
            for _ in range(2 * THREADS):
                slow.append(connect(agent))
                slow[-1].sendall(head_of(method, path, *headers, token="x" * 20))
        assert agent.get("/v1/actions").status_code == 200
        assert agent.get("/").status_code == 200
        wrong = agent.send("POST", "/v1/session", json={"token": "x" * 20})
        assert wrong.status_code == 401
        asked = [s for s in slow if not silent(s)]
        assert len(asked) == 2 * THREADS, "those alone that wait to be told to go on"
    finally:
        for s in slow:
            s.close()


def silent(s: socket.socket) -> bool:
    """Tell whether nothing at all has come, not even the end."""
    s.setblocking(False)
    try:
        s.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    return False


def closed(s: socket.socket) -> bool:
    s.setblocking(False)
    try:
        return s.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    finally:
        s.settimeout(DEADLINE)


def test_a_body_that_does_not_come_is_given_up(agent: AgentProcess) -> None:
    with connect(agent) as s:
        s.sendall(head_of("POST", "/v1/webhook/alertmanager", "Content-Length: 1000") + b"x")
        raw = read_all(s)
    assert status_of(raw) == 408
    assert b'"code":"timeout"' in raw


def test_clients_that_neither_read_nor_close_do_not_hold_a_thread(agent: AgentProcess) -> None:
    lazy = [connect(agent) for _ in range(3 * THREADS)]
    for s in lazy:
        s.sendall(head_of("GET", "/metrics", CLOSE))
    assert agent.get("/metrics").status_code == 200
    for s in lazy:
        assert status_of(read_all(s)) == 200
        s.close()
