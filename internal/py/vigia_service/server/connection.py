"""One client's connection: requests in, answers out, every wait with a deadline."""

from __future__ import annotations

import asyncio
import enum
import logging
import threading
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Protocol, cast

import h11

from vigia_service.server.body import BodyBroken, BodyPipe, BodyTooLarge
from vigia_service.server.limits import Limits
from vigia_service.server.wsgi import Headers, Peer

__all__ = ["Connection", "Exchange", "Host"]

LINGER_SECONDS = 1.0
LINGER_BYTES = 256 << 20
"""How long and how much a client may go on sending a request that is already answered."""

_WRITE_BUFFER = 1 << 20

_log = logging.getLogger(__name__)


class _State(enum.Enum):
    WAITING = enum.auto()
    """For a handshake, a request's head, or the next request."""
    GATHERING = enum.auto()
    """For a small body: no thread is taken before it is complete."""
    SERVING = enum.auto()
    """A request is at a thread, or on its way to one."""
    LINGERING = enum.auto()
    """The last answer is out; what the client still sends is read away."""
    CLOSED = enum.auto()


class Host(Protocol):
    """The server, seen from a connection. Everything runs in the event loop."""

    limits: Limits
    loop: asyncio.AbstractEventLoop
    stopping: bool

    def shares_threads(self, request: h11.Request) -> bool:
        """Say whether the threads that answer this request are everybody's."""
        ...

    def dispatch(self, exchange: Exchange) -> None:
        """Let a thread answer a request."""
        ...

    def waits(self, connection: Connection) -> None:
        """Note that a connection waits for its client from now on."""
        ...

    def serves(self, connection: Connection) -> None:
        """Note that a connection has a request at work."""
        ...

    def gone(self, connection: Connection) -> None:
        """Forget a connection."""
        ...


