"""The allow list, of the policy file or set at run time, exempts sources and victims."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return which entry exempts the sender, or the victim whose alert this is."""
    for entry in (*s.guards.allow, *s.allowed_since):
        if entry.shields_source(s.target.tenant, s.target.port):
            return f"the allow list shields {s.target.tenant}/{s.target.port} as a source: {entry.reason}"
        if "victim" in s.labels and entry.shields_victim(s.labels["victim"]):
            return f"the allow list shields {entry.tenant} as a victim: {entry.reason}"
    return ""
