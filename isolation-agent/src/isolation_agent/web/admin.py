"""Kill switch, audit log, reload."""

from __future__ import annotations

from flask import Blueprint, Response, current_app, jsonify, request
from pydantic import BaseModel, ConfigDict, Field

from isolation_agent.agent import Agent
from isolation_agent.audit import read_from
from isolation_agent.errors import AgentError, AuditError
from isolation_agent.records import set_kill_switch
from isolation_agent.web.auth import API, actor, needs
from isolation_agent.web.bodies import read_model
from isolation_agent.web.errors import ApiError
from isolation_agent.web.parameters import number, only

__all__ = ["blueprint"]

blueprint = Blueprint("admin", __name__)


class _KillSwitch(BaseModel):
    model_config = ConfigDict(extra="forbid")

    on: bool
    reason: str = Field(default="", max_length=500)


@blueprint.get("/v1/killswitch")
@needs(API)
def show_kill_switch() -> Response:
    """Tell whether the kill switch is on, and whether the policy file holds it on."""
    agent: Agent = current_app.extensions["agent"]
    held = agent.settings.policies.guards.kill_switch
    return jsonify({"on": agent.store.kill_switch() or held, "held_on_by_policy_file": held})


@blueprint.put("/v1/killswitch")
@needs(API)
def turn_kill_switch() -> Response:
    """Turn the kill switch. On: no new limits, none extended, and those in force are released."""
    agent: Agent = current_app.extensions["agent"]
    wanted = read_model(request, _KillSwitch)
    set_kill_switch(agent.journal, wanted.on, wanted.reason, actor())
    agent.notify()
    return show_kill_switch()


@blueprint.get("/v1/audit")
@needs(API)
def audit() -> Response:
    """Return audit records from a sequence number on."""
    agent: Agent = current_app.extensions["agent"]
    given = only(request.args, "from", "limit")
    first = number(given, "from", 1, least=1)
    limit = number(given, "limit", 100, least=1, most=1000)
    try:
        records = read_from(agent.audit.path, first, limit)
    except AuditError as e:
        raise ApiError(500, "audit_broken", str(e)) from e
    head = agent.audit.head
    following = records[-1]["seq"] + 1 if records else first
    return jsonify(
        {
            "records": records,
            "next_from": following if following <= head.seq else None,
            "head": {"seq": head.seq, "hash": head.hash},
        }
    )


@blueprint.post("/-/reload")
@needs(API)
def reload() -> Response:
    """Read configuration and policies again; on error the agent goes on as it was."""
    agent: Agent = current_app.extensions["agent"]
    try:
        agent.reload(actor())
    except AgentError as e:
        raise ApiError(500, "reload_failed", f"still running on the old configuration: {e}") from e
    return jsonify({"reloaded": True, "policy_version": agent.settings.policies.version})
