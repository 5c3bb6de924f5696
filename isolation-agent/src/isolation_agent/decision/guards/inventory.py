"""Node, port and tenant have to agree with the enforcer, and a program has to be attached to the port."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return in what the alert and the enforcer's inventory differ."""
    port, target = s.port, s.target
    if s.view.state is None:
        return s.view.error
    if port is None:
        return f"node {target.node} has no port {target.port}"
    if port.tenant != target.tenant:
        return f"port {target.port} belongs to tenant {port.tenant[:64]}, not to {target.tenant}"
    if not port.attached:
        return f"port {target.port} has no program attached, so nothing can be limited there"
    return ""
