"""Up the ladder while it harms, down by a trial, longer for those who do it again."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from ..support.fake_enforcer import FakeEnforcer
from ..support.world import GUARANTEE, PORT, World, alert, events, policy

CEILING = 25_000_000
ABLE = frozenset({"all", "packets", "below_floor"})
HARM = {"alertname": "VigiaTenantInterference"}


def probing(**extra: Any) -> list[dict[str, Any]]:
    return [policy(release={"hold": "10s", "probe": "5s", "offered_below": 0.8}, **extra)]


def harmed(world: World, node: str = "lb1") -> dict[str, Any]:
    labels = {"alertname": HARM["alertname"], "policy": None, "isolate": "manual", "node": node, "port": None}
    return alert(world.clock.now(), tenant="blue", labels=labels)


def rate(world: World) -> int:
    limit = world.enforcer.limit_of(PORT)
    assert limit is not None
    return limit.rate


@pytest.mark.parametrize("minutes", [3, pytest.param(60, marks=pytest.mark.long)])
def test_a_flapping_flood_is_held_and_not_released_again_and_again(world: World, minutes: int) -> None:
    world.policies = probing()
    world.flood()
    states: list[str] = []
    for _ in range(15 * minutes):  # two seconds on, two seconds off
        for change in (world.enforcer.calm, world.enforcer.flood):
            change(PORT)
            for _ in range(2):
                world.step(1.0)
                states += [a.state for a in world.rows()]
                assert rate(world) >= GUARANTEE, "held throughout, and never below what was bought"
    changed = [a != b for a, b in itertools.pairwise(states)]
    assert len(states) == 60 * minutes, "one action, and no second one"
    assert max(sum(changed[i : i + 60]) for i in range(len(changed) - 60)) <= 4, (
        "four changes of state a minute"
    )


# Release by trial


def test_a_limit_is_relaxed_and_watched_before_it_goes(world: World) -> None:
    world.policies = probing()
    world.flood()
    world.enforcer.calm(PORT)
    world.run(11)
    assert world.only_action()["state"] == "stepped_down"
    assert rate(world) == CEILING, "out of the tenant's way, and still measured and ending by itself"
    world.run(3)
    assert world.only_action()["state"] == "stepped_down", "watched for the whole time"
    world.run(3)
    action = world.only_action()
    assert (action["state"], action["cause"]) == ("reverted", "evidence")
    assert world.enforcer.limit_of(PORT) is None
    assert events(action)[-5:] == [
        "offered_below",
        "relaxed",
        "release_decided",
        "released",
        "removal_verified",
    ]


def test_a_flood_that_comes_back_is_capped_again_for_twice_as_long(world: World) -> None:
    world.policies = probing()
    world.flood()
    for doubled in (60, 60):
        world.enforcer.calm(PORT)
        world.run(11)
        assert world.only_action()["state"] == "stepped_down"
        world.enforcer.flood(PORT)
        world.step(1)
        action = world.only_action()
        assert action["state"] == "active"
        assert action["limit"]["ttl_seconds"] == doubled
        assert rate(world) == GUARANTEE
    assert action["relapses"] == 2
    assert world.metric("vigia_agent_relapses_total") == 2
    assert len(world.enforcer.ids) == 1, "always the same limit"


def test_doubling_ends_at_ttl_max(world: World) -> None:
    world.policies = probing(ttl_max="45s")
    world.flood()
    world.enforcer.calm(PORT)
    world.run(11)
    world.enforcer.flood(PORT)
    world.step(1)
    assert world.only_action()["limit"]["ttl_seconds"] == 45


def test_restart_in_the_middle_of_the_trial_goes_on_with_it(world: World) -> None:
    world.policies = probing()
    world.flood()
    world.enforcer.calm(PORT)
    world.run(12)
    world.crash()
    world.step(1)
    assert world.only_action()["state"] == "stepped_down"
    world.run(6)
    assert world.only_action()["state"] == "reverted"


def test_without_evidence_a_relaxed_limit_ends_by_itself(world: World) -> None:
    world.policies = probing()
    world.flood()
    world.enforcer.calm(PORT)
    world.run(11)
    world.enforcer.ports[PORT].offered = None
    world.run(40)
    assert world.only_action()["state"] == "expired"


def test_repeaters_begin_with_a_longer_ttl(world: World) -> None:
    world.policies = [policy(cooldown="0s", repeat_within="10m")]
    ttls = []
    for _ in range(3):
        world.enforcer.flood(PORT)
        world.post(world.alert())
        world.step()
        (active,) = world.actions(state="active")
        ttls.append(active["limit"]["ttl_seconds"])
        world.enforcer.calm(PORT)
        world.run(14)
    assert ttls == [30, 60, 60], "twice, and then as long as any may last"
    world.clock.advance(700)
    world.enforcer.flood(PORT)
    world.post(world.alert())
    world.step()
    assert world.actions(state="active")[0]["limit"]["ttl_seconds"] == 30, "forgiven after repeat_within"


# Stepping up


def test_steps_up_while_others_are_harmed(world: World) -> None:
    world.policies = [policy(level="L1", step={"up_to": "L3", "harm": HARM, "after": "10s"})]
    world.enforcer.supports = ABLE
    world.enforcer.ports[PORT].pps_guarantee = 1000
    world.flood()
    limit = world.enforcer.limit_of(PORT)
    assert limit is not None
    assert (limit.protocol, limit.rate) == ("all", GUARANTEE)
    world.run(20)
    assert world.only_action()["level"] == "L1", "a flood alone is no harm to others"
    world.post(harmed(world))
    world.run(9)
    assert world.only_action()["level"] == "L1"
    world.run(3)
    action = world.only_action()
    assert (action["level"], action["state"]) == ("L2", "stepped_up")
    world.run(12)
    action = world.only_action()
    assert action["level"] == "L3"
    limit = world.enforcer.limit_of(PORT)
    assert limit is not None
    assert limit.packets == 1000
    world.run(30)
    assert world.only_action()["level"] == "L3", "no further than up_to"
    assert [e for e in events(action) if e == "stepped_up"] == ["stepped_up"] * 2


def test_harm_on_another_node_is_no_reason(world: World) -> None:
    world.policies = [policy(level="L1", step={"up_to": "L2", "harm": HARM, "after": "1s"})]
    world.enforcer.supports = ABLE
    world.flood()
    world.post(harmed(world, node="lb2"))
    world.run(10)
    assert world.only_action()["level"] == "L1"


def test_harm_that_ends_starts_the_time_anew(world: World) -> None:
    world.policies = [policy(level="L1", step={"up_to": "L2", "harm": HARM, "after": "10s"})]
    world.enforcer.supports = ABLE
    world.flood()
    message = harmed(world)
    world.post(message)
    world.run(8)
    world.post(message | {"status": "resolved"})
    world.run(3)
    world.post(harmed(world))
    world.run(8)
    assert world.only_action()["level"] == "L1"


def test_nothing_automatic_goes_below_the_floor(world: World) -> None:
    world.policies = [policy(level="L2", step={"up_to": "L4", "harm": HARM, "after": "1s"})]
    world.enforcer.supports = frozenset({"below_floor", "packets"})
    world.enforcer.ports[PORT].pps_guarantee = 1000
    world.flood()
    world.post(harmed(world))
    world.run(20)
    action = world.only_action()
    assert action["level"] == "L3"
    refused = [t for t in action["timeline"] if t["event"] == "step_refused"]
    assert len(refused) == 1, "said once"
    assert "below what the tenant bought" in refused[0]["detail"]["reason"]
    assert rate(world) == GUARANTEE
    assert world.api("POST", f"/v1/actions/{action['id']}:step", json={"level": "L4"}).status_code == 202
    world.step(1)
    assert rate(world) == 0, "a person may"
    assert world.only_action()["approved_by"] == "api@127.0.0.1"
    assert [c.body["approved_by"] for c in world.enforcer.calls if c.body and c.body.get("approved_by")]


def test_an_enforcer_that_cannot_is_not_asked(world: World) -> None:
    world.policies = [policy(level="L3")]
    world.flood()
    action = world.only_action()
    assert (action["state"], action["guard"]) == ("suppressed", "unsupported")
    assert world.enforcer.count("apply") == 0


@pytest.mark.parametrize("verb", ["extend", "step"])
def test_only_limits_in_force_are_kept_or_changed(world: World, verb: str) -> None:
    world.guards = {"kill_switch": True}
    action = world.flood()
    body = {"extend": {"seconds": 60}, "step": {"level": "L4"}}[verb]
    response = world.api("POST", f"/v1/actions/{action['id']}:{verb}", json=body)
    assert response.status_code == 409
    assert "suppressed" in response.get_json()["error"]["message"]


def test_a_person_keeps_a_limit(world: World) -> None:
    action = world.flood()
    assert world.api("POST", f"/v1/actions/{action['id']}:extend", json={"seconds": 120}).status_code == 202
    world.enforcer.calm(PORT)
    world.run(100, each=5)
    assert world.only_action()["state"] == "active", "kept although the flood is over"
    world.run(40, each=2)
    assert world.only_action()["state"] == "reverted"


@pytest.mark.parametrize(("asked", "state"), [(120, "active"), (0, "expired")])
def test_what_a_port_offers_may_be_unknown(world: World, asked: int, state: str) -> None:
    """As at a port without a device in the kernel: an order holds, and what nobody has ordered ends by its TTL."""
    action = world.flood()
    if asked:
        said = world.api("POST", f"/v1/actions/{action['id']}:extend", json={"seconds": asked})
        assert said.status_code == 202
    world.enforcer.ports[PORT].offered = None
    world.run(100, each=5)
    assert world.only_action()["state"] == state
    world.run(150, each=5)
    assert world.only_action()["state"] == "expired"


def test_a_person_keeps_a_limit_that_is_relaxed_on_trial(world: World) -> None:
    """What was ordered holds: the limit is set again at once, as it was, and released when nobody wants it any more."""
    world.policies = [policy(release={"hold": "4s", "probe": "30s", "offered_below": 0.8})]
    action = world.flood()
    world.enforcer.calm(PORT)
    world.run(8)
    assert world.only_action()["state"] == "stepped_down"
    assert world.api("POST", f"/v1/actions/{action['id']}:extend", json={"seconds": 120}).status_code == 202
    world.step(2)
    kept = world.only_action()
    assert (kept["state"], kept["timeline"][-1]["event"]) == ("active", "kept")
    assert rate(world) == GUARANTEE
    assert world.metric("vigia_agent_relapses_total") == 0, "nobody flooded"
    world.run(50, each=2)
    assert world.only_action()["state"] == "active", "no second trial meanwhile"
    world.run(120, each=2)
    assert world.only_action()["state"] == "reverted"


def test_each_order_of_a_level_is_answered(world: World) -> None:
    """One that is refused again is over, too: it does not wait for the day when the guards let it."""
    world.policies = [policy(level="L2", step={"up_to": "L3", "harm": HARM, "after": "1s"})]
    world.enforcer.supports = frozenset({"packets"})
    world.enforcer.ports[PORT].pps_guarantee = 1000
    action = world.flood()
    for asked in (1, 2):
        response = world.api("POST", f"/v1/actions/{action['id']}:step", json={"level": "L4"})
        assert response.status_code == 202
        world.step(1)
        events = [t["event"] for t in world.only_action()["timeline"]]
        assert events.count("step_refused") == asked
    world.enforcer.supports = frozenset({"packets", "below_floor"})
    world.run(3)
    assert world.only_action()["level"] == "L2", "the order is over"
    world.post(harmed(world))
    world.run(4)
    assert world.only_action()["level"] == "L3", "and the policy's own step is taken"


# Guards that count


def test_what_a_clock_that_was_ahead_has_written_does_not_count(world: World) -> None:
    """An hour too late on record, and an hour to come: neither trips the breaker, nor fills a tenant's number."""
    world.guards = {
        "breaker": {"actions": 1, "within": "60s"},
        "max_per_tenant": 50,
        "per_tenant_within": "600s",
    }
    world.flood()
    world.enforcer.calm(PORT)
    world.run(30)
    assert world.only_action()["state"] == "reverted"
    world.clock.wall -= timedelta(hours=1)
    world.enforcer.add("p2", "red")
    world.enforcer.flood("p2")
    world.post(world.alert("p2"))
    world.step()
    assert world.metric("vigia_agent_breaker_tripped") == 0
    assert {a["state"] for a in world.actions()} == {"reverted", "active"}


