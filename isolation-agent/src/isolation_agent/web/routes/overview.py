"""Read-only views: overview, tenants, nodes, policies, simulation; and putting policies."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from typing import Any

from flask import Blueprint, Response, current_app, jsonify, request
from pydantic import BaseModel, ConfigDict, Field

from isolation_agent.actions.simulate import simulate
from isolation_agent.alerts.payload import BadPayload, parse_alert
from isolation_agent.enforcers.client import EnforcerError
from isolation_agent.enforcers.fleet import open_fleet
from isolation_agent.enforcers.snapshot import Seen
from isolation_agent.metrics import Metrics
from isolation_agent.model.states import ENFORCING, State
from isolation_agent.policy import PolicySet
from isolation_agent.service.agent import Agent
from isolation_agent.storage import actions as stored
from isolation_agent.storage.actions import ActionQuery
from isolation_agent.storage.policies import Conflict, Draft, changes, content_of
from isolation_agent.storage.quarantine import KEPT, newest
from isolation_agent.web.answers.actions import ActionSummary
from isolation_agent.web.answers.alerts import Quarantine, QuarantinedAnswer
from isolation_agent.web.answers.nodes import HostState, PairAnswer, Pairs, PortUse, Tenants
from isolation_agent.web.answers.policies import Decisions, Policies
from isolation_agent.web.answers.switches import BreakerState, Overview
from isolation_agent.web.auth import ADMIN, OPERATOR, VIEWER, actor, needs
from isolation_agent.web.bodies import Text, read_model, read_small, refuse_body
from isolation_agent.web.context import the_agent
from isolation_agent.web.errors import ApiError
from isolation_agent.web.openapi import Param, documented, openapi
from isolation_agent.web.parameters import number, only
from isolation_agent.web.reply import reply
from isolation_agent.web.routes.admin import kill_switch_now
from vigia_config import ConfigError

__all__ = ["blueprint"]

blueprint = Blueprint("overview", __name__)


class PolicyOrder(BaseModel):
    """Policies and guards as a policy file has them, and which version they replace."""

    model_config = ConfigDict(extra="forbid")

    policies: list[dict[str, Any]] = Field(min_length=1, max_length=1000)
    guards: dict[str, Any] = {}
    expected_version: str | None = None
    reason: Text = ""


_LIMITED_SHOWN = 200
_RECENT_SHOWN = 20
_REFUSED_SHOWN = timedelta(days=1)
_WAITING = (State.PENDING_APPROVAL, State.APPROVED)


@blueprint.get("/v1/overview")
@needs(VIEWER)
@documented(answer=Overview)
def overview() -> Response:
    """Show what is limited now, what waits for a person, and whether everything is well."""
    agent = the_agent()
    only(request.args)
    agent.snapshot.watch()
    snapshot = agent.snapshot
    with agent.store.read() as session:
        limited, count = stored.list_open(session, ENFORCING, _LIMITED_SHOWN)
        waiting, _ = stored.list_open(session, _WAITING, _LIMITED_SHOWN)
        recent, _ = stored.page(session, ActionQuery(limit=_RECENT_SHOWN))
        refused = newest(session, _RECENT_SHOWN, agent.clock.now() - _REFUSED_SHOWN)
    problem = agent.problem()
    return reply(
        Overview(
            now=agent.clock.now(),
            ready=not problem,
            problem=problem,
            kill_switch=kill_switch_now(agent),
            breaker=BreakerState.of(agent.store.breaker()),
            dry_run=agent.settings.config.dry_run,
            replica=agent.settings.replica,
            leader=agent.lease.leader,
            limited=[ActionSummary.of(a, snapshot) for a in limited],
            waiting=[ActionSummary.of(a, snapshot) for a in waiting],
            recent=[ActionSummary.of(a, snapshot) for a in recent],
            quarantined=[QuarantinedAnswer.model_validate(row) for row in refused],
            more_limited=count - len(limited),
        )
    )


@blueprint.get("/v1/quarantine")
@needs(VIEWER)
@documented(
    answer=Quarantine,
    query=(Param("limit", {"type": "integer", "minimum": 1, "maximum": KEPT}, "at most so many; 100"),),
)
def quarantine() -> Response:
    """List the alerts that were refused last, because a field of theirs cannot be right."""
    agent = the_agent()
    limit = number(only(request.args, "limit"), "limit", 100, least=1, most=KEPT)
    with agent.store.read() as session:
        return reply(Quarantine.of(newest(session, limit)))


@blueprint.get("/v1/tenants")
@needs(VIEWER)
@documented(answer=Tenants)
def tenants() -> Response:
    """Show every tenant's guarantee against what it sends, as the enforcers said last."""
    agent = the_agent()
    only(request.args)
    agent.snapshot.watch()
    return reply(Tenants.of(agent.snapshot.nodes()))


