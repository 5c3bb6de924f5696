"""The policy has to be in the policy file still."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return that the policy is gone."""
    return f"policy {s.policy.name} is no longer in the policy file" if s.retired else ""
