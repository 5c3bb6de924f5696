"""The kill switch, of the policy file or turned at run time, stops everything."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return that the kill switch is on."""
    return "the kill switch is on" if s.kill_switch or s.guards.kill_switch else ""
