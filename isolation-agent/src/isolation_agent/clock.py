"""Time, behind a seam so that tests move it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "rfc3339"]


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


def rfc3339(instant: datetime | None) -> str | None:
    """Format an instant in UTC with microseconds (RFC 3339); None stays None."""
    if instant is None:
        return None
    return instant.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
