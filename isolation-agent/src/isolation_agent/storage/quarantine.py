"""Alerts that were refused, the newest of them, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, select

from isolation_agent.storage.store import Transaction
from isolation_agent.storage.tables import QuarantinedAlert

__all__ = ["KEPT", "forget", "newest"]

KEPT = 1000
"""Alerts that are kept, whoever sends how many."""


def newest(session: Transaction, limit: int, since: datetime | None = None) -> Sequence[QuarantinedAlert]:
    """Return the alerts that were refused last, newest first, if they came after an instant."""
    wanted = select(QuarantinedAlert).order_by(QuarantinedAlert.id.desc()).limit(limit)
    if since is not None:
        wanted = wanted.where(QuarantinedAlert.received_at > since)
    return session.scalars(wanted).all()


def forget(session: Transaction) -> None:
    """Drop all but the newest."""
    last = session.scalar(
        select(QuarantinedAlert.id).order_by(QuarantinedAlert.id.desc()).offset(KEPT).limit(1)
    )
    if last is not None:
        session.execute(delete(QuarantinedAlert).where(QuarantinedAlert.id <= last))
