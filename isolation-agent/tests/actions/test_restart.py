"""Death at any moment: what is on disk and in the kernel is enough to go on."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from isolation_agent.actions.reconcile import MOST_RECORDED
from isolation_agent.model.node import MOST_PORTS
from isolation_agent.service.agent import Agent

from ..support.fake_enforcer import KernelLimit
from ..support.world import GUARANTEE, PORT, World, events, policy


class Killed(BaseException):
    """The process dies. Nothing in the agent catches this."""


class Killer:
    """Kills the agent at its n-th crossing of a boundary: disk, audit log, network."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.crossings: list[str] = []

    def cross(self, name: str) -> None:
        self.crossings.append(name)
        if self.at is not None and len(self.crossings) == self.at:
            raise Killed(name)

    def guard(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Make dying possible just before and just after a call."""

        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.cross(f"before {name}")
            result = call(*args, **kwargs)
            self.cross(f"after {name}")
            return result

        return guarded

    def haunt(self, agent: Agent) -> None:
        """Put the boundaries into an agent."""
        write = agent.store.write

        @contextmanager
        def haunted() -> Iterator[Session]:
            with write() as session:
                yield session
                self.cross("before commit")
            self.cross("after commit")

        agent.store.write = haunted  # type: ignore[method-assign]
        agent.audit.append = self.guard("audit", agent.audit.append)  # type: ignore[method-assign]
        for enforcer in agent.controller._fleet._enforcers.values():
            for name in ("state", "apply", "remove"):
                setattr(enforcer, name, self.guard(name, getattr(enforcer, name)))


def short() -> list[dict[str, Any]]:
    return [policy(ttl="6s", release={"hold": "2s", "offered_below": 0.8, "probe": "0s"}, cooldown="1h")]


def play(world: World, killer: Killer) -> None:
    """Flood for six seconds, calm for six; the agent is started again whenever it dies."""
    world.policies = short()
    killer.haunt(world.agent)
    world.enforcer.flood(PORT)
    alert = world.alert()
    try:
        assert world.post(alert).status_code == 200
    except Killed:
        world.crash()
        assert world.post(alert).status_code == 200, "Alertmanager tries again"
    for second in range(12):
        if second == 6:
            world.enforcer.calm(PORT)
        try:
            world.step(1)
        except Killed:
            world.crash()
            world.step()


def count_crossings(directory: Path) -> list[str]:
    directory.mkdir()
    world = World(directory)
    killer = Killer(None)
    try:
        play(world, killer)
        return list(killer.crossings)  # without those of the end, which is no part of the play
    finally:
        world.close()


def die_at(directory: Path, at: int, where: str) -> str:
    """Play with death at a crossing, look at what is left, and return the action's last state."""
    directory.mkdir()
    world = World(directory)
    try:
        play(world, Killer(at))
        actions = world.actions()
        assert len(actions) == 1, where
        assert world.enforcer.ids == [actions[0]["id"]], f"{where}: one limit, one id"
        assert world.enforcer.limit_of(PORT) is None, where
        assert world.verify_audit().ok, where
        assert world.inbox_depth() == 0, where
        return str(actions[0]["state"])
    finally:
        world.close()


def first_of_each(crossings: list[str]) -> list[int]:
    """The numbers of the first two and the last crossing of every kind."""
    kinds: dict[str, list[int]] = {}
    for at, name in enumerate(crossings, start=1):
        kinds.setdefault(name, []).append(at)
    return sorted({at for numbers in kinds.values() for at in (*numbers[:2], numbers[-1])})


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_death_at_every_boundary_leaves_one_limit_and_a_whole_chain(tmp_path: Path, every: bool) -> None:
    crossings = count_crossings(tmp_path / "undisturbed")
    assert {"before apply", "after apply", "before remove", "after remove", "before commit"} <= set(crossings)
    assert len(crossings) > 40
    ends: Counter[str] = Counter()
    for at in range(1, len(crossings) + 1) if every else first_of_each(crossings):
        name = crossings[at - 1]
        ends[die_at(tmp_path / str(at), at, f"killed at crossing {at}, {name}")] += 1
    # Death during the hold starts it anew, and then the limit's own time may end first.
    assert set(ends) <= {"reverted", "expired"}
    assert ends["reverted"] > 4 * ends["expired"]


def crash_at(world: World, name: str, occurrence: int = 1) -> None:
    """Take turns until the agent dies at the n-th crossing of that name, then drop it."""
    killer = Killer(None)

    def cross(crossed: str) -> None:
        killer.crossings.append(crossed)
        if killer.crossings.count(name) == occurrence and crossed == name:
            raise Killed(name)

    killer.cross = cross  # type: ignore[method-assign]
    killer.haunt(world.agent)
    with pytest.raises(Killed):
        world.run(60)
    world.crash()


def test_between_intent_and_apply(world: World) -> None:
    world.enforcer.flood(PORT)
    world.post(world.alert())
    crash_at(world, "before apply")
    assert world.enforcer.limit_of(PORT) is None
    assert world.only_action()["state"] == "applying", "the intent was on disk before anything was asked for"
    world.step()
    action = world.only_action()
    assert action["state"] == "active"
    assert "resumed" in events(action)
    assert world.enforcer.ids == [action["id"]]


def test_between_apply_and_commit(world: World) -> None:
    world.enforcer.flood(PORT)
    world.post(world.alert())
    crash_at(world, "after apply")
    assert world.enforcer.limit_of(PORT) is not None
    assert world.only_action()["state"] == "applying"
    world.step()
    action = world.only_action()
    assert action["state"] == "active"
    assert "adopted" in events(action)
    assert world.enforcer.count("apply") == 1, "it was there already"


def test_between_removal_and_commit(world: World) -> None:
    action = world.flood()
    world.enforcer.calm(PORT)
    crash_at(world, "after remove")
    assert world.action(action["id"])["state"] == "releasing"
    world.step()
    assert world.action(action["id"])["state"] == "reverted"


def test_message_that_was_acknowledged_is_handled_after_a_restart(world: World) -> None:
    world.enforcer.flood(PORT)
    assert world.post(world.alert()).status_code == 200
    world.crash()
    assert world.inbox_depth() == 1
    world.step()
    assert world.only_action()["state"] == "active"
    assert world.inbox_depth() == 0


def test_active_limit_is_adopted(world: World) -> None:
    action = world.flood()
    world.crash()
    world.run(20)
    found = world.only_action()
    assert (found["id"], found["state"]) == (action["id"], "active")
    assert "resumed" in events(found)
    assert world.enforcer.ids == [action["id"]]
    world.enforcer.calm(PORT)
    world.run(12)
    assert world.only_action()["state"] == "reverted"


def test_hold_starts_anew_after_a_restart(world: World) -> None:
    world.flood()
    world.enforcer.calm(PORT)
    world.run(8)
    world.crash()
    world.run(8)
    assert world.only_action()["state"] == "active", "what happened in between nobody has seen"
    world.run(5)
    assert world.only_action()["state"] == "reverted"


def test_down_longer_than_the_ttl_with_the_flood_going_on(world: World) -> None:
    action = world.flood()
    world.crash()
    world.clock.advance(100)
    assert world.enforcer.limit_of(PORT) is None, "the kernel ended it without anybody's help"
    world.step()
    found = world.action(action["id"])
    assert found["state"] == "active"
    assert "reapplied" in events(found)


def test_down_longer_than_the_ttl_and_the_flood_is_over(world: World) -> None:
    action = world.flood()
    world.crash()
    world.enforcer.calm(PORT)
    world.clock.advance(100)
    world.step()
    assert world.action(action["id"])["state"] == "expired"
    assert world.enforcer.limit_of(PORT) is None


def test_old_intent_without_a_flood_is_given_up(world: World) -> None:
    world.enforcer.flood(PORT)
    world.post(world.alert())
    crash_at(world, "before apply")
    world.enforcer.calm(PORT)
    world.clock.advance(3600)
    world.step()
    action = world.only_action()
    assert action["state"] == "failed"
    assert "old" in action["reason"]
    assert world.enforcer.count("apply") == 0


def test_old_intent_with_the_flood_still_there_is_completed(world: World) -> None:
    world.enforcer.flood(PORT)
    world.post(world.alert())
    crash_at(world, "before apply")
    world.clock.advance(3600)
    world.step()
    assert world.only_action()["state"] == "active"


def test_intent_is_withdrawn_if_the_kill_switch_came_on_meanwhile(world: World) -> None:
    world.enforcer.flood(PORT)
    world.post(world.alert())
    crash_at(world, "after apply")
    world.guards = {"kill_switch": True}
    world.step()
    action = world.only_action()
    assert (action["state"], action["cause"]) == ("reverted", "operator")
    assert world.enforcer.limit_of(PORT) is None


def test_decision_from_before_a_long_outage_needs_evidence(world: World) -> None:
    world.enforcer.flood(PORT)
    world.post(world.alert())
    world.enforcer.break_next("state", "drop", left=None)
    world.step()
    assert world.only_action()["state"] == "received"
    world.crash()
    world.enforcer.faults.clear()
    world.enforcer.calm(PORT)
    world.clock.advance(3600)
    world.run(5)
    assert world.only_action()["state"] == "received", "still firing, no longer news, no flood to see"
    world.enforcer.flood(PORT)
    world.run(2)
    assert world.only_action()["state"] == "active"


def test_cooldown_outlives_a_restart(world: World) -> None:
    world.flood()
    world.enforcer.calm(PORT)
    world.run(12)
    world.crash()
    world.clock.advance(10)
    world.enforcer.flood(PORT)
    world.step()
    assert len(world.actions()) == 1, "ten of twenty seconds are over"
    world.run(12)
    assert world.actions()[0]["state"] == "active"


def test_cooldown_is_bounded_when_the_clock_was_set_back(world: World) -> None:
    world.flood()
    world.enforcer.calm(PORT)
    world.run(12)
    world.crash()
    world.clock.wall = world.clock.wall.replace(hour=1)
    world.enforcer.flood(PORT)
    world.run(22)
    assert world.actions(state="active"), "at most one whole cooldown, not two hours"


def test_kill_switch_outlives_a_restart(world: World) -> None:
    assert world.api("PUT", "/v1/killswitch", json={"on": True}).status_code == 200
    world.crash()
    action = world.flood()
    assert action["guard"] == "kill_switch"
    assert world.metric("vigia_agent_kill_switch") == 1


def test_requested_revert_outlives_a_restart(world: World) -> None:
    action = world.flood()
    assert world.api("POST", f"/v1/actions/{action['id']}:revert").status_code == 202
    world.crash()
    world.step()
    assert world.action(action["id"])["state"] == "reverted"
    world.run(60)
    assert len(world.actions()) == 1, "its alert still fires, and an operator has dismissed it"


def test_audit_chain_goes_on(world: World) -> None:
    world.flood()
    before = world.agent.audit.head
    world.crash()
    world.run(3)
    assert world.agent.audit.head.seq > before.seq
    assert world.verify_audit().ok
    record = next(r for r in world.audit_records() if r["seq"] == before.seq + 1)
    assert record["prev"] == before.hash


def test_every_limit_is_asked_for_with_an_end_so_that_a_dead_agent_leaves_none(world: World) -> None:
    world.flood()
    world.run(25)
    bodies = [c.body for c in world.enforcer.calls if c.operation == "apply"]
    assert len(bodies) == 3, "set once, extended twice"
    assert [body and body["ttl_seconds"] for body in bodies] == [30, 30, 30]


# Limits that nobody here knows


def test_unknown_limit_is_noted_and_left_to_its_ttl(world: World) -> None:
    foreign = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    world.enforcer.ports[PORT].limit = KernelLimit(foreign, GUARANTEE, 1, world.clock.monotonic() + 40)
    world.step()
    action = world.action(foreign)
    assert (action["state"], action["policy"], action["tenant"]) == ("orphaned", "_unknown", "red")
    assert world.metric("vigia_agent_orphaned_limits") == 1
    assert "limit.orphaned" in world.audit_events()
    world.run(30)
    assert world.enforcer.limit_of(PORT) is not None
    assert world.enforcer.count("remove") == 0
    world.run(30)
    action = world.action(foreign)
    assert action["ended_at"] is not None
    assert world.metric("vigia_agent_orphaned_limits") == 0
    assert world.audit_events().count("limit.orphaned") == 1


def test_unknown_limit_that_comes_back_is_open_again(world: World) -> None:
    foreign = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    for _ in range(2):
        world.enforcer.ports[PORT].limit = KernelLimit(foreign, GUARANTEE, 1, world.clock.monotonic() + 20)
        world.run(16)
        assert world.action(foreign)["ended_at"] is None
        world.run(40)
        assert world.action(foreign)["ended_at"] is not None


def test_a_node_that_makes_limits_up_fills_no_record(world: World) -> None:
    """It names others in each round; what is ours there is looked after all the same."""
    action = world.flood()
    ports = [f"p{i}" for i in range(100)]
    for port in ports:
        world.enforcer.add(port, "red")
    for turn in range(20):
        for i, port in enumerate(ports):
            made_up = str(uuid.UUID(int=turn * 1000 + i))
            world.enforcer.ports[port].limit = KernelLimit(made_up, 1, 1, world.clock.monotonic() + 6000)
        world.run(15, each=5)
    assert world.action(action["id"])["state"] == "active"
    assert world.audit_events().count("limit.orphaned") == MOST_RECORDED
    world.clock.advance(3600)
    world.run(30, each=5)
    assert world.audit_events().count("limit.orphaned") > MOST_RECORDED, "an hour later, some more"
    assert world.verify_audit().ok


def test_more_ports_than_a_node_can_have_are_no_answer(world: World) -> None:
    for i in range(MOST_PORTS):
        world.enforcer.add(f"p{i}", "red")
    world.flood()
    world.run(3)
    assert world.enforcer.count("apply") == 0
    assert world.metric("vigia_agent_enforcer_up", node="lb1") == 0


def test_orphan_is_not_closed_while_its_node_does_not_answer(world: World) -> None:
    foreign = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    world.enforcer.ports[PORT].limit = KernelLimit(foreign, GUARANTEE, 1, world.clock.monotonic() + 20)
    world.step()
    world.enforcer.leave()
    world.run(60)
    assert world.action(foreign)["ended_at"] is None
    world.enforcer.start()
    world.run(40)
    assert world.action(foreign)["ended_at"] is not None


def test_limit_of_a_failed_action_is_removed_when_it_turns_up(world: World) -> None:
    world.extra = {"controller": {"attempts": 1}}
    world.enforcer.break_next("apply", "lose")
    action = world.flood()
    assert action["state"] == "failed"
    assert world.enforcer.limit_of(PORT) is not None, "its answer was lost, the limit is there"
    world.enforcer.calm(PORT)
    world.run(16)
    assert world.enforcer.limit_of(PORT) is None
    assert "removed_late" in events(world.action(action["id"]))


def test_late_removal_waits_for_an_enforcer_that_refuses(world: World) -> None:
    world.extra = {"controller": {"attempts": 1}}
    world.enforcer.break_next("apply", "lose")
    world.flood()
    world.enforcer.calm(PORT)
    world.enforcer.refuse("remove", 500, "kernel")
    world.run(16)
    assert world.enforcer.count("remove") == 1
    world.run(20)
    assert world.enforcer.limit_of(PORT) is None


def test_revert_of_an_orphan_is_not_ours(world: World) -> None:
    foreign = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    world.enforcer.ports[PORT].limit = KernelLimit(foreign, GUARANTEE, 1, world.clock.monotonic() + 40)
    world.step()
    answer = world.api("POST", f"/v1/actions/{foreign}:revert")
    assert answer.status_code == 409
    assert "not this agent's; it ends by its TTL" in answer.get_json()["error"]["message"]
    world.run(20)
    assert world.enforcer.limit_of(PORT) is not None
    assert world.action(foreign)["revert_requested_by"] is None
