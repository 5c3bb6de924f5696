"""Entries of the allow list that were added at run time, beside those of the policy file."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import delete, or_, select

from isolation_agent.clock import rfc3339
from isolation_agent.journal import Journal
from isolation_agent.model import AllowRow
from isolation_agent.policy import AllowEntry
from isolation_agent.store import Store

__all__ = ["allowed_now", "list_allowed", "replace_allowed"]


def _rows(store: Store, now: datetime) -> list[AllowRow]:
    with store.read() as session:
        return list(
            session.scalars(
                select(AllowRow)
                .where(or_(AllowRow.expires_at.is_(None), AllowRow.expires_at > now))
                .order_by(AllowRow.id)
            )
        )


def allowed_now(store: Store, now: datetime) -> list[AllowEntry]:
    """Return the entries that have not expired."""
    return [
        AllowEntry.model_validate({"tenant": r.tenant, "port": r.port, "role": r.role, "reason": r.reason})
        for r in _rows(store, now)
    ]


def list_allowed(store: Store, now: datetime) -> list[dict[str, Any]]:
    """Return the entries as the API shows them."""
    return [
        {
            "tenant": r.tenant,
            "port": r.port,
            "role": r.role,
            "reason": r.reason,
            "expires_at": rfc3339(r.expires_at),
        }
        for r in _rows(store, now)
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
