"""System calls that Python 3.11's standard library lacks, through libc."""

from __future__ import annotations

import ctypes
import os
import signal
import socket

__all__ = ["CLONE_NEWNET", "borrowed_socket", "die_with_parent", "pidfd_getfd", "setns"]

CLONE_NEWNET = 0x40000000
_SYS_PIDFD_GETFD = 438  # the same number on every architecture (unistd.h)
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def setns(fd: int, kind: int = CLONE_NEWNET) -> None:
    """Move the calling thread into the namespace of fd (setns(2)). Raises OSError."""
    _check(_libc.setns(fd, kind), "setns")


def pidfd_getfd(pidfd: int, fd: int) -> int:
    """Return a duplicate of another process's descriptor (pidfd_getfd(2)). Raises OSError."""
    return _check(_libc.syscall(_SYS_PIDFD_GETFD, pidfd, fd, 0), "pidfd_getfd")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, process parent, ends (prctl(2))."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


def borrowed_socket(pidfd: int, fd: int) -> socket.socket:
    """Return a socket of another process; closing it does not close the original."""
    return socket.socket(fileno=pidfd_getfd(pidfd, fd))
