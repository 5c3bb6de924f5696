"""Who may call what. A route without a declared scope is closed to everyone."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from flask import Flask, current_app, g, request

from isolation_agent.agent import Agent
from isolation_agent.clock import Clock
from isolation_agent.errors import AuditError
from isolation_agent.journal import Journal
from isolation_agent.web.errors import ApiError

__all__ = ["API", "OPEN", "OPEN_ENDPOINTS", "WEBHOOK", "actor", "install", "needs", "peer", "scope_of"]

OPEN, WEBHOOK, API = "open", "webhook", "api"

OPEN_ENDPOINTS = frozenset({"ops.healthy", "ops.ready", "ops.metrics"})
"""Routes that need no token: supervisors and Prometheus ask them, and they show no tenant's data."""

_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/=-]+)", re.IGNORECASE)
_QUIET = 10.0

_log = logging.getLogger(__name__)

View = TypeVar("View", bound=Callable[..., Any])


def needs(scope: str) -> Callable[[View], View]:
    """Declare who may call a route: the webhook token, the API token, or everybody."""

    def mark(view: View) -> View:
        view.scope = scope  # type: ignore[attr-defined]
        return view

    return mark


def scope_of(app: Flask, endpoint: str | None) -> str | None:
    """Return the declared scope of an endpoint."""
    return getattr(app.view_functions.get(endpoint or ""), "scope", None)


def peer() -> str:
    """Return the client's address."""
    return request.remote_addr or "unknown"


def actor() -> str:
    """Return who makes the request, for the audit log."""
    return f"{g.scope}@{peer()}"


def install(app: Flask, agent: Agent) -> None:
    """Check every request before its route runs and before its body is read."""
    refusals = _Refusals(agent.journal, agent.clock)

    @app.before_request
    def authenticate() -> None:
        if request.endpoint is None:
            return  # no such route: nothing to protect, answered 404 or 405
        scope = scope_of(current_app, request.endpoint)
        if scope == OPEN and request.endpoint in OPEN_ENDPOINTS:
            return
        held = _scope_held(agent)
        if held is not None and held == scope:
            g.scope = held
            return
        refusals.record(request.endpoint, peer(), known=held is not None)
        if held is None:
            raise ApiError(401, "unauthorized", "a valid bearer token is needed")
        raise ApiError(403, "forbidden", "this token is for another purpose")


def _scope_held(agent: Agent) -> str | None:
    """Return what the presented token is for. Both tokens are compared, whichever fits."""
    match = _BEARER.fullmatch(request.headers.get("Authorization", ""))
    presented = match[1] if match else ""
    api, webhook = (
        agent.settings.api_token.matches(presented),
        agent.settings.webhook_token.matches(presented),
    )
    return API if api else WEBHOOK if webhook else None


class _Refusals:
    """Puts refused requests on record, at most one line in ten seconds so that nobody can fill the disk."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._lock = threading.Lock()
        self._next = 0.0
        self._unreported = 0

    def record(self, endpoint: str, address: str, *, known: bool) -> None:
        with self._lock:
            self._unreported += 1
            if self._clock.monotonic() < self._next:
                return
            self._next = self._clock.monotonic() + _QUIET
            count, self._unreported = self._unreported, 0
        reason = "token for another purpose" if known else "no valid token"
        _log.warning("request refused", extra={"endpoint": endpoint, "peer": address, "reason": reason})
        try:
            self._journal.note(
                "request.refused", f"unknown@{address}", endpoint=endpoint, reason=reason, count=count
            )
        except AuditError as e:
            _log.error("refusal not recorded", extra={"err": str(e)})
