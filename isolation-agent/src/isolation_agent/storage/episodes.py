"""Queries about alert episodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from sqlalchemy import select, update

from isolation_agent.storage.store import Transaction
from isolation_agent.storage.tables import Action, Episode, Reason

__all__ = ["dismiss", "firing", "idle", "with_fingerprints"]

_AT_ONCE = 500
"""Numbers in one statement: databases bound them."""


def with_fingerprints(session: Transaction, fingerprints: Collection[str]) -> Iterator[Episode]:
    """Return the episodes of these alerts, from whichever start."""
    return iter(session.scalars(select(Episode).where(Episode.fingerprint.in_(fingerprints))))


def firing(session: Transaction, since: datetime) -> Sequence[Episode]:
    """Return the firing episodes that were heard of since then."""
    return session.scalars(select(Episode).where(Episode.status == "firing", Episode.last_seen > since)).all()


def idle(session: Transaction, since: datetime) -> list[Episode]:
    """Return the firing episodes, heard of since then, for which there is no open action."""
    open_action_of = (
        select(Reason.episode_id)
        .join(Action, Action.seq == Reason.action_seq)
        .where(Reason.episode_id == Episode.id, Action.ended_at.is_(None))
        .exists()
    )
    return list(
        session.scalars(
            select(Episode).where(
                Episode.status == "firing",
                Episode.dismissed.is_(False),
                Episode.last_seen > since,
                ~open_action_of,
            )
        )
    )


def dismiss(session: Transaction, actions: Sequence[int]) -> None:
    """Keep the alerts of these actions, given by number, from starting them again."""
    for some in (actions[i : i + _AT_ONCE] for i in range(0, len(actions), _AT_ONCE)):
        episodes = select(Reason.episode_id).where(Reason.action_seq.in_(some))
        session.execute(update(Episode).where(Episode.id.in_(episodes)).values(dismissed=True))
