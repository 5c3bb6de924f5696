"""The verdict about a situation: what stops the action, if anything, and what the action is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from isolation_agent.decision.guards import GUARDS, Guard
from isolation_agent.decision.levels import LimitSpec
from isolation_agent.decision.situation import Situation

__all__ = ["Verdict", "judge", "standing_objection"]


@dataclass(frozen=True)
class Verdict:
    """The decision: what stops the action, if anything, and what the action is."""

    level: str
    spec: LimitSpec | None  # None for L0
    guard: str | None  # the first guard that stops it
    reason: str
    also: Mapping[str, str] = field(default_factory=dict)  # further guards that would stop it
    approval: str = ""  # why a person has to decide, if nothing stops it
    asked_by: str = ""  # the guard that says so; none if the policy, the level or the alert does

    @property
    def allowed(self) -> bool:
        """True if no guard stops the action."""
        return self.guard is None

    @property
    def rate(self) -> int | None:
        """The limit in bytes per second."""
        return self.spec.rate if self.spec else None


def judge(s: Situation) -> Verdict:
    """Decide. The first objection in order is the reason, later ones are named too."""
    level = s.at_level
    asked = [g for g in GUARDS if _concerns(g, s)]
    objections = {g.name: text for g in asked if (text := g.objection(s))}
    by_hand = {g.name: objections.pop(g.name) for g in asked if g.asks_a_person and g.name in objections}
    spec = None if level == "L0" else s.spec
    if objections:
        first = next(iter(objections))
        also = {k: v for k, v in objections.items() if k != first}
        return Verdict(level, spec, first, objections[first], also)
    if spec is None:
        return Verdict(level, None, None, "level L0: recorded, nothing is limited")
    asked_by = next(iter(by_hand), "")
    approval = by_hand.get(asked_by) or _approval(s, level)
    return Verdict(level, spec, None, spec.describe(s.target.port), approval=approval, asked_by=asked_by)


def _concerns(guard: Guard, s: Situation) -> bool:
    """Tell whether a guard has a say: not all do about observing, and some hold back automation only."""
    return (guard.for_observing or s.at_level != "L0") and not (guard.for_automation and s.approved_by)


def standing_objection(s: Situation) -> str:
    """Return why a limit in force has to end: what an operator has switched on since it was decided."""
    return next((text for g in GUARDS if g.lifts and (text := g.objection(s))), "")


def _approval(s: Situation, level: str) -> str:
    """Return why a person has to decide."""
    if s.approved_by:
        return ""
    if level == "L4":
        return "level L4 goes below what the tenant bought"
    if s.labels.get("isolate") == "approve":
        return "the alert asks for a person's approval"
    return f"policy {s.policy.name} asks for a person's approval" if s.policy.approval else ""
