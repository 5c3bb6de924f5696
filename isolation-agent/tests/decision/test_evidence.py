"""No limit without evidence: an alert alone, whoever sent it, waits for a person and stands in nobody's way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from isolation_agent.decision.evidence import verified
from isolation_agent.model.node import NodeState, View

from ..support.world import GUARANTEE, PORT, World, events, policy

QUIET = 4_000.0


def view(offered: float | None, *, flood: bool = False, accused: bool = False, **extra: Any) -> View:
    time = "2026-01-02T03:04:05.678901Z"
    port: dict[str, Any] = {
        "port": PORT,
        "tenant": "red",
        "guarantee_bytes_per_second": GUARANTEE,
        "offered": None if offered is None else {"udp_bytes_per_second": offered},
        "signals": {"flood_detected_at": time if flood else None},
        **extra,
    }
    state = NodeState.model_validate({"node": "lb1", "time": time, "ports": [port]})
    return View(state, accused=frozenset({PORT}) if accused else frozenset())


@pytest.mark.parametrize(
    ("shown", "borne_out"),
    [
        (view(10 * GUARANTEE, flood=True), True),
        (view(0.8 * GUARANTEE, flood=True), True),
        (view(0.79 * GUARANTEE, flood=True), False),
        (view(QUIET, flood=True), False),
        (view(None, flood=True), False),
        (view(10 * GUARANTEE), False),
        (view(10 * GUARANTEE, accused=True), True),
        (view(GUARANTEE + 1, accused=True), True),
        (view(GUARANTEE, accused=True), False),
        (view(QUIET, accused=True), False),
        (view(None, accused=True), False),
        (view(10 * GUARANTEE, accused=True, guarantee_bytes_per_second=None), False),
        (view(10 * GUARANTEE, flood=True, attached=False), False),
        (View(None, "no answer", accused=frozenset({PORT})), False),
    ],
)
def test_what_bears_an_alert_out(shown: View, borne_out: bool) -> None:
    assert verified(shown, PORT, 0.8) is borne_out
    assert verified(shown, "another", 0.8) is False


def test_a_port_well_under_its_contract_is_not_limited_by_an_alert(world: World) -> None:
    world.enforcer.ports[PORT].offered = QUIET
    world.post(world.alert())
    world.run(120)
    action = world.only_action()
    assert (action["state"], action["guard"]) == ("pending_approval", "evidence")
    assert "the port sends 32.0 kbit/s of the 40.0 Mbit/s that it bought" in action["reason"]
    assert world.enforcer.count("apply") == 0
    assert world.metric("vigia_agent_actions_suppressed_total", guard="evidence") == 1


def test_a_busy_port_is_not_limited_by_an_alert_alone(world: World) -> None:
    """It borrows what others leave, as it may: QUIC, a backup, a stream."""
    world.enforcer.ports[PORT].offered = 4.0 * GUARANTEE
    world.post(world.alert())
    world.run(120)
    assert world.only_action()["state"] == "pending_approval"
    assert world.enforcer.count("apply") == 0


def test_evidence_that_comes_later_needs_no_person(world: World) -> None:
    world.post(world.alert())
    world.run(5)
    assert world.only_action()["state"] == "pending_approval"
    world.enforcer.flood(PORT)
    world.step(1)
    action = world.only_action()
    assert (action["state"], action["guard"]) == ("active", None)
    assert events(action).index("approval_requested") < events(action).index("limit_verified")


def test_a_victim_that_complains_is_evidence(world: World) -> None:
    world.enforcer.ports[PORT].offered = 4.0 * GUARANTEE
    world.post(world.alert())
    world.step()
    assert world.only_action()["state"] == "pending_approval"
    pair = {"tenant": "red", "rate_bytes_per_second": GUARANTEE, "expires_in_seconds": 0.4}
    world.enforcer.pairs = [pair | {"port": "lb1-blue-120"}]
    world.run(3)
    assert world.only_action()["state"] == "pending_approval", "of another port"
    world.enforcer.pairs.append(pair | {"port": PORT})
    world.step(1)
    assert world.only_action()["state"] == "active"


def test_an_enforcer_that_cannot_tell_of_complaints_is_asked_for_its_state_as_before(world: World) -> None:
    world.enforcer.break_next("pairs", lambda _port: (404, "no such page"), left=None)
    world.post(world.alert())
    world.run(5)
    assert world.only_action()["state"] == "pending_approval"
    world.enforcer.flood(PORT)
    world.step(1)
    assert world.only_action()["state"] == "active"
    assert world.metric("vigia_agent_enforcer_up", node="lb1") == 1


def test_a_person_may_approve_without_evidence(world: World) -> None:
    world.enforcer.ports[PORT].offered = 0.9 * GUARANTEE
    world.post(world.alert())
    world.step()
    action = world.only_action()
    world.api("POST", f"/v1/actions/{action['id']}:approve", json={"comment": "seen it on the wire"})
    world.step()
    assert world.only_action()["state"] == "active"


def test_evidence_does_not_replace_a_person_whom_the_policy_asks_for(world: World) -> None:
    world.policies = [policy(approval=True)]
    world.post(world.alert())
    world.step()
    assert world.only_action()["guard"] == "evidence"
    world.enforcer.flood(PORT)
    world.run(5)
    action = world.only_action()
    assert (action["state"], action["guard"]) == ("pending_approval", None)
    assert "asks for a person's approval" in action["reason"]
    assert world.enforcer.count("apply") == 0


def test_a_guard_stops_what_has_evidence_at_last(world: World) -> None:
    world.post(world.alert())
    world.step()
    world.guards = {"allow": [{"tenant": "red", "role": "source", "reason": "a test of ours"}]}
    world.reload()
    world.enforcer.flood(PORT)
    world.run(3)
    action = world.only_action()
    assert (action["state"], action["guard"]) == ("suppressed", "allow_list")


@pytest.mark.parametrize(
    "guards",
    [
        {"max_per_node": 2},
        {"max_active": 2},
        {"max_per_tenant": 2},
        {"breaker": {"actions": 2, "within": "60s"}},
    ],
    ids=lambda g: next(iter(g)),
)
def test_forged_alerts_fill_no_guard(world: World, guards: dict[str, Any]) -> None:
    world.guards = {"max_per_node": 100, "max_active": 100, "max_per_tenant": 100} | guards
    forged = [f"p{i}" for i in range(20)]
    for port in forged:
        world.enforcer.add(port, "red", offered=2.0 * GUARANTEE)
    world.post(*[world.alert(p) for p in forged])
    world.step()
    world.enforcer.flood(PORT)
    world.post(world.alert())
    world.step()
    (real,) = world.actions(state="active")
    assert real["port"] == PORT
    assert len(world.actions(state="pending_approval")) == 20
    assert all(world.enforcer.limit_of(p) is None for p in forged)


def test_limits_that_people_approved_without_evidence_hold_no_flood_back(world: World) -> None:
    world.guards = {"max_per_node": 2, "max_active": 2, "max_per_tenant": 2}
    for port in ("p0", "p1"):
        world.enforcer.add(port, "red", offered=0.95 * GUARANTEE)
        world.post(world.alert(port))
    world.step()
    for action in world.actions():
        world.api("POST", f"/v1/actions/{action['id']}:approve", json={"comment": "by mistake"})
    world.step()
    assert len(world.actions(state="active")) == 2
    for port in (PORT, "p2"):
        world.flood_more(port) if port != PORT else world.enforcer.flood(port)
        world.post(world.alert(port))
        world.step()
    assert {a["port"] for a in world.actions(state="active")} == {"p0", "p1", "p2", PORT}
    world.flood_more("p3")
    assert world.actions()[0]["guard"] == "max_per_tenant", "two with evidence are the most"


def test_ten_thousand_forged_alerts_keep_no_flood_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isolation_agent.actions.controller._UNDECIDED_PER_TURN", 3)
    for i in range(30):
        world.enforcer.add(f"p{i}", "red")
    world.post(*[world.alert(f"p{i}") for i in range(30)])
    world.enforcer.flood(PORT)
    world.post(world.alert())
    assert world.agent.controller.step() is True, "there is more to do"
    (first,) = world.actions(state="active")
    assert first["port"] == PORT


def test_nobody_is_asked_about_an_old_alert_that_nothing_bears_out(world: World) -> None:
    world.post(world.alert(startsAt=(world.clock.now() - timedelta(hours=1)).isoformat()))
    world.run(30)
    assert world.actions() == []


def test_no_limit_lasts_longer_than_a_minute_without_the_agent(world: World) -> None:
    world.policies = [
        policy(ttl="60s", cooldown="0s", repeat_within="1h", release={"hold": "2s", "probe": "2s"})
    ]
    world.guards = {"max_per_tenant": 100}
    for _ in range(6):  # floods that come back
        world.enforcer.flood(PORT)
        world.post(world.alert())
        world.run(12)
        world.enforcer.calm(PORT)
        world.run(3)
        world.enforcer.flood(PORT)  # while the limit is relaxed
        world.run(5)
        world.enforcer.calm(PORT)
        world.run(8)
    sent = [c.body["ttl_seconds"] for c in world.enforcer.calls if c.operation == "apply" and c.body]
    assert len(sent) > 12
    assert max(sent) <= 60
    assert world.enforcer.limit_of(PORT) is None
    world.enforcer.flood(PORT)
    world.post(world.alert())
    world.step()
    assert world.enforcer.limit_of(PORT) is not None
    world.stop()
    world.clock.advance(61)
    assert world.enforcer.limit_of(PORT) is None


@pytest.mark.parametrize("field", ["ttl", "ttl_max"])
def test_a_policy_cannot_ask_for_more(world: World, field: str) -> None:
    world.policies = [policy(**{field: "61s"})]
    with pytest.raises(Exception, match=rf"policies\[0\]\.{field}: .*2s to 60s"):
        world.settings()
