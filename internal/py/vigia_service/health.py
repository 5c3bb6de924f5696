"""Asking a running instance whether it is ready. Loads no web server and no HTTP library."""

from __future__ import annotations

import socket
import ssl
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from vigia_service.errors import ServiceError

__all__ = ["Answer", "ask", "is_url", "url_of"]

_SECONDS = 5.0
_MOST = 500


@dataclass(frozen=True)
class Answer:
    """What an instance says."""

    url: str
    status: int
    text: str

    @property
    def ready(self) -> bool:
        """Whether it is ready."""
        return self.status == 200


def url_of(listen: str, *, tls: bool) -> str:
    """Return the readiness page of a listener, as configured."""
    return f"unix://{listen[5:]}" if listen.startswith("unix:") else f"http{'s' * tls}://{listen}/-/ready"


def is_url(url: str) -> bool:
    """Whether this can be asked."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def ask(url: str, context: ssl.SSLContext | None = None) -> Answer:
    """Get a short text, within a few seconds. Raises ServiceError."""
    try:
        with closing(_connection(url, context)) as connection:
            path = "/-/ready" if url.startswith("unix:") else urlsplit(url).path or "/"
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read(_MOST).decode("utf-8", "replace")
            shown = "".join(c if c.isprintable() else " " for c in text)  # it goes to a terminal
            return Answer(url, answer.status, shown.strip())
    except (OSError, HTTPException, ValueError) as e:
        raise ServiceError(f"cannot ask {url}: {str(e) or type(e).__name__}; is the program running?") from e


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_SECONDS)
        self.sock.connect(self._path)


def _connection(url: str, context: ssl.SSLContext | None) -> HTTPConnection:
    if url.startswith("unix://"):
        return _UnixConnection(url.removeprefix("unix://"))
    parts = urlsplit(url)
    if parts.scheme == "https":
        return HTTPSConnection(parts.hostname or "", parts.port, timeout=_SECONDS, context=context)
    return HTTPConnection(parts.hostname or "", parts.port, timeout=_SECONDS)
