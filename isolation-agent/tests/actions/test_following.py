"""A limit whose port is gone follows its workload, for what is left of its time, and no further than evidence goes."""

from __future__ import annotations

from typing import Any

import pytest

from ..support.fake_enforcer import FakeEnforcer
from ..support.world import GUARANTEE, World, events, policy

OLD, NEW, POD = "u-1/eth0", "u-2/eth0", "db-0"
FLOOD = 50_000_000


@pytest.fixture
def there(world: World) -> FakeEnforcer:
    """The node to which the pod will go."""
    world.enforcer.add(OLD, "red", workload=POD)
    return world.add_node("lb2")


def limited(world: World, **extra: Any) -> dict[str, Any]:
    """The pod floods on its first node, and is limited there."""
    world.enforcer.flood(OLD)
    assert world.post(world.alert(OLD, **extra)).status_code == 200
    world.step()
    action = world.only_action()
    assert action["state"] == "active"
    return action


def gone(world: World) -> None:
    """The pod is deleted, and the limit with its port."""
    del world.enforcer.ports[OLD]
    world.step(1)


def moved(world: World, there: FakeEnforcer, port: str = NEW, **extra: Any) -> None:
    """The pod is on the other node, where it has sent nothing yet."""
    gone(world)
    there.add(port, "red", **{"workload": POD, **extra})
    world.step(1)


def newest(world: World) -> dict[str, Any]:
    return world.action(world.actions()[0]["id"])


def seconds_left(world: World, there: FakeEnforcer, port: str = NEW) -> float:
    limit = there.limit_of(port)
    assert limit is not None
    return limit.expires - world.clock.monotonic()


def test_a_limit_follows_a_pod_to_another_node_for_what_is_left_of_it(
    world: World, there: FakeEnforcer
) -> None:
    before = limited(world)
    world.step(6)  # not extended yet: 24 s are left, of which two more pass
    moved(world, there)
    action, first = newest(world), world.action(before["id"])
    limit = there.limit_of(NEW)
    assert limit is not None and (limit.id, limit.rate) == (action["id"], GUARANTEE)
    assert 21 <= seconds_left(world, there) <= 22
    assert (action["state"], action["node"], action["port"]) == ("active", "lb2", NEW)
    assert (action["policy"], action["level"]) == (before["policy"], before["level"])
    assert action["reason"].startswith(f"follows action {before['id']} from lb1, whose port is gone; cap all")
    assert events(action) == ["follows", "limit_applied", "limit_verified"]
    assert action["timeline"][0]["detail"]["action"] == before["id"]
    assert [r["labels"]["port"] for r in action["reasons"]] == [OLD], "the alert that led to it"
    assert (first["state"], first["cause"]) == ("expired", "gone")
    assert first["timeline"][-1]["event"] == "followed"
    assert first["timeline"][-1]["detail"] == {"action": action["id"], "node": "lb2", "port": NEW}
    records = world.audit_records()
    assert [r["event"] for r in records[-3:]] == ["action.followed", "action.intent", "action.active"]
    assert records[-2]["detail"]["follows"]["action"] == before["id"]
    assert world.verify_audit().ok


def test_it_lasts_as_long_as_the_flood_goes_on_there_and_is_released_on_evidence(
    world: World, there: FakeEnforcer
) -> None:
    limited(world)
    moved(world, there)
    there.flood(NEW)
    world.run(60)
    action = newest(world)
    assert (action["state"], action["extensions"] > 0) == ("active", True)
    assert there.ids == [action["id"]], "one limit all the time"
    there.calm(NEW)
    world.run(14)
    action = newest(world)
    assert (action["state"], action["cause"]) == ("reverted", "evidence")
    assert (there.limit_of(NEW), len(world.actions())) == (None, 2)


def test_who_does_not_flood_there_is_free_after_the_hold(world: World, there: FakeEnforcer) -> None:
    limited(world)
    moved(world, there)
    world.run(14)
    action = newest(world)
    assert (action["cause"], action["extensions"]) == ("evidence", 0)
    assert there.limit_of(NEW) is None
    world.run(30)
    assert len(world.actions()) == 2, "nothing follows twice"


