"""Queries about actions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Select, func, insert, select
from sqlalchemy.orm import InstrumentedAttribute, joinedload, object_session, selectinload

from isolation_agent.model.states import BY_THEMSELVES, ENFORCING, IN_FORCE, OVER, Cause, State
from isolation_agent.model.target import Target
from isolation_agent.policy import MANUAL_POLICY
from isolation_agent.storage.store import Transaction
from isolation_agent.storage.tables import Action, Episode, Reason

__all__ = [
    "FOLLOWS_UNTIL",
    "LEFT",
    "ActionQuery",
    "FoundAction",
    "Span",
    "add_reasons",
    "begun",
    "count_open",
    "enforcing",
    "find",
    "find_whole",
    "forget_left",
    "hand_over_reasons",
    "holder_of",
    "in_force_of",
    "last_end",
    "last_ends",
    "left_since",
    "list_open",
    "of_episodes",
    "open_actions",
    "open_on",
    "orphans",
    "page",
    "reasons_of",
    "reasons_of_open",
    "repeats",
    "revertible",
    "tenants_ended",
]

_REASONS_SHOWN = 100

LEFT = "left"
"""Of params: a port went with its limit, which may follow the workload until then."""
FOLLOWS_UNTIL = "follows_until"
"""Of params: until when a limit that follows another one lasts without evidence of its own."""


@dataclass(frozen=True)
class ActionQuery:
    """Which actions to list: newest first, up to limit, older than the one with number ``before``."""

    state: State | None = None
    tenant: str | None = None
    node: str | None = None
    limit: int = 100
    before: int | None = None
    is_open: bool | None = None
    """Only those that have not ended, or only those that have."""


@dataclass(frozen=True)
class Span:
    """A time until now. What a clock that was ahead has put after it does not lie in it."""

    begin: datetime
    end: datetime

    @classmethod
    def before(cls, now: datetime, seconds: float) -> Span:
        """Return the so many seconds before now."""
        return cls(now - timedelta(seconds=seconds), now)

    def holds(self, column: InstrumentedAttribute[datetime | None]) -> Sequence[ColumnElement[bool]]:
        """Return the conditions that an instant lies in it."""
        return [column > self.begin, column <= self.end]


@dataclass(frozen=True)
class FoundAction:
    """An action with its timeline and approvals, and the first of its reasons."""

    action: Action
    reasons: Sequence[Reason]
    reasons_total: int


def _open() -> Select[Action]:
    return select(Action).where(Action.ended_at.is_(None))


def find(session: Transaction, action_id: str) -> Action | None:
    """Return the action of that id."""
    return session.scalar(select(Action).where(Action.id == action_id))


def find_whole(session: Transaction, action_id: str) -> FoundAction | None:
    """Return the action of that id with what belongs to it."""
    action = session.scalar(
        select(Action)
        .where(Action.id == action_id)
        .options(selectinload(Action.timeline), selectinload(Action.approvals))
    )
    if action is None:
        return None
    reasons = session.scalars(
        select(Reason)
        .where(Reason.action_seq == action.seq)
        .options(joinedload(Reason.episode))
        .order_by(Reason.episode_id)
        .limit(_REASONS_SHOWN)
    ).all()
    count = session.scalar(select(func.count()).where(Reason.action_seq == action.seq)) or 0
    return FoundAction(action, reasons, count)


def page(session: Transaction, query: ActionQuery) -> tuple[Sequence[Action], bool]:
    """Return the actions of a query, newest first, and whether there are more."""
    wanted = select(Action).order_by(Action.seq.desc()).limit(query.limit + 1)
    if query.state is not None:
        wanted = wanted.where(Action.state == query.state)
    if query.tenant is not None:
        wanted = wanted.where(Action.tenant == query.tenant)
    if query.node is not None:
        wanted = wanted.where(Action.node == query.node)
    if query.before is not None:
        wanted = wanted.where(Action.seq < query.before)
    if query.is_open is not None:
        wanted = wanted.where(Action.ended_at.is_(None) if query.is_open else Action.ended_at.is_not(None))
    rows = session.scalars(wanted).all()
    return rows[: query.limit], len(rows) > query.limit


def list_open(
    session: Transaction, states: Collection[State], limit: int, node: str | None = None
) -> tuple[Sequence[Action], int]:
    """Return open actions in these states, newest first and up to limit, and how many there are."""
    wanted = _open().where(Action.state.in_(states))
    if node is not None:
        wanted = wanted.where(Action.node == node)
    rows = session.scalars(wanted.order_by(Action.seq.desc()).limit(limit)).all()
    return rows, session.scalar(select(func.count()).select_from(wanted.subquery())) or 0


def in_force_of(session: Transaction, tenant: str) -> Sequence[Action]:
    """Return a tenant's actions whose limit is in force."""
    return session.scalars(_open().where(Action.tenant == tenant, Action.state.in_(IN_FORCE))).all()


