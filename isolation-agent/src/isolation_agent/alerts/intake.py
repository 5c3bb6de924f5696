"""From the inbox to episodes and actions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from isolation_agent.alerts.claims import Claim, Claims
from isolation_agent.alerts.payload import (
    Alert,
    BadPayload,
    Payload,
    parse_payload,
    target_of,
)
from isolation_agent.clock import rfc3339
from isolation_agent.config import Settings
from isolation_agent.errors import AgentError
from isolation_agent.metrics import Metrics
from isolation_agent.model.target import Target
from isolation_agent.policy import Policy
from isolation_agent.storage import inbox
from isolation_agent.storage.actions import of_episodes
from isolation_agent.storage.episodes import with_fingerprints
from isolation_agent.storage.journal import Entry, Journal, about, add_entries
from isolation_agent.storage.store import Transaction
from isolation_agent.storage.tables import Episode, InboxMessage, QuarantinedAlert

__all__ = ["Intake"]

_log = logging.getLogger(__name__)

_BATCH = 500
"""Alerts to a transaction."""

_TOGETHER = 1 << 20
"""Bytes of small messages that are handled in one transaction."""

_MAX_ATTEMPTS = 3
_ANY_NUMBER = 1 << 30

_PROBLEMS = 10
"""Refused alerts of a message that its audit record names."""

Records = list[dict[str, Any]]
Arrival = tuple[Alert, InboxMessage]
"""An alert and the message that it came in."""


class Intake:
    """Takes stored webhook messages, oldest first."""

    def __init__(self, journal: Journal, metrics: Metrics) -> None:
        self._journal = journal
        self._metrics = metrics

    def drain(self, settings: Settings, messages: int = 500) -> int:
        """Handle up to so many messages; returns how many were taken from the inbox."""
        taken = 0
        while taken < messages:
            batch = self._next(min(_BATCH, messages - taken))
            if not batch:
                break
            if len(batch) == 1 or not self._together(batch, settings):
                for message in batch:
                    self._handle(message, settings)
            taken += len(batch)
        return taken

    def _next(self, most: int) -> Sequence[InboxMessage]:
        """Return the oldest messages: one, or more if they are small."""
        with self._journal.store.read() as session:
            return inbox.oldest(session, most, _TOGETHER)

    def _together(self, messages: Sequence[InboxMessage], settings: Settings) -> bool:
        """Handle messages in one transaction; False, and nothing is done, if that cannot be."""
        parsed = [(m, self._parse(m)) for m in messages]
        arrivals = [(alert, m) for m, payload in parsed for alert in payload.alerts]
        if len(arrivals) > _BATCH:
            return False
        refused = [(m, payload) for m, payload in parsed if payload.refused]
        return self._stored(arrivals, _Done(messages, refused), settings)

    def _handle(self, message: InboxMessage, settings: Settings) -> None:
        """Handle one message; one that cannot be handled is put aside, so that it blocks nothing."""
        try:
            payload = self._parse(message)
            if payload.truncated:
                _log.warning("Alertmanager truncated a message", extra={"alerts": payload.truncated})
            self._take(payload, message, settings)
            return
        except AgentError:
            raise
        except Exception:
            _log.exception("cannot put a message aside", extra={"sha256": message.sha256})
        with self._journal.writer.write() as session:
            row = session.get_one(InboxMessage, message.id)
            row.attempts += 1
            if row.attempts < _MAX_ATTEMPTS:
                return
            self._journal.note("inbox.dropped", "agent", sha256=row.sha256, bytes=row.size)
            session.delete(row)

    @staticmethod
    def _parse(message: InboxMessage) -> Payload:
        """Read a message. One that cannot be read any more is refused as a whole, for people to look at."""
        try:
            return parse_payload(message.body, _ANY_NUMBER, message.received_at)
        except Exception as e:
            _log.exception("cannot read a message", extra={"sha256": message.sha256})
            return Payload.unreadable(message.body, f"the message cannot be read: {_why(e)}")

    def _take(self, payload: Payload, message: InboxMessage, settings: Settings) -> None:
        """Store the alerts in batches; the message leaves the inbox with what was refused of it."""
        arrivals = [(alert, message) for alert in payload.alerts]
        refused = [(message, payload)] if payload.refused else []
        if len(arrivals) <= _BATCH and self._stored(arrivals, _Done([message], refused), settings):
            return
        unusable: dict[int, str] = {}
        for start in range(0, len(arrivals), _BATCH):
            self._salvage(arrivals, range(start, min(start + _BATCH, len(arrivals))), unusable, settings)
        whole = payload.refusing(unusable)
        self._store([], _Done([message], [(message, whole)] if whole.refused else []), settings)

    def _salvage(
        self, arrivals: Sequence[Arrival], part: range, unusable: dict[int, str], settings: Settings
    ) -> None:
        """Store what can be stored of a part, and note what cannot be, which costs the others nothing."""
        try:
            self._store(arrivals[part.start : part.stop], _Done([], []), settings)
            return
        except AgentError:
            raise
        except Exception as e:
            if len(part) == 1:
                _log.exception("cannot handle an alert", extra={"sha256": arrivals[part.start][1].sha256})
                unusable[part.start] = f"the alert cannot be handled: {_why(e)}"
                return
        for half in (part[: len(part) // 2], part[len(part) // 2 :]):
            self._salvage(arrivals, half, unusable, settings)

    def _stored(self, arrivals: Sequence[Arrival], done: _Done, settings: Settings) -> bool:
        """Store alerts; False, and nothing is done, if that cannot be."""
        try:
            self._store(arrivals, done, settings)
        except AgentError:
            raise
        except Exception:  # whichever it was: one by one it will show
            _log.debug("alerts cannot be handled together", exc_info=True)
            return False
        return True

    def _store(self, arrivals: Sequence[Arrival], done: _Done, settings: Settings) -> None:
        """Store alerts, and take the messages that are done from the inbox, in one transaction."""
        with self._journal.writer.write() as session:
            work = _Batch(session, settings, self._journal)
            outcomes = work.take(arrivals)
            for message, payload in done.refused:
                work.quarantine(message, payload)
            if work.records:
                self._journal.audit.append(*work.records)
            inbox.remove(session, done.messages)
        for (alert, _), outcome in zip(arrivals, outcomes, strict=True):
            self._metrics.alerts.labels(alert.status, outcome).inc()
        self._metrics.quarantined.inc(sum(payload.refused_total for _, payload in done.refused))


@dataclass(frozen=True)
class _Done:
    """What leaves the inbox with a transaction."""

    messages: Sequence[InboxMessage]
    refused: Sequence[tuple[InboxMessage, Payload]]
    """messages that have alerts which were refused"""


class _Batch:
    """One transaction over some alerts of one or more messages."""

    def __init__(self, session: Transaction, settings: Settings, journal: Journal) -> None:
        self.records: Records = []
        self._session = session
        self._settings = settings
        self._now = journal.clock.now()
        self._known: dict[tuple[str, object], Episode] = {}
        self._claims: list[tuple[Claim, Arrival]] = []
        self._resolved: list[tuple[Episode, InboxMessage]] = []

    def take(self, arrivals: Sequence[Arrival]) -> list[str]:
        """Store the alerts; returns what became of each."""
        fingerprints = {a.fingerprint for a, _ in arrivals}
        rows = with_fingerprints(self._session, fingerprints)
        self._known = {(e.fingerprint, e.starts_at): e for e in rows}
        outcomes = [self._one(arrival) for arrival in arrivals]
        self._session.flush()
        claims = [(claim, _entries(claim.episode, message)) for claim, (_, message) in self._claims]
        taken = Claims(self._session, self._settings).take(claims)
        for (claim, arrival), (action, made) in zip(self._claims, taken, strict=True):
            if made:
                self.records.append(about(action, "action.received", "controller"))
            reason = f"falls under policy {claim.policy.name}"
            self._record("alert.accepted", arrival, reason, action=action.id)
        self._session.flush()
        self._note_resolved()
        return outcomes

    def quarantine(self, message: InboxMessage, payload: Payload) -> None:
        """Keep what was refused of a message, for people to look at."""
        self._session.add_all(
            QuarantinedAlert(
                received_at=message.received_at,
                peer=message.peer,
                message=message.sha256,
                position=alert.position,
                field=alert.field,
                problem=alert.problem,
                content=alert.content,
            )
            for alert in payload.refused
        )
        self.records.append(
            {
                "event": "alert.quarantined",
                "actor": f"alertmanager@{message.peer}",
                "message": message.sha256,
                "count": payload.refused_total,
                "problems": [alert.problem for alert in payload.refused[:_PROBLEMS]],
            }
        )

    def _one(self, arrival: Arrival) -> str:
        alert = arrival[0]
        policy = self._settings.policies.find(alert.labels)
        if policy is None and self._settings.policies.shows_harm(alert.labels):
            return self._note_harm(arrival)
        if policy is None or alert.labels.get("isolate") == "never":
            return "ignored"
        try:
            target = target_of(alert.labels)
            if target.node not in self._settings.host_tokens:
                raise BadPayload(f"no enforcer is configured for node {target.node}", "labels.node")
        except BadPayload as e:
            self._record("alert.rejected", arrival, str(e))
            return "rejected"
        episode = self._known.get((alert.fingerprint, alert.started))
        if episode is None:
            return self._first(arrival, policy, target)
        return self._again(arrival, episode)

    def _note_harm(self, arrival: Arrival) -> str:
        """Store an alert that asks for nothing by itself, but shows that others are harmed."""
        alert = arrival[0]
        episode = self._known.get((alert.fingerprint, alert.started))
        if episode is not None:
            return self._again(arrival, episode)
        self._add(arrival)
        return "accepted"

    def _add(self, arrival: Arrival) -> Episode:
        alert, message = arrival
        episode = Episode(
            fingerprint=alert.fingerprint,
            starts_at=alert.started,
            status=alert.status,
            labels=alert.labels,
            annotations=alert.annotations,
            received_at=message.received_at,
            last_seen=message.received_at,
            ends_at=alert.ended,
            dismissed=False,
        )
        self._session.add(episode)
        self._known[(alert.fingerprint, alert.started)] = episode
        return episode

    def _first(self, arrival: Arrival, policy: Policy, target: Target) -> str:
        alert = arrival[0]
        episode = self._add(arrival)
        if alert.status == "resolved":
            self._record("alert.accepted", arrival, "resolved before it was seen firing; nothing to do")
            return "accepted"
        age = abs(self._now - alert.started)
        if age > timedelta(seconds=self._settings.config.controller.max_alert_age):
            self._record("alert.stale", arrival, "too old to act upon without evidence at the source")
            return "ignored"
        self._claims.append((Claim(policy, target, episode, episode.received_at), arrival))
        return "accepted"

    def _again(self, arrival: Arrival, episode: Episode) -> str:
        alert, message = arrival
        episode.last_seen = max(episode.last_seen, message.received_at)
        if alert.status == episode.status:
            return "duplicate"
        episode.status = alert.status
        episode.ends_at = alert.ended
        if alert.status == "firing":
            self._record("alert.refired", arrival, "fires again; acted upon only with evidence at the source")
        else:
            self._record("alert.resolved", arrival, "a hint; a limit is released on evidence at the source")
            self._resolved.append((episode, message))
        return "accepted"

    def _note_resolved(self) -> None:
        """Put the end of alerts into the timelines of their actions, one line per action."""
        if not self._resolved:
            return
        at = max(message.received_at for _, message in self._resolved)
        found = of_episodes(self._session, [e.id for e, _ in self._resolved])
        add_entries(
            self._session,
            *((action, [Entry("alert_resolved", at, {"alerts": alerts})]) for action, alerts in found),
        )

    def _record(self, event: str, arrival: Arrival, reason: str, **extra: str) -> None:
        alert, message = arrival
        self.records.append(
            {
                "event": event,
                "actor": f"alertmanager@{message.peer}",
                "alertname": alert.labels.get("alertname", ""),
                "fingerprint": alert.fingerprint,
                "starts_at": rfc3339(alert.started),
                "message": message.sha256,
                "reason": reason,
                **extra,
            }
        )


def _entries(episode: Episode, message: InboxMessage) -> list[Entry]:
    named = {"alertname": episode.labels["alertname"], "fingerprint": episode.fingerprint}
    return [
        Entry("alert_started", episode.starts_at, named),
        Entry("webhook_received", episode.received_at, {"peer": message.peer}),
    ]


def _why(e: Exception) -> str:
    """Say what went wrong, in a line that any database can store."""
    return (
        f"{type(e).__name__}: {e}".encode("ascii", "backslashreplace").decode("ascii").replace("\0", "")[:200]
    )
