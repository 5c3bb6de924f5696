"""Which of several replicas evaluates: one leads, the others stand by and show no verdict.

Replicas share nothing but Prometheus, which scrapes them all. Each exports whether it leads, and reads there
whether another one does. A replica that sees no leader for a whole ``takeover`` on its own monotonic clock
leads; replicas of smaller names go first. A leader goes on leading until it stops or fails, or sees another
leader of a smaller name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from vigia_prometheus import Prometheus

__all__ = ["Standby", "others"]

_log = logging.getLogger(__name__)

_METRIC = "vigia_compare_leader"


def others(prometheus: Prometheus, name: str) -> dict[str, bool]:
    """Return the other replicas that are scraped now, and whether each leads. Raises PrometheusError.

    ``name`` is one that the configuration accepts, so that it needs no quoting.
    """
    found = prometheus.instant(f'max by (replica) ({_METRIC}{{replica!="{name}"}})')
    return {s.labels.get("replica", ""): s.value > 0 for s in found}


class Standby:
    """Whether this replica leads. A program without a name has no other beside it, and always leads."""

    def __init__(self, name: str | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.leads = name is None
        self.leader = ""
        """Who leads, as far as is known; empty if nobody does."""
        self._monotonic = monotonic
        self._vacant_since: float | None = None

    def look(self, known: Mapping[str, bool], takeover: float) -> bool:
        """Take in what the other replicas say of themselves; return whether this one leads from now on.

        ``takeover`` is in seconds.
        """
        if self.name is None:
            return True
        leading = sorted(n for n, leads in known.items() if leads)
        if self.leads:
            if leading and leading[0] < self.name:
                self._change(False, f"replica {leading[0]} leads as well")
        elif leading or self._vacant_since is None:
            self._vacant_since = None if leading else self._monotonic()
        elif self._monotonic() - self._vacant_since >= takeover * (1 + sum(n < self.name for n in known)):
            self._change(True, "no other replica leads")
        self.leader = self.name if self.leads else leading[0] if leading else ""
        return self.leads

    def resign(self, why: str) -> None:
        """Let another replica lead."""
        if self.name is not None and self.leads:
            self._change(False, why)
            self.leader = ""

    def _change(self, leads: bool, why: str) -> None:
        self.leads, self._vacant_since = leads, None
        _log.info("leads" if leads else "stands by", extra={"replica": self.name, "reason": why})