def open_actions(session: Transaction) -> Sequence[Action]:
    """Return the actions that are not over."""
    return session.scalars(_open().where(Action.state != State.ORPHANED)).all()


def open_on(session: Transaction, ports: Collection[str]) -> Iterator[Action]:
    """Return the open actions on these ports, of whichever node and tenant, oldest first."""
    return iter(
        session.scalars(
            _open().where(Action.port.in_(ports), Action.state != State.ORPHANED).order_by(Action.seq)
        )
    )


def enforcing(session: Transaction) -> Sequence[Action]:
    """Return the open actions for which a limit may be in the kernel."""
    return session.scalars(_open().where(Action.state.in_(ENFORCING))).all()


def orphans(session: Transaction) -> Sequence[Action]:
    """Return the records of limits of unknown origin that are still there."""
    return session.scalars(_open().where(Action.state == State.ORPHANED)).all()


def revertible(session: Transaction, tenant: str | None) -> Sequence[Action]:
    """Return the open actions that nobody has asked to end yet, all or those of a tenant."""
    wanted = _open().where(Action.revert_by.is_(None), Action.state != State.ORPHANED)
    return session.scalars(wanted if tenant is None else wanted.where(Action.tenant == tenant)).all()


def holder_of(session: Transaction, target: Target) -> str | None:
    """Return the id of the action that limits a port already, or is about to."""
    return session.scalar(
        select(Action.id).where(
            Action.ended_at.is_(None),
            Action.node == target.node,
            Action.port == target.port,
            Action.state.in_((*ENFORCING, State.APPROVED)),
        )
    )


def last_ends(session: Transaction) -> Iterator[tuple[tuple[str, str, str, str], datetime | None]]:
    """Return when the newest action of each policy and target ended, of those that may have had a limit."""
    key = (Action.policy, Action.node, Action.port, Action.tenant)
    for policy, node, port, tenant, at in session.execute(
        select(*key, func.max(Action.ended_at))
        .where(Action.ended_at.is_not(None), Action.state.in_(OVER))
        .group_by(*key)
    ):
        yield (policy, node, port, tenant), at


def left_since(session: Transaction, since: datetime, tenant: str | None = None) -> list[Action]:
    """Return the actions whose port went since then and whose limit may follow, of all tenants or of one."""
    wanted = select(Action).where(Action.ended_at > since, Action.cause == Cause.GONE.value)
    if tenant is not None:
        wanted = wanted.where(Action.tenant == tenant)
    return [a for a in session.scalars(wanted.order_by(Action.seq)) if a.params.get(LEFT)]


def forget_left(action: Action) -> None:
    """Let the limit of a port that is gone follow nothing, within the transaction of the action."""
    action.params = {k: v for k, v in action.params.items() if k != LEFT}


def last_end(session: Transaction, policy: str, target: Target) -> datetime | None:
    """Return when the newest action of a policy on a target ended, of those that may have had a limit."""
    return session.scalar(
        select(func.max(Action.ended_at)).where(*_of(policy, target), Action.state.in_(OVER))
    )