@blueprint.get("/v1/contracts")
@needs(VIEWER)
@documented(answer=Tenants)
def contracts() -> Response:
    """Show what tenants bought, port by port; contracts are configured at the enforcers."""
    return tenants()


@blueprint.get("/v1/hosts/<node>/state")
@needs(VIEWER)
@documented(answer=HostState)
def host_state(node: str) -> Response:
    """Show what a node should enforce against what it was last seen to enforce."""
    return reply(_host_state(node))


@blueprint.post("/v1/hosts/<node>:reconcile")
@needs(OPERATOR)
@documented(answer=HostState, status=202)
def reconcile(node: str) -> Response:
    """Compare all nodes with the record in the next turn, before controller.reconcile has passed."""
    agent = the_agent()
    refuse_body(request)
    answer = _host_state(node)
    agent.controller.reconcile_soon()
    agent.notify()
    return reply(answer, 202)


def _host_state(node: str) -> HostState:
    agent = the_agent()
    if node not in agent.settings.host_tokens:
        raise ApiError(404, "not_found", "no enforcer is configured for this node")
    agent.snapshot.watch()
    seen = agent.snapshot.nodes().get(node, Seen(None, None, "not read yet"))
    with agent.store.read() as session:
        desired, _ = stored.list_open(session, ENFORCING, _LIMITED_SHOWN, node)
    return HostState(
        node=node,
        error=seen.error,
        seen_at=seen.at,
        desired=[ActionSummary.of(a, agent.snapshot) for a in desired],
        actual=[PortUse.of(node, p) for p in seen.state.ports] if seen.state else [],
    )


@blueprint.get("/v1/pairs")
@needs(VIEWER)
@documented(answer=Pairs, query=(Param("tenant", {"type": "string"}, "only of this tenant"),))
def pairs() -> Response:
    """List the limits that the fast loops hold now, asked of the enforcers."""
    agent = the_agent()
    tenant = only(request.args, "tenant")["tenant"]
    shown = Pairs()
    with closing(open_fleet(agent.settings, agent.clock, Metrics())) as fleet:
        for node, answer in fleet.pairs().items():
            if isinstance(answer, EnforcerError):
                shown.silent[node] = str(answer)
                continue
            for p in answer.pairs:
                if tenant in (None, p.tenant):
                    shown.pairs.append(PairAnswer(node=node, **p.model_dump()))
    return reply(shown)


@blueprint.get("/v1/policies")
@needs(VIEWER)
@documented(answer=Policies, query=(Param("version", {"type": "string"}, "an earlier one that was put"),))
def policies() -> Response:
    """Show the policies and guards in force, or an earlier version that was put here."""
    agent = the_agent()
    version = only(request.args, "version")["version"]
    found = agent.settings.policies if version is None else content_of(agent.store, version)
    if found is None:
        raise ApiError(404, "not_found", "there are no policies of that version", "version")
    return reply(_policies(agent, found))


@blueprint.put("/v1/policies")
@needs(ADMIN)
@documented(body=PolicyOrder, answer=Policies)
def put() -> Response:
    """Put other policies and guards in force, where the configuration says policies_by: api."""
    agent = the_agent()
    wanted = read_model(request, PolicyOrder)
    content = {"version": 1, "policies": wanted.policies, "guards": wanted.guards}
    try:
        new = agent.put_policies(Draft(content, wanted.expected_version, wanted.reason), actor())
    except ConfigError as e:
        raise ApiError(400, "bad_request", str(e), "policies") from e
    except Conflict as e:
        raise ApiError(409, "not_possible", str(e)) from e
    return reply(_policies(agent, new))


def _policies(agent: Agent, found: PolicySet) -> Policies:
    return Policies.of(found, agent.settings.config.policies_by, changes(agent.store))


@blueprint.post("/v1/simulate")
@needs(VIEWER)
@documented(body=dict[str, Any], answer=Decisions)
def simulate_alerts() -> Response:
    """Tell what would be decided about an alert or a whole webhook message; nothing is changed."""
    agent = the_agent()
    try:
        alerts = parse_alert(read_small(request), 100, agent.clock.now())
    except BadPayload as e:
        raise ApiError(400, "bad_payload", str(e), e.field) from e
    decisions = [simulate(alert, agent.settings, agent.clock) for alert in alerts]
    return reply(Decisions(decisions=decisions))


@blueprint.get("/v1/openapi.json")
@needs(VIEWER)
def document() -> Response:
    """Return this API's OpenAPI document."""
    return jsonify(openapi(current_app))