def test_a_pod_that_comes_too_late_is_not_limited(world: World, there: FakeEnforcer) -> None:
    limited(world)
    gone(world)
    world.run(31)
    there.add(NEW, "red", workload=POD)
    world.run(5)
    assert (there.count("apply"), len(world.actions())) == (0, 1)


def test_it_follows_over_a_restart_of_the_agent(world: World, there: FakeEnforcer) -> None:
    before = limited(world)
    gone(world)
    world.crash()
    world.step(8)  # the lease of the one that was killed is over
    there.add(NEW, "red", workload=POD)
    world.run(2)
    action = newest(world)
    assert action["state"] == "active" and before["id"] in action["reason"]
    assert seconds_left(world, there) <= 22


def test_it_follows_from_node_to_node(world: World, there: FakeEnforcer) -> None:
    limited(world)
    moved(world, there)
    del there.ports[NEW]
    world.step(1)
    world.enforcer.add("u-3/eth0", "red", workload=POD)
    world.step(1)
    limit = world.enforcer.limit_of("u-3/eth0")
    assert limit is not None and limit.id == newest(world)["id"]
    assert seconds_left(world, world.enforcer, "u-3/eth0") <= 26, "its time does not begin again"
    assert [a["cause"] for a in world.actions()] == [None, "gone", "gone"]


@pytest.mark.parametrize("node", ["lb1", "lb2"])
def test_a_port_that_keeps_its_name_is_followed_too(world: World, there: FakeEnforcer, node: str) -> None:
    """A guest that was migrated, or started again: its port has an id of the cloud's."""
    port = "0f6d3c5e-port-of-neutron"
    world.enforcer.add(port, "red")
    world.enforcer.flood(port)
    world.post(world.alert(port))
    world.step()
    del world.enforcer.ports[port]
    world.step(1)
    world.enforcers[node].add(port, "red")
    world.step(1)
    limit = world.enforcers[node].limit_of(port)
    assert limit is not None and limit.id == newest(world)["id"]
    assert newest(world)["node"] == node


@pytest.mark.parametrize(
    ("port", "extra"),
    [
        (NEW, {"workload": "db-1"}),
        (NEW, {"workload": ""}),
        ("u-2/net1", {}),
        ("u-2", {}),
    ],
    ids=["another pod", "nobody knows whose", "its second interface", "no interface"],
)
def test_other_ports_are_left_alone(
    world: World, there: FakeEnforcer, port: str, extra: dict[str, Any]
) -> None:
    limited(world)
    moved(world, there, port, **extra)
    world.run(5)
    assert (there.count("apply"), len(world.actions())) == (0, 1)


def test_another_tenants_pod_of_that_name_is_left_alone(world: World, there: FakeEnforcer) -> None:
    limited(world)
    gone(world)
    there.add(NEW, "blue", workload=POD)
    world.run(5)
    assert (there.count("apply"), len(world.actions())) == (0, 1)


def test_where_two_ports_are_the_workloads_none_is_taken_until_one_is_gone(
    world: World, there: FakeEnforcer
) -> None:
    limited(world)
    world.enforcer.add("u-9/eth0", "red", workload=POD)
    moved(world, there)
    world.run(3)
    assert len(world.actions()) == 1
    del world.enforcer.ports["u-9/eth0"]
    world.step(1)
    assert there.limit_of(NEW) is not None


@pytest.mark.parametrize(
    "missing", [{"guarantee": None}, {"attached": False}], ids=["no contract", "no program"]
)
def test_what_is_not_there_yet_is_waited_for(
    world: World, there: FakeEnforcer, missing: dict[str, Any]
) -> None:
    """A pod that has just begun: its contract and the program at its port come a moment later."""
    limited(world)
    moved(world, there, **missing)
    world.run(3)
    assert (there.count("apply"), len(world.actions())) == (0, 1)
    there.ports[NEW].guarantee, there.ports[NEW].attached = 3_000_000, True
    world.step(1)
    limit = there.limit_of(NEW)
    assert limit is not None and limit.rate == 3_000_000, "at what is bought there"
    assert seconds_left(world, there) <= 25


