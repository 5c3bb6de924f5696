"""Changes of actions: database, timeline and audit log together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import insert

from isolation_agent.clock import Clock
from isolation_agent.model.states import State, check_transition
from isolation_agent.storage.audit import AuditLog
from isolation_agent.storage.store import Store, Transaction
from isolation_agent.storage.tables import Action, TimelineEntry

__all__ = ["Entry", "Journal", "Writer", "about", "add_entries", "move"]


@dataclass(frozen=True)
class Entry:
    """One line of an action's timeline."""

    event: str
    at: datetime
    detail: dict[str, Any] = field(default_factory=dict)


class Writer(Protocol):
    """Something that runs transactions."""

    def write(self) -> AbstractContextManager[Transaction]: ...


class Journal:
    """Writes changes so that none is lost and none goes unrecorded."""

    def __init__(self, store: Store, audit: AuditLog, clock: Clock, writer: Writer | None = None) -> None:
        """writer runs the transactions in place of the store, for example only while this replica leads."""
        self.store = store
        self.writer = writer or store
        self.audit = audit
        self.clock = clock

    @contextmanager
    def change(
        self,
        action: Action,
        event: str,
        *entries: Entry,
        actor: str = "controller",
        detail: dict[str, Any] | None = None,
    ) -> Iterator[Action]:
        """Run one transaction on an action; yields the row to change.

        The audit record is on disk before the transaction commits, so that
        nothing happens off the record.
        """
        with self.writer.write() as session:
            row = session.get_one(Action, action.seq)
            yield row
            row.updated_at = self.clock.now()
            add_entries(session, (row, entries))
            session.flush()
            self.audit.append(about(row, event, actor, detail))

    def note(self, event: str, actor: str, **fields: Any) -> None:
        """Record something that is not about one action."""
        self.audit.append({"event": event, "actor": actor, **fields})


def add_entries(session: Transaction, *timelines: tuple[Action, Iterable[Entry]]) -> None:
    """Add lines to the timelines of actions that have their numbers."""
    lines = [
        {"action_seq": action.seq, "at": e.at, "event": e.event, "detail": e.detail}
        for action, entries in timelines
        for e in entries
    ]
    if lines:
        session.execute(insert(TimelineEntry), lines)


def about(action: Action, event: str, actor: str, detail: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the audit record of an event of an action."""
    return {
        "event": event,
        "actor": actor,
        "action": action.id,
        "policy": action.policy,
        "policy_version": action.policy_version,
        "target": {"node": action.node, "port": action.port, "tenant": action.tenant},
        "level": action.level,
        "state": str(action.state),
        "reason": action.reason,
        "term": action.term,
        **({"detail": detail} if detail else {}),
    }


def move(action: Action, state: State) -> None:
    """Put an action into a state. Raises IllegalTransition."""
    check_transition(action.state, state)
    action.state = state
