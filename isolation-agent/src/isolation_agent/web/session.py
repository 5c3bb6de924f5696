"""The console's way in and out."""

from __future__ import annotations

from flask import Blueprint, Response, current_app, g, jsonify, request
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from isolation_agent.agent import Agent
from isolation_agent.clock import rfc3339
from isolation_agent.config import Account
from isolation_agent.sessions import OpenSession, Sessions
from isolation_agent.web.auth import COOKIE, OPEN, SELF, needs, peer, same_origin
from isolation_agent.web.bodies import read_model
from isolation_agent.web.errors import ApiError
from isolation_agent.web.openapi import documented

__all__ = ["blueprint"]

blueprint = Blueprint("session", __name__)


class Login(BaseModel):
    """A token of an account."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(min_length=1, max_length=512)


class Self(TypedDict):
    """Who the caller is; csrf and expires_at only within a session."""

    name: str
    role: str
    tenant: str | None
    csrf: str | None
    expires_at: str | None


@blueprint.post("/v1/session")
@needs(OPEN)
@documented(body=Login, answer=Self, status=201)
def login() -> tuple[Response, int]:
    """Open a session with a token. The answer sets the cookie that carries it."""
    agent: Agent = current_app.extensions["agent"]
    sessions: Sessions = current_app.extensions["sessions"]
    if not same_origin() or not request.is_json:
        raise ApiError(403, "forgery", "a session is opened from the console's own page, with a JSON body")
    token = read_model(request, Login).token
    fits = [a for a in agent.settings.accounts if a.token.matches(token)]
    if not fits:
        current_app.extensions["refusals"].record("session.login", peer(), known=False)
        raise ApiError(401, "unauthorized", "this is not the token of any account")
    opened = sessions.open(fits[0], agent.settings.config.auth.session)
    agent.journal.note("session.opened", f"{fits[0].name}@{peer()}")
    response = jsonify(_self(fits[0], opened))
    response.set_cookie(
        COOKIE,
        opened.cookie,
        max_age=int(agent.settings.config.auth.session),
        httponly=True,
        samesite="Strict",
        secure=request.is_secure or request.headers.get("X-Forwarded-Proto") == "https",
    )
    return response, 201


@blueprint.get("/v1/session")
@needs(SELF)
@documented(answer=Self)
def show() -> Response:
    """Tell who the caller is."""
    return jsonify(_self(g.account, g.session))


@blueprint.delete("/v1/session")
@needs(SELF)
@documented(answer=Self)
def logout() -> Response:
    """End the session; with a token there is none to end."""
    agent: Agent = current_app.extensions["agent"]
    sessions: Sessions = current_app.extensions["sessions"]
    if g.session is not None:
        sessions.close(g.session.cookie)
        agent.journal.note("session.closed", f"{g.account.name}@{peer()}")
    response = jsonify(_self(g.account, None))
    response.delete_cookie(COOKIE, httponly=True, samesite="Strict")
    return response


def _self(account: Account, opened: OpenSession | None) -> Self:
    return {
        "name": account.name,
        "role": account.role,
        "tenant": account.tenant,
        "csrf": opened.csrf if opened else None,
        "expires_at": rfc3339(opened.expires_at) if opened else None,
    }
