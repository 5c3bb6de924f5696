"""Alerts that ask for an action: a new one, or a part in one that exists."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from isolation_agent.alerts import Target
from isolation_agent.config import Settings
from isolation_agent.decision import effective_level
from isolation_agent.journal import Entry, add_entries
from isolation_agent.model import Action, Episode, Reason
from isolation_agent.policy import Policy
from isolation_agent.states import ENFORCING, State

__all__ = ["Claim", "Claims"]


@dataclass(frozen=True)
class Claim:
    """An episode that asks for an action. The episode has to be in the database already."""

    policy: Policy
    target: Target
    episode: Episode
    at: datetime
    needs_evidence: bool = False


class Claims:
    """Takes claims within one transaction."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self._settings = settings
        self._open: dict[Target, list[Action]] = {}

    def take(self, claim: Claim, entries: Sequence[Entry]) -> tuple[Action, bool]:
        """Return the claim's action and whether it was made for it.

        One limit per target serves every policy that asks for it. The entries
        go into the timeline of a new action only.
        """
        existing = self._existing(claim.target)
        action = self._holder(claim, existing) or next(
            (a for a in existing if a.policy == claim.policy.name), None
        )
        made = action is None
        if action is None:
            action = self._make(claim)
            self._session.add(action)
            self._session.flush()
            add_entries(self._session, action, entries)
            existing.append(action)
        self._session.add(
            Reason(action_seq=action.seq, episode_id=claim.episode.id, policy=claim.policy.name)
        )
        return action, made

    def _existing(self, target: Target) -> list[Action]:
        if target not in self._open:
            found = self._session.scalars(
                select(Action).where(
                    Action.ended_at.is_(None),
                    Action.node == target.node,
                    Action.port == target.port,
                    Action.tenant == target.tenant,
                    Action.state != State.ORPHANED,
                )
            )
            self._open[target] = list(found)
        return self._open[target]

    def _holder(self, claim: Claim, existing: Sequence[Action]) -> Action | None:
        """Return the action that limits the target already, if the claim wants a limit too."""
        dry = claim.policy.dry_run or self._settings.config.dry_run
        if dry or effective_level(claim.policy, claim.episode.labels) == "L0":
            return None
        return next((a for a in existing if a.state in ENFORCING), None)

    def _make(self, claim: Claim) -> Action:
        return Action(
            id=str(uuid.uuid4()),
            policy=claim.policy.name,
            policy_version=self._settings.policies.version,
            node=claim.target.node,
            port=claim.target.port,
            tenant=claim.target.tenant,
            level=effective_level(claim.policy, claim.episode.labels),
            state=State.RECEIVED,
            needs_evidence=claim.needs_evidence,
            params=claim.policy.params(),
            created_at=claim.at,
            updated_at=claim.at,
        )
