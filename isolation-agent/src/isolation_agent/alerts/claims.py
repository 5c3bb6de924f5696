"""Alerts that ask for an action: a new one, or a part in one that exists."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from isolation_agent.config import Settings
from isolation_agent.decision.levels import effective_level
from isolation_agent.model.states import ENFORCING, State
from isolation_agent.model.target import Target
from isolation_agent.policy import Policy
from isolation_agent.storage.actions import add_reasons, open_on
from isolation_agent.storage.journal import Entry, add_entries
from isolation_agent.storage.store import Transaction
from isolation_agent.storage.tables import Action, Episode

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

    def __init__(self, session: Transaction, settings: Settings) -> None:
        self._session = session
        self._settings = settings
        self._open: dict[Target, list[Action]] = {}

    def take(self, claims: Sequence[tuple[Claim, Sequence[Entry]]]) -> list[tuple[Action, bool]]:
        """Return each claim's action and whether it was made for it.

        One limit per target serves every policy that asks for it. The entries
        go into the timeline of a new action only. Queries do not grow with the
        number of claims: a storm brings thousands.
        """
        if not claims:
            return []
        self._find({claim.target for claim, _ in claims})
        taken = [self._action(claim) for claim, _ in claims]
        self._session.flush()  # numbers the new actions
        both = list(zip(claims, taken, strict=True))
        add_entries(self._session, *((action, entries) for (_, entries), (action, made) in both if made))
        add_reasons(self._session, *((action, c.episode, c.policy.name) for (c, _), (action, _) in both))
        return taken

    def _action(self, claim: Claim) -> tuple[Action, bool]:
        existing = self._open[claim.target]
        action = self._holder(claim, existing) or next(
            (a for a in existing if a.policy == claim.policy.name), None
        )
        if action is not None:
            return action, False
        action = self._make(claim)
        self._session.add(action)
        existing.append(action)
        return action, True

    def _find(self, targets: set[Target]) -> None:
        """Look up the open actions of all targets."""
        self._open = {target: [] for target in targets}
        for action in open_on(self._session, {target.port for target in targets}):
            if action.target in self._open:
                self._open[action.target].append(action)

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
