"""Tables: inbox, alert episodes, actions with reasons and timeline, sessions, the lease, a few values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Enum,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.types import TypeDecorator

from isolation_agent.model.states import ENFORCING, State
from isolation_agent.model.target import Target

__all__ = [
    "SCHEMA_VERSION",
    "Action",
    "AllowRow",
    "Approval",
    "Base",
    "Episode",
    "InboxMessage",
    "Lease",
    "LoginSession",
    "Meta",
    "NodeTerm",
    "PolicyVersion",
    "QuarantinedAlert",
    "Reason",
    "StoredAnswer",
    "TimelineEntry",
]

SCHEMA_VERSION = "2"


class Instant(TypeDecorator[datetime]):
    """An aware instant, stored as naive UTC with microseconds."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to naive UTC; naive input is a programming error."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive instant cannot be stored")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to aware UTC."""
        return None if value is None else value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    """Base of the tables."""

    type_annotation_map = {
        datetime: Instant,
        dict[str, Any]: JSON(none_as_null=True),
        dict[str, str]: JSON(none_as_null=True),
        State: Enum(
            State, native_enum=False, length=16, values_callable=lambda states: [s.value for s in states]
        ),
    }


class Meta(Base):
    """Named values: schema version, kill switch, audit anchor."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class Lease(Base):
    """Who leads. Nobody's clock is compared: others watch whether ``beat`` goes on."""

    __tablename__ = "lease"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    holder: Mapped[str] = mapped_column(String(256))  # empty: given up
    term: Mapped[int]  # fencing: grows with every change of leader
    beat: Mapped[int]


class NodeTerm(Base):
    """How far a node's fencing term is ahead of the leader's; see actions.terms."""

    __tablename__ = "node_term"
    node: Mapped[str] = mapped_column(String(256), primary_key=True)
    ahead: Mapped[int] = mapped_column(BigInteger)


class LoginSession(Base):
    """A person's session in the console. The cookie's value itself is not stored."""

    __tablename__ = "login_session"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    account: Mapped[str] = mapped_column(String(256))
    credential: Mapped[str] = mapped_column(String(64))  # digest of the token it was opened with
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class StoredAnswer(Base):
    """What a write with an idempotency key was answered."""

    __tablename__ = "stored_answer"
    account: Mapped[str] = mapped_column(String(256), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    request: Mapped[str] = mapped_column(String(64))  # digest of method, path and body
    status: Mapped[int]  # 0 while it is being worked on
    body: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime]


class AllowRow(Base):
    """An entry of the allow list that was added at run time."""

    __tablename__ = "allow"
    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str | None] = mapped_column(String(256))
    port: Mapped[str | None] = mapped_column(String(256))
    role: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(String(200))
    expires_at: Mapped[datetime | None]


class PolicyVersion(Base):
    """Policies that were put through the API; the newest is in force where the API is the source."""

    __tablename__ = "policy_version"
    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[str] = mapped_column(String(16))
    content: Mapped[str] = mapped_column(Text)  # a policy file
    reason: Mapped[str] = mapped_column(String(500))
    changed_by: Mapped[str] = mapped_column(String(256))
    changed_at: Mapped[datetime]


class InboxMessage(Base):
    """A webhook body that is stored and not yet handled."""

    __tablename__ = "inbox"
    id: Mapped[int] = mapped_column(primary_key=True)
    received_at: Mapped[datetime]
    peer: Mapped[str] = mapped_column(String(64))
    sha256: Mapped[str] = mapped_column(String(64))
    size: Mapped[int]
    attempts: Mapped[int] = mapped_column(default=0)
    body: Mapped[bytes] = mapped_column(LargeBinary)


class QuarantinedAlert(Base):
    """An alert that cannot be right, kept for people to look at."""

    __tablename__ = "quarantine"
    id: Mapped[int] = mapped_column(primary_key=True)
    received_at: Mapped[datetime]
    peer: Mapped[str] = mapped_column(String(64))
    message: Mapped[str] = mapped_column(String(64))  # sha256 of the message's body
    position: Mapped[int]  # in the message, from 0
    field: Mapped[str] = mapped_column(Text)
    problem: Mapped[str] = mapped_column(Text)
    content: Mapped[str] = mapped_column(Text)  # the beginning of the alert