@pytest.mark.parametrize(
    ("back", "seconds", "state"),
    [
        pytest.param(timedelta(hours=1), 20, "reverted", id="far: not two hours"),
        pytest.param(timedelta(seconds=30), 60, "active", id="a little: the order is not lost"),
    ],
)
def test_a_persons_limit_while_a_clock_is_set_back(
    world: World, back: timedelta, seconds: int, state: str
) -> None:
    action = world.flood()
    assert world.api("POST", f"/v1/actions/{action['id']}:extend", json={"seconds": 3600}).status_code == 202
    world.clock.wall -= back
    world.enforcer.calm(PORT)
    world.run(seconds, each=2)
    assert world.only_action()["state"] == state


def test_breaker_hands_everything_to_a_person_until_it_is_reset(world: World) -> None:
    world.guards = {"breaker": {"actions": 3, "within": "60s"}, "max_per_tenant": 50}
    for i in range(4):
        world.enforcer.add(f"p{i}", "red")
        world.enforcer.flood(f"p{i}")
    world.post(*[world.alert(f"p{i}") for i in range(4)])
    world.step()
    assert {a["state"] for a in world.actions()} == {"pending_approval"}
    assert world.enforcer.count("apply") == 0
    assert world.metric("vigia_agent_breaker_tripped") == 1
    assert world.metric("vigia_agent_actions_suppressed_total", guard="breaker") == 4
    assert "breaker.tripped" in world.audit_events()
    assert "4 actions began" in world.api("GET", "/v1/breaker").get_json()["reason"]
    world.clock.advance(100)
    world.flood_more("p9")
    assert world.actions()[0]["state"] == "pending_approval", "time alone does not reset it"
    assert world.api("PUT", "/v1/breaker", json={"tripped": False, "reason": "seen"}).status_code == 200
    world.flood_more("p10")
    assert world.actions()[0]["state"] == "active"


