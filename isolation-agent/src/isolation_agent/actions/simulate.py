"""What the agent would do about an alert, without doing anything."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from isolation_agent.alerts.payload import Alert, BadPayload, target_of
from isolation_agent.clock import Clock, rfc3339
from isolation_agent.config import Settings
from isolation_agent.decision.evidence import evidence_of
from isolation_agent.decision.situation import Situation
from isolation_agent.decision.verdict import judge
from isolation_agent.enforcers.fleet import open_fleet
from isolation_agent.metrics import Metrics
from isolation_agent.model.target import Target
from isolation_agent.policy import Policy
from isolation_agent.storage import actions
from isolation_agent.storage.allowlist import allowed_now
from isolation_agent.storage.store import Store

__all__ = ["simulate"]


def simulate(alert: Alert, settings: Settings, clock: Clock) -> dict[str, Any]:
    """Return the decision about an alert. Reads the enforcer and the database, changes nothing."""
    decision: dict[str, Any] = {
        "alert": {
            "status": alert.status,
            "alertname": alert.labels.get("alertname", ""),
            "fingerprint": alert.fingerprint,
            "starts_at": rfc3339(alert.started),
        },
        "policy_version": settings.policies.version,
    }
    policy = settings.policies.find(alert.labels)
    if alert.status == "resolved":
        return decision | _outcome("ignore", "resolved is a hint only: a limit is released on evidence")
    if alert.labels.get("isolate") == "never":
        return decision | _outcome("ignore", "the alert says isolate=never")
    if policy is None:
        return decision | _outcome("ignore", "no policy matches its labels")
    decision["policy"] = policy.name
    try:
        target = target_of(alert.labels)
    except BadPayload as e:
        return decision | _outcome("reject", str(e))
    return decision | _decide(alert, policy, target, settings, clock)


def _decide(alert: Alert, policy: Policy, target: Target, settings: Settings, clock: Clock) -> dict[str, Any]:
    with closing(open_fleet(settings, clock, Metrics())) as fleet:
        view = fleet.look_at(target.node)
        if view.state is not None:
            view = replace(view, accused=fleet.accused([target.node])[target.node])
    situation = Situation(
        policy=policy,
        guards=settings.policies.guards,
        target=target,
        labels=alert.labels,
        view=view,
        dry_run=settings.config.dry_run,
        **_on_record(settings, policy, target, clock),
    )
    verdict = judge(situation)
    shown: dict[str, Any] = {
        "target": {"node": target.node, "port": target.port, "tenant": target.tenant},
        "level": verdict.level,
        "evidence": evidence_of(view, situation.port),
    }
    if verdict.rate is not None:
        rate = {"rate_bytes_per_second": verdict.rate, "ttl_seconds": policy.ttl}
        shown["limit"] = (verdict.spec.fields() if verdict.spec else {}) | rate
    age = abs((clock.now() - alert.started).total_seconds())
    if not verdict.allowed:
        stopped = {"guard": verdict.guard, "also": dict(verdict.also)}
        return shown | _outcome("suppress", verdict.reason) | stopped
    if verdict.level == "L0":
        return shown | _outcome("observe", verdict.reason)
    if age > settings.config.controller.max_alert_age and not situation.verified:
        return shown | _outcome("ignore", f"the alert is {age:.0f}s old and the source shows no flood")
    if verdict.approval:
        return shown | _outcome("ask", f"{verdict.reason}; {verdict.approval}")
    return shown | _outcome("apply", verdict.reason)


def _outcome(decision: str, reason: str) -> dict[str, Any]:
    return {"decision": decision, "reason": reason}


def _on_record(settings: Settings, policy: Policy, target: Target, clock: Clock) -> dict[str, Any]:
    """Return what the database adds to a situation; nothing if there is no database yet."""
    if settings.database_path is not None and not settings.database_path.exists():
        return {}
    with closing(Store(settings.database_url, read_only=True)) as store, store.read() as session:
        held = actions.enforcing(session)
        ended = actions.last_end(session, policy.name, target)
        within = actions.Span.before(clock.now(), settings.policies.guards.per_tenant_within)
        lately = actions.tenants_ended(session, within)[target.tenant]
        kill_switch, breaker = store.kill_switch(), store.breaker()
        allowed = allowed_now(store, clock.now())
    counted = [a for a in held if a.params.get("verified", True)]
    passed = (clock.now() - ended).total_seconds() if ended else policy.cooldown
    return {
        "kill_switch": kill_switch,
        "held": any((a.node, a.port) == (target.node, target.port) for a in held),
        "cooldown_left": max(0.0, policy.cooldown - max(0.0, passed)),
        "active": len(counted),
        "active_on_node": sum(a.node == target.node for a in counted),
        "active_of_tenant": sum(a.tenant == target.tenant for a in counted) + lately,
        "breaker": breaker,
        "allowed_since": allowed,
    }
