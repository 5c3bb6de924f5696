"""What clients may take of a server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Limits", "Reserved"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a server. Times are in seconds, sizes in bytes."""

    threads: int = 8
    """Requests answered at once, besides those of reserved endpoints."""
    connections: int = 512
    """Connections at once. One more closes the one that has waited longest without a request at work."""
    head_bytes: int = 16 << 10
    """Request line and headers."""
    head_seconds: float = 10.0
    """From accept, or from the first byte of a later request, to the end of the head; TLS included."""
    idle_seconds: float = 75.0
    """A connection that is kept alive, from the end of one request to the first byte of the next."""
    body_bytes: int = 16 << 20
    """A request's body, whatever the application reads of it."""
    gathered_bytes: int = 64 << 10
    """A body of up to so many is complete before a thread of everybody is taken. An application that refuses
    larger ones from those who show no token lets them hold no thread."""
    body_seconds: float = 10.0
    """To the end of the body: from the head if it is gathered, else from the application's first read."""
    answer_seconds: float = 30.0
    """For a client to take an answer once all of it has been produced, or the next part of a long one."""
    stop_seconds: float = 5.0
    """For requests at work when the server is told to stop."""


@dataclass(frozen=True)
class Reserved:
    """Endpoints with threads of their own, which no other request can occupy."""

    paths: frozenset[str]
    threads: int = 2

    @classmethod
    def for_paths(cls, paths: Iterable[str], threads: int = 2) -> Reserved:
        """Return a reservation for these paths, given without a query."""
        return cls(frozenset(paths), threads)
