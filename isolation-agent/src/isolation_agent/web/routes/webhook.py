"""Alertmanager's webhook: nothing is acknowledged that is not on disk."""

from __future__ import annotations

import hashlib
from typing import Any

from flask import Blueprint, Response, request

from isolation_agent.alerts.payload import BadPayload, TooManyAlerts, parse_payload
from isolation_agent.storage.inbox import InboxFull
from isolation_agent.storage.tables import InboxMessage
from isolation_agent.web.answers.alerts import Stored
from isolation_agent.web.auth import WEBHOOK, needs, peer
from isolation_agent.web.bodies import read_body
from isolation_agent.web.context import the_agent
from isolation_agent.web.errors import ApiError
from isolation_agent.web.openapi import documented
from isolation_agent.web.reply import reply

__all__ = ["PATH", "blueprint"]

blueprint = Blueprint("webhook", __name__)

PATH = "/v1/webhook/alertmanager"


@blueprint.post(PATH)
@needs(WEBHOOK)
@documented(body=dict[str, Any], answer=Stored, also=(202,))
def alertmanager() -> Response:
    """Store a message durably, then answer 200, or 202 if some of its alerts are refused.

    Only 5xx makes Alertmanager try again.
    """
    agent = the_agent()
    limits = agent.settings.config.limits
    body = read_body(request, limits.body_bytes)
    now = agent.clock.now()
    try:
        payload = parse_payload(body, limits.alerts, now)
    except TooManyAlerts as e:
        raise ApiError(413, "too_large", str(e), e.field) from e
    except BadPayload as e:
        raise ApiError(400, "bad_payload", str(e), e.field) from e
    message = InboxMessage(
        received_at=now,
        peer=peer()[:64],
        sha256=hashlib.sha256(body).hexdigest(),
        size=len(body),
        body=body,
    )
    try:
        agent.inbox.receive(message, limits.inbox_messages, limits.inbox_bytes)
    except InboxFull as e:
        raise ApiError(503, "inbox_full", f"{e}; try again") from e
    agent.notify()
    return reply(Stored.of(payload), 202 if payload.refused else 200)


@blueprint.after_request
def count(response: Response) -> Response:
    """Count the answers by status."""
    agent = the_agent()
    agent.metrics.webhook_requests.labels(str(response.status_code)).inc()
    return response
