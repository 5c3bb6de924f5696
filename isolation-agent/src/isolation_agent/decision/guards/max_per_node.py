"""At most so many limits in force on one node."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return how many limits are in force on the node."""
    if s.active_on_node >= s.guards.max_per_node:
        return f"{s.active_on_node} limits are in force on node {s.target.node}, the most allowed"
    return ""
