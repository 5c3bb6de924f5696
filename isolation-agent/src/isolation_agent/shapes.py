"""What the API answers, as types: the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

__all__ = [
    "ActionDetail",
    "ActionPage",
    "ActionSummary",
    "AllowList",
    "AuditPage",
    "AuditVerification",
    "Breaker",
    "Decisions",
    "HostState",
    "KillSwitch",
    "Overview",
    "PairShape",
    "Pairs",
    "Policies",
    "PolicyChange",
    "Reloaded",
    "Reverted",
    "Stored",
    "TenantLimits",
    "Tenants",
]


class LimitShape(TypedDict, total=False):
    """A limit, wanted or in force."""

    protocol: str
    rate_bytes_per_second: int
    packets_per_second: int
    new_flows_per_second: int
    ttl_seconds: float | None


class EvidenceThen(TypedDict):
    """What the source showed when it was decided."""

    offered_bytes_per_second: float | None
    flood_score: float | None
    destination_ports: float | None
    reply_ratio: float | None


class ActionSummary(TypedDict):
    """An action in a list. Times are RFC 3339 in UTC."""

    number: int
    id: str
    policy: str
    policy_version: str
    level: str
    state: str
    guard: str | None
    reason: str
    cause: str | None
    node: str
    port: str
    tenant: str
    limit: LimitShape | None
    extensions: int
    approved_by: str | None
    revert_requested_by: str | None
    offered_bytes_per_second: float | None
    evidence_then: EvidenceThen | None
    created_at: str
    updated_at: str
    decided_at: str | None
    applied_at: str | None
    expires_at: str | None
    ended_at: str | None


class ActionPage(TypedDict):
    """Actions, newest first; go on with before=next_before if it is set."""

    actions: list[ActionSummary]
    next_before: int | None


class TimelineShape(TypedDict):
    """Something that happened to an action."""

    at: str
    event: str
    detail: dict[str, Any]


class ApprovalShape(TypedDict):
    """A person's verdict."""

    who: str
    verdict: str
    comment: str
    at: str


class ReasonShape(TypedDict):
    """An alert for which the action exists."""

    policy: str
    fingerprint: str
    starts_at: str
    ends_at: str | None
    received_at: str
    last_seen: str
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]


class ReleaseShape(TypedDict):
    """When the limit goes."""

    offered_below: float | None
    hold_seconds: float | None
    probe_seconds: float | None


class ActionDetail(ActionSummary):
    """One action with evidence, reasons and timeline."""

    evidence: dict[str, Any] | None
    limit_before: dict[str, Any] | None
    limit_after: dict[str, Any] | None
    release: ReleaseShape
    relapses: int
    term: int
    approvals: list[ApprovalShape]
    reasons: list[ReasonShape]
    reasons_total: int
    timeline: list[TimelineShape]


class KillSwitch(TypedDict):
    """Whether everything is stopped."""

    on: bool
    held_on_by_policy_file: bool


class Breaker(TypedDict):
    """Whether every new action goes to a person, and why."""

    tripped: bool
    reason: str


class PortUse(TypedDict):
    """One port of a tenant: what was bought and what is sent, in bytes per second."""

    node: str
    port: str
    attached: bool
    guarantee_bytes_per_second: int | None
    ceiling_bytes_per_second: int | None
    offered_bytes_per_second: float | None
    flood_score: float | None
    limit: dict[str, Any] | None


class TenantUse(TypedDict):
    """A tenant's ports."""

    tenant: str
    guarantee_bytes_per_second: int
    offered_bytes_per_second: float
    limited: bool
    ports: list[PortUse]


class Tenants(TypedDict):
    """Tenants with guarantee against use, as last seen; silent nodes are named with the reason."""

    tenants: list[TenantUse]
    seen_at: str | None
    silent: dict[str, str]


class Overview(TypedDict):
    """What the console shows first."""

    now: str
    ready: bool
    problem: str
    kill_switch: KillSwitch
    breaker: Breaker
    dry_run: bool
    replica: str
    leader: str
    limited: list[ActionSummary]
    waiting: list[ActionSummary]
    recent: list[ActionSummary]
    more_limited: int


class HostState(TypedDict):
    """Desired against actual state of a node."""

    node: str
    error: str
    seen_at: str | None
    desired: list[ActionSummary]
    actual: list[PortUse]


class PolicyChange(TypedDict):
    """Policies that were put through the API, and by whom."""

    version: str
    changed_by: str
    changed_at: str
    reason: str


class Policies(TypedDict):
    """Policies and guards; source says where changes are made: file or api."""

    version: str
    source: str
    policies: list[dict[str, Any]]
    guards: dict[str, Any]
    changes: list[PolicyChange]


class PairShape(TypedDict):
    """A limit of the fast loop: what a port may send to a destination, or altogether if there is none."""

    node: str
    port: str
    tenant: str
    destination: str
    rate_bytes_per_second: int
    floor_bytes_per_second: float
    severity: int
    expires_in_seconds: float
    policed_bytes: int


class Pairs(TypedDict):
    """Limits of the fast loop on all nodes, and why a node did not say."""

    pairs: list[PairShape]
    silent: dict[str, str]


class AllowShape(TypedDict):
    """An entry of the allow list that was added at run time."""

    tenant: str | None
    port: str | None
    role: str
    reason: str
    expires_at: str | None


class AllowList(TypedDict):
    """Entries added at run time; those of the policy file are under /v1/policies."""

    entries: list[AllowShape]


class AuditHead(TypedDict):
    """The newest record."""

    seq: int
    hash: str


class AuditPage(TypedDict):
    """Audit records."""

    records: list[dict[str, Any]]
    next_from: int | None
    head: AuditHead


class AuditVerification(TypedDict):
    """Outcome of walking the audit log."""

    ok: bool
    records: int
    first_seq: int
    last_seq: int
    last_hash: str
    line: int | None
    problem: str | None


class Decisions(TypedDict):
    """What would be decided about each alert."""

    decisions: list[dict[str, Any]]


class Reverted(TypedDict):
    """How many actions were asked to end."""

    requested: int


class Reloaded(TypedDict):
    """Outcome of a reload."""

    reloaded: bool
    policy_version: str


class Stored(TypedDict):
    """How many alerts are on disk."""

    stored: int


class OwnLimit(TypedDict):
    """A limit as the tenant may see it."""

    port: str
    level: str
    since: str | None
    expires_at: str | None
    rate_bytes_per_second: int | None
    reason: str


class TenantLimits(TypedDict):
    """A tenant's own limits."""

    tenant: str
    limits: list[OwnLimit]
