"""A pause after an action, before the next one of the same policy on the same target."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return how much of the pause is left."""
    if s.cooldown_left > 0:
        return (
            f"the last action of this policy on this target ended too recently; {s.cooldown_left:.0f}s to go"
        )
    return ""
