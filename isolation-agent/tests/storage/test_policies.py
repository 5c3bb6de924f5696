"""Policies through the API, where the configuration says so; limits of the fast loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from isolation_agent.cli import main
from isolation_agent.storage.policies import Draft, changes, put_policies
from isolation_agent.storage.tables import PolicyVersion

from ..support.world import PORT, World, policy


@pytest.fixture
def changed_here(world: World) -> World:
    """A world where policies are put through the API."""
    world.extra["policies_by"] = "api"
    return world


def put(world: World, *policies: dict[str, Any], **extra: Any) -> Any:
    return world.api("PUT", "/v1/policies", json={"policies": list(policies), **extra})


def in_force(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.api("GET", "/v1/policies").get_json()
    return found


def test_the_file_is_the_source_unless_configured(world: World) -> None:
    before = in_force(world)
    response = put(world, policy(level="L0"))
    assert response.status_code == 409
    assert "policies_by: api" in response.get_json()["error"]["message"]
    assert in_force(world) == before
    assert before["source"] == "file"
    assert "policies.replaced" not in world.audit_events()


def test_policies_that_are_put_decide_and_are_on_record(changed_here: World) -> None:
    world = changed_here
    before = in_force(world)["version"]
    response = put(world, policy(level="L0"), reason="watch only", expected_version=before)
    assert response.status_code == 200, response.text
    shown = response.get_json()
    assert shown["version"] != before
    assert shown["source"] == "api"
    (change,) = shown["changes"]
    assert change["version"] == shown["version"]
    assert change["changed_by"].startswith("api@")
    assert change["reason"] == "watch only"
    (record,) = [r for r in world.audit_records() if r["event"] == "policies.replaced"]
    assert (record["policy_version"], record["before"]) == (shown["version"], before)
    action = world.flood()
    assert action["state"] == "observing"
    assert action["policy_version"] == shown["version"]
    assert world.verify_audit().ok


def test_they_outlive_a_crash_and_a_reload_and_what_was_can_be_put_again(changed_here: World) -> None:
    world = changed_here
    first = put(world, policy(level="L0")).get_json()["version"]
    second = put(world, policy(ttl="60s")).get_json()["version"]
    world.crash()
    assert in_force(world)["version"] == second
    world.reload()
    world.step()
    assert in_force(world)["version"] == second
    old = world.api("GET", "/v1/policies", query_string={"version": first}).get_json()
    again = put(world, *old["policies"], guards=old["guards"])
    assert again.get_json()["version"] == first, "what is shown can be put"
    assert len(again.get_json()["changes"]) == 3
    assert world.api("GET", "/v1/policies", query_string={"version": "no"}).status_code == 404


def test_limits_that_an_earlier_agent_let_last_longer_last_as_long_as_they_may(changed_here: World) -> None:
    world = changed_here
    version = put(world, policy(ttl="60s"), policy("other")).get_json()["version"]
    with world.agent.store.write() as session:
        row = session.scalar(select(PolicyVersion))
        assert row is not None
        content = json.loads(row.content)
        content["policies"][0] |= {"ttl": "600.0s", "ttl_max": "3600.0s"}
        content["policies"][0]["release"]["hold"] = "300.0s"
        content["policies"][1]["ttl_max"] = "3600.0s"
        row.content = json.dumps(content)
    world.crash()
    assert in_force(world)["version"] == version
    first, second = world.agent.settings.policies.policies
    assert (first.ttl, first.ttl_max, first.release.hold) == (60.0, 60.0, 30.0)
    assert (second.ttl, second.ttl_max) == (30.0, 60.0)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"policies": [policy(level="L9")]}, "policies[0].level"),
        ({"policies": [policy(level="L5")]}, "BGP"),
        ({"policies": [policy(colour="red")]}, 'unknown key "colour"'),
        ({"policies": [policy(ttl="3s", release={"hold": "1s"})]}, "shorter than six ticks"),
        ({"policies": [policy()], "guards": {"max_active": 0}}, "guards.max_active"),
        ({"policies": []}, "policies"),
        ({"policies": [policy()], "reason": "a\nb"}, "reason"),
    ],
)
def test_mistakes_are_named_and_change_nothing(
    changed_here: World, wrong: dict[str, Any], named: str
) -> None:
    world = changed_here
    before = in_force(world)
    response = world.api("PUT", "/v1/policies", json=wrong)
    assert response.status_code == 400
    assert named in response.get_json()["error"]["message"]
    assert in_force(world) == before
    assert changes(world.agent.store) == []


def test_two_people_cannot_undo_each_other_unnoticed(changed_here: World) -> None:
    world = changed_here
    seen = in_force(world)["version"]
    assert put(world, policy(level="L0"), expected_version=seen).status_code == 200
    late = put(world, policy(ttl="60s"), expected_version=seen)
    assert late.status_code == 409
    assert "not the one that was expected" in late.get_json()["error"]["message"]
    assert len(changes(world.agent.store)) == 1


def test_only_an_admin_may_and_the_same_key_does_it_once(changed_here: World) -> None:
    world = changed_here
    headers = {"Authorization": f"Bearer {world.add_user('operator')}"}
    body = {"policies": [policy(level="L0")]}
    assert world.api("PUT", "/v1/policies", json=body, headers=headers).status_code == 403
    for _ in range(2):
        response = world.api("PUT", "/v1/policies", json=body, headers={"Idempotency-Key": "k"})
        assert response.status_code == 200
    assert len(changes(world.agent.store)) == 1


def test_another_replica_takes_them_over(changed_here: World) -> None:
    agent = changed_here.agent
    content = {"version": 1, "policies": [policy(level="L0")]}
    # As another replica does it: into the shared database, past this one.
    other = put_policies(agent.journal, agent.settings, Draft(content, None, ""), "somebody")
    assert agent.settings.policies.version != other.version
    agent.follow_policies()
    assert agent.settings.policies.version == other.version
    assert changed_here.flood()["state"] == "observing"


def test_limits_in_force_end_when_their_policy_is_put_away(changed_here: World) -> None:
    assert changed_here.flood()["state"] == "active"
    assert put(changed_here, policy("another")).status_code == 200
    changed_here.step(1)
    assert changed_here.enforcer.limit_of(PORT) is None


def test_simulate_on_the_command_line_uses_them(
    changed_here: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = changed_here
    alert = tmp_path / "alert.json"
    alert.write_text(json.dumps(world.alert()))
    version = put(world, policy(level="L0")).get_json()["version"]
    world.stop()
    assert main(["--config", str(world.config_path), "simulate", "--alert", str(alert), "--json"]) == 0
    (decision,) = json.loads(capsys.readouterr().out)["decisions"]
    assert decision["policy_version"] == version
    assert decision["decision"] == "observe"


def pair(tenant: str, port: str = PORT) -> dict[str, Any]:
    """A limit as vigia-enforcer shows it."""
    return {
        "port": port,
        "tenant": tenant,
        "destination": "02:00:00:00:00:07",
        "rate_bytes_per_second": 1_000_000,
        "floor_bytes_per_second": 500_000.0,
        "severity": 2,
        "shaped": True,
        "age_seconds": 0.1,
        "expires_in_seconds": 1.9,
        "offered_bytes": 10,
        "policed_bytes": 3,
        "policed_packets": 1,
    }


def test_limits_of_the_fast_loop_are_shown(world: World) -> None:
    world.enforcer.pairs = [pair("red"), pair("blue", "lb1-blue-120")]
    shown = world.api("GET", "/v1/pairs").get_json()
    assert {p["tenant"] for p in shown["pairs"]} == {"red", "blue"}
    assert shown["silent"] == {}
    (one,) = world.api("GET", "/v1/pairs", query_string={"tenant": "red"}).get_json()["pairs"]
    assert (one["node"], one["port"], one["destination"]) == ("lb1", PORT, "02:00:00:00:00:07")
    assert (one["rate_bytes_per_second"], one["severity"]) == (1_000_000, 2)
    assert world.api("GET", "/v1/pairs", query_string={"colour": "red"}).status_code == 400


def test_a_node_that_does_not_answer_is_named(world: World) -> None:
    _ = world.agent
    world.enforcer.stop()
    shown = world.api("GET", "/v1/pairs").get_json()
    assert shown["pairs"] == []
    assert "lb1" in shown["silent"]
