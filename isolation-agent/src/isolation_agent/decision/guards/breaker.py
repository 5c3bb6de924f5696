"""After too many actions in a short time, every further one waits for a person."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return why the breaker has tripped."""
    return f"the blast-radius breaker has tripped: {s.breaker}" if s.breaker else ""
