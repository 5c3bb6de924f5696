"""What holds for everything, as the API shows it: switches, allow list, reload, the overview of it all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from isolation_agent.storage.tables import AllowRow
from isolation_agent.web.answers import Answer, Instant
from isolation_agent.web.answers.actions import ActionSummary
from isolation_agent.web.answers.alerts import QuarantinedAnswer

__all__ = ["AllowList", "BreakerState", "KillSwitch", "Overview", "Reloaded"]


class KillSwitch(Answer):
    """Whether everything is stopped."""

    on: bool
    held_on_by_policy_file: bool


class BreakerState(Answer):
    """Whether every new action goes to a person, and why."""

    tripped: bool
    reason: str

    @classmethod
    def of(cls, reason: str) -> Self:
        """Return the breaker's state; it has tripped if there is a reason."""
        return cls(tripped=bool(reason), reason=reason)


class AllowedEntry(Answer):
    """An entry of the allow list that was added at run time."""

    tenant: str | None
    port: str | None
    role: str
    reason: str
    expires_at: Instant | None


class AllowList(Answer):
    """Entries added at run time; those of the policy file are under /v1/policies."""

    entries: list[AllowedEntry]

    @classmethod
    def of(cls, rows: Sequence[AllowRow]) -> Self:
        """Return the entries that hold."""
        return cls(entries=[AllowedEntry.model_validate(row) for row in rows])


class Reloaded(Answer):
    """Outcome of a reload."""

    reloaded: bool
    policy_version: str


class Overview(Answer):
    """What the console shows first."""

    now: Instant
    ready: bool
    problem: str
    kill_switch: KillSwitch
    breaker: BreakerState
    dry_run: bool
    replica: str
    leader: str
    limited: list[ActionSummary]
    waiting: list[ActionSummary]
    recent: list[ActionSummary]
    quarantined: list[QuarantinedAnswer]
    more_limited: int