class Exchange:
    """A request and the way back for its answer; threads of the application use it."""

    def __init__(self, connection: Connection, request: h11.Request, body: BodyPipe, peer: Peer) -> None:
        self.request = request
        self.body = body
        self.peer = peer
        self._connection = connection
        self._loop = connection.host.loop
        self._seconds = connection.host.limits.answer_seconds

    def send(self, head: tuple[str, Headers] | None, data: bytes, *, end: bool) -> None:
        """Send a part of the answer. Raises ConnectionError, see wsgi.Sink."""
        taken = threading.Event()
        self._in_loop(self._connection.send, self, head, data, end, taken)
        if end:
            return
        if not taken.wait(self._seconds):
            raise ConnectionResetError("the client takes too long to read its answer")
        if self._connection.is_gone(self):
            raise ConnectionResetError("the client has gone")

    def abort(self) -> None:
        """Cut the connection."""
        self._in_loop(self._connection.abort, self)

    def _in_loop(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError as e:  # the loop has ended
            raise ConnectionResetError("the server has stopped") from e


class Connection(asyncio.Protocol):
    """Reads requests one after the other. Lives in the event loop; only Exchange is for threads."""

    def __init__(self, host: Host, remote: tuple[str, int]) -> None:
        self.host = host
        self._remote = remote
        self._state = _State.WAITING
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[Any] | None = None
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=host.limits.head_bytes)
        self._peer: Peer | None = None
        self._exchange: Exchange | None = None
        self._received = 0
        self._lingered = 0
        self._eof = False
        self._writable = True
        self._when_writable: list[threading.Event] = []
        self._timer: asyncio.TimerHandle | None = None
        self._first_byte = True
        """Whether the time for the head runs already: for a later request it begins with its first byte."""
        self._arm(host.limits.head_seconds)
        host.waits(self)

    # What the server calls

    def connecting(self, task: asyncio.Task[Any]) -> None:
        """Remember the task that makes the transport, which goes on during the handshake."""
        self._task = task

    def drop(self) -> None:
        """Close at once."""
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()
            self.failed()

    def failed(self) -> None:
        """Give up: there will be no transport."""
        self._stop_timer()
        self._state = _State.CLOSED
        self.host.gone(self)

    @property
    def is_idle(self) -> bool:
        """Whether no request is at work."""
        return self._state is _State.WAITING

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport once there is one, after the handshake."""
        self._transport = made = cast("asyncio.Transport", transport)
        if self._state is _State.CLOSED:
            made.abort()
            return
        made.set_write_buffer_limits(high=_WRITE_BUFFER)
        tls = made.get_extra_info("ssl_object") is not None
        name = made.get_extra_info("sockname")
        self._peer = Peer(
            remote=self._remote,
            local=(str(name[0]), int(name[1])) if isinstance(name, tuple) else ("localhost", 0),
            scheme="https" if tls else "http",
            certificate=made.get_extra_info("peercert") if tls else None,
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Let everybody know who waits for this client."""
        self._stop_timer()
        self._state = _State.CLOSED
        if self._exchange is not None:
            self._exchange.body.fail(BodyBroken("the client has gone"))
        self._release()
        self.host.gone(self)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived."""
        if self._state is _State.CLOSED:
            return
        if self._state is _State.LINGERING:
            self._lingered += len(data)
            if self._lingered > LINGER_BYTES:
                self._abort()
            return
        if self._state is _State.WAITING and not self._first_byte:
            self._first_byte = True
            self._arm(self.host.limits.head_seconds)
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        """Go on with a client that has only closed its side: it may wait for an answer."""
        self._eof = True
        if self._state in (_State.LINGERING, _State.CLOSED):
            self._close()
            return False
        self._http.receive_data(b"")
        self._advance()
        return self._state is _State.SERVING and self._peer is not None and self._peer.scheme == "http"

    def pause_writing(self) -> None:
        """Let threads wait: the client reads too slowly."""
        self._writable = False

    def resume_writing(self) -> None:
        """Let threads go on."""
        self._writable = True
        self._release()

    # Reading

    def _advance(self) -> None:
        """Handle every event that is complete."""
        while self._state in (_State.WAITING, _State.GATHERING, _State.SERVING):
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as e:
                self._refuse_request(e)
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                if not self._feed(bytes(event.data)):
                    return
            elif isinstance(event, h11.EndOfMessage):
                assert self._exchange is not None  # noqa: S101 - it follows a request
                self._exchange.body.end()
                self._dispatch()
            elif isinstance(event, h11.ConnectionClosed):
                if self._state is _State.WAITING:
                    self._close()
                return
            else:
                self._flow(paused=event is h11.PAUSED)
                return

    def _flow(self, *, paused: bool) -> None:
        """Read on, or not: what comes behind a request that is at work waits, at most one read of it here."""
        if self._transport is None or self._transport.is_closing():
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _begin(self, request: h11.Request) -> None:
        limits = self.host.limits
        size = len(request.target) + sum(len(n) + len(v) + 4 for n, v in request.headers)
        names = [name for name, _ in request.headers]
        length = next((int(v) for n, v in request.headers if n == b"content-length"), 0)
        if request.http_version not in (b"1.0", b"1.1"):
            self._refuse(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        elif size > limits.head_bytes:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif request.method == b"CONNECT":
            self._refuse(HTTPStatus.NOT_IMPLEMENTED)
        elif b"transfer-encoding" in names and b"content-length" in names:
            self._refuse(HTTPStatus.BAD_REQUEST)  # servers and proxies would read different bodies
        elif length > limits.body_bytes:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            self._serve(request)

    def _serve(self, request: h11.Request) -> None:
        assert self._peer is not None  # noqa: S101 - nothing arrives before the transport
        self._state = _State.GATHERING
        self._received = 0
        body = BodyPipe(self.host.limits.body_seconds, self._want_body)
        self._exchange = Exchange(self, request, body, self._peer)
        if not (self._may_be_small(request) and self.host.shares_threads(request)):
            self._dispatch()
            return
        self._arm(self.host.limits.body_seconds)
        if self._http.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))

    def _may_be_small(self, request: h11.Request) -> bool:
        """Say whether there is a body that may be one to gather."""
        lengths = [int(v) for n, v in request.headers if n == b"content-length"]
        chunked = any(n == b"transfer-encoding" for n, _ in request.headers)
        return chunked or any(0 < length <= self.host.limits.gathered_bytes for length in lengths)

    def _dispatch(self) -> None:
        """Let a thread answer, unless one does already."""
        if self._state is not _State.GATHERING:
            return
        assert self._exchange is not None  # noqa: S101 - it is made before
        self._state = _State.SERVING
        self._stop_timer()
        self.host.serves(self)
        self.host.dispatch(self._exchange)

    def _feed(self, data: bytes) -> bool:
        """Pass on a part of the body; return whether to go on reading."""
        if self._exchange is None:
            return False
        self._received += len(data)
        most = self.host.limits.body_bytes
        if self._received > most:
            self._exchange.body.fail(BodyTooLarge(f"the body is larger than {most} bytes"))
            self._flow(paused=True)
            self._dispatch()
            return False
        has_room = self._exchange.body.feed(data)
        if self._received > self.host.limits.gathered_bytes:
            self._dispatch()
        if has_room:
            return True
        self._flow(paused=True)
        return False

    def _want_body(self) -> None:
        """Go on reading: an application waits for the body. Called by its thread."""
        self.host.loop.call_soon_threadsafe(self._read_on, self._exchange)

    def _read_on(self, exchange: Exchange | None) -> None:
        if exchange is None or exchange is not self._exchange or self._received > self.host.limits.body_bytes:
            return
        if self._http.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        self._advance()

    # Writing

    def is_gone(self, exchange: Exchange) -> bool:
        """Whether nobody waits for this answer any more. For threads."""
        return self._state is _State.CLOSED or self._exchange is not exchange

    def send(
        self,
        exchange: Exchange,
        head: tuple[str, Headers] | None,
        data: bytes,
        end: bool,
        taken: threading.Event,
    ) -> None:
        """Send a part of an answer; sets ``taken`` when the next may come."""
        if self.is_gone(exchange):
            taken.set()
            return
        try:
            self._send(exchange, head, data, end)
        except h11.LocalProtocolError as e:
            _log.error(
                "cannot send an answer: the application's headers or length are wrong",
                extra={"err": str(e), "path": exchange.request.target.decode("latin-1")},
            )
            self._abort()
        if self._writable or end or self._state is _State.CLOSED:
            taken.set()
        else:
            self._when_writable.append(taken)

    def _send(self, exchange: Exchange, head: tuple[str, Headers] | None, data: bytes, end: bool) -> None:
        events: list[h11.Event] = []
        status = 0
        if head is not None:
            text, headers = head
            status = int(text[:3])
            events.append(self._response(status, text[4:], headers))
        if data and exchange.request.method != b"HEAD" and status not in (204, 304):
            events.append(h11.Data(data=data))
        if end:
            events.append(h11.EndOfMessage())
        self._write(*events)
        if end:
            self._finish()

    def _response(self, status: int, reason: str, headers: Headers) -> h11.Response:
        fields = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers]
        names = {name.lower() for name, _ in fields}
        if b"date" not in names:
            fields.append((b"Date", formatdate(usegmt=True).encode("ascii")))
        unread = self._http.their_state in (h11.SEND_BODY, h11.ERROR)
        if (self.host.stopping or unread) and b"connection" not in names:
            fields.append((b"Connection", b"close"))
        return h11.Response(status_code=status, headers=fields, reason=reason.encode("latin-1"))

    def _write(self, *events: h11.Event) -> None:
        data = b"".join(self._http.send(event) or b"" for event in events)
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _finish(self) -> None:
        """Go on after an answer: the next request, or the end."""
        http, self._exchange = self._http, None
        if http.our_state is h11.DONE and http.their_state is h11.DONE and not self.host.stopping:
            http.start_next_cycle()
            self._state = _State.WAITING
            self._first_byte = bool(http.trailing_data[0])
            self._arm(self.host.limits.head_seconds if self._first_byte else self.host.limits.idle_seconds)
            self.host.waits(self)
            self._advance()
        elif http.their_state in (h11.SEND_BODY, h11.ERROR):
            self._linger()
        else:
            self._close()

    def _refuse_request(self, e: h11.RemoteProtocolError) -> None:
        """Answer what is no request, or end a body that is none."""
        if self._exchange is not None:
            self._exchange.body.fail(BodyBroken(f"the body is broken: {e}"))
            self._flow(paused=True)
            self._dispatch()
            return
        try:
            self._refuse(HTTPStatus(e.error_status_hint))
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer without a thread, and end."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._close()
            return
        text = f"{status.phrase}\n".encode()
        fields = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(text))),
            ("Connection", "close"),
        ]
        head = self._response(status.value, status.phrase, fields)
        self._write(head, h11.Data(data=text), h11.EndOfMessage())
        self._linger()

    # Ending

    def _linger(self) -> None:
        """Say that the answer is complete, and read away the rest of the request, so that it arrives."""
        if self._eof or self._transport is None or self._transport.is_closing():
            self._close()
            return
        self._state = _State.LINGERING
        self.host.waits(self)
        self._arm(LINGER_SECONDS)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.resume_reading()

    def _close(self) -> None:
        """Close once everything has been sent; a client that does not take it is cut off."""
        self._stop_timer()
        self._state = _State.CLOSED
        self.host.waits(self)
        if self._transport is not None:
            self._transport.close()
            self._timer = self.host.loop.call_later(self.host.limits.answer_seconds, self._transport.abort)

    def abort(self, exchange: Exchange) -> None:
        """Cut off the answer to a request."""
        if not self.is_gone(exchange):
            self._abort()

    def _abort(self) -> None:
        self._stop_timer()
        self._state = _State.CLOSED
        if self._transport is not None:
            self._transport.abort()

    def _release(self) -> None:
        for event in self._when_writable:
            event.set()
        self._when_writable.clear()

    def _arm(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.host.loop.call_later(seconds, self._too_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        if self._state is _State.GATHERING:
            self._exchange = None
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.drop()
