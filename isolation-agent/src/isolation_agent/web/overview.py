"""What there is to see: overview, tenants, nodes, policies, and what would be decided."""

from __future__ import annotations

from contextlib import closing
from typing import Any, cast

from flask import Blueprint, Response, current_app, jsonify, request
from pydantic import BaseModel, ConfigDict, Field

from isolation_agent.agent import Agent
from isolation_agent.alerts import BadPayload, parse_alert
from isolation_agent.clock import instant, rfc3339
from isolation_agent.enforcer import EnforcerError
from isolation_agent.fleet import open_fleet
from isolation_agent.metrics import Metrics
from isolation_agent.policy import PolicySet
from isolation_agent.policybook import Conflict, Draft, changes, content_of
from isolation_agent.records import Query, list_actions, open_actions
from isolation_agent.shapes import Decisions, HostState, Overview, Pairs, PairShape, Policies, Tenants
from isolation_agent.simulate import simulate
from isolation_agent.snapshot import Seen, port_use
from isolation_agent.states import ENFORCING, State
from isolation_agent.web.admin import kill_switch_shape
from isolation_agent.web.auth import ADMIN, OPERATOR, VIEWER, actor, needs
from isolation_agent.web.bodies import Text, read_model, read_small, refuse_body
from isolation_agent.web.errors import ApiError
from isolation_agent.web.openapi import Param, documented, openapi
from isolation_agent.web.parameters import only
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


@blueprint.get("/v1/pairs")
@needs(VIEWER)
@documented(answer=Pairs, query=(Param("tenant", {"type": "string"}, "only of this tenant"),))
def pairs() -> Response:
    """List the limits that the fast loops hold now, asked of the enforcers."""
    agent: Agent = current_app.extensions["agent"]
    tenant = only(request.args, "tenant")["tenant"]
    shown: Pairs = {"pairs": [], "silent": {}}
    with closing(open_fleet(agent.settings, agent.clock, Metrics())) as fleet:
        for node, answer in fleet.pairs().items():
            if isinstance(answer, EnforcerError):
                shown["silent"][node] = str(answer)
                continue
            for p in answer.pairs:
                if tenant in (None, p.tenant):
                    shown["pairs"].append(cast("PairShape", {"node": node, **p.model_dump()}))
    return jsonify(shown)


@blueprint.get("/v1/policies")
@needs(VIEWER)
@documented(answer=Policies, query=(Param("version", {"type": "string"}, "an earlier one that was put"),))
def policies() -> Response:
    """Show the policies and guards in force, or an earlier version that was put here."""
    agent: Agent = current_app.extensions["agent"]
    version = only(request.args, "version")["version"]
    found = agent.settings.policies if version is None else content_of(agent.store, version)
    if found is None:
        raise ApiError(404, "not_found", "there are no policies of that version", "version")
    return jsonify(_policies_shape(agent, found))


@blueprint.put("/v1/policies")
@needs(ADMIN)
@documented(body=PolicyOrder, answer=Policies)
def put() -> Response:
    """Put other policies and guards in force, where the configuration says policies_by: api."""
    agent: Agent = current_app.extensions["agent"]
    wanted = read_model(request, PolicyOrder)
    content = {"version": 1, "policies": wanted.policies, "guards": wanted.guards}
    try:
        new = agent.put_policies(Draft(content, wanted.expected_version, wanted.reason), actor())
    except ConfigError as e:
        raise ApiError(400, "bad_request", str(e), "policies") from e
    except Conflict as e:
        raise ApiError(409, "not_possible", str(e)) from e
    return jsonify(_policies_shape(agent, new))


def _policies_shape(agent: Agent, found: PolicySet) -> Policies:
    return {
        "version": found.version,
        "source": agent.settings.config.policies_by,
        "policies": [p.model_dump(mode="json") for p in found.policies],
        "guards": found.guards.model_dump(mode="json"),
        "changes": changes(agent.store),
    }


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
