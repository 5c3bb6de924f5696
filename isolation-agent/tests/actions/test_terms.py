"""Fencing terms: what one node has seen concerns that node alone, and a lost database costs nothing for long."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isolation_agent.actions.terms import LAST, STEP
from isolation_agent.errors import AgentError, StorageError

from ..support.fake_enforcer import FakeEnforcer
from ..support.world import GUARANTEE, PORT, World, policy

OTHER = "lb2-red-110"
WILD = (LAST, 2**63 - 1, 2**63, 2**64 - 1)


@pytest.fixture
def two(world: World) -> Iterator[World]:
    """A site of two nodes whose enforcers know of terms."""
    world.policies = [policy(cooldown="0s")]
    world.guards = {"max_per_tenant": 100}
    second = world.add_node("lb2")
    second.add(OTHER, "red", guarantee=GUARANTEE)
    for enforcer in world.enforcers.values():
        enforcer.supports = frozenset({"term"})
    yield world


def flood_both(world: World) -> None:
    for node, port in (("lb1", PORT), ("lb2", OTHER)):
        world.enforcers[node].flood(port)
        assert world.post(world.alert(port, labels={"node": node})).status_code == 200


def calm_both(world: World) -> None:
    for node, port in (("lb1", PORT), ("lb2", OTHER)):
        world.enforcers[node].calm(port)


def terms_sent(enforcer: FakeEnforcer) -> list[int]:
    return [c.body["term"] for c in enforcer.calls if c.body]


def limits(world: World) -> tuple[bool, bool]:
    found = world.enforcers["lb1"].limit_of(PORT), world.enforcers["lb2"].limit_of(OTHER)
    return found[0] is not None, found[1] is not None


def test_a_node_that_refuses_every_term_stops_no_other_node(two: World) -> None:
    two.enforcers["lb1"].refuse("apply", 409, "stale_term", left=None)
    flood_both(two)
    two.run(30)  # every turn raises what is not about one node
    assert limits(two) == (False, True)
    states = {a["node"]: a["state"] for a in two.actions()}
    assert states["lb2"] == "active"
    assert two.agent.lease.held


@pytest.mark.parametrize("seen", [1, 7, 1000, STEP, STEP + 1, 1 << 40])
def test_a_leader_learns_what_a_node_has_seen(two: World, seen: int) -> None:
    two.enforcers["lb1"].term = seen
    flood_both(two)
    two.step()
    assert limits(two) == (True, True)
    assert two.enforcers["lb1"].term == seen + (seen > 1)
    assert two.enforcers["lb2"].term == 1, "the others' terms are their own"
    calm_both(two)
    two.run(15)
    assert limits(two) == (False, False)
    assert two.audit_events().count("term.followed") == (seen > 1)


@pytest.mark.parametrize("wild", WILD)
def test_a_wild_term_costs_its_own_node_only(two: World, wild: int, caplog: pytest.LogCaptureFixture) -> None:
    two.enforcers["lb1"].term = wild
    flood_both(two)
    with caplog.at_level(logging.ERROR):
        two.run(20)
    assert limits(two) == (False, True)
    assert two.enforcers["lb2"].term == 1
    said = [r for r in caplog.records if r.message.startswith("cannot command a node")]
    assert len(said) == 1, "once, not in every turn"
    two.enforcers["lb1"].term = 0  # its enforcer was started again
    two.run(20)
    assert limits(two)[0]


def database(world: World) -> Path:
    return world.dir / "agent.db"


def lose(world: World) -> None:
    """The machine with the database dies, and the database with it."""
    world.crash()
    for file in world.dir.glob("agent.db*"):
        file.unlink()


def test_a_lost_database_is_made_up_for_from_what_the_nodes_say(two: World) -> None:
    two.enforcers["lb1"].term = two.enforcers["lb2"].term = 7
    flood_both(two)
    two.step()
    lose(two)
    two.step()
    assert two.agent.lease.term == 1
    assert [a["state"] for a in two.actions()] == ["orphaned", "orphaned"], "not ours to remove"
    two.run(31)
    assert limits(two) == (False, False), "they end by their TTL"
    flood_both(two)
    two.step()
    assert limits(two) == (True, True)
    assert two.enforcers["lb1"].term == two.enforcers["lb2"].term == 9, "above that of the leader before"
    assert two.verify_audit().ok


def test_a_restored_database_leads_again(two: World) -> None:
    flood_both(two)
    two.step()
    two.stop()
    shutil.copy(database(two), two.dir / "yesterday.db")
    for _ in range(6):  # leaders come and go
        two.step(1)
        two.stop()
    flood_both(two)
    two.run(12)
    assert two.enforcers["lb1"].term == 8
    two.crash()
    for file in two.dir.glob("agent.db*"):
        file.unlink()
    shutil.copy(two.dir / "yesterday.db", database(two))
    two.run(12)
    assert limits(two) == (True, True), "adopted and extended"
    assert two.enforcers["lb1"].term == 9
    calm_both(two)
    two.run(15)
    assert limits(two) == (False, False)


def test_what_was_learned_outlives_the_leader_and_fences_it(two: World) -> None:
    two.enforcers["lb1"].term = 7
    flood_both(two)
    two.step()
    assert two.enforcers["lb1"].term == 8
    two.stop()
    two.step(1)
    calm_both(two)
    two.run(15)
    assert two.enforcers["lb1"].term == 9, "the next leader's, of itself above the one before"
    assert two.audit_events().count("term.followed") == 1


def test_a_node_that_starts_again_at_zero_is_commanded(two: World) -> None:
    two.enforcers["lb1"].term = 3 * STEP
    flood_both(two)
    two.step()
    assert two.enforcers["lb1"].term == 3 * STEP + 1
    two.enforcers["lb1"].term = 0  # the machine booted: so far above, its enforcer would refuse

    def bounded(_port: str) -> Any:
        far = (terms_sent(two.enforcers["lb1"]) or [0])[-1] > two.enforcers["lb1"].term + STEP
        return (400, {"error": {"code": "bad_field", "message": "too far"}}) if far else None

    two.enforcers["lb1"].break_next("apply", bounded, left=None)
    two.run(25)
    assert limits(two)[0]
    assert 0 < two.enforcers["lb1"].term <= STEP


def test_two_agents_do_not_race_each_other(two: World) -> None:
    """Another agent, with a database of its own, commands the same node: each raises the term of the other."""
    flood_both(two)
    two.step()
    for _ in range(300):
        two.enforcers["lb1"].term += 2
        two.step(1)
    assert two.audit_events().count("term.followed") < 12
    assert limits(two)[1]


def test_a_node_whose_answer_breaks_the_agent_breaks_its_own_view_only(two: World) -> None:
    flood_both(two)
    two.enforcers["lb1"].frozen_time = "0001-01-01T00:00:00+23:59"  # before the first instant of UTC
    two.run(5)
    assert limits(two) == (False, True)
    two.enforcers["lb1"].frozen_time = None
    two.run(20)
    assert limits(two) == (True, True)


@pytest.mark.parametrize("ids", [["x" * 70, "x" * 64 + "y"], ["\ud800"], [""]])
def test_strange_limits_of_one_node_do_not_end_the_turn(two: World, ids: list[str]) -> None:
    first = two.enforcers["lb1"]
    for i, limit in enumerate(ids):
        port = first.add(f"p{i}", "red")
        first.handle("PUT", f"/v1/ports/p{i}/limit", "", b"")
        first._apply(f"p{i}", _body(limit))
        assert port.limit is not None
    two.run(20)
    flood_both(two)
    two.step()
    assert limits(two)[1]


def _body(limit: str) -> dict[str, Any]:
    return {
        "id": limit,
        "tenant": "red",
        "protocol": "udp",
        "rate_bytes_per_second": GUARANTEE,
        "burst_bytes": 0,
        "ttl_seconds": 60,
    }


# Health


def test_health_tells_when_no_turn_succeeds(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, problem = two.agent, StorageError("database: cannot write: disk full")
    agent._turn()
    assert two.client.get("/-/healthy").text == "healthy\n"

    def fail() -> bool:
        raise problem

    with monkeypatch.context() as patch:
        patch.setattr(agent.controller, "step", fail)
        for _ in range(40):
            agent._turn()
            agent._last_turn = two.clock.monotonic()
            two.clock.advance(1)
        answer = two.client.get("/-/healthy")
        assert answer.status_code == 503
        assert "no turn has succeeded for 40s: database: cannot write: disk full" in answer.text
        assert agent.stuck() == "", "starting it again would mend nothing"
    agent._turn()
    assert two.client.get("/-/healthy").status_code == 200


def test_a_turn_that_fails_once_is_no_illness(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, failing = two.agent, [True]
    step = agent.controller.step

    def sometimes() -> bool:
        failing[0] = not failing[0]
        if failing[0]:
            raise AgentError("for a moment")
        return step()

    monkeypatch.setattr(agent.controller, "step", sometimes)
    for _ in range(50):
        agent._turn()
        agent._last_turn = two.clock.monotonic()
        two.clock.advance(1)
        assert two.client.get("/-/healthy").status_code == 200