def repeats(session: Transaction, policy: str, target: Target, within: Span) -> int:
    """Return how many limits of a policy on a target have ended without anybody's order within a time."""
    return _count(
        session,
        *_of(policy, target),
        Action.applied_at.is_not(None),
        *within.holds(Action.ended_at),
        Action.cause.in_([cause.value for cause in BY_THEMSELVES]),
    )


def begun(session: Transaction, within: Span) -> int:
    """Return how many limits were decided within a time without a person."""
    return _count(
        session,
        *within.holds(Action.decided_at),
        Action.limit_wanted.is_not(None),
        Action.approved_by.is_(None),
        Action.policy != MANUAL_POLICY,
    )


def tenants_ended(session: Transaction, within: Span) -> Counter[str]:
    """Return how many limits that were set within a time, on evidence, have ended, by tenant."""
    rows = session.execute(
        select(Action.tenant, func.count())
        .where(*within.holds(Action.applied_at), Action.ended_at.is_not(None))
        .where(Action.params["verified"].as_boolean().is_not(False))
        .group_by(Action.tenant)
    ).all()
    return Counter({tenant: count for tenant, count in rows})


def count_open(session: Transaction) -> list[tuple[State, str, str, int]]:
    """Return the number of open actions by state, level and policy."""
    key = (Action.state, Action.level, Action.policy)
    rows = session.execute(select(*key, func.count()).where(Action.ended_at.is_(None)).group_by(*key))
    return [(state, level, policy, count) for state, level, policy, count in rows]


def reasons_of_open(session: Transaction) -> defaultdict[int, list[tuple[str, Episode]]]:
    """Return policy and episode of every reason of an open action, by the action's number."""
    found: defaultdict[int, list[tuple[str, Episode]]] = defaultdict(list)
    for seq, policy, episode in session.execute(
        select(Reason.action_seq, Reason.policy, Episode)
        .join(Episode, Episode.id == Reason.episode_id)
        .join(Action, Action.seq == Reason.action_seq)
        .where(Action.ended_at.is_(None))
        .order_by(Episode.id)
    ):
        found[seq].append((policy, episode))
    return found


def reasons_of(session: Transaction, seq: int) -> list[tuple[str, Episode]]:
    """Return policy and episode of every reason of an action, by its number."""
    found = session.execute(
        select(Reason.policy, Episode)
        .join(Episode, Episode.id == Reason.episode_id)
        .where(Reason.action_seq == seq)
        .order_by(Episode.id)
    )
    return [(policy, episode) for policy, episode in found]


def of_episodes(session: Transaction, episodes: Iterable[int]) -> list[tuple[Action, int]]:
    """Return the open actions that exist for these episodes, each with how many of them it has."""
    found = session.execute(
        select(Action, func.count(Reason.episode_id))
        .join(Reason)
        .where(Reason.episode_id.in_(episodes), Action.ended_at.is_(None))
        .group_by(Action.seq)
    )
    return [(action, count) for action, count in found]


def add_reasons(session: Transaction, *reasons: tuple[Action, Episode, str]) -> None:
    """Note for which episodes and policies actions exist; all have their numbers."""
    rows = [
        {"action_seq": action.seq, "episode_id": episode.id, "policy": policy}
        for action, episode, policy in reasons
    ]
    if rows:
        session.execute(insert(Reason), rows)


def hand_over_reasons(action: Action, holder: Action) -> None:
    """Give another action the reasons of one that is merged into it, within the transaction of the latter."""
    session = object_session(action)
    if session is None:
        raise ValueError("the action is in no transaction")
    for r in action.reasons:
        session.merge(Reason(action_seq=holder.seq, episode_id=r.episode_id, policy=r.policy))


def _of(policy: str, target: Target) -> tuple[ColumnElement[bool], ...]:
    return (
        Action.policy == policy,
        Action.node == target.node,
        Action.port == target.port,
        Action.tenant == target.tenant,
    )


def _count(session: Transaction, *conditions: ColumnElement[bool]) -> int:
    return session.scalar(select(func.count()).where(*conditions)) or 0