def test_a_tenant_gets_so_many_limits_in_ten_minutes(world: World) -> None:
    world.policies = [policy(cooldown="0s")]
    for _ in range(4):
        world.enforcer.flood(PORT)
        world.post(world.alert())
        world.step()
        world.enforcer.calm(PORT)
        world.run(14)
    last = world.actions()[0]
    assert last["guard"] == "max_per_tenant"
    assert [a["state"] for a in world.actions()[1:]] == ["reverted"] * 3


def test_kill_switch_ends_a_hundred_limits_with_one_request_each_node(world: World) -> None:
    many = 100
    world.guards = {
        "max_per_tenant": many,
        "max_per_node": many,
        "max_active": many,
        "breaker": {"actions": many},
    }
    for i in range(many):
        world.enforcer.add(f"p{i}", "red")
        world.enforcer.flood(f"p{i}")
    world.post(*[world.alert(f"p{i}") for i in range(many)])
    world.step()
    assert len(world.actions(state="active", limit="1000")) == many
    world.api("PUT", "/v1/killswitch", json={"on": True})
    world.step()
    assert world.enforcer.count("remove_all") == 1
    assert world.enforcer.count("remove") == 0
    assert all(world.enforcer.limit_of(f"p{i}") is None for i in range(many))
    assert len(world.actions(state="reverted", limit="1000")) == many
    assert world.verify_audit().ok


