"""An alert is a reason to look. Without evidence at the source or from a victim, a person decides."""

from __future__ import annotations

from isolation_agent.decision.evidence import missing
from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return what evidence is missing."""
    return "" if s.verified or s.follows else missing(s.port)
