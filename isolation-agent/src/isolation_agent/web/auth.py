"""Who may call what. A route without a declared scope is closed to everyone."""

from __future__ import annotations

import hmac
import logging
import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from flask import Flask, current_app, g, request

from isolation_agent.clock import Clock
from isolation_agent.config import Account
from isolation_agent.errors import AuditError
from isolation_agent.service.agent import Agent
from isolation_agent.storage.journal import Journal
from isolation_agent.storage.sessions import OpenSession, Sessions
from isolation_agent.web.backoff import Backoff
from isolation_agent.web.errors import ApiError

__all__ = [
    "ADMIN",
    "APPROVER",
    "COOKIE",
    "OPEN",
    "OPEN_ENDPOINTS",
    "OPERATOR",
    "SELF",
    "TENANT",
    "VIEWER",
    "WEBHOOK",
    "WRITERS",
    "actor",
    "count_wrong_token",
    "install",
    "needs",
    "peer",
    "same_origin",
    "scope_of",
]

OPEN, WEBHOOK, TENANT, SELF = "open", "webhook", "tenant", "self"
VIEWER, APPROVER, OPERATOR, ADMIN = "viewer", "approver", "operator", "admin"

WRITERS = (APPROVER, OPERATOR, ADMIN)
"""Scopes of what changes something on a person's order."""

COOKIE = "vigia_session"

OPEN_ENDPOINTS = frozenset(
    {
        "ops.healthy",
        "ops.ready",
        "ops.metrics",
        "console.page",
        "console.asset",
        "session.login",
    }
)
"""Routes without authentication: what supervisors and Prometheus ask, the console's files, which hold no
tenant's data, and the way in."""

_RANK = {VIEWER: 1, APPROVER: 2, OPERATOR: 3, ADMIN: 4}
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/=-]+)", re.IGNORECASE)
_QUIET = 10.0

_log = logging.getLogger(__name__)

View = TypeVar("View", bound=Callable[..., Any])


def needs(scope: str) -> Callable[[View], View]:
    """Declare who may call a route: the webhook token, a role and those above it, a tenant, or everybody."""

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
    return f"{g.account.name}@{peer()}"


def count_wrong_token() -> None:
    """Count a wrong token of the client. Raises ApiError 429 where it has shown several lately."""
    wait = current_app.extensions["backoff"].wrong(peer())
    if wait > 0:
        many = f"too many wrong tokens from {peer()}; wait {wait:.0f}s"
        raise ApiError(429, "too_many", many, retry_after=wait)


def same_origin() -> bool:
    """Tell whether the browser says that the request comes from a page of ours; tools say nothing."""
    return request.headers.get("Sec-Fetch-Site", "same-origin") in ("same-origin", "none")


def allowed(scope: str | None, account: Account | None, *, webhook: bool) -> bool:
    """Tell whether a scope admits who asks."""
    if scope == WEBHOOK:
        return webhook
    if account is None:
        return False
    if scope == SELF:
        return True
    if scope == TENANT:
        return account.role == TENANT
    return _RANK.get(account.role, 0) >= _RANK.get(scope or "", 99)


def install(app: Flask, agent: Agent) -> None:
    """Check every request before its route runs and before its body is read."""
    refusals = _Refusals(agent.journal, agent.clock)
    sessions = Sessions(agent.store, agent.clock)
    app.extensions["sessions"], app.extensions["refusals"] = sessions, refusals
    app.extensions["backoff"] = Backoff(agent.clock)

    @app.before_request
    def authenticate() -> None:
        if request.endpoint is None:
            return  # no such route: nothing to protect, answered 404 or 405
        scope = scope_of(current_app, request.endpoint)
        if scope == OPEN and request.endpoint in OPEN_ENDPOINTS:
            return
        account, webhook, opened = _who(agent, sessions)
        if allowed(scope, account, webhook=webhook):
            if opened is not None:
                _refuse_forgery(opened)
            g.account, g.session = account, opened
            return
        known = account is not None or webhook
        refusals.record(request.endpoint, peer(), known=known)
        if not known:
            if "Authorization" in request.headers:
                count_wrong_token()
            raise ApiError(401, "unauthorized", "a valid bearer token or session is needed")
        raise ApiError(403, "forbidden", _denial(scope, account))


def _denial(scope: str | None, account: Account | None) -> str:
    if account is None or scope == WEBHOOK:
        return "this token is for another purpose"
    return f"{account.name} has the role {account.role}; this needs {scope}"


def _who(agent: Agent, sessions: Sessions) -> tuple[Account | None, bool, OpenSession | None]:
    """Return whose token or session the request carries. All tokens are compared, whichever fits."""
    header = request.headers.get("Authorization")
    if header is None:
        opened = sessions.find(request.cookies.get(COOKIE, ""), agent.settings.accounts)
        return (opened.account if opened else None), False, opened
    match = _BEARER.fullmatch(header)
    presented = match[1] if match else ""
    fits = [a for a in agent.settings.accounts if a.token.matches(presented)]
    return (fits[0] if fits else None), agent.settings.webhook_token.matches(presented), None


def _refuse_forgery(opened: OpenSession) -> None:
    """A browser sends the cookie along with requests of any page; only ours knows the token beside it."""
    if request.method in _SAFE:
        return
    given = request.headers.get("X-CSRF-Token", "")
    if not same_origin() or not hmac.compare_digest(given.encode(), opened.csrf.encode()):
        raise ApiError(403, "forgery", "the header X-CSRF-Token is missing or is not this session's")


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
        reason = "not allowed to" if known else "no valid token"
        _log.warning("request refused", extra={"endpoint": endpoint, "peer": address, "reason": reason})
        try:
            self._journal.note(
                "request.refused", f"unknown@{address}", endpoint=endpoint, reason=reason, count=count
            )
        except AuditError as e:
            _log.error("cannot record a refused request", extra={"err": str(e)})
