"""Actions: list, look at, begin, approve, reject, revert, extend, step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal
from uuid import UUID

from flask import Blueprint, Response, g, request
from pydantic import BaseModel, ConfigDict, Field

from isolation_agent.actions import orders
from isolation_agent.model.states import State
from isolation_agent.model.target import Target
from isolation_agent.policy import Name
from isolation_agent.service.agent import Agent
from isolation_agent.storage import actions as stored
from isolation_agent.storage.actions import ActionQuery
from isolation_agent.web.answers.actions import ActionDetail, ActionPage, Reverted, TenantLimits
from isolation_agent.web.auth import APPROVER, OPERATOR, TENANT, VIEWER, actor, needs
from isolation_agent.web.bodies import Text, read_model, refuse_body
from isolation_agent.web.context import the_agent
from isolation_agent.web.errors import ApiError
from isolation_agent.web.openapi import Param, documented
from isolation_agent.web.parameters import flag, number, only
from isolation_agent.web.reply import reply

__all__ = ["blueprint"]

blueprint = Blueprint("actions", __name__)

_STRING = {"type": "string"}

MAX_DECIDER = 180
MAX_ACTOR = 256
"""Characters that the records have for who did something."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Decision(_Body):
    """Why, in a person's words; and who that person is, where it is not the account that asks."""

    comment: Text = ""
    decided_by: Text = Field(default="", max_length=MAX_DECIDER)
    """Recorded before the account, which vouches for it."""

    def actor(self) -> str:
        """Return who decided, for the records. Raises ApiError."""
        who = f"{self.decided_by} by {actor()}" if self.decided_by else actor()
        if len(who) > MAX_ACTOR:
            raise ApiError(
                400,
                "bad_request",
                f"decided_by: with the account it is longer than {MAX_ACTOR} characters",
                "decided_by",
            )
        return who


class Extension(_Body):
    """For how long from now the limit is kept, in seconds."""

    seconds: int = Field(ge=1, le=orders.MAX_EXTENSION)


class LevelChange(_Body):
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
        Param("open", {"type": "boolean"}, "only those that have not ended, or only those that have"),
        Param("tenant", _STRING, "only of this tenant"),
        Param("node", _STRING, "only on this node"),
        Param("limit", {"type": "integer", "minimum": 1, "maximum": 1000}, "at most so many; 100"),
        Param("before", {"type": "integer", "minimum": 0}, "older than the one of this number"),
    ),
)
def index() -> Response:
    """List actions, newest first."""
    agent = the_agent()
    given = only(request.args, "state", "open", "tenant", "node", "limit", "before")
    query = ActionQuery(
        state=_state(given["state"]),
        tenant=given["tenant"],
        node=given["node"],
        limit=number(given, "limit", 100, least=1, most=1000),
        before=number(given, "before", 0, least=0) or None,
        is_open=flag(given, "open"),
    )
    with agent.store.read() as session:
        rows, more = stored.page(session, query)
    return reply(ActionPage.of(rows, more, agent.snapshot))


@blueprint.post("/v1/actions")
@needs(OPERATOR)
@documented(body=Order, answer=ActionDetail, status=202)
def begin() -> Response:
    """Begin an action without an alert; all guards apply except those that limit automation only."""
    agent = the_agent()
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
    return reply(_found(agent, action_id), 202)


@blueprint.get("/v1/actions/<uuid:action_id>")
@needs(VIEWER)
@documented(answer=ActionDetail)
def show(action_id: UUID) -> Response:
    """Show one action with evidence, reasons and timeline."""
    agent = the_agent()
    return reply(_found(agent, str(action_id)))


@blueprint.post("/v1/actions/<uuid:action_id>:approve")
@needs(APPROVER)
@documented(body=Decision, answer=ActionDetail, status=202)
def approve(action_id: UUID) -> Response:
    """Approve an action that waits for approval; the guards are checked again."""
    said = read_model(request, Decision)
    agent, who = the_agent(), said.actor()
    answer = _order(action_id, lambda: orders.approve(agent.journal, str(action_id), said.comment, who))
    agent.metrics.approvals.labels("approved").inc()
    return reply(answer, 202)


