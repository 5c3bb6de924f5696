"""Actions: list, look at, revert."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import Blueprint, Response, current_app, jsonify, request

from isolation_agent.agent import Agent
from isolation_agent.records import Query, find_action, list_actions, request_revert
from isolation_agent.states import State
from isolation_agent.web.auth import API, actor, needs
from isolation_agent.web.errors import ApiError
from isolation_agent.web.parameters import number, only

__all__ = ["blueprint"]

blueprint = Blueprint("actions", __name__)


@blueprint.get("/v1/actions")
@needs(API)
def index() -> Response:
    """List actions, newest first."""
    agent: Agent = current_app.extensions["agent"]
    given = only(request.args, "state", "tenant", "node", "limit", "before")
    query = Query(
        state=_state(given["state"]),
        tenant=given["tenant"],
        node=given["node"],
        limit=number(given, "limit", 100, least=1, most=1000),
        before=number(given, "before", 0, least=0) or None,
    )
    return jsonify(list_actions(agent.store, query))


@blueprint.get("/v1/actions/<uuid:action_id>")
@needs(API)
def show(action_id: UUID) -> Response:
    """Show one action with evidence, reasons and timeline."""
    agent: Agent = current_app.extensions["agent"]
    return jsonify(_found(find_action(agent.store, str(action_id))))


@blueprint.post("/v1/actions/<uuid:action_id>:revert")
@needs(API)
def revert(action_id: UUID) -> tuple[Response, int]:
    """End an action: 202 if that is under way, 200 if it had ended already."""
    agent: Agent = current_app.extensions["agent"]
    action = _found(request_revert(agent.journal, str(action_id), actor()))
    agent.notify()
    return jsonify(action), 200 if action["ended_at"] else 202


def _state(value: str | None) -> State | None:
    if value is None:
        return None
    try:
        return State(value.lower())
    except ValueError as e:
        known = ", ".join(State)
        raise ApiError(400, "bad_request", f"state: unknown state; use one of {known}", "state") from e


def _found(action: dict[str, Any] | None) -> dict[str, Any]:
    if action is None:
        raise ApiError(404, "not_found", "there is no action of that id")
    return action
