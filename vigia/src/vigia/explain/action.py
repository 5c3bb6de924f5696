"""An isolation action in sentences: what happened, why, on what evidence, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vigia_text import numbers, terminal

__all__ = ["ACTION", "Action", "explain"]

ACTION = re.compile(r"#?[0-9]{1,9}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
"""What actions are called: by number or by id."""

_MAX_TEXT = 2000
_MOST_REASONS = 3
_BEFORE_LIMIT = ("kernel_detected", "alert_started")
_STATES = {
    "received": "is not decided yet",
    "suppressed": "was stopped by a guard",
    "observing": "is observed only: no limit is set",
    "pending_approval": "waits for a person's approval",
    "approved": "was approved, and is about to be set",
    "applying": "is being set",
    "active": "is in force",
    "stepped_up": "is in force, stepped up",
    "stepped_down": "is relaxed, on trial",
    "releasing": "is being removed",
    "reverted": "is over",
    "expired": "has expired",
    "failed": "has failed",
    "orphaned": "is of unknown origin",
}


class _Part(BaseModel):
    """Fields that a later version adds are left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True, str_max_length=_MAX_TEXT)


class _Limit(_Part):
    protocol: str
    rate_bytes_per_second: float
    policed_bytes: float = 0.0
    policed_packets: float = 0.0


class _Then(_Part):
    """What the enforcer saw when it was decided."""

    offered_bytes_per_second: float | None = None
    flood_score: float | None = None
    destination_ports: float | None = None
    reply_ratio: float | None = None


class _Reason(_Part):
    starts_at: datetime
    status: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Approval(_Part):
    who: str
    at: datetime
    verdict: str
    comment: str | None = None


class _Entry(_Part):
    at: datetime
    event: str
    detail: dict[str, Any] = {}


class Action(_Part):
    """As the isolation agent's API has it; docs/reference has the meaning of each field."""

    number: int
    id: str
    policy: str
    policy_version: str | None = None
    level: str
    state: str
    guard: str | None = None
    reason: str = ""
    cause: str | None = None
    node: str
    port: str
    tenant: str
    limit: _Limit | None = None
    limit_after: _Limit | None = None
    extensions: int = 0
    relapses: int = 0
    offered_bytes_per_second: float | None = None
    evidence_then: _Then | None = None
    approvals: tuple[_Approval, ...] = ()
    reasons: tuple[_Reason, ...] = ()
    reasons_total: int = 0
    timeline: tuple[_Entry, ...] = Field((), max_length=10_000)
    applied_at: datetime | None = None
    expires_at: datetime | None = None
    ended_at: datetime | None = None

    def first(self, *events: str) -> datetime | None:
        """Return when one of the events of the timeline happened first."""
        return min((e.at for e in self.timeline if e.event in events), default=None)


def explain(action: Action) -> list[str]:
    """Return what is known of an action, the headline first."""
    return [_headline(action), *_why(action), *_decision(action), *_effect(action), *_end(action)]


def _headline(a: Action) -> str:
    where = f"{_word(a.tenant)} at port {_word(a.port)} on {_word(a.node)}"
    if a.applied_at is None:
        return f"Action {a.number} against {where} {_STATES.get(a.state, _word(a.state))}."
    until = f"to {_clock(a.ended_at)}" if a.ended_at else "on"
    state = "" if a.ended_at else f" It {_STATES.get(a.state, _word(a.state))}."
    return f"Action {a.number} limited {where} from {_clock(a.applied_at, day=True)} {until}.{state}"


