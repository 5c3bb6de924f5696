"""Wrong tokens at the console's door: whoever shows several is told to wait, longer each time.

A right token is let in at any time. Otherwise anybody at the same address, a
proxy's or a tunnel's, could lock the operators out, on the day of an attack.
What a guess costs is the token's length: 16 characters at least, of 68 kinds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from isolation_agent.clock import Clock

__all__ = ["FREE", "Backoff"]

FREE = 5
"""Wrong tokens that are answered as such, before an address has to wait."""

_LONGEST = 300.0
_ADDRESSES = 1024


@dataclass
class _Guesser:
    wrong: int = 0
    until: float = 0.0


class Backoff:
    """Counts wrong tokens by address. Safe for use by several threads, and of bounded size."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._guessers: OrderedDict[str, _Guesser] = OrderedDict()

    def wrong(self, address: str) -> float:
        """Count a wrong token; return how many seconds the address has to wait, 0 for the first few."""
        now = self._clock.monotonic()
        with self._lock:
            known = self._guessers.pop(address, _Guesser())
            if now > known.until + _LONGEST:
                known = _Guesser()
            known.wrong += 1
            wait = min(2.0 ** min(known.wrong - FREE - 1, 16), _LONGEST) if known.wrong > FREE else 0.0
            known.until = now + wait
            self._guessers[address] = known
            if len(self._guessers) > _ADDRESSES:
                self._guessers.popitem(last=False)
        return wait
