"""Kill switch, breaker, allow list, audit log, reload."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from flask import Blueprint, Response, request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from isolation_agent.actions.orders import reset_breaker, set_kill_switch
from isolation_agent.errors import AuditError
from isolation_agent.policy import AllowEntry, Name
from isolation_agent.service.agent import Agent
from isolation_agent.storage.allowlist import list_allowed, replace_allowed
from isolation_agent.storage.audit import read_from, verify
from isolation_agent.web.answers.audit import AuditHead, AuditPage, AuditVerification
from isolation_agent.web.answers.switches import AllowList, BreakerState, KillSwitch, Reloaded
from isolation_agent.web.auth import ADMIN, OPERATOR, VIEWER, actor, needs
from isolation_agent.web.bodies import Text, read_model
from isolation_agent.web.context import the_agent
from isolation_agent.web.errors import ApiError
from isolation_agent.web.openapi import Param, documented
from isolation_agent.web.parameters import number, only
from isolation_agent.web.reply import reply
from vigia_service.errors import ServiceError

__all__ = ["blueprint", "kill_switch_now"]

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


def kill_switch_now(agent: Agent) -> KillSwitch:
    """Return the kill switch as the API shows it."""
    held = agent.settings.policies.guards.kill_switch
    return KillSwitch(on=agent.store.kill_switch() or held, held_on_by_policy_file=held)


@blueprint.get("/v1/killswitch")
@needs(VIEWER)
@documented(answer=KillSwitch)
def show_kill_switch() -> Response:
    """Tell whether the kill switch is on, and whether the policy file holds it on."""
    agent = the_agent()
    return reply(kill_switch_now(agent))


@blueprint.put("/v1/killswitch")
@needs(OPERATOR)
@documented(body=Switch, answer=KillSwitch)
def turn_kill_switch() -> Response:
    """Turn the kill switch. On: no new limits, none extended, and those in force are released."""
    agent = the_agent()
    wanted = read_model(request, Switch)
    set_kill_switch(agent.journal, wanted.on, wanted.reason, actor())
    agent.notify()
    return show_kill_switch()


@blueprint.get("/v1/breaker")
@needs(VIEWER)
@documented(answer=BreakerState)
def show_breaker() -> Response:
    """Tell whether the blast-radius breaker makes every new action wait for approval."""
    agent = the_agent()
    return reply(BreakerState.of(agent.store.breaker()))


@blueprint.put("/v1/breaker")
@needs(ADMIN)
@documented(body=Reset, answer=BreakerState)
def turn_breaker() -> Response:
    """Reset the breaker; actions that wait for approval keep waiting."""
    agent = the_agent()
    wanted = read_model(request, Reset)
    reset_breaker(agent.journal, wanted.reason, actor())
    agent.notify()
    return show_breaker()


@blueprint.get("/v1/allowlist")
@needs(VIEWER)
@documented(answer=AllowList)
def show_allowlist() -> Response:
    """List the entries of the allow list that were added at run time."""
    agent = the_agent()
    return reply(AllowList.of(list_allowed(agent.store, agent.clock.now())))


@blueprint.put("/v1/allowlist")
@needs(ADMIN)
@documented(body=AllowEntries, answer=AllowList)
def put_allowlist() -> Response:
    """Replace the entries that were added at run time. Limits on ports that they exempt are released."""
    agent = the_agent()
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
    agent = the_agent()
    given = only(request.args, "from", "limit")
    first = number(given, "from", 1, least=1)
    limit = number(given, "limit", 100, least=1, most=1000)
    try:
        records = read_from(agent.audit.path, first, limit)
    except AuditError as e:
        raise ApiError(500, "audit_broken", str(e)) from e
    head = agent.audit.head
    following = records[-1]["seq"] + 1 if records else first
    return reply(
        AuditPage(
            records=records,
            next_from=following if following <= head.seq else None,
            head=AuditHead(seq=head.seq, hash=head.hash),
        )
    )


@blueprint.get("/v1/audit:verify")
@needs(VIEWER)
@documented(answer=AuditVerification)
def audit_verify() -> Response:
    """Check the hash chain of the audit log; name the first broken record."""
    agent = the_agent()
    try:
        result = verify(agent.audit.path)
    except AuditError as e:
        raise ApiError(500, "audit_broken", str(e)) from e
    return reply(AuditVerification.of(result))


@blueprint.post("/-/reload")
@needs(ADMIN)
@documented(answer=Reloaded)
def reload() -> Response:
    """Read configuration and policies again; on error the agent goes on as it was."""
    agent = the_agent()
    try:
        agent.reload(actor())
    except ServiceError as e:
        raise ApiError(500, "reload_failed", f"still running on the old configuration: {e}") from e
    return reply(Reloaded(reloaded=True, policy_version=agent.settings.policies.version))
