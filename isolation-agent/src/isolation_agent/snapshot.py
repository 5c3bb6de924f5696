"""What the enforcers said last, for people to look at. Decisions never rest on it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from isolation_agent.clock import Clock, rfc3339
from isolation_agent.decision import offered_load
from isolation_agent.enforcer import NodeState, PortState
from isolation_agent.fleet import View
from isolation_agent.shapes import PortUse, Tenants, TenantUse

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

    def tenants(self) -> Tenants:
        """Return every tenant with guarantee against use."""
        by_tenant: dict[str, list[PortUse]] = {}
        nodes = self.nodes()
        for node, seen in sorted(nodes.items()):
            for port in seen.state.ports if seen.state else ():
                by_tenant.setdefault(port.tenant, []).append(port_use(node, port))
        times = [s.at for s in nodes.values() if s.at is not None]
        return {
            "tenants": [_tenant(tenant, ports) for tenant, ports in sorted(by_tenant.items())],
            "seen_at": rfc3339(min(times)) if times else None,
            "silent": {node: s.error for node, s in sorted(nodes.items()) if s.error},
        }


def _tenant(tenant: str, ports: list[PortUse]) -> TenantUse:
    return {
        "tenant": tenant,
        "guarantee_bytes_per_second": sum(p["guarantee_bytes_per_second"] or 0 for p in ports),
        "offered_bytes_per_second": sum(p["offered_bytes_per_second"] or 0.0 for p in ports),
        "limited": any(p["limit"] for p in ports),
        "ports": ports,
    }


def port_use(node: str, port: PortState) -> PortUse:
    """Return a port as the API shows it."""
    limit: dict[str, Any] | None = port.limit.model_dump(exclude_none=True) if port.limit else None
    return {
        "node": node,
        "port": port.port,
        "attached": port.attached,
        "guarantee_bytes_per_second": port.guarantee_bytes_per_second,
        "ceiling_bytes_per_second": port.ceiling_bytes_per_second,
        "offered_bytes_per_second": offered_load(port),
        "flood_score": port.signals.flood_score if port.signals else None,
        "limit": limit,
    }
