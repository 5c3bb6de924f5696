"""What became of a webhook message, as the API shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from isolation_agent.alerts.payload import Payload
from isolation_agent.storage.tables import QuarantinedAlert
from isolation_agent.web.answers import Answer, Instant

__all__ = ["Quarantine", "QuarantinedAnswer", "RefusedAnswer", "Stored"]


class RefusedAnswer(Answer):
    """An alert of the message that is refused; position counts from 0."""

    position: int
    field: str
    problem: str


class Stored(Answer):
    """How many alerts are on disk, and the first of those that are refused."""

    stored: int
    refused: list[RefusedAnswer]
    refused_total: int

    @classmethod
    def of(cls, payload: Payload) -> Self:
        """Return what was taken of a message."""
        return cls(
            stored=len(payload.alerts),
            refused=[RefusedAnswer.model_validate(alert) for alert in payload.refused],
            refused_total=payload.refused_total,
        )


class QuarantinedAnswer(RefusedAnswer):
    """A refused alert, which message it came in, and its beginning as JSON."""

    received_at: Instant
    peer: str
    message: str
    content: str


class Quarantine(Answer):
    """Alerts that were refused last, newest first."""

    alerts: list[QuarantinedAnswer]

    @classmethod
    def of(cls, rows: Sequence[QuarantinedAlert]) -> Self:
        """Return refused alerts that were kept."""
        return cls(alerts=[QuarantinedAnswer.model_validate(row) for row in rows])
