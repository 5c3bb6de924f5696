"""Clients that are slow, silent, greedy or many: what they hold up, and for how long.

Deadlines in these tests are either so long that a server that waits for them
fails the test, or short, and then only the end is awaited, never timed.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from vigia_service.server import Limits, Reserved, Server, listen
from vigia_testing import eventually

from .serving import PATIENCE, Gate, Running, application, head, read_all, serving, status_of

FOREVER = 3600.0
"""Seconds that nothing in these tests takes: a server that waits for such a deadline fails them."""

SLOW = 64


@contextlib.contextmanager
def open_connections(running: Running, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that have sent something, perhaps nothing, and stay."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(running.connect()) for _ in range(count)]
        for sock in made:
            sock.sendall(sent)
        yield made


def is_open(sock: socket.socket) -> bool:
    """Whether the server has neither closed nor answered."""
    readable, _, _ = select.select([sock], [], [], 0)
    return not readable


@contextlib.contextmanager
def dripping(sock: socket.socket, drop: bytes = b"x") -> Iterator[None]:
    """Send a byte now and then until the end of the block."""
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.02):
            try:
                sock.send(drop)
            except OSError:
                return

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


PARTIAL = [
    b"",
    b"P",
    b"POST /echo HTTP/1.1\r\n",
    head("POST", "/echo", "Content-Length: 1000")[:-4],
]


@pytest.mark.parametrize("sent", PARTIAL, ids=["silent", "one byte", "request line", "headers"])
def test_slow_heads_hold_no_thread(sent: bytes) -> None:
    with (
        serving(threads=1, reserved=(), head_seconds=FOREVER) as running,
        open_connections(running, SLOW, sent) as slow,
    ):
        for _ in range(3):
            assert status_of(running.get()) == 200
            assert status_of(running.send(head("POST", "/ignore", "Content-Length: 0"))) == 401
        assert all(map(is_open, slow)), "they were there all the time"


def test_large_bodies_that_nobody_reads_hold_no_thread() -> None:
    """An application that looks at the token first is done with those who have none."""
    with serving(threads=1, reserved=(), body_seconds=FOREVER) as running:
        sent = head("POST", "/ignore", "Content-Length: 1000000") + b"x"
        with open_connections(running, SLOW, sent) as slow:
            assert status_of(running.get()) == 200
            assert [status_of(read_all(s)) for s in slow] == [401] * SLOW


SLOW_BODIES = [
    head("POST", "/echo", "Content-Length: 1000") + b"x",
    head("POST", "/echo", "Content-Length: 1000", "Expect: 100-continue"),
    head("POST", "/echo", "Transfer-Encoding: chunked") + b"3\r\nabc\r\nfff\r\na",
]


@pytest.mark.parametrize("sent", SLOW_BODIES, ids=["length", "expects to be asked", "chunked"])
def test_slow_bodies_hold_no_thread(sent: bytes) -> None:
    """The application would read them: it is not asked before they are complete."""
    with (
        serving(threads=1, reserved=(), body_seconds=FOREVER) as running,
        open_connections(running, SLOW, sent) as slow,
    ):
        eventually(lambda: len(running.server._waiting) == SLOW, "all of them")
        for _ in range(3):
            assert status_of(running.get()) == 200
            assert running.send(head("POST", "/echo", "Content-Length: 1") + b"x").endswith(b"\r\n\r\nx")
        if b"Expect" in sent:
            assert [s.recv(100) for s in slow] == [b"HTTP/1.1 100 Continue\r\n\r\n"] * SLOW
        assert all(map(is_open, slow)), "they were there all the time"


def test_slow_bodies_make_room_for_others() -> None:
    with (
        serving(connections=10, body_seconds=FOREVER) as running,
        open_connections(running, 10, SLOW_BODIES[0]) as slow,
    ):
        eventually(lambda: len(running.server._waiting) == 10, "ten connections")
        assert status_of(running.get()) == 200
        assert read_all(slow[0]) == b"", "the one that has waited longest"


def test_a_gathered_body_arrives_whole() -> None:
    """However it is cut, at and around the size up to which bodies are gathered."""
    for size in (1, 999, 1000, 1001, 5000):
        body = bytes(range(256)) * 20
        with serving(threads=1, reserved=(), gathered_bytes=1000) as running, running.connect() as sock:
            sock.sendall(head("POST", "/echo", f"Content-Length: {size}", "Connection: close"))
            for at in range(0, size, 700):
                sock.sendall(body[at : min(size, at + 700)])
            assert read_all(sock).endswith(b"\r\n\r\n" + body[:size])
        chunks = b"".join(b"%x\r\n%s\r\n" % (1, body[i : i + 1]) for i in range(size)) + b"0\r\n\r\n"
        with serving(threads=1, reserved=(), gathered_bytes=1000) as running:
            sent = head("POST", "/echo", "Transfer-Encoding: chunked", "Connection: close") + chunks
            assert running.send(sent, end=False).endswith(b"\r\n\r\n" + body[:size])


def test_a_broken_body_is_answered_by_the_application() -> None:
    with serving(threads=1, reserved=(), body_seconds=FOREVER) as running:
        broken = head("POST", "/echo", "Transfer-Encoding: chunked") + b"3\r\nabc\r\nrubbish\r\n"
        assert status_of(running.send(broken, end=False)) == 400
        assert status_of(running.send(head("POST", "/echo", "Content-Length: 9") + b"x")) == 400, "cut short"
    with serving(threads=1, reserved=(), body_seconds=FOREVER, body_bytes=10) as running:
        large = head("POST", "/echo", "Transfer-Encoding: chunked") + b"ff\r\n" + b"x" * 20
        assert status_of(running.send(large, end=False)) == 413


def test_reserved_endpoints_are_served_when_every_thread_is_taken() -> None:
    reserved = (Reserved.for_paths(["/-/healthy"]), Reserved.for_paths(["/echo"], 1))
    with (
        serving(threads=2, reserved=reserved) as running,
        open_connections(running, 5, head("GET", "/wait", "Connection: close")) as waiting,
    ):
        eventually(lambda: len(running.gate.inside) == 2, "two requests at both threads")
        for _ in range(3):
            assert running.get().endswith(b"healthy\n")
            assert running.get("/-/healthy?from=somewhere").endswith(b"healthy\n")
            assert running.send(head("POST", "/echo", "Content-Length: 1") + b"x").endswith(b"\r\n\r\nx")
        assert all(map(is_open, waiting))
        running.gate.opened.set()
        assert [read_all(s).endswith(b"waited\n") for s in waiting] == [True] * 5
        assert {name.partition("-")[0] for name in running.gate.inside} == {"request"}


def test_a_head_has_a_deadline_from_the_first_moment() -> None:
    with (
        serving(head_seconds=0.3) as running,
        open_connections(running, 3) as silent,
        open_connections(running, 1, b"GET / HTTP/1.1\r\nX: ") as (slow,),
        dripping(slow),
    ):
        for sock in (*silent, slow):
            assert read_all(sock) == b"", "closed without a word"
        eventually(lambda: status_of(running.get()) == 200, "a client that is in time to be served")


def test_a_connection_that_is_kept_open_has_deadlines_too() -> None:
    with serving(idle_seconds=0.3, head_seconds=FOREVER) as running, running.connect() as sock:
        sock.sendall(head("GET", "/-/healthy"))
        raw = read_all(sock)
        assert raw.endswith(b"healthy\n"), "and closed when nothing more came"
    with serving(idle_seconds=FOREVER, head_seconds=0.3) as running:

        def answered_and_closed() -> bool:
            """Whether the first request was in time; a stalled machine may be late with it."""
            with running.connect() as sock:
                sock.sendall(head("GET", "/-/healthy") + b"GET ")
                with dripping(sock):
                    return read_all(sock).endswith(b"healthy\n")

        eventually(answered_and_closed, "a first request that is in time")


@pytest.mark.parametrize("sent", SLOW_BODIES, ids=["length", "expects to be asked", "chunked"])
def test_a_small_body_has_a_deadline_from_the_head(sent: bytes) -> None:
    with (
        serving(threads=1, reserved=(), body_seconds=0.3) as running,
        open_connections(running, 2, sent) as (silent, slow),
    ):
        with dripping(slow):
            for sock in (slow, silent):
                raw = read_all(sock).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
                assert status_of(raw) == 408
        assert status_of(running.get()) == 200


def test_a_body_has_a_deadline_from_the_first_read() -> None:
    with serving(threads=1, body_seconds=0.3) as running:
        sent = head("POST", "/echo", "Content-Length: 1000000")
        with open_connections(running, 1, sent) as (slow,), dripping(slow):
            assert status_of(read_all(slow)) == 408
        with open_connections(running, 1, sent) as (silent,):
            assert status_of(read_all(silent)) == 408
        assert status_of(running.send(head("POST", "/echo", "Content-Length: 1") + b"x")) == 200


def test_clients_that_read_nothing_hold_no_thread() -> None:
    with serving(threads=1, answer_seconds=FOREVER) as running, contextlib.ExitStack() as stack:
        lazy = [stack.enter_context(running.connect(receive_buffer=4096)) for _ in range(5)]
        for sock in lazy:
            sock.sendall(head("GET", "/big/500000", "Connection: close"))
        assert status_of(running.send(head("POST", "/echo", "Content-Length: 0"))) == 200
        assert all(len(read_all(sock)) > 500_000 for sock in lazy), "answered all the same"


def test_a_client_that_does_not_take_a_long_answer_is_cut_off() -> None:
    with serving(threads=1, answer_seconds=0.3) as running, running.connect(receive_buffer=4096) as lazy:
        lazy.sendall(head("GET", "/big/200000000"))
        assert status_of(running.send(head("POST", "/echo", "Content-Length: 0"))) == 200
        assert len(read_all(lazy)) < 200_000_000


def test_a_long_answer_arrives_whole() -> None:
    with serving(threads=1) as running:
        assert len(running.get("/big/50000000").partition(b"\r\n\r\n")[2]) > 50_000_000


def test_a_body_that_is_not_read_is_not_taken_into_memory() -> None:
    with serving(body_bytes=1 << 30) as running, running.connect() as sock:
        sock.sendall(head("GET", "/wait", f"Content-Length: {1 << 28}"))
        eventually(lambda: running.gate.inside, "the request at a thread")
        sock.setblocking(False)
        sent, part = 0, b"x" * (1 << 20)
        while select.select([], [sock], [], 1.0)[1]:
            sent += sock.send(part)
        assert sent < 64 << 20, "the rest waits at the client"


def test_requests_behind_one_at_work_wait_at_the_client() -> None:
    with serving(threads=1) as running, running.connect() as sock:
        sock.sendall(head("GET", "/wait"))
        eventually(lambda: running.gate.inside, "the request at a thread")
        sock.setblocking(False)
        sent, part = 0, head("GET", "/-/healthy") * 10_000
        while sent < 256 << 20 and select.select([], [sock], [], 1.0)[1]:
            sent += sock.send(part)
        assert sent < 64 << 20


# Too many


def test_one_connection_too_many_closes_the_one_that_waits_longest(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vigia_service.server.server._QUIET", FOREVER)
    with (
        serving(connections=10, head_seconds=FOREVER) as running,
        open_connections(running, 10) as silent,
    ):
        eventually(lambda: len(running.server._waiting) == 10, "ten connections")
        assert status_of(running.get()) == 200
        assert read_all(silent[0]) == b""
        assert [is_open(s) for s in silent[1:]] == [True] * 9
        for _ in range(9):
            running.get()
        assert sum(map(is_open, silent)) >= 1, "one place is enough for those who come and go"
        assert caplog.text.count("too many connections") == 1, "clients cannot fill a log"


def test_requests_at_work_are_not_closed_for_others() -> None:
    with (
        serving(connections=3, threads=1) as running,
        open_connections(running, 3, head("GET", "/wait", "Connection: close")) as working,
    ):
        eventually(lambda: len(running.server._serving) == 3, "three requests")
        assert running.get() == b"", "the fourth is turned away"
        running.gate.opened.set()
        assert [status_of(read_all(s)) for s in working] == [200] * 3
        eventually(lambda: status_of(running.get()) == 200, "room again")


def test_a_thousand_connections_that_come_and_go_leave_nothing() -> None:
    with serving(connections=50) as running:
        for i in range(1000):
            with running.connect() as sock:
                sock.sendall(PARTIAL[i % len(PARTIAL)])
        server = running.server
        eventually(
            lambda: not (server._waiting or server._serving or server._tasks), "all of them to be forgotten"
        )
        assert status_of(running.get()) == 200


class Scarce(socket.socket):
    """A listener of a process that has no file descriptor left, three times."""

    refusals = 3

    def accept(self) -> tuple[socket.socket, Any]:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_a_process_without_file_descriptors_goes_on_when_it_has_some(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vigia_service.server.server._QUIET", FOREVER)
    gate = Gate()
    plain = listen("127.0.0.1:0")
    listener = Scarce(fileno=plain.detach())
    server = Server(application(gate), [listener], Limits())
    thread = threading.Thread(target=server.run)
    address = listener.getsockname()
    thread.start()
    try:
        assert status_of(Running(server, address, gate, thread).get()) == 200
        assert listener.refusals == 0
        assert caplog.text.count("cannot accept a connection") == 1
    finally:
        server.stop()
        thread.join(PATIENCE)
