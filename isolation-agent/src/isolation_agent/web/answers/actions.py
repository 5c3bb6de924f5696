"""Actions, as the API shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydantic import AliasPath, ConfigDict, Field

from isolation_agent.enforcers.snapshot import Snapshot
from isolation_agent.model.states import State
from isolation_agent.storage.actions import FoundAction
from isolation_agent.storage.tables import Action
from isolation_agent.web.answers import Answer, Instant

__all__ = ["ActionDetail", "ActionPage", "ActionSummary", "Reverted", "TenantLimits"]


class LimitAnswer(Answer):
    """A limit as it is wanted; fields that do not limit are left out."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    protocol: str
    rate_bytes_per_second: int
    ttl_seconds: float | None
    packets_per_second: int | None = Field(default=None, exclude_if=lambda v: v is None)
    new_flows_per_second: int | None = Field(default=None, exclude_if=lambda v: v is None)


class EvidenceThen(Answer):
    """What the source showed when it was decided."""

    offered_bytes_per_second: float | None
    flood_score: float | None
    destination_ports: float | None
    reply_ratio: float | None


class ActionSummary(Answer):
    """An action in a list."""

    number: int = Field(validation_alias="seq")
    id: str
    policy: str
    policy_version: str
    level: str
    state: State
    guard: str | None
    reason: str
    cause: str | None
    node: str
    port: str
    tenant: str
    limit: LimitAnswer | None = None
    extensions: int
    approved_by: str | None
    revert_requested_by: str | None = Field(validation_alias="revert_by")
    offered_bytes_per_second: float | None = None
    evidence_then: EvidenceThen | None = None
    created_at: Instant
    updated_at: Instant
    decided_at: Instant | None
    applied_at: Instant | None
    expires_at: Instant | None
    ended_at: Instant | None

    @classmethod
    def of(cls, action: Action, snapshot: Snapshot) -> ActionSummary:
        """Return an action with what its port is seen to offer now."""
        offered = snapshot.offered(action.node, action.port) if action.ended_at is None else None
        return ActionSummary.model_validate(action).model_copy(
            update={
                "limit": _limit(action),
                "offered_bytes_per_second": offered,
                "evidence_then": _evidence_then(action),
            }
        )


class ActionPage(Answer):
    """Actions, newest first; go on with before=next_before if it is set."""

    actions: list[ActionSummary]
    next_before: int | None

    @classmethod
    def of(cls, rows: Sequence[Action], more: bool, snapshot: Snapshot) -> Self:
        """Return a page, and the number to go on before if there are more."""
        return cls(
            actions=[ActionSummary.of(a, snapshot) for a in rows],
            next_before=rows[-1].seq if more else None,
        )


class TimelineLine(Answer):
    """Something that happened to an action."""

    at: Instant
    event: str
    detail: dict[str, Any]


class ApprovalAnswer(Answer):
    """A person's verdict."""

    who: str
    verdict: str
    comment: str
    at: Instant


class ReasonAnswer(Answer):
    """An alert for which the action exists."""

    policy: str
    fingerprint: str = Field(validation_alias=AliasPath("episode", "fingerprint"))
    starts_at: Instant = Field(validation_alias=AliasPath("episode", "starts_at"))
    ends_at: Instant | None = Field(validation_alias=AliasPath("episode", "ends_at"))
    received_at: Instant = Field(validation_alias=AliasPath("episode", "received_at"))
    last_seen: Instant = Field(validation_alias=AliasPath("episode", "last_seen"))
    status: str = Field(validation_alias=AliasPath("episode", "status"))
    labels: dict[str, str] = Field(validation_alias=AliasPath("episode", "labels"))
    annotations: dict[str, str] = Field(validation_alias=AliasPath("episode", "annotations"))


class ReleaseRule(Answer):
    """When the limit goes."""

    offered_below: float | None
    hold_seconds: float | None
    probe_seconds: float | None


class ActionDetail(ActionSummary):
    """One action with evidence, reasons and timeline."""

    evidence: dict[str, Any] | None
    limit_before: dict[str, Any] | None
    limit_after: dict[str, Any] | None
    release: ReleaseRule
    relapses: int
    term: int
    approvals: list[ApprovalAnswer]
    reasons: list[ReasonAnswer]
    reasons_total: int
    timeline: list[TimelineLine]

    @classmethod
    def of_found(cls, found: FoundAction, snapshot: Snapshot) -> Self:
        """Return an action with what belongs to it."""
        action, params = found.action, found.action.params
        return cls.model_validate(
            dict(ActionSummary.of(action, snapshot))
            | {
                "evidence": action.evidence,
                "limit_before": action.limit_before,
                "limit_after": action.limit_after,
                "release": ReleaseRule(
                    offered_below=params.get("offered_below"),
                    hold_seconds=params.get("hold"),
                    probe_seconds=params.get("probe"),
                ),
                "relapses": action.relapses,
                "term": action.term,
                "approvals": action.approvals,
                "reasons": found.reasons,
                "reasons_total": found.reasons_total,
                "timeline": action.timeline,
            }
        )


class Reverted(Answer):
    """How many actions were asked to end."""

    requested: int


class OwnLimit(Answer):
    """A limit as the tenant may see it."""

    port: str
    level: str
    since: Instant | None
    expires_at: Instant | None
    rate_bytes_per_second: int | None
    reason: str


class TenantLimits(Answer):
    """A tenant's own limits."""

    tenant: str
    limits: list[OwnLimit]

    @classmethod
    def of(cls, tenant: str, rows: Sequence[Action]) -> Self:
        """Return a tenant's limits in force, without what concerns others."""
        limits = [
            OwnLimit(
                port=a.port,
                level=a.level,
                since=a.applied_at,
                expires_at=a.expires_at,
                rate_bytes_per_second=a.rate,
                reason=f"policy {a.policy}",
            )
            for a in rows
        ]
        return cls(tenant=tenant, limits=limits)


def _limit(action: Action) -> LimitAnswer | None:
    if action.rate is None:
        return None
    wanted = {"protocol": "udp", "rate_bytes_per_second": action.rate} | (action.limit_wanted or {})
    return LimitAnswer.model_validate(wanted | {"ttl_seconds": action.params.get("ttl")})


def _evidence_then(action: Action) -> EvidenceThen | None:
    """Return the evidence in short; None if there was none."""
    evidence = action.evidence or {}
    offered, signals = evidence.get("offered") or {}, evidence.get("signals") or {}
    if not offered and not signals:
        return None
    return EvidenceThen(
        offered_bytes_per_second=offered.get("udp_bytes_per_second"),
        flood_score=signals.get("flood_score"),
        destination_ports=signals.get("udp_destination_ports"),
        reply_ratio=signals.get("udp_reply_ratio"),
    )
