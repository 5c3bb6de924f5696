"""Idempotency keys: a write that is sent twice with the same key happens once and is answered alike."""

from __future__ import annotations

import hashlib
import logging
import re
from datetime import timedelta

from flask import Flask, Response, g, request

from isolation_agent.errors import StorageError
from isolation_agent.service.agent import Agent
from isolation_agent.storage.tables import StoredAnswer
from isolation_agent.web.auth import WRITERS, scope_of
from isolation_agent.web.bodies import read_small
from isolation_agent.web.errors import ApiError

__all__ = ["HEADER", "install"]

HEADER = "Idempotency-Key"

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_ABANDONED = timedelta(seconds=60)
_WRITES = frozenset({"POST", "PUT", "DELETE", "PATCH"})

_log = logging.getLogger(__name__)


def install(app: Flask, agent: Agent) -> None:
    """Remember the answers to writes that carry a key. Comes after authentication."""

    @app.before_request
    def look_up() -> Response | None:
        key = request.headers.get(HEADER)
        guarded = scope_of(app, request.endpoint) in WRITERS and request.method in _WRITES
        if key is None or not guarded:
            return None
        if not _KEY.fullmatch(key):
            raise ApiError(400, "bad_request", f"{HEADER}: write 1 to 255 printable characters", HEADER)
        body = read_small(request)
        wanted = hashlib.sha256(f"{request.method} {request.full_path}\n".encode() + body).hexdigest()
        found = _reserve(agent, key, wanted)
        if found is None:
            g.idempotency_key = key
            return None
        response = Response(found.body, found.status, mimetype="application/json")
        response.headers["Idempotency-Replayed"] = "true"
        return response

    @app.after_request
    def remember(response: Response) -> Response:
        key = g.pop("idempotency_key", None)
        if key is not None:
            _finish(agent, key, response)
        return response


def _reserve(agent: Agent, key: str, wanted: str) -> StoredAnswer | None:
    """Return the answer that is stored under the key, or take the key. Raises ApiError."""
    now = agent.clock.now()
    with agent.store.write() as session:
        row = session.get(StoredAnswer, (g.account.name, key))
        if row is not None and row.request != wanted:
            raise ApiError(
                422, "key_reused", f"{HEADER}: was used for another request; make a new one", HEADER
            )
        if row is not None and row.status:
            return row
        if row is not None and abs(now - row.created_at) < _ABANDONED:
            raise ApiError(
                409, "in_progress", f"{HEADER}: the first request is still being worked on", HEADER
            )
        if row is None:
            row = StoredAnswer(account=g.account.name, key=key, request=wanted, status=0, body=b"")
            session.add(row)
        row.created_at = now
    return None


def _finish(agent: Agent, key: str, response: Response) -> None:
    """Store the answer; one that says try again frees the key instead."""
    try:
        with agent.store.write() as session:
            row = session.get(StoredAnswer, (g.account.name, key))
            if row is None:
                return
            if response.status_code >= 500:
                session.delete(row)
            else:
                row.status, row.body = response.status_code, response.get_data()
    except StorageError as e:
        _log.error("cannot store an answer under its idempotency key", extra={"err": str(e)})