def test_a_node_that_does_not_answer_is_asked_again(world: World, there: FakeEnforcer) -> None:
    limited(world)
    there.break_next("apply", "drop", left=2)
    moved(world, there)
    assert newest(world)["state"] == "applying"
    world.run(8)
    assert newest(world)["state"] == "active"
    assert seconds_left(world, there) <= 24, "its time went on meanwhile"


def test_what_cannot_be_set_before_its_time_is_over_has_failed(world: World, there: FakeEnforcer) -> None:
    limited(world)
    there.break_next("apply", "drop", left=None)
    there.add(NEW, "red", workload=POD)
    gone(world)
    there.flood(NEW)  # the node answers, and shows it, but takes no order
    world.run(45)
    action = newest(world)
    assert (action["state"], action["cause"]) == ("failed", "failure")
    assert there.limit_of(NEW) is None


def test_a_limit_that_was_relaxed_is_not_followed(world: World, there: FakeEnforcer) -> None:
    world.policies = [policy(release={"hold": "10s", "probe": "10s", "offered_below": 0.8})]
    limited(world)
    world.enforcer.calm(OLD)
    world.run(12)
    assert world.only_action()["state"] == "stepped_down"
    moved(world, there)
    world.run(3)
    assert (there.count("apply"), len(world.actions())) == (0, 1)


def test_what_goes_below_the_guarantee_is_not_followed(world: World, there: FakeEnforcer) -> None:
    """Only a person takes what was bought, and that person spoke of a port."""
    for enforcer in world.enforcers.values():
        enforcer.supports = frozenset({"below_floor"})
    begin(world, level="L4")
    moved(world, there)
    world.run(3)
    assert (there.count("apply"), len(world.actions())) == (0, 1)


def begin(world: World, level: str = "L2", seconds: int = 600) -> dict[str, Any]:
    """A person limits the pod, whatever it offers."""
    order = {
        "node": "lb1",
        "port": OLD,
        "tenant": "red",
        "level": level,
        "seconds": seconds,
        "reason": "test",
    }
    response = world.api("POST", "/v1/actions", json=order)
    assert response.status_code == 202, response.text
    world.step()
    assert world.only_action()["state"] == "active"
    return world.only_action()


def test_what_a_person_ordered_outlives_a_minute_without_the_agent(world: World, there: FakeEnforcer) -> None:
    assert begin(world)["limit"]["ttl_seconds"] == 60
    limit = world.enforcer.limit_of(OLD)
    assert limit is not None and limit.expires - world.clock.monotonic() == 60
    world.step(30)
    assert limit.expires - world.clock.monotonic() >= 30, "extended, and not begun anew"


def test_what_a_person_ordered_is_followed_until_then(world: World, there: FakeEnforcer) -> None:
    before = begin(world, seconds=600)
    gone(world)
    world.run(300, each=10)
    there.add(NEW, "red", workload=POD)
    world.run(20)  # all nodes are looked at once in a while
    action = newest(world)
    assert (action["state"], action["approved_by"]) == ("active", before["approved_by"])
    world.run(180)
    assert newest(world)["state"] == "active", "kept without evidence, as it was ordered"
    world.run(180)
    assert newest(world)["cause"] == "evidence"
    assert len(world.actions()) == 2


@pytest.mark.parametrize("all_of_them", [False, True])
def test_what_a_person_ended_meanwhile_is_not_followed(
    world: World, there: FakeEnforcer, all_of_them: bool
) -> None:
    before = begin(world)
    gone(world)
    if all_of_them:
        response = world.api("POST", "/v1/actions:revertAll?tenant=red")
    else:
        response = world.api("POST", f"/v1/actions/{before['id']}:revert")
    assert response.status_code in (200, 202), response.text
    there.add(NEW, "red", workload=POD)
    world.run(3)
    assert (there.count("apply"), len(world.actions())) == (0, 1)
    assert events(world.action(before["id"]))[-1] == "revert_requested"


