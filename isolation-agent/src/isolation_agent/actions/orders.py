"""What people ask for: each order is on record before the controller carries it out."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from isolation_agent.model.states import IN_FORCE, State
from isolation_agent.model.target import Target
from isolation_agent.policy import LEVELS, MANUAL_POLICY, MAX_TTL, Release
from isolation_agent.storage import actions
from isolation_agent.storage.episodes import dismiss
from isolation_agent.storage.journal import Entry, Journal, about, add_entries, move
from isolation_agent.storage.store import Transaction
from isolation_agent.storage.tables import Action, Approval

__all__ = [
    "NotPossible",
    "UnknownAction",
    "Wish",
    "approve",
    "begin",
    "extend",
    "reject",
    "reset_breaker",
    "revert",
    "revert_all",
    "set_kill_switch",
    "step",
]

MAX_EXTENSION = 3600
"""Longest time for which a person can keep a limit, in seconds from now."""


class UnknownAction(LookupError):
    """There is no action of that id."""


class NotPossible(ValueError):
    """The action is not in a state in which this can be asked for."""


@contextmanager
def _open(journal: Journal, action_id: str) -> Iterator[tuple[Transaction, Action]]:
    """Yield an action under the write lock. Raises UnknownAction."""
    with journal.store.write() as session:
        row = actions.find(session, action_id)
        if row is None:
            raise UnknownAction(action_id)
        yield session, row


def _record(journal: Journal, session: Transaction, row: Action, entry: Entry, actor: str) -> None:
    row.updated_at = entry.at
    add_entries(session, (row, [entry]))
    session.flush()
    journal.audit.append(about(row, f"action.{entry.event}", actor, entry.detail))


def approve(journal: Journal, action_id: str, comment: str, actor: str) -> None:
    """Let an action go on that waits for a person. Raises UnknownAction or NotPossible."""
    with _open(journal, action_id) as (session, row):
        _refuse_unless_waiting(row)
        move(row, State.APPROVED)
        row.approved_by = actor
        now = journal.clock.now()
        session.add(Approval(action_seq=row.seq, who=actor, verdict="approved", comment=comment, at=now))
        _record(journal, session, row, Entry("approved", now, {"by": actor, "comment": comment}), actor)


def reject(journal: Journal, action_id: str, comment: str, actor: str) -> None:
    """End an action that waits for a person; its alerts do not start it again."""
    with _open(journal, action_id) as (session, row):
        _refuse_unless_waiting(row)
        row.revert_by = actor
        dismiss(session, [row.seq])
        now = journal.clock.now()
        session.add(Approval(action_seq=row.seq, who=actor, verdict="rejected", comment=comment, at=now))
        _record(journal, session, row, Entry("rejected", now, {"by": actor, "comment": comment}), actor)


def _refuse_unless_waiting(row: Action) -> None:
    if row.state is not State.PENDING_APPROVAL or row.ended_at is not None or row.revert_by is not None:
        raise NotPossible(f"the action does not wait for approval; it is {_standing(row)}")


def _standing(row: Action) -> str:
    if row.ended_at is not None:
        return f"over ({row.cause})"
    return "being reverted" if row.revert_by else row.state.value


def revert(journal: Journal, action_id: str, actor: str) -> None:
    """Ask the controller to end an action, and keep its alerts from starting it again. Raises NotPossible."""
    with _open(journal, action_id) as (session, row):
        if row.state is State.ORPHANED:
            raise NotPossible("the limit is not this agent's; it ends by its TTL")
        if _revertible(row) or row.params.get(actions.LEFT):
            _revert(journal, session, row, actor)


def _revertible(row: Action) -> bool:
    return row.ended_at is None and row.revert_by is None and row.state is not State.ORPHANED


def _revert(journal: Journal, session: Transaction, row: Action, actor: str) -> None:
    row.revert_by = actor
    actions.forget_left(row)
    dismiss(session, [row.seq])
    _record(journal, session, row, Entry("revert_requested", journal.clock.now(), {"by": actor}), actor)


def revert_all(journal: Journal, tenant: str | None, actor: str) -> int:
    """Ask for the end of every open action, or of those of one tenant; returns how many."""
    now, records = journal.clock.now(), []
    with journal.store.write() as session:
        rows = [
            *actions.revertible(session, tenant),
            *actions.left_since(session, now - timedelta(seconds=MAX_EXTENSION), tenant),
        ]
        for row in rows:
            actions.forget_left(row)
            row.revert_by, row.updated_at = actor, now
            records.append(about(row, "action.revert_requested", actor))
        requested = [Entry("revert_requested", now, {"by": actor})]
        add_entries(session, *((row, requested) for row in rows))
        dismiss(session, [row.seq for row in rows])
        session.flush()
        journal.note("actions.revert_all", actor, tenant=tenant, count=len(rows))
        if records:
            journal.audit.append(*records)
    return len(rows)


def extend(journal: Journal, action_id: str, seconds: int, actor: str) -> None:
    """Keep a limit for so many seconds from now, whatever the tenant offers."""
    with _open(journal, action_id) as (session, row):
        if row.state not in IN_FORCE or not _revertible(row):
            raise NotPossible(f"only a limit in force can be kept; the action is {_standing(row)}")
        row.extend_until = journal.clock.now() + timedelta(seconds=seconds)
        entry = Entry("extension_requested", journal.clock.now(), {"by": actor, "seconds": seconds})
        _record(journal, session, row, entry, actor)


def step(journal: Journal, action_id: str, level: str, actor: str) -> None:
    """Ask for another level of a limit in force. That a person asks is the approval that L4 needs."""
    with _open(journal, action_id) as (session, row):
        if row.state not in (State.ACTIVE, State.STEPPED_UP) or not _revertible(row):
            raise NotPossible(f"only a limit in force can change its level; the action is {_standing(row)}")
        if level not in LEVELS[1:] or level == row.level:
            raise NotPossible(f"the action is at level {row.level}; ask for another one of L1 to L4")
        row.wanted_level, row.approved_by = level, actor
        entry = Entry("step_requested", journal.clock.now(), {"by": actor, "level": level})
        _record(journal, session, row, entry, actor)


@dataclass(frozen=True)
class Wish:
    """An action that a person wants without an alert: kept for so many seconds, whatever is offered."""

    target: Target
    level: str
    seconds: int
    reason: str
    policy_version: str


def begin(journal: Journal, wish: Wish, actor: str) -> str:
    """Begin an action that a person wants; the guards are asked. Returns its id. Raises NotPossible."""
    target, seconds, reason = wish.target, wish.seconds, wish.reason
    now = journal.clock.now()
    with journal.store.write() as session:
        held = actions.holder_of(session, target)
        if held is not None:
            raise NotPossible(f"action {held} limits {target.port} already")
        release = Release()
        row = Action(
            id=str(uuid.uuid4()),
            policy=MANUAL_POLICY,
            policy_version=wish.policy_version,
            node=target.node,
            port=target.port,
            tenant=target.tenant,
            level=wish.level,
            state=State.APPROVED,
            approved_by=actor,
            reason=reason,
            params={
                "ttl": MAX_TTL,  # who ordered it wants it over a restart of the agent, too
                "hold": release.hold,
                "probe": release.probe,
                "offered_below": release.offered_below,
                "cooldown": 0.0,
            },
            created_at=now,
            updated_at=now,
            decided_at=now,
            extend_until=now + timedelta(seconds=seconds),
        )
        session.add(row)
        session.flush()
        session.add(Approval(action_seq=row.seq, who=actor, verdict="approved", comment=reason, at=now))
        detail = {"by": actor, "level": wish.level, "seconds": seconds, "reason": reason}
        _record(journal, session, row, Entry("begun_by_hand", now, detail), actor)
        return row.id


def set_kill_switch(journal: Journal, on: bool, reason: str, actor: str) -> None:
    """Turn the kill switch; the controller releases what is in force in its next turn."""
    with journal.store.write() as session:
        journal.store.set_kill_switch(session, on)
        journal.note("killswitch.on" if on else "killswitch.off", actor, reason=reason)


def reset_breaker(journal: Journal, reason: str, actor: str) -> None:
    """Let automatic actions begin again."""
    with journal.store.write() as session:
        journal.store.set_breaker(session, "")
        journal.note("breaker.reset", actor, reason=reason)
