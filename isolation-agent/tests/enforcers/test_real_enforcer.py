"""The agent and the real enforcer: every step of the ladder in the kernel, and a leader of the past."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isolation_agent.clock import SystemClock
from isolation_agent.config import load_settings
from isolation_agent.enforcers.client import LimitRequest, StaleTerm
from isolation_agent.enforcers.fleet import Fleet, open_fleet
from isolation_agent.metrics import Metrics
from vigia_testing import eventually

from ..support.process import AgentProcess
from ..support.real_enforcer import NEW_FLOWS, PACKETS, RealEnforcer
from ..support.world import GUARANTEE, PORT, World, alert, policy

SHORT = 12
"""Seconds of the shortest limit: longer than a machine stalls between two extensions."""

LEVELS = ("L0", "L1", "L2", "L3", "L4")
WANTED: dict[str, dict[str, Any]] = {
    "L1": {"protocol": "all", "rate_bytes_per_second": GUARANTEE},
    "L2": {"protocol": "udp", "rate_bytes_per_second": GUARANTEE},
    "L3": {
        "protocol": "udp",
        "rate_bytes_per_second": GUARANTEE,
        "packets_per_second": PACKETS,
        "new_flows_per_second": NEW_FLOWS,
    },
    "L4": {"protocol": "udp", "rate_bytes_per_second": 0},
}


@pytest.fixture
def world(tmp_path: Path, real: RealEnforcer) -> Iterator[World]:
    """A world in real time whose only enforcer is the real one."""
    made = World(tmp_path, SystemClock())
    made.enforcer.stop()
    made.enforcers = {"lb1": real}  # type: ignore[dict-item]
    made.extra = {"controller": {"tick": "200ms", "reconcile": "1s", "backoff": "100ms"}}
    made.guards = {"max_per_tenant": 50}
    made.policies = [
        policy(
            f"ladder-{level.lower()}",
            match={"alertname": f"Ladder{level}", "isolate": "auto"},
            level=level,
            cooldown="0s",
            ttl="60s",
            release={"hold": "30s", "probe": "0s", "offered_below": 0.1},
        )
        for level in LEVELS
    ]
    made.policies.append(
        policy(
            "short",
            match={"alertname": "LadderShort", "isolate": "auto"},
            cooldown="0s",
            ttl=f"{SHORT}s",
            release={"hold": "2s", "probe": "0s", "offered_below": 0.1},
        )
    )
    yield made
    made.crash()


def climb(agent: AgentProcess, level: str) -> dict[str, Any]:
    """Have the agent act at a level, and return the action once it has decided."""
    before = len(agent.actions())
    labels = {"alertname": f"Ladder{level}", "policy": None}
    assert agent.post(alert(SystemClock().now(), labels=labels)).status_code == 200
    eventually(lambda: len(agent.actions()) > before, f"an action of {level}")
    if level == "L4":
        waiting = agent.wait_for_state("pending_approval")
        assert agent.send("POST", f"/v1/actions/{waiting['id']}:approve", json={}).status_code == 202
    return {} if level == "L0" else agent.wait_for_state("active")


def test_every_step_of_the_ladder_is_taken_in_the_kernel(world: World, real: RealEnforcer) -> None:
    carries = real.connect()
    real.flood()
    eventually(lambda: real.port()["signals"]["flood_score"] > 0, "the flood to be seen at its source")
    agent = AgentProcess(world.write_files()).wait_until_ready()
    try:
        climb(agent, "L0")
        assert real.limit() is None, "L0 records, and limits nothing"
        for level in LEVELS[1:]:
            action = climb(agent, level)
            limit = real.limit()
            assert limit is not None, level
            assert {k: limit[k] for k in WANTED[level]} == WANTED[level]
            assert limit["id"] == action["id"]
            assert carries(), "TCP still gets through"
            if level == "L4":
                before = real.arrived()
                policed = limit["policed_packets"]
                eventually(lambda n=policed: real.port()["limit"]["policed_packets"] > n + 100, "UDP to fall")
                assert real.arrived() == before, "and none gets through"
            assert agent.send("POST", f"/v1/actions/{action['id']}:revert", json={}).status_code == 202
            eventually(lambda: real.limit() is None, f"the limit of {level} to go")
        assert real.state()["term"] >= 1, "commands carried the leader's term"
    finally:
        agent.stop(signal.SIGKILL)


def test_killed_and_not_restarted_the_limit_ends_in_the_kernel(world: World, real: RealEnforcer) -> None:
    real.flood()
    eventually(lambda: real.port()["signals"]["flood_score"] > 0, "the flood to be seen at its source")
    agent = AgentProcess(world.write_files()).wait_until_ready()
    action = climb(agent, "Short")
    limit = real.limit()
    assert limit is not None
    assert limit["id"] == action["id"]
    agent.stop(signal.SIGKILL)
    left = real.limit()
    assert left is None or left["expires_in_seconds"] <= SHORT, (
        "the policy's ttl is the most that it outlives the agent by"
    )
    bought = real.port()["guarantee_bytes_per_second"]
    eventually(lambda: real.limit() is None, "the end of the limit, with nobody left to remove it")
    assert real.port()["signals"]["flood_score"] > 0, "the flood goes on"
    assert real.port()["guarantee_bytes_per_second"] == bought == GUARANTEE, "and what was bought stands"


def test_the_real_enforcer_itself_refuses_a_limit_that_would_outlive_the_agent(real: RealEnforcer) -> None:
    """Whoever asks, by whatever: its own refusal, with the field, the value and the fix, and nothing in the kernel."""
    body = {
        "id": "11111111-1111-4111-8111-111111111111",
        "tenant": "red",
        "protocol": "udp",
        "rate_bytes_per_second": GUARANTEE,
        "burst_bytes": 0,
    }
    for ttl in (61, 3600, 60.001):
        answer = real.http.put(f"/v1/ports/{PORT}/limit", json=body | {"ttl_seconds": ttl})
        assert answer.status_code == 400
        assert answer.json()["error"]["field"] == "ttl_seconds"
        assert f"{ttl}" in answer.text and "use 1 to 60, and renew the limit" in answer.text
        assert real.limit() is None


def test_a_leader_of_the_past_is_refused_by_the_real_enforcer(world: World, real: RealEnforcer) -> None:
    settings = load_settings(world.write_files())

    def leader(term: int) -> Fleet:
        fleet = open_fleet(settings, SystemClock(), Metrics())
        fleet.lead(lambda _node: term, lambda: True)  # paused: it does not know that its time is over
        assert fleet.read("lb1").state is not None
        return fleet

    old, new = leader(1), leader(2)
    request = LimitRequest(
        id="11111111-1111-4111-8111-111111111111",
        tenant="red",
        rate_bytes_per_second=GUARANTEE,
        ttl_seconds=60,
    )
    old.apply("lb1", PORT, request)
    for kept in ("by the process", "over its death"):
        new.apply("lb1", PORT, request.model_copy(update={"rate_bytes_per_second": GUARANTEE + 1}))
        with pytest.raises(StaleTerm):
            old.apply("lb1", PORT, request)
        with pytest.raises(StaleTerm):
            old.remove("lb1", PORT, request.id)
        assert isinstance(old.remove_all(["lb1"])["lb1"], StaleTerm)
        limit = real.limit()
        assert limit is not None, kept
        assert (limit["rate_bytes_per_second"], real.state()["term"]) == (GUARANTEE + 1, 2), kept
        real.kill()
        real.start()
    assert new.remove("lb1", PORT, request.id).removed
    old.close()
    new.close()