def test_kill_switch_and_a_node_that_does_not_answer(world: World) -> None:
    """It is asked again, with its back-off, as long as it takes; the others are not, and the log does not grow."""
    lb2 = FakeEnforcer(world.peers_clock, "lb2")
    world.enforcers["lb2"] = lb2
    for operation in ("state", "remove_all"):
        lb2.break_next(operation, "drop", left=None)
    world.flood()
    world.api("PUT", "/v1/killswitch", json={"on": True})
    world.run(600, each=3)
    assert world.enforcer.limit_of(PORT) is None
    assert world.enforcer.count("remove_all") == 1
    assert 10 <= lb2.count("remove_all") < 100
    records = [r for r in world.audit_records() if r["event"] == "killswitch.enforced"]
    assert len(records) == 1
    assert set(records[0]["nodes"]) == {"lb1", "lb2"}
    lb2.faults.clear()
    world.run(60, each=3)
    records = [r for r in world.audit_records() if r["event"] == "killswitch.enforced"]
    assert [r["nodes"] for r in records[1:]] == [{"lb2": "0"}]
    done = lb2.count("remove_all")
    world.run(60, each=3)
    assert lb2.count("remove_all") == done
    assert world.enforcer.count("remove_all") == 1
    world.api("PUT", "/v1/killswitch", json={"on": False})
    world.step()
    world.api("PUT", "/v1/killswitch", json={"on": True})
    world.step()
    assert world.enforcer.count("remove_all") == 2, "turned on again"


@pytest.mark.parametrize("by", ["api", "policy file"])
def test_kill_switch_is_heard_in_the_middle_of_a_long_turn(world: World, by: str) -> None:
    many = 20
    world.guards = {
        "max_per_tenant": many,
        "max_per_node": many,
        "max_active": many,
        "breaker": {"actions": many},
    }
    for i in range(many):
        world.enforcer.add(f"p{i}", "red")
        world.enforcer.flood(f"p{i}")
    world.post(*[world.alert(f"p{i}") for i in range(many)])

    def turn() -> None:
        if by == "api":
            world.api("PUT", "/v1/killswitch", json={"on": True})
        else:
            world.guards["kill_switch"] = True
            world.reload()

    def slow(_port: str) -> None:
        world.clock.advance(0.5)
        if world.enforcer.count("apply") == 3:
            turn()

    world.enforcer.break_next("apply", slow, left=None)
    world.step()
    assert world.enforcer.count("apply") == 3, "those that follow are not taken first"
    assert world.enforcer.count("remove_all") == 1
    assert all(world.enforcer.limit_of(f"p{i}") is None for i in range(many))
    world.step()
    assert world.actions(state="active") == []
