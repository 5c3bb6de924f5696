"""A cap at a guarantee of nothing would take everything."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return which guarantee is missing."""
    if s.port is None or s.at_level == "L4":
        return ""  # L4 is below the floor by design, which is why a person has to approve it
    if s.rate <= 0:
        return f"tenant {s.target.tenant} has no guarantee at {s.target.port}, so a cap would take everything"
    if s.at_level == "L3" and not (s.port.pps_guarantee or s.port.new_flows_guarantee):
        return f"tenant {s.target.tenant} has no guarantee of packets or new flows at {s.target.port}"
    return ""
