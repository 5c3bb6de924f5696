"""Entries of the allow list that were added at run time, beside those of the policy file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, or_, select

from isolation_agent.clock import rfc3339
from isolation_agent.policy import AllowEntry
from isolation_agent.storage.journal import Journal
from isolation_agent.storage.store import Store
from isolation_agent.storage.tables import AllowRow

__all__ = ["allowed_now", "list_allowed", "replace_allowed"]


def list_allowed(store: Store, now: datetime) -> Sequence[AllowRow]:
    """Return the entries that have not expired, with their ends."""
    with store.read() as session:
        return session.scalars(
            select(AllowRow)
            .where(or_(AllowRow.expires_at.is_(None), AllowRow.expires_at > now))
            .order_by(AllowRow.id)
        ).all()


def allowed_now(store: Store, now: datetime) -> list[AllowEntry]:
    """Return the entries that have not expired."""
    return [
        AllowEntry.model_validate({"tenant": r.tenant, "port": r.port, "role": r.role, "reason": r.reason})
        for r in list_allowed(store, now)
    ]


def replace_allowed(journal: Journal, entries: list[tuple[AllowEntry, datetime | None]], actor: str) -> None:
    """Put these entries in the place of all that were added at run time."""
    with journal.store.write() as session:
        session.execute(delete(AllowRow))
        session.add_all(
            AllowRow(tenant=e.tenant, port=e.port, role=e.role, reason=e.reason, expires_at=expires)
            for e, expires in entries
        )
        shown = [e.model_dump() | {"expires_at": rfc3339(expires)} for e, expires in entries]
        journal.note("allowlist.replaced", actor, entries=shown)
