"""What the enforcers said last, as the API shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field

from isolation_agent.decision.evidence import offered_load
from isolation_agent.enforcers.client import Pair
from isolation_agent.enforcers.snapshot import Seen
from isolation_agent.model.node import PortState
from isolation_agent.web.answers import Answer, Instant
from isolation_agent.web.answers.actions import ActionSummary

__all__ = ["HostState", "PairAnswer", "Pairs", "PortUse", "Tenants"]


class PortUse(Answer):
    """One port of a tenant: what was bought and what is sent, in bytes per second."""

    node: str
    port: str
    attached: bool
    guarantee_bytes_per_second: int | None
    ceiling_bytes_per_second: int | None
    offered_bytes_per_second: float | None
    flood_score: float | None
    limit: dict[str, Any] | None

    @classmethod
    def of(cls, node: str, port: PortState) -> Self:
        """Return a port as its node reports it."""
        return cls(
            node=node,
            port=port.port,
            attached=port.attached,
            guarantee_bytes_per_second=port.guarantee_bytes_per_second,
            ceiling_bytes_per_second=port.ceiling_bytes_per_second,
            offered_bytes_per_second=offered_load(port),
            flood_score=port.signals.flood_score if port.signals else None,
            limit=port.limit.model_dump(exclude_none=True) if port.limit else None,
        )


class TenantUse(Answer):
    """A tenant's ports."""

    tenant: str
    guarantee_bytes_per_second: int
    offered_bytes_per_second: float
    limited: bool
    ports: list[PortUse]

    @classmethod
    def of(cls, tenant: str, ports: list[PortUse]) -> Self:
        """Return a tenant with the sums of its ports."""
        return cls(
            tenant=tenant,
            guarantee_bytes_per_second=sum(p.guarantee_bytes_per_second or 0 for p in ports),
            offered_bytes_per_second=sum(p.offered_bytes_per_second or 0.0 for p in ports),
            limited=any(p.limit for p in ports),
            ports=ports,
        )


class Tenants(Answer):
    """Tenants with guarantee against use, as last seen; silent nodes are named with the reason."""

    tenants: list[TenantUse]
    seen_at: Instant | None
    silent: dict[str, str]

    @classmethod
    def of(cls, nodes: Mapping[str, Seen]) -> Self:
        """Return every tenant that is known from any node."""
        by_tenant: dict[str, list[PortUse]] = {}
        for node, seen in sorted(nodes.items()):
            for port in seen.state.ports if seen.state else ():
                by_tenant.setdefault(port.tenant, []).append(PortUse.of(node, port))
        return cls(
            tenants=[TenantUse.of(tenant, ports) for tenant, ports in sorted(by_tenant.items())],
            seen_at=min((s.at for s in nodes.values() if s.at is not None), default=None),
            silent={node: s.error for node, s in sorted(nodes.items()) if s.error},
        )


class HostState(Answer):
    """Desired against actual state of a node."""

    node: str
    error: str
    seen_at: Instant | None
    desired: list[ActionSummary]
    actual: list[PortUse]


class PairAnswer(Pair):
    """A limit of the fast loop: what a port may send to a destination, or altogether if there is none."""

    node: str


class Pairs(Answer):
    """Limits of the fast loop on all nodes, and why a node did not say."""

    pairs: list[PairAnswer] = Field(default_factory=list)
    silent: dict[str, str] = Field(default_factory=dict)
