"""One limit for each port: not of another action, and not of somebody else."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return whose limit the port has."""
    if s.held:
        return f"another action limits port {s.target.port} already"
    limit = s.port.limit if s.port else None
    if limit is not None and limit.id != s.action_id:
        return f"port {s.target.port} has limit {limit.id[:64]} in force, which is not this action's"
    return ""
