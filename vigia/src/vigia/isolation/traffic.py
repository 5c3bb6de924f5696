"""One end of a transfer of the isolation experiments: python -m vigia.isolation.traffic.

Its order is JSON on standard input. It enters the guest's namespace for good,
begins at a moment of CLOCK_MONOTONIC, ends by itself, a receiver also on SIGTERM,
and prints what it counted.
"""

from __future__ import annotations

import itertools
import json
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass

from vigia.flood.packets import unhindered
from vigia.host import netns
from vigia.isolation.segments import SYN, syn

__all__ = ["BIN", "TrafficOrder", "main", "receive", "send"]

BIN = 0.1
"""Seconds of goodput that one number stands for."""

_CHUNK = 64 << 10
_GRACE = 10  # seconds
_UDP_SEGMENT = 103  # linux/udp.h
_RCVBUFFORCE = 33  # asm-generic/socket.h
_SEGMENTS = 8  # datagrams to a system call, and connections that are begun at once
_AGAIN = 0.02  # seconds until a refused connection is tried again
_BURST = 0.02  # seconds; after a delay, no more than this is caught up with
_SO_MAX_PACING_RATE = 47  # asm-generic/socket.h
_ETHERNET, _IP = 14, 20  # bytes of their headers
_PORTS = range(32768, 36864)  # from which connections are begun


@dataclass(frozen=True)
class TrafficOrder:
    """What one end does."""

    role: str
    """send or receive"""
    namespace: str
    protocol: str
    """tcp, udp, or syn: TCP connections that are begun, and go no further"""
    address: str
    """of the receiver"""
    port: int
    start: float
    """moment of CLOCK_MONOTONIC at which the transfer begins, in seconds"""
    seconds: float
    connections: int = 1
    rate: float = 0.0
    """bytes per second; of payload, which a tcp sender paces if it is not 0; syn: of frames"""
    size: int = 1400
    """udp: payload of a datagram in bytes; above 1472 it travels in fragments"""
    on: float = 0.0
    """udp: seconds of every period in which it sends; 0 = all the time"""
    period: float = 0.0
    """udp: seconds from the beginning of one pulse to that of the next"""
    congestion: str = ""
    """tcp: the sender's congestion control; empty: the machine's"""


class _Ended(Exception):
    """SIGTERM came: what was counted so far is the result."""


def _end(_number: int, _frame: object) -> None:
    raise _Ended


def receive(order: TrafficOrder) -> list[int]:
    """Count the payload that arrives, by BIN seconds since the start."""
    bins = [0] * round(order.seconds / BIN)
    with suppress(_Ended):
        _receive(order, bins)
    return bins


def _receive(order: TrafficOrder, bins: list[int]) -> None:
    end = order.start + order.seconds
    buffer = bytearray(256 << 10)
    header = _ETHERNET if order.protocol == "syn" else 0
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        server = stack.enter_context(_listening(order))
        selector.register(server, selectors.EVENT_READ)
        while (now := time.monotonic()) < end:
            for key, _ in selector.select(min(0.1, end - now)):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)  # noqa: S101 - for the type checker
                if sock is server and order.protocol == "tcp":
                    peer, _ = server.accept()
                    peer.setblocking(False)
                    selector.register(stack.enter_context(peer), selectors.EVENT_READ)
                    continue
                count = _take(sock, buffer)
                if count == 0 and order.protocol == "tcp":
                    selector.unregister(sock)
                place = int((time.monotonic() - order.start) / BIN)
                if 0 <= place < len(bins) and count:
                    bins[place] += count + header


def _listening(order: TrafficOrder) -> socket.socket:
    """Return the socket that a flow arrives at; SYN are seen beside the kernel, which refuses them."""
    if order.protocol == "syn":
        server = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    else:
        kind = socket.SOCK_STREAM if order.protocol == "tcp" else socket.SOCK_DGRAM
        server = socket.socket(socket.AF_INET, kind)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if order.protocol != "tcp":
        server.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, 8 << 20)
    server.bind((order.address, order.port))
    if order.protocol == "tcp":
        server.listen(order.connections)
    server.setblocking(False)
    if order.protocol == "syn":
        _forget(server)
    return server


def _forget(server: socket.socket) -> None:
    """Leave out what came to a raw socket before it had an address: all segments of the namespace did."""
    with suppress(BlockingIOError):
        while True:
            server.recv(1)


def _take(sock: socket.socket, buffer: bytearray) -> int:
    try:
        return sock.recv_into(buffer)
    except (BlockingIOError, ConnectionResetError):
        return 0


