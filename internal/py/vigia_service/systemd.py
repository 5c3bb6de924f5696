"""What systemd is told of a service that it started: sd_notify(3)."""

from __future__ import annotations

import logging
import os
import socket

__all__ = ["ready", "works"]

_log = logging.getLogger(__name__)


def ready() -> None:
    """Tell systemd that the service has begun and takes its signals (Type=notify of the unit)."""
    _notify(b"READY=1", "cannot tell systemd that the service is ready")


def works() -> None:
    """Tell systemd's watchdog that this process works, if it watches it (WatchdogSec= of the unit)."""
    if os.environ.get("WATCHDOG_PID") == str(os.getpid()):
        _notify(b"WATCHDOG=1", "cannot tell systemd's watchdog that the process works")


def _notify(state: bytes, otherwise: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as s:
            s.setblocking(False)
            s.sendto(state, "\0" + address[1:] if address.startswith("@") else address)
    except OSError as e:
        _log.warning(otherwise, extra={"err": str(e)})
