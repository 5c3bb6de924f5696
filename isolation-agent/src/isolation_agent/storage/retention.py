"""What is forgotten, and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, select

from isolation_agent.storage import quarantine
from isolation_agent.storage.store import Transaction
from isolation_agent.storage.tables import Action, AllowRow, Episode, LoginSession, Reason, StoredAnswer

__all__ = ["Retention", "prune"]

_ANSWERS_KEPT = timedelta(days=1)


@dataclass(frozen=True)
class Retention:
    """How much is kept."""

    actions: int
    """actions that are over"""
    episodes: timedelta
    """time since an alert was last heard of, if no action refers to it"""


def prune(session: Transaction, keep: Retention, now: datetime) -> None:
    """Forget the oldest actions that are over, episodes that nothing refers to, and what has expired."""
    last = session.scalar(
        select(Action.seq)
        .where(Action.ended_at.is_not(None))
        .order_by(Action.seq.desc())
        .offset(keep.actions)
        .limit(1)
    )
    if last is not None:
        session.execute(delete(Action).where(Action.ended_at.is_not(None), Action.seq <= last))
    referred_to = select(Reason).where(Reason.episode_id == Episode.id).exists()
    session.execute(delete(Episode).where(Episode.last_seen < now - keep.episodes, ~referred_to))
    quarantine.forget(session)
    session.execute(delete(LoginSession).where(LoginSession.expires_at < now))
    session.execute(delete(AllowRow).where(AllowRow.expires_at < now))
    session.execute(delete(StoredAnswer).where(StoredAnswer.created_at < now - _ANSWERS_KEPT))