def send(order: TrafficOrder) -> int:
    """Send from the start for the ordered time, and return the payload that was offered."""
    return {"tcp": _send_tcp, "udp": _send_udp, "syn": _send_syn}[order.protocol](order)


def _wait(order: TrafficOrder) -> None:
    time.sleep(max(0.0, order.start - time.monotonic()))


def _send_tcp(order: TrafficOrder) -> int:
    _wait(order)
    end = order.start + order.seconds
    data = bytes(_CHUNK)
    offered = 0
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(order.connections):
            selector.register(_connecting(order, stack), selectors.EVENT_WRITE)
        while (now := time.monotonic()) < end:
            for key, _ in selector.select(min(0.1, end - now)):
                writable = key.fileobj
                assert isinstance(writable, socket.socket)  # noqa: S101 - for the type checker
                try:
                    offered += writable.send(data)
                except BlockingIOError:
                    continue
                except (BrokenPipeError, ConnectionResetError):
                    return offered  # the receiver has reached its end a moment earlier
                except ConnectionRefusedError:  # on a busy machine it may begin a moment later
                    selector.unregister(writable)
                    writable.close()
                    time.sleep(_AGAIN)
                    selector.register(_connecting(order, stack), selectors.EVENT_WRITE)
                except OSError as e:
                    raise SystemExit(f"connection to {order.address}: {e.strerror}") from e
    return offered


def _connecting(order: TrafficOrder, stack: ExitStack) -> socket.socket:
    sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    sock.setblocking(False)
    if order.congestion:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, order.congestion.encode())
    if order.rate:
        each = max(1, round(order.rate / order.connections))
        sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, each)
    with suppress(BlockingIOError):
        sock.connect((order.address, order.port))
    return sock


def _send_udp(order: TrafficOrder) -> int:
    whole = order.size > 1472
    data = bytes(order.size * (1 if whole else _SEGMENTS))
    ancillary = [] if whole else [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("@H", order.size))]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        unhindered(sock)
        sock.connect((order.address, order.port))
        _wait(order)

        def datagrams() -> None:
            with suppress(OSError):  # refused or no room: it stays offered
                sock.sendmsg([data], ancillary)

        return _paced(order, len(data), datagrams)


def _send_syn(order: TrafficOrder) -> int:
    """Begin connections from one port after the other; none of them goes on, whatever is answered."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)  # the answers come to it, and are not read
        raw.connect((order.address, 0))
        source, _ = raw.getsockname()
        # Made beforehand: a checksum in Python takes longer than all that the kernel does for a frame.
        made = [syn(source, port, order.address, order.port, port << 16) for port in _PORTS]
        segments = itertools.cycle(made)
        _wait(order)

        def begin() -> None:
            with suppress(OSError):  # no room: it stays offered
                for _ in range(_SEGMENTS):
                    raw.send(next(segments))

        return _paced(order, _SEGMENTS * (_ETHERNET + _IP + SYN), begin)


def _paced(order: TrafficOrder, size: int, once: Callable[[], None]) -> int:
    """Send so many bytes each time, at the order's rate and in its pulses; return how many were offered."""
    offered = 0
    allowed = order.start
    for now in _clock(order.start + order.seconds):
        if order.on and (now - order.start) % order.period >= order.on:
            time.sleep(0.002)
            continue
        allowed = max(allowed, now - _BURST)
        while allowed <= now:
            allowed += size / order.rate
            once()
            offered += size
        time.sleep(max(0.0, min(allowed - time.monotonic(), 0.01)))
    return offered


def _clock(end: float) -> Iterator[float]:
    while (now := time.monotonic()) < end:
        yield now


def main() -> int:
    """Carry out the order on standard input."""
    order = TrafficOrder(**json.load(sys.stdin))
    signal.alarm(round(order.start - time.monotonic() + order.seconds) + _GRACE)
    netns.enter(order.namespace)
    if order.role == "receive":
        signal.signal(signal.SIGTERM, _end)
        sys.stdout.write(json.dumps({"bins": receive(order)}))
    else:
        sys.stdout.write(json.dumps({"offered": send(order)}))
    return 0


def command() -> list[str]:
    """Return the command line of an end."""
    return [sys.executable, "-m", "vigia.isolation.traffic"]


def encode(order: TrafficOrder) -> str:
    """Return an order as an end reads it."""
    return json.dumps(asdict(order))


if __name__ == "__main__":
    sys.exit(main())
