"""From the inbox to episodes and actions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from isolation_agent.alerts import Alert, BadPayload, Target, parse_payload, target_of
from isolation_agent.claims import Claim, Claims
from isolation_agent.clock import rfc3339
from isolation_agent.config import Settings
from isolation_agent.errors import AgentError
from isolation_agent.journal import Entry, Journal, about, add_entries
from isolation_agent.metrics import Metrics
from isolation_agent.model import Action, Episode, InboxMessage, Reason
from isolation_agent.policy import Policy

__all__ = ["Intake"]

_log = logging.getLogger(__name__)

_BATCH = 500
_MAX_ATTEMPTS = 3
_ANY_NUMBER = 1 << 30

Records = list[dict[str, Any]]


class Intake:
    """Takes stored webhook messages, oldest first."""

    def __init__(self, journal: Journal, metrics: Metrics) -> None:
        self._journal = journal
        self._metrics = metrics

    def drain(self, settings: Settings, messages: int = 200) -> int:
        """Handle up to so many messages; returns how many were taken from the inbox."""
        taken = 0
        while taken < messages:
            with self._journal.store.read() as session:
                message = session.scalar(select(InboxMessage).order_by(InboxMessage.id).limit(1))
            if message is None:
                break
            self._handle(message, settings)
            taken += 1
        return taken

    def _handle(self, message: InboxMessage, settings: Settings) -> None:
        """Handle one message; one that cannot be handled is put aside, so that it blocks nothing."""
        try:
            payload = parse_payload(message.body, _ANY_NUMBER)
            if payload.truncated:
                _log.warning("Alertmanager truncated a message", extra={"alerts": payload.truncated})
            self._take(payload.alerts, message, settings)
            return
        except AgentError:
            raise
        except Exception:
            _log.exception("message cannot be handled", extra={"sha256": message.sha256})
        with self._journal.writer.write() as session:
            row = session.get_one(InboxMessage, message.id)
            row.attempts += 1
            if row.attempts < _MAX_ATTEMPTS:
                return
            self._journal.note("inbox.dropped", "agent", sha256=row.sha256, bytes=row.size)
            session.delete(row)

    def _take(self, alerts: Sequence[Alert], message: InboxMessage, settings: Settings) -> None:
        """Store the alerts in batches; the message leaves the inbox with the last one."""
        batches: list[Sequence[Alert]] = list(_batches(alerts)) or [()]
        for number, batch in enumerate(batches, start=1):
            with self._journal.writer.write() as session:
                work = _Batch(session, message, settings, self._journal)
                outcomes = work.take(batch)
                if work.records:
                    self._journal.audit.append(*work.records)
                if number == len(batches):
                    session.delete(session.get_one(InboxMessage, message.id))
            for alert, outcome in zip(batch, outcomes, strict=True):
                self._metrics.alerts.labels(alert.status, outcome).inc()


class _Batch:
    """One transaction over some alerts of a message."""

    def __init__(self, session: Session, message: InboxMessage, settings: Settings, journal: Journal) -> None:
        self.records: Records = []
        self._session = session
        self._message = message
        self._settings = settings
        self._now = journal.clock.now()
        self._known: dict[tuple[str, object], Episode] = {}
        self._claims: list[tuple[Claim, Alert]] = []
        self._resolved: list[Episode] = []

    def take(self, alerts: Sequence[Alert]) -> list[str]:
        """Store the alerts; returns what became of each."""
        fingerprints = {a.fingerprint for a in alerts}
        rows = self._session.scalars(select(Episode).where(Episode.fingerprint.in_(fingerprints)))
        self._known = {(e.fingerprint, e.starts_at): e for e in rows}
        outcomes = [self._one(alert) for alert in alerts]
        self._session.flush()
        claims = Claims(self._session, self._settings)
        for claim, alert in self._claims:
            action, made = claims.take(claim, self._entries(claim.episode))
            if made:
                self.records.append(about(action, "action.received", "controller"))
            reason = f"falls under policy {claim.policy.name}"
            self._record("alert.accepted", alert, reason, action=action.id)
        self._session.flush()
        self._note_resolved()
        return outcomes

    def _one(self, alert: Alert) -> str:
        policy = self._settings.policies.find(alert.labels)
        if policy is None and self._settings.policies.shows_harm(alert.labels):
            return self._note_harm(alert)
        if policy is None or alert.labels.get("isolate") == "never":
            return "ignored"
        try:
            target = target_of(alert.labels)
            if target.node not in self._settings.host_tokens:
                raise BadPayload(f"no enforcer is configured for node {target.node}", "labels.node")
        except BadPayload as e:
            self._record("alert.rejected", alert, str(e))
            return "rejected"
        episode = self._known.get((alert.fingerprint, alert.started))
        if episode is None:
            return self._first(alert, policy, target)
        return self._again(alert, episode)

    def _note_harm(self, alert: Alert) -> str:
        """Store an alert that asks for nothing by itself, but shows that others are harmed."""
        episode = self._known.get((alert.fingerprint, alert.started))
        if episode is not None:
            return self._again(alert, episode)
        self._add(alert)
        return "accepted"

    def _add(self, alert: Alert) -> Episode:
        episode = Episode(
            fingerprint=alert.fingerprint,
            starts_at=alert.started,
            status=alert.status,
            labels=alert.labels,
            annotations=alert.annotations,
            received_at=self._message.received_at,
            last_seen=self._message.received_at,
            ends_at=alert.ended,
            dismissed=False,
        )
        self._session.add(episode)
        self._known[(alert.fingerprint, alert.started)] = episode
        return episode

    def _first(self, alert: Alert, policy: Policy, target: Target) -> str:
        episode = self._add(alert)
        if alert.status == "resolved":
            self._record("alert.accepted", alert, "resolved before it was seen firing; nothing to do")
            return "accepted"
        age = abs(self._now - alert.started)
        if age > timedelta(seconds=self._settings.config.controller.max_alert_age):
            self._record("alert.stale", alert, "too old to act upon without evidence at the source")
            return "ignored"
        self._claims.append((Claim(policy, target, episode, episode.received_at), alert))
        return "accepted"

    def _again(self, alert: Alert, episode: Episode) -> str:
        episode.last_seen = max(episode.last_seen, self._message.received_at)
        if alert.status == episode.status:
            return "duplicate"
        episode.status = alert.status
        episode.ends_at = alert.ended
        if alert.status == "firing":
            self._record("alert.refired", alert, "fires again; acted upon only with evidence at the source")
        else:
            self._record("alert.resolved", alert, "a hint; a limit is released on evidence at the source")
            self._resolved.append(episode)
        return "accepted"

    def _note_resolved(self) -> None:
        """Put the end of alerts into the timelines of their actions, one line per action."""
        count = func.count(Reason.episode_id)
        found = self._session.execute(
            select(Action, count)
            .join(Reason)
            .where(Reason.episode_id.in_([e.id for e in self._resolved]), Action.ended_at.is_(None))
            .group_by(Action.seq)
        ).all()
        for action, alerts in found:
            add_entries(
                self._session,
                action,
                [Entry("alert_resolved", self._message.received_at, {"alerts": alerts})],
            )

    def _entries(self, episode: Episode) -> list[Entry]:
        named = {"alertname": episode.labels["alertname"], "fingerprint": episode.fingerprint}
        return [
            Entry("alert_started", episode.starts_at, named),
            Entry("webhook_received", episode.received_at, {"peer": self._message.peer}),
        ]

    def _record(self, event: str, alert: Alert, reason: str, **extra: str) -> None:
        self.records.append(
            {
                "event": event,
                "actor": f"alertmanager@{self._message.peer}",
                "alertname": alert.labels.get("alertname", ""),
                "fingerprint": alert.fingerprint,
                "starts_at": rfc3339(alert.started),
                "message": self._message.sha256,
                "reason": reason,
                **extra,
            }
        )


def _batches(alerts: Sequence[Alert]) -> Iterator[Sequence[Alert]]:
    rest = iter(alerts)
    while batch := list(islice(rest, _BATCH)):
        yield batch
