"""The operator's own tenants, and those not known yet, are never acted upon."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return that the tenant is infrastructure."""
    if s.target.tenant in s.guards.protected_tenants:
        return f"tenant {s.target.tenant} is infrastructure, which is never acted upon"
    return ""
