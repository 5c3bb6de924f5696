"""Actions: list, look at, begin, approve, reject, revert, extend, step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal
from uuid import UUID

from flask import Blueprint, Response, current_app, g, jsonify, request
from pydantic import BaseModel, ConfigDict, Field

from isolation_agent import orders
from isolation_agent.agent import Agent
from isolation_agent.alerts import Target
from isolation_agent.policy import Name
from isolation_agent.records import Query, find_action, list_actions, own_limits
from isolation_agent.shapes import ActionDetail, ActionPage, Reverted, TenantLimits
from isolation_agent.states import State
from isolation_agent.web.auth import OPERATOR, TENANT, VIEWER, actor, needs
from isolation_agent.web.bodies import Text, read_model, refuse_body
from isolation_agent.web.errors import ApiError
from isolation_agent.web.openapi import Param, documented
from isolation_agent.web.parameters import number, only

__all__ = ["blueprint"]

blueprint = Blueprint("actions", __name__)

_STRING = {"type": "string"}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Comment(_Body):
    """Why, in a person's words."""

    comment: Text = ""


class Extension(_Body):
    """For how long from now the limit is kept, in seconds."""

    seconds: int = Field(ge=1, le=orders.MAX_EXTENSION)


class Level(_Body):
    """The level that is wanted."""

    level: Literal["L1", "L2", "L3", "L4"]


class Order(_Body):
    """An action that a person wants without an alert."""

    node: Name
    port: Name
    tenant: Name
    level: Literal["L1", "L2", "L3", "L4"] = "L2"
    seconds: int = Field(default=60, ge=1, le=orders.MAX_EXTENSION)
    reason: str = Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")


@blueprint.get("/v1/actions")
@needs(VIEWER)
@documented(
    answer=ActionPage,
    query=(
        Param("state", {"type": "string", "enum": [s.value for s in State]}, "only in this state"),
        Param("tenant", _STRING, "only of this tenant"),
        Param("node", _STRING, "only on this node"),
        Param("limit", {"type": "integer", "minimum": 1, "maximum": 1000}, "at most so many; 100"),
        Param("before", {"type": "integer", "minimum": 0}, "older than the one of this number"),
    ),
)
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
    return jsonify(list_actions(agent.store, query, agent.snapshot))


@blueprint.post("/v1/actions")
@needs(OPERATOR)
@documented(body=Order, answer=ActionDetail, status=202)
def begin() -> tuple[Response, int]:
    """Begin an action by hand; the guards are asked as ever, but for those that hold back automation."""
    agent: Agent = current_app.extensions["agent"]
    order = read_model(request, Order)
    if order.node not in agent.settings.host_tokens:
        raise ApiError(400, "bad_request", f"node: no enforcer is configured for {order.node}", "node")
    target = Target(order.node, order.port, order.tenant)
    version = agent.settings.policies.version
    wish = orders.Wish(target, order.level, order.seconds, order.reason, version)
    try:
        action_id = orders.begin(agent.journal, wish, actor())
    except orders.NotPossible as e:
        raise ApiError(409, "not_possible", str(e)) from e
    agent.notify()
    return jsonify(_found(agent, action_id)), 202


@blueprint.get("/v1/actions/<uuid:action_id>")
@needs(VIEWER)
@documented(answer=ActionDetail)
def show(action_id: UUID) -> Response:
    """Show one action with evidence, reasons and timeline."""
    agent: Agent = current_app.extensions["agent"]
    return jsonify(_found(agent, str(action_id)))


@blueprint.post("/v1/actions/<uuid:action_id>:approve")
@needs(OPERATOR)
@documented(body=Comment, answer=ActionDetail, status=202)
def approve(action_id: UUID) -> tuple[Response, int]:
    """Let an action go on that waits for a person; the guards are asked once more."""
    comment = read_model(request, Comment).comment
    agent: Agent = current_app.extensions["agent"]
    answer = _order(action_id, lambda: orders.approve(agent.journal, str(action_id), comment, actor()))
    agent.metrics.approvals.labels("approved").inc()
    return answer, 202


