"""Dry run of the agent, of the policy or of the tenant: decided and recorded, nothing limited."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return who is in dry run, and what would be done."""
    whose = (
        "the agent"
        if s.dry_run
        else f"policy {s.policy.name}"
        if s.policy.dry_run
        else f"tenant {s.target.tenant}"
        if s.target.tenant in s.guards.dry_run_tenants
        else ""
    )
    return f"{whose} is in dry run; it would {s.spec.describe(s.target.port)}" if whose else ""
