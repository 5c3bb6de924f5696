"""Buffers of the packet sockets that ovs-vswitchd's userspace datapath reads ports with.

With the kernel's default (208 KiB) they overflow at some 50 Mbit/s. They are
raised from outside, on the sockets themselves (pidfd_getfd(2), SO_RCVBUFFORCE),
so that no setting of the machine changes, not even for a moment.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vigia.errors import VigiaError
from vigia.host import syscalls

__all__ = ["RECEIVE", "SEND", "Buffer", "raise_all", "read_all"]

RECEIVE = 8 << 20
"""Bytes that wait for ovs-vswitchd at each port."""

SEND = 16 << 20
"""Bytes that ovs-vswitchd may have on their way; one socket serves all ports."""

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33


@dataclass(frozen=True)
class Buffer:
    """Sizes of one packet socket, as the kernel accounts them."""

    receive: int
    send: int


def raise_all(pid: int) -> int:
    """Raise the buffers of a process's packet sockets and return how many there are."""
    count = 0
    with _packet_sockets(pid) as sockets:
        for s in sockets:
            # The kernel doubles what is asked for (socket(7)).
            s.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE // 2)
            s.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SEND // 2)
            count += 1
    return count


def read_all(pid: int) -> list[Buffer]:
    """Return the buffers of a process's packet sockets."""
    with _packet_sockets(pid) as sockets:
        return [
            Buffer(
                s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
                s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
            )
            for s in sockets
        ]


@contextmanager
def _packet_sockets(pid: int) -> Iterator[Iterator[socket.socket]]:
    try:
        pidfd = os.pidfd_open(pid)
        try:
            yield _borrow(pid, pidfd)
        finally:
            os.close(pidfd)
    except OSError as e:
        raise VigiaError(
            f"buffers of ovs-vswitchd (process {pid}) cannot be set: {e.strerror}; "
            "it needs CAP_SYS_PTRACE, CAP_NET_ADMIN and Linux 5.6 or later"
        ) from e


def _borrow(pid: int, pidfd: int) -> Iterator[socket.socket]:
    table = Path(f"/proc/{pid}/net/packet").read_text().splitlines()[1:]
    wanted = {f"socket:[{line.split()[8]}]" for line in table}
    for link in sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda p: int(p.name)):
        try:
            target = str(link.readlink())
        except OSError:
            continue  # closed meanwhile
        if target in wanted:
            with syscalls.borrowed_socket(pidfd, int(link.name)) as s:
                yield s
