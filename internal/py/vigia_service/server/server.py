"""The event loop of a server: accepts connections and hands requests to threads."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h11

from vigia_service import systemd
from vigia_service.server.connection import Connection, Exchange
from vigia_service.server.limits import Limits, Reserved
from vigia_service.server.listener import address_of
from vigia_service.server.threads import Threads
from vigia_service.server.wsgi import Application, answer, environ_of, path_of

__all__ = ["Server"]

_AT_ONCE = 64
_PAUSE = 0.5
_QUIET = 10.0
_GONE = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED, errno.EINTR)

_log = logging.getLogger(__name__)


class Server:
    """Serves a WSGI application on listening sockets until told to stop."""

    def __init__(  # noqa: PLR0913
        self,
        application: Application,
        listeners: Sequence[socket.socket],
        limits: Limits | None = None,
        *,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        reserved: Sequence[Reserved] = (),
        signals: Mapping[int, Callable[[], None]] | None = None,
    ) -> None:
        """Take over the sockets.

        ``tls`` is asked at every connection, so that a reload can replace certificates.
        ``signals`` are handled while the server runs, if that is in the main thread, by calling in the
        event loop what must not block; SIGTERM and SIGINT stop the server. Then systemd is told that
        the service is ready.
        """
        self.limits = limits or Limits()
        self.stopping = False
        self.loop: asyncio.AbstractEventLoop
        self._application = application
        self._listeners = list(listeners)
        self._tls = tls
        self._reserved = list(reserved)
        self._signals = dict(signals or {})
        self._waiting: dict[Connection, None] = {}
        self._serving: set[Connection] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pools: list[Threads] = []
        self._ready = threading.Event()
        self._stop: asyncio.Event
        self._next_complaint = 0.0

    @property
    def addresses(self) -> list[str]:
        """Where the server listens, for logs."""
        return [address_of(listener) for listener in self._listeners]

    def run(self) -> None:
        """Serve until stopped; closes the listening sockets. A server runs once."""
        asyncio.run(self._run())

    def stop(self) -> None:
        """Stop soon: requests at work are answered, within their time. From any thread."""
        self._ready.wait()
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self.loop.call_soon_threadsafe(self._stop.set)

    def answers(self, seconds: float) -> bool:
        """Say whether the loop takes a turn within so many seconds, or does not run. From any thread."""
        turn = threading.Event()
        if not self._ready.is_set():
            return True
        try:
            self.loop.call_soon_threadsafe(turn.set)
        except RuntimeError:  # it has ended
            return True
        return turn.wait(seconds)

    # The life of the loop

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(_unexpected)
        self._stop = asyncio.Event()
        self._start_threads()
        try:
            self._handle_signals()
            for listener in self._listeners:
                listener.setblocking(False)
                self.loop.add_reader(listener, self._accept, listener)
            self._ready.set()
            if threading.current_thread() is threading.main_thread():
                systemd.ready()
            await self._stop.wait()
            await self._end()
        finally:
            self._ready.set()
            self._close_listeners()
            for pool in self._pools:
                pool.close()

    def _start_threads(self) -> None:
        self._pools = [Threads("request", self.limits.threads)]
        self._pools += [Threads(f"reserved-{i}", r.threads) for i, r in enumerate(self._reserved)]

    def _handle_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        handlers: dict[int, Callable[[], object]] = {
            signal.SIGTERM: self._stop.set,
            signal.SIGINT: self._stop.set,
            **self._signals,
        }
        for number, call in handlers.items():
            self.loop.add_signal_handler(number, call)

    async def _end(self) -> None:
        """Take no more connections, let requests at work end, close what is left."""
        self.stopping = True
        self._close_listeners()
        for connection in list(self._waiting):
            if connection.is_idle:
                connection.drop()
        deadline = time.monotonic() + self.limits.stop_seconds
        while (self._serving or self._waiting) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        for connection in [*self._serving, *self._waiting]:
            connection.drop()
        await asyncio.sleep(0)  # for their last words

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            self.loop.remove_reader(listener)
            if listener.family == socket.AF_UNIX:
                _remove(listener)
            listener.close()
        self._listeners.clear()

    # Connections

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, remote = listener.accept()
            except OSError as e:
                if e.errno not in _GONE:
                    self._rest(listener, e)
                return
            if self._make_room():
                self._welcome(sock, remote)
            else:
                sock.close()

    def _rest(self, listener: socket.socket, e: OSError) -> None:
        """Stop accepting for a moment: there are no file descriptors left, or no memory."""
        self._complain("cannot accept a connection", err=str(e))
        self.loop.remove_reader(listener)

        def again() -> None:
            if not self.stopping:
                self.loop.add_reader(listener, self._accept, listener)

        self.loop.call_later(_PAUSE, again)

    def _make_room(self) -> bool:
        """Close the connection that has waited longest if there are too many."""
        if len(self._waiting) + len(self._serving) < self.limits.connections:
            return True
        self._complain("too many connections, closing those that wait longest", most=self.limits.connections)
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        del self._waiting[oldest]
        oldest.drop()
        return True

    def _welcome(self, sock: socket.socket, remote: Any) -> None:
        address = (str(remote[0]), int(remote[1])) if isinstance(remote, tuple) else ("", 0)
        connection = Connection(self, address)
        task = self.loop.create_task(self._connect(connection, sock))
        self._tasks.add(task)
        connection.connecting(task)

        def connected(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():  # perhaps before it had begun
                sock.close()

        task.add_done_callback(connected)

    async def _connect(self, connection: Connection, sock: socket.socket) -> None:
        """Make the transport, with TLS after its handshake."""
        options: dict[str, Any] = {}
        try:
            context = self._tls()
            if context is not None:
                options = {
                    "ssl": context,
                    "ssl_handshake_timeout": self.limits.head_seconds,
                    # The rest of an answer is sent within it.
                    "ssl_shutdown_timeout": self.limits.answer_seconds,
                }
            await self.loop.connect_accepted_socket(lambda: connection, sock, **options)
        except OSError as e:  # ssl.SSLError is one
            _log.debug("cannot complete a handshake", extra={"err": str(e) or type(e).__name__})
            sock.close()
            connection.failed()

    def waits(self, connection: Connection) -> None:
        """See connection.Host."""
        self._serving.discard(connection)
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def serves(self, connection: Connection) -> None:
        """See connection.Host."""
        self._waiting.pop(connection, None)
        self._serving.add(connection)

    def gone(self, connection: Connection) -> None:
        """See connection.Host."""
        self._waiting.pop(connection, None)
        self._serving.discard(connection)

    def shares_threads(self, request: h11.Request) -> bool:
        """See connection.Host."""
        return self._pool_of(request) == 0

    def dispatch(self, exchange: Exchange) -> None:
        """See connection.Host."""
        self._pools[self._pool_of(exchange.request)].submit(lambda: self._answer(exchange))

    def _pool_of(self, request: h11.Request) -> int:
        """Return the number of the threads that answer a request; 0 are those of everybody."""
        path = path_of(request.target)
        return next((i for i, r in enumerate(self._reserved, 1) if path in r.paths), 0)

    def _answer(self, exchange: Exchange) -> None:
        environ = environ_of(exchange.request, exchange.body, exchange.peer)
        answer(self._application, environ, exchange)

    def _complain(self, message: str, **fields: object) -> None:
        """Log a warning, at most one in ten seconds: clients must not be able to fill a disk."""
        now = time.monotonic()
        if now >= self._next_complaint:
            self._next_complaint = now + _QUIET
            _log.warning(message, extra=fields)


def _remove(listener: socket.socket) -> None:
    """Remove a UNIX socket, so that clients see at once that nobody listens."""
    with contextlib.suppress(OSError):
        Path(listener.getsockname()).unlink()


def _unexpected(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what asyncio could not tell anybody; a client that breaks off is no news."""
    error = context.get("exception")
    if isinstance(error, OSError):
        _log.debug(context["message"], extra={"err": str(error)})
    else:
        _log.error("cannot serve a connection: %s", context["message"], exc_info=error)
