"""Policies and what would be decided under them, as the API shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from isolation_agent.policy import PolicySet
from isolation_agent.storage.tables import PolicyVersion
from isolation_agent.web.answers import Answer, Instant

__all__ = ["Decisions", "Policies", "PolicyChange"]


class PolicyChange(Answer):
    """Policies that were put through the API, and by whom."""

    version: str
    changed_by: str
    changed_at: Instant
    reason: str


class Policies(Answer):
    """Policies and guards; source says where changes are made: file or api."""

    version: str
    source: str
    policies: list[dict[str, Any]]
    guards: dict[str, Any]
    changes: list[PolicyChange]

    @classmethod
    def of(cls, found: PolicySet, source: str, changes: Sequence[PolicyVersion]) -> Self:
        """Return policies as a policy file has them, with the newest changes."""
        return cls(
            version=found.version,
            source=source,
            policies=[p.model_dump(mode="json") for p in found.policies],
            guards=found.guards.model_dump(mode="json"),
            changes=[PolicyChange.model_validate(row) for row in changes],
        )


class Decisions(Answer):
    """What would be decided about each alert."""

    decisions: list[dict[str, Any]]