class Episode(Base):
    """One alert from its start to its end."""

    __tablename__ = "episode"
    __table_args__ = (
        UniqueConstraint("fingerprint", "starts_at"),
        Index("episode_firing", "status", "dismissed"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    starts_at: Mapped[datetime]
    status: Mapped[str] = mapped_column(String(16))
    labels: Mapped[dict[str, str]]
    annotations: Mapped[dict[str, str]]
    received_at: Mapped[datetime]
    last_seen: Mapped[datetime]
    ends_at: Mapped[datetime | None]
    dismissed: Mapped[bool] = mapped_column(default=False)  # an operator reverted its action


_OPEN = text("ended_at IS NULL")
_OPEN_ENFORCING = text(f"ended_at IS NULL AND state IN ({', '.join(repr(str(s)) for s in ENFORCING)})")


class Action(Base):
    """What the agent does, or would do, about a target under a policy."""

    __tablename__ = "action"
    __table_args__ = (
        Index(
            "action_open",
            "policy",
            "node",
            "port",
            "tenant",
            unique=True,
            sqlite_where=_OPEN,
            postgresql_where=_OPEN,
        ),
        Index(
            "action_enforcing",
            "node",
            "port",
            unique=True,
            sqlite_where=_OPEN_ENFORCING,
            postgresql_where=_OPEN_ENFORCING,
        ),
        Index("action_ended", "ended_at"),
        {"sqlite_autoincrement": True},
    )
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(64), unique=True)
    policy: Mapped[str] = mapped_column(String(256))
    policy_version: Mapped[str] = mapped_column(String(16))
    node: Mapped[str] = mapped_column(String(256))
    port: Mapped[str] = mapped_column(String(256))
    tenant: Mapped[str] = mapped_column(String(256))
    level: Mapped[str] = mapped_column(String(4))
    state: Mapped[State]
    term: Mapped[int] = mapped_column(default=0)  # of the leader that decided
    guard: Mapped[str | None] = mapped_column(String(32))
    reason: Mapped[str] = mapped_column(Text, default="")
    cause: Mapped[str | None] = mapped_column(String(16))
    revert_by: Mapped[str | None] = mapped_column(String(256))
    approved_by: Mapped[str | None] = mapped_column(String(256))
    wanted_level: Mapped[str | None] = mapped_column(String(4))  # a person asked for this step
    extend_until: Mapped[datetime | None]  # a person asked to keep the limit until then
    relapses: Mapped[int] = mapped_column(
        default=0
    )  # times that the flood came back when the limit was relaxed
    needs_evidence: Mapped[bool] = mapped_column(default=False)
    params: Mapped[dict[str, Any]]  # ttl, hold, probe, offered_below, cooldown as decided
    rate: Mapped[int | None]  # bytes per second
    limit_wanted: Mapped[dict[str, Any] | None]  # what the enforcer is asked for, but for id, tenant and TTL
    evidence: Mapped[dict[str, Any] | None]
    limit_before: Mapped[dict[str, Any] | None]
    limit_after: Mapped[dict[str, Any] | None]
    extensions: Mapped[int] = mapped_column(default=0)
    reapplied: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    decided_at: Mapped[datetime | None]
    applied_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    approvals: Mapped[list[Approval]] = relationship(order_by="Approval.id", cascade="all, delete-orphan")
    reasons: Mapped[list[Reason]] = relationship(order_by="Reason.episode_id", cascade="all, delete-orphan")
    timeline: Mapped[list[TimelineEntry]] = relationship(
        order_by="TimelineEntry.at, TimelineEntry.id", cascade="all, delete-orphan"
    )

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes two actions the same: policy and target."""
        return self.policy, self.node, self.port, self.tenant

    @property
    def target(self) -> Target:
        """What the action is about."""
        return Target(self.node, self.port, self.tenant)


class Reason(Base):
    """An episode for which an action exists, and the policy that says so."""

    __tablename__ = "reason"
    action_seq: Mapped[int] = mapped_column(ForeignKey("action.seq", ondelete="CASCADE"), primary_key=True)
    episode_id: Mapped[int] = mapped_column(
        ForeignKey("episode.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    policy: Mapped[str] = mapped_column(String(256))
    episode: Mapped[Episode] = relationship()


class Approval(Base):
    """A person's verdict about an action that waited for one."""

    __tablename__ = "approval"
    id: Mapped[int] = mapped_column(primary_key=True)
    action_seq: Mapped[int] = mapped_column(ForeignKey("action.seq", ondelete="CASCADE"), index=True)
    who: Mapped[str] = mapped_column(String(256))
    verdict: Mapped[str] = mapped_column(String(16))  # approved, rejected
    comment: Mapped[str] = mapped_column(String(500))
    at: Mapped[datetime]


class TimelineEntry(Base):
    """Something that happened to an action, with its instant."""

    __tablename__ = "timeline"
    id: Mapped[int] = mapped_column(primary_key=True)
    action_seq: Mapped[int] = mapped_column(ForeignKey("action.seq", ondelete="CASCADE"), index=True)
    at: Mapped[datetime]
    event: Mapped[str] = mapped_column(String(32))
    detail: Mapped[dict[str, Any]]
