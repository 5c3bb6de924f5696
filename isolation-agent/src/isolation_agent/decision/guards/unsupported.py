"""The node's enforcer has to be able to set the level."""

from __future__ import annotations

from isolation_agent.decision.situation import Situation

__all__ = ["objection"]


def objection(s: Situation) -> str:
    """Return what the enforcer lacks."""
    state, level = s.view.state, s.at_level
    missing = [] if state is None or level == "L0" else [n for n in s.spec.needs if n not in state.supports]
    if missing:
        return f"the enforcer of {s.target.node} cannot do level {level}; it lacks: {', '.join(missing)}"
    return ""
