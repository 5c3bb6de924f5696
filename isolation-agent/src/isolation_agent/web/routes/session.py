"""Signing in to the console, and signing out."""

from __future__ import annotations

from flask import Blueprint, Response, current_app, g, request
from pydantic import BaseModel, ConfigDict, Field

from isolation_agent.config import Account
from isolation_agent.storage.sessions import OpenSession, Sessions
from isolation_agent.web.answers import Answer, Instant
from isolation_agent.web.auth import COOKIE, OPEN, SELF, count_wrong_token, needs, peer, same_origin
from isolation_agent.web.bodies import read_model
from isolation_agent.web.context import the_agent
from isolation_agent.web.errors import ApiError
from isolation_agent.web.openapi import documented
from isolation_agent.web.reply import reply

__all__ = ["blueprint"]

blueprint = Blueprint("session", __name__)


class Login(BaseModel):
    """A token of an account."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(min_length=1, max_length=512)


class Caller(Answer):
    """Who the caller is; csrf and expires_at only within a session."""

    name: str
    role: str
    tenant: str | None
    csrf: str | None
    expires_at: Instant | None


@blueprint.post("/v1/session")
@needs(OPEN)
@documented(body=Login, answer=Caller, status=201)
def login() -> Response:
    """Open a session with a token. The answer sets the cookie that carries it."""
    agent = the_agent()
    sessions: Sessions = current_app.extensions["sessions"]
    if not same_origin() or not request.is_json:
        raise ApiError(403, "forgery", "a session is opened from the console's own page, with a JSON body")
    token = read_model(request, Login).token
    fits = [a for a in agent.settings.accounts if a.token.matches(token)]
    if not fits:
        current_app.extensions["refusals"].record("session.login", peer(), known=False)
        count_wrong_token()
        raise ApiError(401, "unauthorized", "this is not the token of any account")
    opened = sessions.open(fits[0], agent.settings.config.auth.session)
    agent.journal.note("session.opened", f"{fits[0].name}@{peer()}")
    response = reply(_self(fits[0], opened), 201)
    response.set_cookie(
        COOKIE,
        opened.cookie,
        max_age=int(agent.settings.config.auth.session),
        httponly=True,
        samesite="Strict",
        secure=request.is_secure or request.headers.get("X-Forwarded-Proto") == "https",
    )
    return response


@blueprint.get("/v1/session")
@needs(SELF)
@documented(answer=Caller)
def show() -> Response:
    """Tell who the caller is."""
    return reply(_self(g.account, g.session))


@blueprint.delete("/v1/session")
@needs(SELF)
@documented(answer=Caller)
def logout() -> Response:
    """End the session; with a token there is none to end."""
    agent = the_agent()
    sessions: Sessions = current_app.extensions["sessions"]
    if g.session is not None:
        sessions.close(g.session.cookie)
        agent.journal.note("session.closed", f"{g.account.name}@{peer()}")
    response = reply(_self(g.account, None))
    response.delete_cookie(COOKIE, httponly=True, samesite="Strict")
    return response


def _self(account: Account, opened: OpenSession | None) -> Caller:
    return Caller(
        name=account.name,
        role=account.role,
        tenant=account.tenant,
        csrf=opened.csrf if opened else None,
        expires_at=opened.expires_at if opened else None,
    )
