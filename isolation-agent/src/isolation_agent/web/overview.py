"""What there is to see: overview, tenants, nodes, policies, and what would be decided."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, current_app, jsonify, request

from isolation_agent.agent import Agent
from isolation_agent.alerts import BadPayload, parse_alert
from isolation_agent.clock import instant, rfc3339
from isolation_agent.records import Query, list_actions, open_actions
from isolation_agent.shapes import Decisions, HostState, Overview, Policies, Tenants
from isolation_agent.simulate import simulate
from isolation_agent.snapshot import Seen, port_use
from isolation_agent.states import ENFORCING, State
from isolation_agent.web.admin import kill_switch_shape
from isolation_agent.web.auth import OPERATOR, VIEWER, needs
from isolation_agent.web.bodies import read_small, refuse_body
from isolation_agent.web.errors import ApiError
from isolation_agent.web.openapi import documented, openapi
from isolation_agent.web.parameters import only

__all__ = ["blueprint"]

blueprint = Blueprint("overview", __name__)

_LIMITED_SHOWN = 200
_RECENT_SHOWN = 20
_WAITING = (State.PENDING_APPROVAL, State.APPROVED)


@blueprint.get("/v1/overview")
@needs(VIEWER)
@documented(answer=Overview)
def overview() -> Response:
    """Show what is limited now, what waits for a person, and whether everything is well."""
    agent: Agent = current_app.extensions["agent"]
    only(request.args)
    agent.snapshot.watch()
    limited, count = open_actions(agent.store, agent.snapshot, ENFORCING, _LIMITED_SHOWN)
    waiting, _ = open_actions(agent.store, agent.snapshot, _WAITING, _LIMITED_SHOWN)
    breaker, problem = agent.store.breaker(), agent.problem()
    shown: Overview = {
        "now": instant(agent.clock.now()),
        "ready": not problem,
        "problem": problem,
        "kill_switch": kill_switch_shape(agent),
        "breaker": {"tripped": bool(breaker), "reason": breaker},
        "dry_run": agent.settings.config.dry_run,
        "replica": agent.settings.replica,
        "leader": agent.lease.leader,
        "limited": limited,
        "waiting": waiting,
        "recent": list_actions(agent.store, Query(limit=_RECENT_SHOWN), agent.snapshot)["actions"],
        "more_limited": count - len(limited),
    }
    return jsonify(shown)


@blueprint.get("/v1/tenants")
@needs(VIEWER)
@documented(answer=Tenants)
def tenants() -> Response:
    """Show every tenant's guarantee against what it sends, as the enforcers said last."""
    agent: Agent = current_app.extensions["agent"]
    only(request.args)
    agent.snapshot.watch()
    return jsonify(agent.snapshot.tenants())


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
    agent: Agent = current_app.extensions["agent"]
    if node not in agent.settings.host_tokens:
        raise ApiError(404, "not_found", "no enforcer is configured for this node")
    agent.snapshot.watch()
    seen = agent.snapshot.nodes().get(node, Seen(None, None, "not read yet"))
    desired, _ = open_actions(agent.store, agent.snapshot, ENFORCING, _LIMITED_SHOWN, node)
    shown: HostState = {
        "node": node,
        "error": seen.error,
        "seen_at": rfc3339(seen.at),
        "desired": desired,
        "actual": [port_use(node, p) for p in seen.state.ports] if seen.state else [],
    }
    return jsonify(shown)


@blueprint.post("/v1/hosts/<node>:reconcile")
@needs(OPERATOR)
@documented(answer=HostState, status=202)
def reconcile(node: str) -> tuple[Response, int]:
    """Compare all nodes with the record in the next turn, instead of waiting for the next round."""
    agent: Agent = current_app.extensions["agent"]
    refuse_body(request)
    answer = host_state(node)
    agent.controller.reconcile_soon()
    agent.notify()
    return answer, 202


@blueprint.get("/v1/policies")
@needs(VIEWER)
@documented(answer=Policies)
def policies() -> Response:
    """Show the policies and guards in force; they are changed in the policy file."""
    agent: Agent = current_app.extensions["agent"]
    found = agent.settings.policies
    shown: Policies = {
        "version": found.version,
        "policies": [p.model_dump(mode="json") for p in found.policies],
        "guards": found.guards.model_dump(mode="json"),
    }
    return jsonify(shown)


@blueprint.post("/v1/simulate")
@needs(VIEWER)
@documented(body=dict[str, Any], answer=Decisions)
def simulate_alerts() -> Response:
    """Tell what would be decided about an alert or a whole webhook message; nothing is changed."""
    agent: Agent = current_app.extensions["agent"]
    try:
        alerts = parse_alert(read_small(request), 100)
    except BadPayload as e:
        raise ApiError(400, "bad_payload", str(e), e.field) from e
    decisions = [simulate(alert, agent.settings, agent.clock) for alert in alerts]
    return jsonify({"decisions": decisions})


@blueprint.get("/v1/openapi.json")
@needs(VIEWER)
def document() -> Response:
    """Return this API's OpenAPI document."""
    return jsonify(openapi(current_app))
