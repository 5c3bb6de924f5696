"""The chain of guards: order, reasons, metrics, and what each one protects."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from isolation_agent.decision.evidence import flooding
from isolation_agent.decision.guards import GUARDS
from isolation_agent.decision.levels import effective_level, spec_of
from isolation_agent.decision.situation import Situation
from isolation_agent.decision.verdict import judge
from isolation_agent.model.node import Limit, NodeState, Offered, PortState, Signals, View
from isolation_agent.model.target import Target
from isolation_agent.policy import AllowEntry, Guards, Policy

from ..support.fake_enforcer import KernelLimit
from ..support.world import GUARANTEE, PORT, World, events, policy

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ORDER = [
    "inventory",
    "unsupported",
    "other_limit",
    "policy",
    "kill_switch",
    "dry_run",
    "allow_list",
    "infrastructure",
    "floor",
    "cooldown",
    "max_per_tenant",
    "max_per_node",
    "max_active",
    "breaker",
]


def view(**port: Any) -> View:
    state = {
        "port": PORT,
        "tenant": "red",
        "guarantee_bytes_per_second": GUARANTEE,
        "offered": Offered(udp_bytes_per_second=50e6),
        "signals": Signals(flood_detected_at=NOW),
    } | port
    return View(NodeState(node="lb1", time=NOW, ports=[PortState(**state)]))


def situation(**extra: Any) -> Situation:
    values: dict[str, Any] = {
        "policy": Policy.model_validate(policy()),
        "guards": Guards(),
        "target": Target("lb1", PORT, "red"),
        "labels": {"isolate": "auto"},
        "view": view(),
    }
    return Situation(**values | extra)


def objections() -> dict[str, dict[str, Any]]:
    """For each guard, what makes it object."""
    limit = Limit(id="x", protocol="udp", rate_bytes_per_second=1, expires_in_seconds=1)
    return {
        "inventory": {"view": View(NodeState(node="lb1", time=NOW, ports=[]))},
        "unsupported": {"level": "L1"},
        "other_limit": {"view": view(limit=limit)},
        "policy": {"retired": True},
        "kill_switch": {"kill_switch": True},
        "dry_run": {"dry_run": True},
        "allow_list": {"guards": Guards(allow=[AllowEntry(tenant="red", role="source", reason="backup")])},
        "infrastructure": {"guards": Guards(infrastructure=["red"])},
        "floor": {"view": view(guarantee_bytes_per_second=None)},
        "cooldown": {"cooldown_left": 3.0},
        "max_per_tenant": {"active_of_tenant": 3},
        "max_per_node": {"active_on_node": 10},
        "max_active": {"active": 20},
        "breaker": {"breaker": "too many"},
    }


def test_the_chain_is_in_order() -> None:
    assert [g.name for g in GUARDS if g.name in ORDER] == ORDER
    assert list(objections()) == ORDER


def test_nothing_objects_by_itself() -> None:
    verdict = judge(situation())
    assert verdict.allowed
    assert (verdict.level, verdict.rate, verdict.also) == ("L2", GUARANTEE, {})


@pytest.mark.parametrize("guard", ORDER[:-1])
def test_each_guard_stops_the_action_and_says_why(guard: str) -> None:
    verdict = judge(situation(**objections()[guard]))
    assert verdict.guard == guard
    assert not verdict.allowed
    assert verdict.reason


@pytest.mark.parametrize(("first", "second"), list(pairwise(ORDER[1:-1])))
def test_of_two_the_earlier_is_the_reason_and_the_later_is_named(first: str, second: str) -> None:
    a, b = objections()[first], objections()[second]
    if "guards" in a and "guards" in b:
        both = {"guards": Guards(allow=a["guards"].allow, infrastructure=b["guards"].infrastructure)}
    else:
        both = a | b
    verdict = judge(situation(**both))
    assert verdict.guard == first
    assert next(iter(verdict.also)) == second


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"view": View(None, "connection refused")}, "connection refused"),
        ({"target": Target("lb1", "other", "red")}, "has no port other"),
        ({"view": view(tenant="green")}, "belongs to tenant green"),
        ({"view": view(attached=False)}, "no program attached"),
    ],
)
def test_inventory_has_to_agree_with_the_alert(change: dict[str, Any], says: str) -> None:
    verdict = judge(situation(**change))
    assert verdict.guard == "inventory"
    assert says in verdict.reason


def test_the_breaker_hands_over_to_a_person() -> None:
    verdict = judge(situation(breaker="51 actions began within 60s"))
    assert verdict.allowed
    assert "51 actions began" in verdict.approval
    assert not judge(situation(breaker="51 actions", approved_by="eve")).approval


@pytest.mark.parametrize("guard", ["cooldown", "max_per_tenant", "max_per_node", "max_active"])
def test_a_person_decides_about_what_holds_back_automation(guard: str) -> None:
    assert judge(situation(**objections()[guard], approved_by="eve")).allowed


@pytest.mark.parametrize("guard", ["kill_switch", "dry_run", "allow_list", "infrastructure", "floor"])
def test_no_person_decides_about_the_rest(guard: str) -> None:
    assert judge(situation(**objections()[guard], approved_by="eve")).guard == guard


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"labels": {"isolate": "approve"}}, "the alert asks"),
        ({"policy": Policy.model_validate(policy(approval=True))}, "policy udp-flood asks"),
        ({"level": "L4", "view": view()}, "below what the tenant bought"),
    ],
)
def test_what_a_person_has_to_approve(change: dict[str, Any], why: str) -> None:
    s = situation(**change)
    assert s.view.state is not None
    able = View(s.view.state.model_copy(update={"supports": frozenset({"below_floor"})}))
    verdict = judge(replace(s, view=able))
    assert verdict.allowed
    assert why in verdict.approval


def test_a_tenant_in_dry_run() -> None:
    verdict = judge(situation(guards=Guards(dry_run_tenants=["red"])))
    assert verdict.guard == "dry_run"
    assert "tenant red is in dry run" in verdict.reason


def test_an_entry_added_at_run_time_shields_too() -> None:
    entry = AllowEntry(tenant="red", role="source", reason="load test")
    assert judge(situation(allowed_since=[entry])).guard == "allow_list"


@pytest.mark.parametrize(
    ("level", "port", "fields"),
    [
        ("L1", {}, {"protocol": "all", "rate_bytes_per_second": GUARANTEE}),
        ("L2", {}, {"protocol": "udp", "rate_bytes_per_second": GUARANTEE}),
        (
            "L3",
            {"pps_guarantee": 1000, "new_flows_guarantee": 50},
            {
                "protocol": "udp",
                "rate_bytes_per_second": GUARANTEE,
                "packets_per_second": 1000,
                "new_flows_per_second": 50,
            },
        ),
        ("L4", {}, {"protocol": "udp", "rate_bytes_per_second": 0}),
    ],
)
def test_every_level_is_a_limit(level: str, port: dict[str, Any], fields: dict[str, Any]) -> None:
    found = view(**port)
    assert found.state is not None
    assert spec_of(level, found.state.ports[0]).fields() == fields


def test_an_enforcer_that_can_do_a_level_is_asked_for_it() -> None:
    state = view().state
    assert state is not None
    able = View(state.model_copy(update={"supports": frozenset({"all"})}))
    assert judge(situation(level="L1", view=able)).allowed
    assert judge(situation(level="L3", view=able)).guard == "unsupported"


@pytest.mark.parametrize(("tenants", "most"), [(0, 20), (400, 20), (401, 21), (2000, 100)])
def test_the_global_cap_grows_with_the_cloud(tenants: int, most: int) -> None:
    assert Guards().most_active(tenants) == most
    assert Guards(max_active=7).most_active(tenants) == 7


def test_own_limit_is_no_other_limit() -> None:
    limit = Limit(id="mine", protocol="udp", rate_bytes_per_second=1, expires_in_seconds=1)
    assert judge(situation(view=view(limit=limit), action_id="mine")).allowed
    assert judge(situation(view=view(limit=limit), action_id="yours")).guard == "other_limit"


@pytest.mark.parametrize("tenant", ["_infra", "_unresolved"])
def test_infrastructure_is_never_acted_upon(tenant: str) -> None:
    verdict = judge(situation(target=Target("lb1", PORT, tenant), view=view(tenant=tenant)))
    assert verdict.guard == "infrastructure"


@pytest.mark.parametrize(
    ("entry", "labels", "stopped"),
    [
        ({"tenant": "red", "role": "source"}, {}, True),
        ({"port": PORT, "role": "source"}, {}, True),
        ({"tenant": "red", "port": PORT, "role": "source"}, {}, True),
        ({"tenant": "red", "port": "another", "role": "source"}, {}, False),
        ({"tenant": "blue", "role": "source"}, {}, False),
        ({"tenant": "red", "role": "victim"}, {}, False),
        ({"tenant": "red", "role": "either"}, {}, True),
        ({"tenant": "blue", "role": "victim"}, {"victim": "blue"}, True),
        ({"tenant": "blue", "role": "either"}, {"victim": "blue"}, True),
        ({"tenant": "blue", "role": "source"}, {"victim": "blue"}, False),
        ({"tenant": "blue", "role": "victim"}, {"victim": "green"}, False),
    ],
)
def test_allow_list_goes_by_role(entry: dict[str, str], labels: dict[str, str], stopped: bool) -> None:
    guards = Guards(allow=[AllowEntry(**entry, reason="agreed")])
    verdict = judge(situation(guards=guards, labels={"isolate": "auto"} | labels))
    assert (verdict.guard == "allow_list") is stopped
    assert verdict.allowed is not stopped


def test_dry_run_names_what_would_be_done_and_what_else_would_stop_it() -> None:
    verdict = judge(situation(dry_run=True, active=20))
    assert verdict.guard == "dry_run"
    assert f"would cap all but TCP of {PORT} at the guarantee of 40.0 Mbit/s" in verdict.reason
    assert list(verdict.also) == ["max_active"]


def test_observing_needs_the_inventory_only() -> None:
    observe = Policy.model_validate(policy(level="L0"))
    verdict = judge(situation(policy=observe, kill_switch=True, dry_run=True, active=99))
    assert verdict.allowed
    assert (verdict.level, verdict.rate) == ("L0", None)
    assert judge(situation(policy=observe, target=Target("lb1", "no", "red"))).guard == "inventory"


@pytest.mark.parametrize(
    ("labels", "level"),
    [({"isolate": "auto"}, "L2"), ({"isolate": "manual"}, "L0"), ({}, "L0"), ({"isolate": "AUTO"}, "L0")],
)
def test_only_auto_is_automatic(labels: dict[str, str], level: str) -> None:
    assert effective_level(Policy.model_validate(policy()), labels) == level


@pytest.mark.parametrize(
    ("port", "is_flood"),
    [
        ({}, True),
        ({"signals": Signals(flood_detected_at=None)}, False),
        ({"signals": None}, False),
        ({"offered": None}, False),
        ({"attached": False}, False),
        ({"offered": Offered(udp_bytes_per_second=0.79 * GUARANTEE)}, False),
        ({"offered": Offered(udp_bytes_per_second=0.8 * GUARANTEE)}, True),
        ({"offered": Offered(udp_bytes_per_second=0), "guarantee_bytes_per_second": None}, False),
        ({"signals": Signals(flood_detected_at=NOW, flood_last_seen_at=NOW - timedelta(seconds=6))}, False),
        ({"signals": Signals(flood_detected_at=NOW, flood_last_seen_at=NOW - timedelta(seconds=4))}, True),
    ],
)
def test_evidence_is_detection_now_and_load(port: dict[str, Any], is_flood: bool) -> None:
    assert flooding(view(**port), PORT, 0.8) is is_flood


def test_no_view_is_no_evidence() -> None:
    assert not flooding(None, PORT, 0.8)
    assert not flooding(View(None, "down"), PORT, 0.8)
    assert not flooding(view(), "another", 0.8)


def test_situation_is_a_value() -> None:
    a = situation()
    assert judge(replace(a, kill_switch=True)).guard == "kill_switch"
    assert judge(a).allowed, "deciding changes nothing"


# The chain at work in the agent


def suppressed(world: World, guard: str) -> dict[str, Any]:
    action = world.only_action()
    assert (action["state"], action["guard"]) == ("suppressed", guard)
    assert world.enforcer.count("apply") == 0
    assert world.metric("vigia_agent_actions_suppressed_total", guard=guard) == 1
    record = next(r for r in world.audit_records() if r["event"] == "action.suppressed")
    assert record["reason"] == action["reason"]
    assert record["detail"]["guard"] == guard
    return action


def test_suppression_is_counted_and_audited_once_however_often_it_is_looked_at(world: World) -> None:
    world.guards = {"kill_switch": True}
    world.flood()
    world.run(20)
    suppressed(world, "kill_switch")
    assert world.audit_events().count("action.suppressed") == 1


def test_dry_run_of_the_agent(world: World) -> None:
    world.extra = {"dry_run": True}
    action = world.flood()
    assert world.metric("vigia_agent_dry_run") == 1
    assert "40.0 Mbit/s" in suppressed(world, "dry_run")["reason"]
    assert action["evidence"]["signals"]["flood_score"] == 85


def test_dry_run_of_a_policy(world: World) -> None:
    world.policies = [policy(dry_run=True)]
    world.flood()
    assert "policy udp-flood is in dry run" in suppressed(world, "dry_run")["reason"]


def test_allow_list(world: World) -> None:
    world.guards = {"allow": [{"tenant": "red", "role": "source", "reason": "load test until Friday"}]}
    world.flood()
    assert "load test until Friday" in suppressed(world, "allow_list")["reason"]


def test_infrastructure(world: World) -> None:
    world.enforcer.flood("lb1-infra-1")
    world.post(world.alert("lb1-infra-1", "_infra"))
    world.step()
    suppressed(world, "infrastructure")


def test_alert_about_another_tenants_port_changes_nothing(world: World) -> None:
    world.enforcer.flood("lb1-blue-120")
    world.post(world.alert("lb1-blue-120", "red"))
    world.step()
    assert "belongs to tenant blue" in suppressed(world, "inventory")["reason"]


def test_false_alert_does_not_block_the_true_one(world: World) -> None:
    world.enforcer.flood(PORT)
    world.post(world.alert(PORT, "blue"))
    world.step()
    world.post(world.alert(PORT, "red"))
    world.step(1)
    assert {a["tenant"]: a["state"] for a in world.actions()} == {"blue": "suppressed", "red": "active"}


def test_floor_without_a_guarantee(world: World) -> None:
    world.enforcer.ports[PORT].guarantee = None
    world.flood()
    suppressed(world, "floor")


def test_limit_of_somebody_else_is_not_replaced(world: World) -> None:
    world.enforcer.ports[PORT].limit = KernelLimit("foreign", GUARANTEE, 1, world.clock.monotonic() + 60)
    world.enforcer.flood(PORT)
    world.post(world.alert())
    world.step()
    actions = {a["state"]: a for a in world.actions()}
    assert actions["suppressed"]["guard"] == "other_limit"
    assert actions["orphaned"]["id"] == "foreign"
    assert world.enforcer.count("apply") == 0
    world.run(62)
    assert world.actions(state="active"), "its time is over, the flood is not"


def test_cooldown_after_a_release(world: World) -> None:
    world.flood()
    world.enforcer.calm(PORT)
    world.post(world.alert(status="resolved", startsAt="2026-01-02T03:04:05.678901Z"))
    world.run(12)
    assert world.actions()[0]["state"] == "reverted"
    world.enforcer.flood(PORT)
    world.post(world.alert())
    world.step(1)
    newest = world.action(world.actions()[0]["id"])
    assert (newest["state"], newest["guard"]) == ("suppressed", "cooldown")
    world.run(22)
    newest = world.action(newest["id"])
    assert newest["state"] == "active", (
        "the same action goes on once the cooldown is over and the flood is not"
    )
    assert events(newest).index("suppressed") < events(newest).index("decided")


def test_max_per_tenant_and_max_active(world: World) -> None:
    world.guards = {"max_active": 3, "max_per_tenant": 2}
    for tenant in ("red", "green"):
        for i in range(3):
            port = f"lb1-{tenant}-{i}"
            world.enforcer.add(port, tenant)
            world.enforcer.flood(port)
            world.post(world.alert(port, tenant))
    world.step()
    states = [(a["tenant"], a["state"], a["guard"]) for a in reversed(world.actions())]
    assert states == [
        ("red", "active", None),
        ("red", "active", None),
        ("red", "suppressed", "max_per_tenant"),
        ("green", "active", None),
        ("green", "suppressed", "max_active"),
        ("green", "suppressed", "max_active"),
    ]
    world.enforcer.calm("lb1-red-0")
    world.run(14)
    active = [(a["tenant"], a["port"]) for a in reversed(world.actions(state="active"))]
    assert active == [("red", "lb1-red-1"), ("red", "lb1-red-2"), ("green", "lb1-green-0")]


def test_guard_lifted_needs_evidence_before_anything_is_done(world: World) -> None:
    world.guards = {"kill_switch": True}
    world.flood()
    world.enforcer.calm(PORT)
    world.guards = {}
    world.reload()
    world.run(5)
    assert world.enforcer.count("apply") == 0, "the alert is old news, and the source is calm"
    world.enforcer.flood(PORT)
    world.run(2)
    assert world.only_action()["state"] == "active"


def test_suppressed_action_is_closed_with_its_alert(world: World) -> None:
    world.guards = {"kill_switch": True}
    world.flood()
    world.post(world.alert(status="resolved"))
    world.step(1)
    action = world.only_action()
    assert action["ended_at"] is not None
    assert (action["state"], action["cause"]) == ("suppressed", "resolved")
    assert "kill switch" in action["reason"], "why nothing was done stays"
