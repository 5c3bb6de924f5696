"""HTTP by hand, for clients that a library would not be."""

from __future__ import annotations

import socket

from .world import WEBHOOK_TOKEN


def head_of(method: str, path: str, *headers: str, token: str = WEBHOOK_TOKEN) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *headers, "", ""]
    return "\r\n".join(lines).encode()


def read_all(s: socket.socket) -> bytes:
    raw = b""
    while data := s.recv(65_536):
        raw += data
    return raw


def status_of(raw: bytes) -> int:
    """The status of an answer; 0 for a connection that was closed without one."""
    return int(raw.split()[1]) if raw else 0
