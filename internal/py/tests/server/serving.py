"""A server in a thread, and clients that speak to it byte by byte."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from flask import Flask, Response, request

from vigia_service.server import Limits, Reserved, Server, client_names, listen
from vigia_service.server.wsgi import Application

PATIENCE = 60.0
"""Seconds that a client of these tests waits: only a fault reaches it."""

PATIENT = {"head_seconds": PATIENCE, "body_seconds": PATIENCE, "answer_seconds": PATIENCE}
"""Deadlines of a server whose test is about none of them: a client may get no processor for a while."""


@dataclass
class Gate:
    """Holds requests at /wait until it is opened, and knows how many are there."""

    opened: threading.Event = field(default_factory=threading.Event)
    inside: list[str] = field(default_factory=list)


def application(gate: Gate) -> Flask:
    app = Flask("vigia_service", static_folder=None)

    @app.get("/-/healthy")
    def healthy() -> str:
        return "healthy\n"

    @app.post("/echo")
    def echo() -> bytes:
        return request.get_data()

    @app.post("/ignore")
    def ignore() -> tuple[str, int]:
        return "not for you\n", 401

    @app.get("/big/<int:size>")
    def big(size: int) -> Response:
        return Response((b"x" * 100_000 for _ in range(size // 100_000)), mimetype="text/plain")

    @app.get("/wait")
    def wait() -> str:
        gate.inside.append(threading.current_thread().name)
        assert gate.opened.wait(PATIENCE)
        return "waited\n"

    @app.get("/about")
    def about() -> dict[str, object]:
        shown = (
            "REMOTE_ADDR",
            "SERVER_NAME",
            "SERVER_PORT",
            "SERVER_PROTOCOL",
            "PATH_INFO",
            "QUERY_STRING",
            "wsgi.url_scheme",
        )
        headers = {k: v for k, v in request.environ.items() if k.startswith("HTTP_X")}
        known = {k: request.environ[k] for k in shown}
        return {
            **known,
            **headers,
            "clients": sorted(client_names(request.environ)),
            "thread": threading.current_thread().name,
        }

    @app.get("/about/<path:rest>")
    def below(rest: str) -> dict[str, object]:
        return {"rest": rest}

    return app


@dataclass
class Running:
    """A server that runs, and what it serves."""

    server: Server
    address: tuple[str, int] | str
    gate: Gate
    thread: threading.Thread

    def connect(self, receive_buffer: int | None = None) -> socket.socket:
        family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(PATIENCE)
        try:
            sock.connect(self.address)
        except OSError:
            sock.close()
            raise
        return sock

    def send(self, raw: bytes, *, end: bool = True) -> bytes:
        """Send bytes on a connection of their own and return all that comes back."""
        with self.connect() as sock:
            sock.sendall(raw)
            if end:
                sock.shutdown(socket.SHUT_WR)
            return read_all(sock)

    def get(self, path: str = "/-/healthy") -> bytes:
        return self.send(head("GET", path, "Connection: close"), end=False)


@contextlib.contextmanager
def serving(
    *,
    app: Application | None = None,
    where: str = "127.0.0.1:0",
    tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    reserved: Sequence[Reserved] = (Reserved.for_paths(["/-/healthy"]),),
    **limits: float,
) -> Iterator[Running]:
    """Serve an application within limits; fails if the server does not end."""
    gate = Gate()
    listener = listen(where)
    name = listener.getsockname()
    wanted = Limits(**{**PATIENT, **limits})  # type: ignore[arg-type]
    server = Server(app or application(gate), [listener], wanted, tls=tls, reserved=reserved)
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        yield Running(server, name if isinstance(name, str) else name[:2], gate, thread)
    finally:
        gate.opened.set()
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server does not end"


def head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def read_all(sock: socket.socket) -> bytes:
    out = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(1 << 20):
            out += data
    return bytes(out)


def read_answer(sock: socket.socket) -> bytes:
    """Read one answer whose length is announced, from a connection that stays open."""
    out = b""
    while b"\r\n\r\n" not in out:
        data = sock.recv(65_536)
        assert data, out
        out += data
    start, _, body = out.partition(b"\r\n\r\n")
    fields = [line.split(b":", 1) for line in start.split(b"\r\n")[1:]]
    length = next(int(value) for name, value in fields if name.lower() == b"content-length")
    while len(body) < length:
        body += sock.recv(65_536)
    assert len(body) == length
    return start + b"\r\n\r\n" + body


def status_of(raw: bytes) -> int:
    return int(raw.split()[1]) if raw else 0
