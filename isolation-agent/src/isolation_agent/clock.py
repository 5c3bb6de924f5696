"""Time, behind a seam so that tests move it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "instant", "rfc3339"]


class Clock(Protocol):
    """Wall time for records, monotonic time for every wait and deadline."""

    def now(self) -> datetime:
        """Return the wall clock in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never step."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


def instant(at: datetime) -> str:
    """Format an instant in UTC with microseconds (RFC 3339)."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def rfc3339(at: datetime | None) -> str | None:
    """Do what instant does; None stays None."""
    return None if at is None else instant(at)