def test_the_kill_switch_ends_what_waits_to_follow(world: World, there: FakeEnforcer) -> None:
    before = begin(world)
    gone(world)
    for on in (True, False):
        world.api("PUT", "/v1/killswitch", json={"on": on, "reason": "test"})
        world.step(1)
    there.add(NEW, "red", workload=POD)
    world.run(3)
    assert (there.count("apply"), len(world.actions())) == (0, 1)
    last = world.action(before["id"])["timeline"][-1]
    assert (last["event"], last["detail"]) == ("not_followed", {"reason": "the kill switch is on"})
    assert "action.not_followed" in world.audit_events()


def test_who_was_put_on_the_allow_list_meanwhile_is_not_followed(world: World, there: FakeEnforcer) -> None:
    before = limited(world)
    gone(world)
    world.guards = {"allow": [{"tenant": "red", "role": "source", "reason": "a test of theirs"}]}
    world.reload()
    there.add(NEW, "red", workload=POD)
    world.step(1)
    assert events(world.action(before["id"]))[-1] == "not_followed"
    world.guards = {}
    world.reload()
    world.run(3)
    assert (there.count("apply"), len(world.actions())) == (0, 1)


def test_where_an_alert_was_first_its_action_goes_on(world: World, there: FakeEnforcer) -> None:
    before = limited(world)
    gone(world)
    there.add(NEW, "red", workload=POD)
    there.flood(NEW)
    world.post(world.alert(NEW, labels={"node": "lb2"}))
    world.run(3)
    action = newest(world)
    assert (action["state"], action["node"], len(world.actions())) == ("active", "lb2", 2)
    assert "alert_started" in events(action), "found by its own alert"
    assert world.action(before["id"])["timeline"][-1]["detail"]["action"] == action["id"]
    assert there.ids == [action["id"]]


def test_the_one_that_is_followed_does_not_count_against_its_tenant(
    world: World, there: FakeEnforcer
) -> None:
    world.guards = {"max_per_tenant": 1}
    limited(world)
    moved(world, there)
    assert there.limit_of(NEW) is not None


def test_a_tripped_breaker_lets_nothing_follow_without_a_person(world: World, there: FakeEnforcer) -> None:
    world.guards = {"breaker": {"actions": 1, "within": "60s"}}
    limited(world)
    world.enforcer.add("lb1-red-9", "red")
    world.enforcer.flood("lb1-red-9")
    world.post(world.alert("lb1-red-9"))
    world.step()
    moved(world, there)
    world.run(3)
    assert there.count("apply") == 0


def test_what_a_person_approved_is_followed_as_approved(world: World, there: FakeEnforcer) -> None:
    world.policies = [policy(approval=True)]
    world.enforcer.flood(OLD)
    world.post(world.alert(OLD))
    world.step()
    waiting = world.only_action()
    assert waiting["state"] == "pending_approval"
    assert world.api("POST", f"/v1/actions/{waiting['id']}:approve", json={"comment": "ok"}).status_code in (
        200,
        202,
    )
    world.step()
    moved(world, there)
    action = newest(world)
    assert (action["state"], action["approved_by"]) == (
        "active",
        world.action(waiting["id"])["approved_by"],
    )


def test_with_a_dry_run_nothing_follows(world: World, there: FakeEnforcer) -> None:
    before = limited(world)
    gone(world)
    world.extra = {"dry_run": True}
    world.reload()
    there.add(NEW, "red", workload=POD)
    world.run(2)
    assert there.count("apply") == 0
    assert events(world.action(before["id"]))[-1] == "not_followed"


def test_all_nodes_are_looked_at_only_while_somebody_is_followed(world: World, there: FakeEnforcer) -> None:
    limited(world)
    world.run(14)
    there.calls.clear()
    world.run(10)
    rare = there.count("state")
    gone(world)
    there.calls.clear()
    world.run(10)
    assert (rare <= 2, there.count("state") >= 10) == (True, True)
    world.run(60)
    there.calls.clear()
    world.run(10)
    assert there.count("state") <= 2
