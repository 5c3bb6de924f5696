"""Listening sockets, by an address as configuration files write it."""

from __future__ import annotations

import errno
import socket
import stat
from pathlib import Path

from vigia_service.errors import ServiceError

__all__ = ["address_of", "listen"]

BACKLOG = 1024
"""Connections that the kernel holds until they are accepted (it cuts this to net.core.somaxconn)."""

_UNIX = "unix:"


def listen(where: str, mode: int = 0o660) -> socket.socket:
    """Open the socket of ``HOST:PORT``, ``[IPv6]:PORT`` or ``unix:/PATH``. Raises ServiceError.

    ``mode`` is the permission of a UNIX socket. One that a dead process left is replaced.
    """
    if where.startswith(_UNIX):
        return _listen_unix(where, Path(where.removeprefix(_UNIX)), mode)
    host, _, port = where.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)  # asyncio sets TCP_NODELAY where it sees TCP
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else "no port"
        raise ServiceError(
            f"listen: {where}: is not an address of this machine: {reason}; write HOST:PORT"
        ) from e
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as e:
        sock.close()
        raise _refused(where, e) from e
    return sock


def _listen_unix(where: str, path: Path, mode: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        sock.bind(str(path))
        path.chmod(mode)
        sock.listen(BACKLOG)
    except OSError as e:
        sock.close()
        raise _refused(where, e) from e
    return sock


def _remove_stale(path: Path) -> None:
    """Remove a socket that nobody listens at. Raises OSError if somebody does, or if it is no socket."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(errno.EADDRINUSE, "there is a file that is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise OSError(errno.EADDRINUSE, "in use")


def _refused(where: str, e: OSError) -> ServiceError:
    if e.errno == errno.EADDRINUSE:
        return ServiceError(
            f"listen: {where}: is in use; stop the process that holds it or choose another address"
        )
    return ServiceError(f"listen: {where}: cannot listen: {e.strerror or e}; choose another address")


def address_of(sock: socket.socket) -> str:
    """Return the address a socket listens at, as it would be configured."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"{_UNIX}{name}"
    host, port = name[:2]
    return f"[{host}]:{port}" if sock.family == socket.AF_INET6 else f"{host}:{port}"
