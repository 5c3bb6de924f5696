"""Several replicas on one database: one leads, a deposed one can do nothing, PostgreSQL as well as SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from isolation_agent.actions.orders import revert
from isolation_agent.config import load_settings
from isolation_agent.enforcers.client import StaleTerm
from isolation_agent.errors import NotLeader
from isolation_agent.service.agent import Agent
from isolation_agent.storage.inbox import depth
from isolation_agent.storage.lease import LeaderLease, LedStore
from isolation_agent.storage.store import Store
from isolation_agent.storage.tables import InboxMessage

from ..support.postgres import Cluster, running
from ..support.world import GUARANTEE, PORT, FakeClock, World

# The lease, on SQLite with two stores


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    url = f"sqlite:///{tmp_path}/shared.db"
    a, b = Store(url, replica="a"), Store(url, replica="b")
    a.exclusive = b.exclusive = False  # as with a server that several processes use
    yield a, b
    a.close()
    b.close()


def test_one_leads_and_the_other_waits_for_a_whole_lease(
    stores: tuple[Store, Store], clock: FakeClock
) -> None:
    a, b = LeaderLease(stores[0], clock, "a", 5), LeaderLease(stores[1], clock, "b", 5)
    assert a.keep()
    assert not b.keep()
    assert (a.term, b.leader) == (1, "a")
    for _ in range(10):
        clock.advance(2)
        assert a.keep()
        assert not b.keep(), "as long as the leader gives signs of life"
    clock.advance(3)
    assert not b.keep()
    clock.advance(5)
    assert b.keep()
    assert b.term == 2


def test_a_paused_leader_knows_that_its_time_is_over(stores: tuple[Store, Store], clock: FakeClock) -> None:
    a, b = LeaderLease(stores[0], clock, "a", 5), LeaderLease(stores[1], clock, "b", 5)
    a.keep()
    b.keep()
    clock.advance(6)
    assert b.keep()
    assert not a.held, "by its own monotonic clock, before it asks anybody"
    led = LedStore(stores[0], a)
    with pytest.raises(NotLeader), led.write() as session:
        session.add(InboxMessage(received_at=clock.now(), peer="x", sha256="", size=0, body=b""))
    with stores[0].read() as session:
        assert depth(session) == 0, "nothing of it was stored"
    assert not a.keep()


def test_who_gives_up_is_replaced_at_once(stores: tuple[Store, Store], clock: FakeClock) -> None:
    a, b = LeaderLease(stores[0], clock, "a", 5), LeaderLease(stores[1], clock, "b", 5)
    a.keep()
    a.give_up()
    assert b.keep()
    assert b.term == 2


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_step_of_the_wall_clock_changes_nothing(
    stores: tuple[Store, Store], clock: FakeClock, step: int
) -> None:
    a, b = LeaderLease(stores[0], clock, "a", 5), LeaderLease(stores[1], clock, "b", 5)
    a.keep()
    b.keep()
    mono = clock.mono
    clock.advance(step)
    clock.mono = mono + 1
    assert a.held
    assert a.keep()
    assert not b.keep()


# Agents on PostgreSQL


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running() as made:
        yield made


@pytest.fixture
def pair(world: World, cluster: Cluster) -> Iterator[tuple[World, Agent]]:
    """Two replicas that share a database; the world's own agent is the first."""
    database = f"v{abs(hash(str(world.dir))):x}"
    url = cluster.create(database)
    world.enforcer.supports = frozenset({"term"})
    world.extra = {"database": url, "replica": "one"}
    _ = world.agent
    text = world.config_path.read_text().replace("replica: one", "replica: two")
    other = world.dir / "two.yaml"
    other.write_text(text.replace("audit.jsonl", "audit-two.jsonl"))
    second = Agent(load_settings(other), world.clock)
    yield world, second
    second.stop()


def test_a_flood_on_postgresql(pair: tuple[World, Agent]) -> None:
    world, second = pair
    action = world.flood()
    assert action["state"] == "active"
    assert action["term"] == 1
    assert world.post(world.alert()).status_code == 200
    assert not second.controller.step()
    world.enforcer.calm(PORT)
    world.run(14)
    assert world.only_action()["state"] == "reverted"
    assert world.verify_audit().ok
    assert [c.body["term"] for c in world.enforcer.calls if c.body] == [1]


def test_another_replica_takes_over_and_the_deposed_one_can_do_nothing(pair: tuple[World, Agent]) -> None:
    world, second = pair
    world.flood()
    second.controller.step()
    world.clock.advance(6)
    while second.controller.step():
        pass
    assert second.lease.term == 2
    world.enforcer.calm(PORT)
    for _ in range(14):
        world.clock.advance(1)
        second.controller.step()
    assert world.metric("vigia_isolation_actions", state="active") == 1
    world.agent.controller.step()
    assert world.agent.lease.term == 0
    assert world.metric("vigia_isolation_actions", state="active") == 0, "the leader's to show"
    assert world.metric("vigia_agent_enforcer_up", node="lb1") == 0
    assert world.only_action()["state"] == "reverted", "seen by both"
    assert world.enforcer.limit_of(PORT) is None
    assert world.enforcer.term == 2


def test_a_command_of_the_old_term_is_refused_by_the_enforcer(pair: tuple[World, Agent]) -> None:
    world, _ = pair
    action = world.flood()
    world.enforcer.term = 9
    with pytest.raises(StaleTerm):
        world.agent.controller._fleet.remove("lb1", PORT, action["id"])
    limit = world.enforcer.limit_of(PORT)
    assert limit is not None
    assert limit.rate == GUARANTEE


def test_who_leads_no_more_learns_no_terms(pair: tuple[World, Agent]) -> None:
    """A leader that was paused sees a higher term; the database names another one."""
    world, second = pair
    world.flood()
    second.controller.step()
    world.clock.advance(6)
    second.controller.step()
    assert second.lease.term == 2
    world.enforcer.term = 9
    world.agent.lease._held_until = world.clock.monotonic() + 100
    assert world.agent.lease.held, "as far as it knows"
    with pytest.raises(NotLeader):
        world.agent.controller.step()
    assert "term.followed" not in world.audit_events()


def test_orders_reach_the_leader_through_any_replica(pair: tuple[World, Agent]) -> None:
    world, second = pair
    action = world.flood()
    revert(second.journal, action["id"], "eve@two")
    world.step(1)
    assert world.only_action()["state"] == "reverted"
    assert world.only_action()["revert_requested_by"] == "eve@two"


def test_a_lease_that_was_not_renewed_ends_and_no_command_is_sent(
    pair: tuple[World, Agent],
) -> None:
    world, _ = pair
    world.flood()
    world.clock.advance(6)
    assert not world.agent.lease.held
    with pytest.raises(NotLeader):
        world.agent.controller._fleet.remove("lb1", PORT, world.rows()[0].id)
