"""At most so many limits in force everywhere."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return how many limits are in force."""
    most = s.guards.most_active(s.tenants)
    return f"{s.active} limits are in force, the most allowed" if s.active >= most else ""
