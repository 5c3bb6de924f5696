"""Packets that are prepared beforehand and handed to the kernel many at a time (sendmmsg(2))."""

from __future__ import annotations

import ctypes
import errno
import random
import socket
from collections.abc import Sequence
from contextlib import suppress

from vigia.flood.bounds import MAX_PORTS

__all__ = ["MessageRing", "PacketTrain", "unhindered"]

_libc = ctypes.CDLL(None, use_errno=True)
_TRY_AGAIN = (errno.EINTR, errno.EAGAIN)
_SNDBUFFORCE = 32  # asm-generic/socket.h
_SNDBUF = 16 << 20  # bytes, more than queues hold


def unhindered(opened: socket.socket) -> None:
    """Let no queue below slow a socket's sender, if that is permitted.

    Between namespaces of one kernel, what waits in a queue fills its sender's buffer; that of a virtual
    machine it does not.
    """
    with suppress(PermissionError):
        opened.setsockopt(socket.SOL_SOCKET, _SNDBUFFORCE, _SNDBUF)


class _Address(ctypes.Structure):
    """struct sockaddr_in"""

    _fields_ = [
        ("family", ctypes.c_uint16),
        ("port", ctypes.c_uint16),  # in network order
        ("address", ctypes.c_ubyte * 4),
        ("zero", ctypes.c_ubyte * 8),
    ]


class _Buffer(ctypes.Structure):
    """struct iovec"""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class _Message(ctypes.Structure):
    """struct msghdr"""

    _fields_ = [
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("buffers", ctypes.c_void_p),
        ("buffer_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class _Sent(ctypes.Structure):
    """struct mmsghdr"""

    _fields_ = [("message", _Message), ("length", ctypes.c_uint32)]


class MessageRing:
    """A ring of prepared messages on a socket; sending costs no work per message in Python."""

    def __init__(self, opened: socket.socket, payloads: Sequence[bytes], length: int) -> None:
        """Prepare length messages that carry the payloads in turn."""
        unhindered(opened)
        self._socket = opened
        self._payloads = [ctypes.create_string_buffer(p, len(p)) for p in payloads]
        self._buffers = (_Buffer * len(payloads))()
        for buffer, payload in zip(self._buffers, self._payloads, strict=True):
            buffer.base, buffer.length = ctypes.addressof(payload), len(payload)
        self._ring = (_Sent * length)()
        self._next = 0
        each = ctypes.sizeof(_Buffer)
        for i, entry in enumerate(self._ring):
            entry.message.buffers = ctypes.addressof(self._buffers) + i % len(payloads) * each
            entry.message.buffer_count = 1

    def send(self, count: int) -> tuple[int, int]:
        """Send up to count messages and return how many were sent and how many failed.

        A message that the kernel refuses is skipped, and counted as failed.
        """
        count = min(count, len(self._ring) - self._next)
        first = ctypes.byref(self._ring, self._next * ctypes.sizeof(_Sent))
        sent = _libc.sendmmsg(self._socket.fileno(), first, count, 0)
        failed = 0
        if sent < 0:
            sent = 0
            failed = 0 if ctypes.get_errno() in _TRY_AGAIN else 1
        self._next = (self._next + sent + failed) % len(self._ring)
        return sent, failed

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class PacketTrain(MessageRing):
    """Packets to so many ports, in turn."""

    def __init__(self, source: str, destination: str, size: int, ports: int = MAX_PORTS) -> None:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.bind((source, 0))
        except OSError:
            opened.close()
            raise
        pattern = b"vigia flood "
        super().__init__(opened, [(pattern * (size // len(pattern) + 1))[:size]], MAX_PORTS)
        self._addresses = (_Address * MAX_PORTS)()
        packed = socket.inet_aton(destination)
        numbers = random.sample(range(1, 65536), ports)
        for i in range(MAX_PORTS):
            port, address = numbers[i % ports], self._addresses[i]
            address.family = socket.AF_INET
            address.port = socket.htons(port)
            address.address[:] = packed
            message = self._ring[i].message
            message.name = ctypes.addressof(address)
            message.name_length = ctypes.sizeof(_Address)
