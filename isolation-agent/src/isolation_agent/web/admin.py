"""Kill switch, breaker, allow list, audit log, reload."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from flask import Blueprint, Response, current_app, jsonify, request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from isolation_agent.agent import Agent
from isolation_agent.allowlist import list_allowed, replace_allowed
from isolation_agent.audit import read_from, verification_shape, verify
from isolation_agent.errors import AgentError, AuditError
from isolation_agent.orders import reset_breaker, set_kill_switch
from isolation_agent.policy import AllowEntry, Name
from isolation_agent.shapes import AllowList, AuditPage, AuditVerification, Breaker, KillSwitch, Reloaded
from isolation_agent.web.auth import ADMIN, OPERATOR, VIEWER, actor, needs
from isolation_agent.web.bodies import Text, read_model
from isolation_agent.web.errors import ApiError
from isolation_agent.web.openapi import Param, documented
from isolation_agent.web.parameters import number, only

__all__ = ["blueprint", "kill_switch_shape"]

blueprint = Blueprint("admin", __name__)


class Switch(BaseModel):
    """Where the kill switch goes, and why."""

    model_config = ConfigDict(extra="forbid")

    on: bool
    reason: Text = ""


class Reset(BaseModel):
    """Resets the breaker."""

    model_config = ConfigDict(extra="forbid")

    tripped: Literal[False]
    reason: Text = ""


class Allowed(BaseModel):
    """An entry of the allow list, with an end if it has one."""

    model_config = ConfigDict(extra="forbid")

    tenant: Name | None = None
    port: Name | None = None
    role: Literal["source", "victim", "either"]
    reason: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")
    expires_in_seconds: int | None = Field(default=None, ge=1, le=366 * 86_400)


class AllowEntries(BaseModel):
    """All entries that hold at run time."""

    model_config = ConfigDict(extra="forbid")

    entries: list[Allowed] = Field(max_length=1000)


def kill_switch_shape(agent: Agent) -> KillSwitch:
    """Return the kill switch as the API shows it."""
    held = agent.settings.policies.guards.kill_switch
    return {"on": agent.store.kill_switch() or held, "held_on_by_policy_file": held}


@blueprint.get("/v1/killswitch")
@needs(VIEWER)
@documented(answer=KillSwitch)
def show_kill_switch() -> Response:
    """Tell whether the kill switch is on, and whether the policy file holds it on."""
    agent: Agent = current_app.extensions["agent"]
    return jsonify(kill_switch_shape(agent))


@blueprint.put("/v1/killswitch")
@needs(OPERATOR)
@documented(body=Switch, answer=KillSwitch)
def turn_kill_switch() -> Response:
    """Turn the kill switch. On: no new limits, none extended, and those in force are released."""
    agent: Agent = current_app.extensions["agent"]
    wanted = read_model(request, Switch)
    set_kill_switch(agent.journal, wanted.on, wanted.reason, actor())
    agent.notify()
    return show_kill_switch()


@blueprint.get("/v1/breaker")
@needs(VIEWER)
@documented(answer=Breaker)
def show_breaker() -> Response:
    """Tell whether the blast-radius breaker hands every new action to a person."""
    agent: Agent = current_app.extensions["agent"]
    reason = agent.store.breaker()
    return jsonify({"tripped": bool(reason), "reason": reason})


@blueprint.put("/v1/breaker")
@needs(ADMIN)
@documented(body=Reset, answer=Breaker)
def turn_breaker() -> Response:
    """Reset the breaker; what waits for a person goes on waiting."""
    agent: Agent = current_app.extensions["agent"]
    wanted = read_model(request, Reset)
    reset_breaker(agent.journal, wanted.reason, actor())
    agent.notify()
    return show_breaker()


@blueprint.get("/v1/allowlist")
@needs(VIEWER)
@documented(answer=AllowList)
def show_allowlist() -> Response:
    """List the entries of the allow list that were added at run time."""
    agent: Agent = current_app.extensions["agent"]
    return jsonify({"entries": list_allowed(agent.store, agent.clock.now())})


@blueprint.put("/v1/allowlist")
@needs(ADMIN)
@documented(body=AllowEntries, answer=AllowList)
def put_allowlist() -> Response:
    """Replace the entries that were added at run time. Limits that they shield from are released."""
    agent: Agent = current_app.extensions["agent"]
    wanted, now, entries = read_model(request, AllowEntries), agent.clock.now(), []
    for i, entry in enumerate(wanted.entries):
        fields = entry.model_dump(exclude={"expires_in_seconds"})
        try:
            checked = AllowEntry.model_validate(fields)
        except ValidationError as e:
            raise ApiError(
                400, "bad_request", f"entries[{i}]: {e.errors()[0]['msg']}", f"entries[{i}]"
            ) from e
        seconds = entry.expires_in_seconds
        entries.append((checked, now + timedelta(seconds=seconds) if seconds else None))
    replace_allowed(agent.journal, entries, actor())
    agent.notify()
    return show_allowlist()


@blueprint.get("/v1/audit")
@needs(VIEWER)
@documented(
    answer=AuditPage,
    query=(
        Param("from", {"type": "integer", "minimum": 1}, "from this sequence number on; 1"),
        Param("limit", {"type": "integer", "minimum": 1, "maximum": 1000}, "at most so many; 100"),
    ),
)
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


@blueprint.get("/v1/audit:verify")
@needs(VIEWER)
@documented(answer=AuditVerification)
def audit_verify() -> Response:
    """Check the hash chain of the audit log; name the first broken record."""
    agent: Agent = current_app.extensions["agent"]
    try:
        result = verify(agent.audit.path)
    except AuditError as e:
        raise ApiError(500, "audit_broken", str(e)) from e
    return jsonify(verification_shape(result))


@blueprint.post("/-/reload")
@needs(ADMIN)
@documented(answer=Reloaded)
def reload() -> Response:
    """Read configuration and policies again; on error the agent goes on as it was."""
    agent: Agent = current_app.extensions["agent"]
    try:
        agent.reload(actor())
    except AgentError as e:
        raise ApiError(500, "reload_failed", f"still running on the old configuration: {e}") from e
    return jsonify({"reloaded": True, "policy_version": agent.settings.policies.version})
