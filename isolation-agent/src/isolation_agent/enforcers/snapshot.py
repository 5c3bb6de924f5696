"""What the enforcers said last, for people to look at. Decisions never rest on it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from isolation_agent.clock import Clock
from isolation_agent.decision.evidence import offered_load
from isolation_agent.model.node import NodeState, View

__all__ = ["Seen", "Snapshot"]

_WATCHED = 15.0


@dataclass(frozen=True)
class Seen:
    """A node's last state, and why there is no newer one if there is not."""

    state: NodeState | None
    at: datetime | None
    error: str


class Snapshot:
    """The newest view of every node. Safe for use by several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, Seen] = {}
        self._watched_until = 0.0

    def take(self, views: Mapping[str, View]) -> None:
        """Note what was seen in a turn."""
        now = self._clock.now()
        with self._lock:
            for node, view in views.items():
                if view.state is not None:
                    self._seen[node] = Seen(view.state, now, "")
                elif view.asked:
                    old = self._seen.get(node)
                    self._seen[node] = Seen(old.state if old else None, old.at if old else None, view.error)

    def keep(self, nodes: list[str]) -> None:
        """Forget nodes that are no longer configured."""
        with self._lock:
            self._seen = {n: s for n, s in self._seen.items() if n in nodes}

    def watch(self) -> None:
        """Say that somebody looks: the controller then reads all nodes in every turn, for a while."""
        self._watched_until = self._clock.monotonic() + _WATCHED

    @property
    def watched(self) -> bool:
        """True while somebody looks."""
        return self._clock.monotonic() < self._watched_until

    def nodes(self) -> dict[str, Seen]:
        """Return what is known of each node."""
        with self._lock:
            return dict(self._seen)

    def offered(self, node: str, port: str) -> float | None:
        """Return the UDP load that a port was last seen to offer, in bytes per second."""
        seen = self.nodes().get(node)
        found = seen.state.find(port) if seen and seen.state else None
        return offered_load(found)
