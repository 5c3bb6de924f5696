"""At most so many limits of one tenant within a time."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return how many limits the tenant had."""
    if s.active_of_tenant >= s.guards.max_per_tenant:
        within = f"within {s.guards.per_tenant_within:g}s"
        return f"tenant {s.target.tenant} had {s.active_of_tenant} limits {within}, the most allowed"
    return ""
