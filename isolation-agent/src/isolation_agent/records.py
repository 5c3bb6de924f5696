"""What the API shows of actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sqlalchemy import func, select
from sqlalchemy.orm import joinedload, selectinload

from isolation_agent.clock import instant, rfc3339
from isolation_agent.model import Action, Episode, Reason
from isolation_agent.shapes import (
    ActionDetail,
    ActionPage,
    ActionSummary,
    EvidenceThen,
    LimitShape,
    ReasonShape,
    TenantLimits,
)
from isolation_agent.snapshot import Snapshot
from isolation_agent.states import IN_FORCE, State
from isolation_agent.store import Store

__all__ = ["Query", "find_action", "list_actions", "open_actions", "own_limits"]


_REASONS_SHOWN = 100


@dataclass(frozen=True)
class Query:
    """Which actions to list: newest first, up to limit, older than the one with number ``before``."""

    state: State | None = None
    tenant: str | None = None
    node: str | None = None
    limit: int = 100
    before: int | None = None


def list_actions(store: Store, query: Query, snapshot: Snapshot) -> ActionPage:
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
    return {"actions": [_summary(a, snapshot) for a in shown], "next_before": shown[-1].seq if more else None}


def open_actions(
    store: Store, snapshot: Snapshot, states: Sequence[State], limit: int, node: str | None = None
) -> tuple[list[ActionSummary], int]:
    """Return open actions in these states, newest first and up to limit, and how many there are."""
    wanted = select(Action).where(Action.ended_at.is_(None), Action.state.in_(states))
    if node is not None:
        wanted = wanted.where(Action.node == node)
    with store.read() as session:
        rows = session.scalars(wanted.order_by(Action.seq.desc()).limit(limit)).all()
        count = session.scalar(select(func.count()).select_from(wanted.subquery())) or 0
    return [_summary(a, snapshot) for a in rows], count


def own_limits(store: Store, tenant: str) -> TenantLimits:
    """Return a tenant's limits in force, as the tenant may see them."""
    with store.read() as session:
        rows = session.scalars(
            select(Action).where(
                Action.ended_at.is_(None), Action.tenant == tenant, Action.state.in_(IN_FORCE)
            )
        ).all()
    return {
        "tenant": tenant,
        "limits": [
            {
                "port": a.port,
                "level": a.level,
                "since": rfc3339(a.applied_at),
                "expires_at": rfc3339(a.expires_at),
                "rate_bytes_per_second": a.rate,
                "reason": f"policy {a.policy}",
            }
            for a in rows
        ],
    }


def find_action(store: Store, action_id: str, snapshot: Snapshot) -> ActionDetail | None:
    """Return one action with evidence, reasons and timeline."""
    with store.read() as session:
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
    return _detail(action, reasons, count, snapshot)


def _summary(action: Action, snapshot: Snapshot) -> ActionSummary:
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
        "approved_by": action.approved_by,
        "revert_requested_by": action.revert_by,
        "offered_bytes_per_second": (
            snapshot.offered(action.node, action.port) if action.ended_at is None else None
        ),
        "evidence_then": _evidence_then(action),
        "created_at": instant(action.created_at),
        "updated_at": instant(action.updated_at),
        "decided_at": rfc3339(action.decided_at),
        "applied_at": rfc3339(action.applied_at),
        "expires_at": rfc3339(action.expires_at),
        "ended_at": rfc3339(action.ended_at),
    }


def _evidence_then(action: Action) -> EvidenceThen | None:
    """Return the evidence in short; None if there was none."""
    evidence = action.evidence or {}
    offered, signals = evidence.get("offered") or {}, evidence.get("signals") or {}
    if not offered and not signals:
        return None
    return {
        "offered_bytes_per_second": offered.get("udp_bytes_per_second"),
        "flood_score": signals.get("flood_score"),
        "destination_ports": signals.get("udp_destination_ports"),
        "reply_ratio": signals.get("udp_reply_ratio"),
    }


def _limit(action: Action) -> LimitShape | None:
    if action.rate is None:
        return None
    limit: LimitShape = {
        "protocol": "udp",
        "rate_bytes_per_second": action.rate,
        "ttl_seconds": action.params.get("ttl"),
    }
    return cast(LimitShape, limit | (action.limit_wanted or {}))


def _detail(action: Action, reasons: Sequence[Reason], count: int, snapshot: Snapshot) -> ActionDetail:
    return {
        **_summary(action, snapshot),
        "evidence": action.evidence,
        "limit_before": action.limit_before,
        "limit_after": action.limit_after,
        "release": {
            "offered_below": action.params.get("offered_below"),
            "hold_seconds": action.params.get("hold"),
            "probe_seconds": action.params.get("probe"),
        },
        "relapses": action.relapses,
        "term": action.term,
        "approvals": [
            {"who": a.who, "verdict": a.verdict, "comment": a.comment, "at": instant(a.at)}
            for a in action.approvals
        ],
        "reasons": [_reason(r, r.episode) for r in reasons],
        "reasons_total": count,
        "timeline": [{"at": instant(t.at), "event": t.event, "detail": t.detail} for t in action.timeline],
    }


def _reason(reason: Reason, episode: Episode) -> ReasonShape:
    return {
        "policy": reason.policy,
        "fingerprint": episode.fingerprint,
        "starts_at": instant(episode.starts_at),
        "ends_at": rfc3339(episode.ends_at),
        "received_at": instant(episode.received_at),
        "last_seen": instant(episode.last_seen),
        "status": episode.status,
        "labels": episode.labels,
        "annotations": episode.annotations,
    }
