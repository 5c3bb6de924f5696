"""Ports of this machine that are a test's own, before a program of it binds them."""

from __future__ import annotations

import random
import socket
import threading
from pathlib import Path

__all__ = ["free_port", "free_ports"]

_FIRST, _LAST = 61_000, 65_535
"""Neither those that the kernel gives out by itself, which end at 60 999 by default, nor those of the tests in Go."""

_claims: list[int] = []
"""Descriptors of the sockets by which this process keeps what it was given from others."""
_giving = threading.Lock()


def free_ports(count: int) -> list[int]:
    """Return ports that nobody has, for TCP and UDP; while this process lives, none of them is given again.

    They are not bound to try: whoever does so lets go of them before the program is there that they are for.
    """
    found: list[int] = []
    with _giving:
        taken = _bound()
        for port in random.SystemRandom().sample(range(_FIRST, _LAST + 1), _LAST + 1 - _FIRST):
            if len(found) == count:
                break
            if port not in taken and _claimed(port):
                found.append(port)
    assert len(found) == count, f"fewer than {count} ports from {_FIRST} on are free"
    return found


def free_port() -> int:
    """Return one such port."""
    (port,) = free_ports(1)
    return port


def _bound() -> set[int]:
    """Return the ports that sockets have, whatever their address."""
    tables = [Path("/proc/thread-self/net", name) for name in ("tcp", "tcp6", "udp", "udp6")]
    rows = [line.split() for t in tables if t.exists() for line in t.read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows}


def _claimed(port: int) -> bool:
    """Whether this process is the one that has the port from now on: a name that the kernel frees when it ends."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0vigia-test-port-{port}")
    except OSError:
        name.close()
        return False
    _claims.append(name.detach())
    return True
