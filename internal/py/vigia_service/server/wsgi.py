"""Calling a WSGI application (PEP 3333) with a parsed request."""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

import h11

from vigia_service.server.body import BodyPipe

__all__ = ["Application", "Peer", "Sink", "answer", "client_names", "environ_of", "path_of"]

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Headers = list[tuple[str, str]]

CERTIFICATE = "vigia.peer_certificate"

PART = 256 << 10
"""Bytes of an answer that are handed to the event loop at a time."""

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where an answer goes: a connection, seen from a thread of the application."""

    def send(self, head: tuple[str, Headers] | None, data: bytes, *, end: bool) -> None:
        """Send a part of the answer, the head with the first; wait while the client takes too little.

        Raises ConnectionError when the client has gone or takes too long.
        """
        ...

    def abort(self) -> None:
        """Cut off an answer that cannot be completed."""
        ...


@dataclass(frozen=True)
class Peer:
    """Both ends of a connection."""

    remote: tuple[str, int]
    local: tuple[str, int]
    scheme: str
    certificate: Mapping[str, Any] | None
    """The client's certificate, as ssl.SSLSocket.getpeercert returns it."""


def client_names(environ: Mapping[str, Any]) -> frozenset[str]:
    """Return the common names of the client's certificate; none without one."""
    certificate = environ.get(CERTIFICATE) or {}
    subject = certificate.get("subject", ())
    return frozenset(value for rdn in subject for key, value in rdn if key == "commonName")


def path_of(target: bytes) -> str:
    """Return the decoded path of a request's target, in Latin-1 as WSGI wants it."""
    path = target.partition(b"?")[0]
    if not path.startswith(b"/"):  # http://host/path, or * of OPTIONS
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return unquote_to_bytes(path).decode("latin-1")


def environ_of(request: h11.Request, body: BodyPipe, peer: Peer) -> dict[str, Any]:
    """Return the WSGI environment of a request."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method.decode("ascii"),
        "SCRIPT_NAME": "",
        "PATH_INFO": path_of(request.target),
        "QUERY_STRING": request.target.partition(b"?")[2].decode("latin-1"),
        "REQUEST_URI": request.target.decode("latin-1"),
        "SERVER_NAME": peer.local[0],
        "SERVER_PORT": str(peer.local[1]),
        "SERVER_PROTOCOL": f"HTTP/{request.http_version.decode('ascii')}",
        "REMOTE_ADDR": peer.remote[0],
        "REMOTE_PORT": str(peer.remote[1]),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": peer.scheme,
        "wsgi.input": io.BufferedReader(body, 64 << 10),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        CERTIFICATE: peer.certificate,
    }
    for raw, value in request.headers:
        if b"_" in raw:
            continue  # it could pass for another header, whose - is written _ here
        name, text = raw.decode("ascii").upper().replace("-", "_"), value.decode("latin-1")
        if name not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            name = f"HTTP_{name}"
        separator = "; " if name == "HTTP_COOKIE" else ","
        environ[name] = f"{environ[name]}{separator}{text}" if name in environ else text
    return environ


class _Started:
    """The head that an application has given, until it is sent."""

    def __init__(self) -> None:
        self.head: tuple[str, Headers] | None = None
        self.sent = False

    def start(self, status: str, headers: Headers, exc_info: Any = None) -> Callable[[bytes], Any]:
        """Be WSGI's start_response."""
        if exc_info is not None and self.sent:
            raise exc_info[1].with_traceback(exc_info[2])
        if self.head is not None and exc_info is None:
            raise RuntimeError("start_response was called twice")
        self.head = (status, list(headers))
        return _no_write

    def take(self) -> tuple[str, Headers] | None:
        """Return the head the first time, None afterwards."""
        if self.sent:
            return None
        if self.head is None:
            raise RuntimeError("the application has not called start_response")
        self.sent = True
        return self.head


def _no_write(_data: bytes) -> None:
    raise RuntimeError("the write callable of WSGI is not offered; return an iterable")


def answer(application: Application, environ: dict[str, Any], sink: Sink) -> None:
    """Run the application and send what it answers; its mistakes become a 500 or a cut connection."""
    began, started = time.monotonic(), _Started()
    try:
        _run(application, environ, sink, started)
    except ConnectionError as e:
        _log.debug("cannot send an answer: the client has gone", extra={"err": str(e)})
        sink.abort()
    except Exception:
        _log.exception("cannot answer a request", extra={"path": environ["PATH_INFO"]})
        if started.sent:
            sink.abort()
        else:
            _fail(sink)
    status = started.head[0].partition(" ")[0] if started.head else "500"
    _log.debug(
        "request",
        extra={
            "method": environ["REQUEST_METHOD"],
            "path": environ["PATH_INFO"],
            "status": status,
            "peer": environ["REMOTE_ADDR"],
            "seconds": round(time.monotonic() - began, 6),
        },
    )


def _run(application: Application, environ: dict[str, Any], sink: Sink, started: _Started) -> None:
    result = application(environ, started.start)
    try:
        waiting, size = [], 0
        for chunk in result:
            waiting.append(chunk)
            size += len(chunk)
            if size >= PART or (size and not chunk):  # an empty part asks to send what there is
                sink.send(started.take(), b"".join(waiting), end=False)
                waiting, size = [], 0
        data = b"".join(waiting)
        if not started.sent and started.head is not None:
            _announce(started.head, len(data))
        sink.send(started.take(), data, end=True)
    finally:
        close = getattr(result, "close", None)
        if close is not None:
            close()


def _announce(head: tuple[str, Headers], size: int) -> None:
    """Add the length of a body that is known as a whole."""
    status, headers = head
    bodiless = status.startswith(("1", "204", "304"))
    if not bodiless and not any(name.lower() == "content-length" for name, _ in headers):
        headers.append(("Content-Length", str(size)))


def _fail(sink: Sink) -> None:
    text = b"the program has made a mistake; its log says which\n"
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(text)))]
    try:
        sink.send((f"{status.value} {status.phrase}", headers), text, end=True)
    except ConnectionError:
        sink.abort()
