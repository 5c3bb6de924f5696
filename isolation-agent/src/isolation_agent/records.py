"""What the API shows and changes of actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import joinedload, object_session, selectinload

from isolation_agent.clock import rfc3339
from isolation_agent.journal import Entry, Journal
from isolation_agent.model import Action, Episode, Reason
from isolation_agent.states import State
from isolation_agent.store import Store

__all__ = ["Query", "find_action", "list_actions", "request_revert", "set_kill_switch"]


_REASONS_SHOWN = 100


@dataclass(frozen=True)
class Query:
    """Which actions to list: newest first, up to limit, older than the one with number ``before``."""

    state: State | None = None
    tenant: str | None = None
    node: str | None = None
    limit: int = 100
    before: int | None = None


def list_actions(store: Store, query: Query) -> dict[str, Any]:
    """Return the actions of a query, and the number to go on before if there are more."""
    wanted = select(Action).order_by(Action.seq.desc()).limit(query.limit + 1)
    if query.state is not None:
        wanted = wanted.where(Action.state == query.state)
    if query.tenant is not None:
        wanted = wanted.where(Action.tenant == query.tenant)
    if query.node is not None:
        wanted = wanted.where(Action.node == query.node)
    if query.before is not None:
        wanted = wanted.where(Action.seq < query.before)
    with store.read() as session:
        rows = session.scalars(wanted).all()
    more = len(rows) > query.limit
    shown = rows[: query.limit]
    return {"actions": [_summary(a) for a in shown], "next_before": shown[-1].seq if more else None}


def find_action(store: Store, action_id: str) -> dict[str, Any] | None:
    """Return one action with evidence, reasons and timeline."""
    with store.read() as session:
        action = session.scalar(
            select(Action).where(Action.id == action_id).options(selectinload(Action.timeline))
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
    return _detail(action, reasons) | {"reasons_total": count}


def request_revert(journal: Journal, action_id: str, actor: str) -> dict[str, Any] | None:
    """Ask the controller to end an action, and keep its alerts from starting it again."""
    with journal.store.read() as session:
        action = session.scalar(select(Action).where(Action.id == action_id))
    if action is None:
        return None
    if action.ended_at is None and action.revert_by is None and action.state is not State.ORPHANED:
        entry = Entry("revert_requested", journal.clock.now(), {"by": actor})
        with journal.change(action, "action.revert_requested", entry, actor=actor) as row:
            row.revert_by = actor
            inside = object_session(row)
            if inside is not None:
                of_action = select(Reason.episode_id).where(Reason.action_seq == row.seq)
                inside.execute(update(Episode).where(Episode.id.in_(of_action)).values(dismissed=True))
    return find_action(journal.store, action_id)


def set_kill_switch(journal: Journal, on: bool, reason: str, actor: str) -> None:
    """Turn the kill switch; the controller releases what is in force in its next turn."""
    with journal.store.write() as session:
        journal.store.set_kill_switch(session, on)
        journal.note("killswitch.on" if on else "killswitch.off", actor, reason=reason)


def _summary(action: Action) -> dict[str, Any]:
    return {
        "number": action.seq,
        "id": action.id,
        "policy": action.policy,
        "policy_version": action.policy_version,
        "level": action.level,
        "state": action.state.value,
        "guard": action.guard,
        "reason": action.reason,
        "cause": action.cause,
        "node": action.node,
        "port": action.port,
        "tenant": action.tenant,
        "limit": _limit(action),
        "extensions": action.extensions,
        "created_at": rfc3339(action.created_at),
        "updated_at": rfc3339(action.updated_at),
        "decided_at": rfc3339(action.decided_at),
        "applied_at": rfc3339(action.applied_at),
        "expires_at": rfc3339(action.expires_at),
        "ended_at": rfc3339(action.ended_at),
    }


def _limit(action: Action) -> dict[str, Any] | None:
    if action.rate is None:
        return None
    return {
        "protocol": "udp",
        "rate_bytes_per_second": action.rate,
        "ttl_seconds": action.params.get("ttl"),
    }


def _detail(action: Action, reasons: Sequence[Reason]) -> dict[str, Any]:
    return _summary(action) | {
        "evidence": action.evidence,
        "limit_before": action.limit_before,
        "limit_after": action.limit_after,
        "release": {
            "offered_below": action.params.get("offered_below"),
            "hold_seconds": action.params.get("hold"),
        },
        "revert_requested_by": action.revert_by,
        "reasons": [_reason(r, r.episode) for r in reasons],
        "timeline": [{"at": rfc3339(t.at), "event": t.event, "detail": t.detail} for t in action.timeline],
    }


def _reason(reason: Reason, episode: Episode) -> dict[str, Any]:
    return {
        "policy": reason.policy,
        "fingerprint": episode.fingerprint,
        "starts_at": rfc3339(episode.starts_at),
        "ends_at": rfc3339(episode.ends_at),
        "received_at": rfc3339(episode.received_at),
        "last_seen": rfc3339(episode.last_seen),
        "status": episode.status,
        "labels": episode.labels,
        "annotations": episode.annotations,
    }
