"""Waiting with a bound that a pause of the whole machine does not use up."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Patience"]


class Patience:
    """So many seconds for something that is looked at again and again.

    A virtual machine that was stopped for a while (a snapshot, a migration, a busy
    host) may find its monotonic clock ahead by all of that time, in which nothing
    that is waited for had a processor. So the time between two looks counts
    ``MOST`` seconds at most.
    """

    MOST = 10.0
    """Seconds that count between two looks."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._left = seconds
        self._last = clock()

    def over(self) -> bool:
        """Whether the time is over; asked after each look."""
        now = self._clock()
        self._left -= min(now - self._last, self.MOST)
        self._last = now
        return self._left <= 0