@blueprint.post("/v1/actions/<uuid:action_id>:reject")
@needs(APPROVER)
@documented(body=Decision, answer=ActionDetail, status=202)
def reject(action_id: UUID) -> Response:
    """Reject an action that waits for approval; its alerts do not start it again."""
    said = read_model(request, Decision)
    agent, who = the_agent(), said.actor()
    answer = _order(action_id, lambda: orders.reject(agent.journal, str(action_id), said.comment, who))
    agent.metrics.approvals.labels("rejected").inc()
    return reply(answer, 202)


@blueprint.post("/v1/actions/<uuid:action_id>:revert")
@needs(OPERATOR)
@documented(answer=ActionDetail, status=202, also=(200,))
def revert(action_id: UUID) -> Response:
    """End an action: 202 if that is under way, 200 if it had ended already."""
    agent = the_agent()
    refuse_body(request)
    answer = _order(action_id, lambda: orders.revert(agent.journal, str(action_id), actor()))
    return reply(answer, 200 if answer.ended_at else 202)


@blueprint.post("/v1/actions/<uuid:action_id>:extend")
@needs(OPERATOR)
@documented(body=Extension, answer=ActionDetail, status=202)
def extend(action_id: UUID) -> Response:
    """Keep a limit for so many seconds from now, whatever the tenant offers."""
    seconds = read_model(request, Extension).seconds
    agent = the_agent()
    answer = _order(action_id, lambda: orders.extend(agent.journal, str(action_id), seconds, actor()))
    return reply(answer, 202)


@blueprint.post("/v1/actions/<uuid:action_id>:step")
@needs(OPERATOR)
@documented(body=LevelChange, answer=ActionDetail, status=202)
def step(action_id: UUID) -> Response:
    """Ask for another level of a limit in force."""
    level = read_model(request, LevelChange).level
    agent = the_agent()
    answer = _order(action_id, lambda: orders.step(agent.journal, str(action_id), level, actor()))
    return reply(answer, 202)


@blueprint.post("/v1/actions:revertAll")
@needs(OPERATOR)
@documented(answer=Reverted, status=202, query=(Param("tenant", _STRING, "only of this tenant"),))
def revert_all() -> Response:
    """End all open actions, or those of one tenant."""
    agent = the_agent()
    given = only(request.args, "tenant")
    refuse_body(request)
    requested = orders.revert_all(agent.journal, given["tenant"], actor())
    agent.notify()
    return reply(Reverted(requested=requested), 202)


@blueprint.get("/v1/me/limits")
@needs(TENANT)
@documented(answer=TenantLimits)
def mine() -> Response:
    """Show a tenant its own limits in force."""
    agent = the_agent()
    with agent.store.read() as session:
        rows = stored.in_force_of(session, g.account.tenant)
    return reply(TenantLimits.of(g.account.tenant, rows))


def _order(action_id: UUID, give: Callable[[], None]) -> ActionDetail:
    """Give an order, wake the controller, and show the action."""
    agent = the_agent()
    try:
        give()
    except orders.UnknownAction as e:
        raise ApiError(404, "not_found", "there is no action of that id") from e
    except orders.NotPossible as e:
        raise ApiError(409, "not_possible", str(e)) from e
    agent.notify()
    return _found(agent, str(action_id))


def _state(value: str | None) -> State | None:
    if value is None:
        return None
    try:
        return State(value.lower())
    except ValueError as e:
        known = ", ".join(State)
        raise ApiError(400, "bad_request", f"state: unknown state; use one of {known}", "state") from e


def _found(agent: Agent, action_id: str) -> ActionDetail:
    with agent.store.read() as session:
        found = stored.find_whole(session, action_id)
    if found is None:
        raise ApiError(404, "not_found", "there is no action of that id")
    return ActionDetail.of_found(found, agent.snapshot)
