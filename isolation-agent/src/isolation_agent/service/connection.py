"""Client connections with deadlines, for gunicorn's threaded worker.

Gunicorn's threads read without a time limit, so a few clients that send
slowly or not at all would hold all of them. Here a request has to arrive
within a set time, idle connections are closed, and a refused body is read
away for a moment so that the client sees the answer instead of a reset.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import time
from typing import Any

from gunicorn.http.body import ChunkedReader, LengthReader
from gunicorn.http.parser import RequestParser
from gunicorn.http.unreader import Unreader
from gunicorn.workers.gthread import TConn

__all__ = ["Connection", "DeadlineReader", "linger"]

_CHUNK = 65_536
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 256 << 20


class DeadlineReader(Unreader):
    """Reads a request from a socket until a deadline."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        super().__init__()
        self._sock = sock
        self._seconds = seconds
        self._deadline: float | None = (
            None  # starts with the first read, not while the request waits its turn
        )

    def chunk(self) -> bytes:
        """Receive some bytes. Raises ConnectionResetError when the time is over."""
        now = time.monotonic()
        self._deadline = self._deadline or now + self._seconds
        left = self._deadline - now
        try:
            if left <= 0:
                raise TimeoutError
            self._sock.settimeout(left)
            return self._sock.recv(_CHUNK)
        except TimeoutError as e:
            raise ConnectionResetError(errno.ECONNRESET, "the request took too long") from e
        finally:
            self._sock.settimeout(self._seconds)  # for sending the answer


class Connection(TConn):
    """One client connection, good for one request that has to arrive within so many seconds."""

    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any, seconds: float) -> None:
        super().__init__(cfg, sock, client, server)
        self.tls: ssl.SSLContext | None = None
        self.seconds = seconds
        self.opened = time.monotonic()

    def init(self) -> None:
        """Start reading, against the clock; with TLS, secure does once the handshake is over."""
        self.initialized = True
        self.sock.setblocking(True)
        if self.tls is None:
            self._read()

    def secure(self) -> None:
        """Make the handshake, where a slow client holds up nobody else. Raises OSError."""
        if self.tls is not None and self.parser is None:
            self.sock.settimeout(self.seconds)
            self.sock = self.tls.wrap_socket(self.sock, server_side=True)
            self._read()

    def _read(self) -> None:
        parser = RequestParser(self.cfg, self.sock, self.client)
        parser.unreader = DeadlineReader(self.sock, self.seconds)
        self.parser = parser

    def close(self) -> None:
        """Close, after reading away what the client is still sending."""
        if self.initialized and self._has_unread():
            linger(self.sock)
        super().close()

    def _has_unread(self) -> bool:
        """Tell whether the client may still be sending a request that nobody will read."""
        if self.parser is None:
            return False  # the handshake failed
        message = self.parser.mesg
        if message is None or message.body is None:
            return True  # no request could be made of it
        reader = message.body.reader
        if isinstance(reader, LengthReader):
            return bool(reader.length > 0)
        return isinstance(reader, ChunkedReader) and reader.parser is not None


def linger(sock: socket.socket) -> None:
    """Say that the answer is complete, then discard input until the client closes, within bounds."""
    deadline, left = time.monotonic() + _LINGER_SECONDS, _LINGER_BYTES
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        while left > 0 and (seconds := deadline - time.monotonic()) > 0:
            sock.settimeout(seconds)
            size = len(sock.recv(_CHUNK))
            if size == 0:
                return
            left -= size