@blueprint.post("/v1/actions/<uuid:action_id>:reject")
@needs(OPERATOR)
@documented(body=Comment, answer=ActionDetail, status=202)
def reject(action_id: UUID) -> tuple[Response, int]:
    """End an action that waits for a person; its alerts do not start it again."""
    comment = read_model(request, Comment).comment
    agent: Agent = current_app.extensions["agent"]
    answer = _order(action_id, lambda: orders.reject(agent.journal, str(action_id), comment, actor()))
    agent.metrics.approvals.labels("rejected").inc()
    return answer, 202


@blueprint.post("/v1/actions/<uuid:action_id>:revert")
@needs(OPERATOR)
@documented(answer=ActionDetail, status=202, also=(200,))
def revert(action_id: UUID) -> tuple[Response, int]:
    """End an action: 202 if that is under way, 200 if it had ended already."""
    agent: Agent = current_app.extensions["agent"]
    refuse_body(request)
    answer = _order(action_id, lambda: orders.revert(agent.journal, str(action_id), actor()))
    return answer, 200 if answer.get_json()["ended_at"] else 202


@blueprint.post("/v1/actions/<uuid:action_id>:extend")
@needs(OPERATOR)
@documented(body=Extension, answer=ActionDetail, status=202)
def extend(action_id: UUID) -> tuple[Response, int]:
    """Keep a limit for so many seconds from now, whatever the tenant offers."""
    seconds = read_model(request, Extension).seconds
    agent: Agent = current_app.extensions["agent"]
    return _order(action_id, lambda: orders.extend(agent.journal, str(action_id), seconds, actor())), 202


@blueprint.post("/v1/actions/<uuid:action_id>:step")
@needs(OPERATOR)
@documented(body=Level, answer=ActionDetail, status=202)
def step(action_id: UUID) -> tuple[Response, int]:
    """Ask for another level of a limit in force."""
    level = read_model(request, Level).level
    agent: Agent = current_app.extensions["agent"]
    return _order(action_id, lambda: orders.step(agent.journal, str(action_id), level, actor())), 202


@blueprint.post("/v1/actions:revertAll")
@needs(OPERATOR)
@documented(answer=Reverted, status=202, query=(Param("tenant", _STRING, "only of this tenant"),))
def revert_all() -> tuple[Response, int]:
    """Ask for the end of every open action, or of those of one tenant."""
    agent: Agent = current_app.extensions["agent"]
    given = only(request.args, "tenant")
    refuse_body(request)
    requested = orders.revert_all(agent.journal, given["tenant"], actor())
    agent.notify()
    return jsonify({"requested": requested}), 202


@blueprint.get("/v1/me/limits")
@needs(TENANT)
@documented(answer=TenantLimits)
def mine() -> Response:
    """Show a tenant its own limits in force."""
    agent: Agent = current_app.extensions["agent"]
    return jsonify(own_limits(agent.store, g.account.tenant))


def _order(action_id: UUID, give: Callable[[], None]) -> Response:
    """Give an order, wake the controller, and show the action."""
    agent: Agent = current_app.extensions["agent"]
    try:
        give()
    except orders.UnknownAction as e:
        raise ApiError(404, "not_found", "there is no action of that id") from e
    except orders.NotPossible as e:
        raise ApiError(409, "not_possible", str(e)) from e
    agent.notify()
    return jsonify(_found(agent, str(action_id)))


def _state(value: str | None) -> State | None:
    if value is None:
        return None
    try:
        return State(value.lower())
    except ValueError as e:
        known = ", ".join(State)
        raise ApiError(400, "bad_request", f"state: unknown state; use one of {known}", "state") from e


def _found(agent: Agent, action_id: str) -> ActionDetail:
    action = find_action(agent.store, action_id, agent.snapshot)
    if action is None:
        raise ApiError(404, "not_found", "there is no action of that id")
    return action