def _why(a: Action) -> Iterator[str]:
    seen, then = a.first("kernel_detected"), a.evidence_then
    if then is not None and then.flood_score is not None:
        when = f" at {_clock(seen)}" if seen else ""
        text = (
            f"Evidence: the kernel of {_word(a.node)} saw a flood{when}, score {then.flood_score:.0f} of 100"
        )
        if then.offered_bytes_per_second is not None:
            text += f", {numbers.quantity(then.offered_bytes_per_second, 'bytes_per_second')} of UDP"
        if then.destination_ports is not None:
            text += f" to {numbers.count(then.destination_ports)} ports"
        if then.reply_ratio is not None:
            text += f", {numbers.percent(then.reply_ratio)} of it answered"
        yield f"{text}."
    for reason in a.reasons[:_MOST_REASONS]:
        name = _word(reason.labels.get("alertname", "an alert"))
        said = _word(reason.annotations.get("description") or reason.annotations.get("summary", "")).rstrip(
            "."
        )
        state = "and has ended" if reason.status == "resolved" else "and still fires"
        yield f"Alert {name} began at {_clock(reason.starts_at)} {state}" + (f": {said}." if said else ".")
    more = max(a.reasons_total, len(a.reasons)) - _MOST_REASONS
    if more > 0:
        yield f"{more} more alerts asked for the same."


def _decision(a: Action) -> Iterator[str]:
    version = f" (version {_word(a.policy_version)})" if a.policy_version else ""
    decided = next((e for e in a.timeline if e.event == "decided"), None)
    if decided is not None:
        why = decided.detail.get("reason")
        text = f"Policy {_word(a.policy)}{version} chose level {_word(a.level)} at {_clock(decided.at)}"
        yield f"{text}: {_word(why)}." if isinstance(why, str) and why else f"{text}."
    if a.guard:
        yield f"The guard {_word(a.guard)} stopped it: {_word(a.reason)}."
    for vote in a.approvals:
        comment = f": {_word(vote.comment)}" if vote.comment else ""
        yield f"{_word(vote.who)} {_word(vote.verdict)} it at {_clock(vote.at)}{comment}."


def _effect(a: Action) -> Iterator[str]:
    verified = a.first("limit_verified")
    if verified is None:
        return
    limit = next(filter(None, (_applied(a), a.limit)), None)
    rate = f" of {numbers.quantity(limit.rate_bytes_per_second, 'bytes_per_second')}" if limit else ""
    began = a.first(*_BEFORE_LIMIT)
    after = f", {max(0.0, (verified - began).total_seconds()):.1f} s after it began" if began else ""
    yield f"The limit{rate} was read back from the kernel at {_clock(verified)}{after}."
    if a.limit_after is not None and a.limit_after.policed_packets:
        yield (
            f"It has dropped {numbers.quantity(a.limit_after.policed_bytes, 'bytes')} in "
            f"{numbers.count(a.limit_after.policed_packets)} packets of what the port sent."
        )
    if a.offered_bytes_per_second is not None and not a.ended_at:
        yield f"The port sends {numbers.quantity(a.offered_bytes_per_second, 'bytes_per_second')} of UDP now."


def _applied(a: Action) -> _Limit | None:
    """Return the limit that was set first; later ones are relaxed."""
    for entry in a.timeline:
        if entry.event == "limit_applied" and isinstance(entry.detail.get("limit"), Mapping):
            try:
                return _Limit.model_validate(entry.detail["limit"])
            except ValueError:
                return None
    return None


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _end(a: Action) -> Iterator[str]:
    if a.extensions:
        again = f"; the flood returned {_times(a.relapses)}" if a.relapses else ""
        yield f"The limit was renewed {_times(a.extensions)} while the evidence stayed{again}."
    if a.ended_at is not None and a.applied_at is not None:
        cause = f" ({_word(a.cause)})" if a.cause else ""
        why = f": {_word(a.reason)}" if a.reason else ""
        yield f"It ended at {_clock(a.ended_at)}{cause}{why}."
    elif a.ended_at is not None and not a.guard:
        why = _word(a.reason or a.cause or "no reason given")
        yield f"It ended at {_clock(a.ended_at)} without a limit: {why}."
    elif a.expires_at is not None:
        yield f"Without being renewed it expires at {_clock(a.expires_at)}."


def _clock(at: datetime, day: bool = False) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC" if day else "%H:%M:%S")


def _word(text: str) -> str:
    """Return text of the agent, or of an alert, for a line of a terminal."""
    return terminal.clean(text)
