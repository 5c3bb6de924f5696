"""Reload: everything that can fail first, then the swap; a failure changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from vigia_service.errors import ServiceError

from ..support.fake_enforcer import FakeEnforcer
from ..support.world import API_TOKEN, GUARANTEE, PORT, World, policy, secret


def test_new_policies_count_from_the_next_turn(world: World) -> None:
    world.policies = [policy(level="L0")]
    world.step()
    world.policies = [policy()]
    world.reload()
    assert world.flood()["state"] == "active"
    assert world.metric("vigia_agent_config_last_reload_successful") == 1
    assert "config.reloaded" in world.audit_events()


def test_reload_by_http(world: World) -> None:
    before = world.agent.settings.policies.version
    world.policies = [policy(ttl="60s")]
    world.write_files()
    response = world.api("POST", "/-/reload")
    assert response.status_code == 200
    assert response.get_json()["policy_version"] != before
    record = next(r for r in world.audit_records() if r["event"] == "config.reloaded")
    assert record["actor"] == "api@127.0.0.1"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("policies.yaml", "version: 1\npolicies: [{name: a}]\n", "is missing"),
        ("policies.yaml", "", "the file is empty"),
        ("policies.yaml", None, "cannot be read"),
        ("agent.yaml", "listn: x\n", "unknown key"),
        ("api.token", "short", "does not hold a token"),
        ("enforcer.token", None, "no such file"),
    ],
)
def test_failed_reload_changes_nothing_and_says_why(
    world: World, name: str, content: str | None, says: str
) -> None:
    action = world.flood()
    settings = world.agent.settings
    if content is None:
        (world.dir / name).unlink()
    else:
        (world.dir / name).write_text(content)
    response = world.api("POST", "/-/reload")
    assert response.status_code == 500
    error = response.get_json()["error"]
    assert error["code"] == "reload_failed"
    assert "still running on the old configuration" in error["message"]
    assert says in error["message"]
    assert world.metric("vigia_agent_config_last_reload_successful") == 0
    assert world.agent.settings is settings
    world.run(30)
    assert world.action(action["id"])["state"] == "active", "everything goes on as it was"


def test_success_after_a_failure(world: World) -> None:
    _ = world.agent
    (world.dir / "policies.yaml").write_text("nonsense")
    assert world.api("POST", "/-/reload").status_code == 500
    world.write_files()
    assert world.api("POST", "/-/reload").status_code == 200
    assert world.metric("vigia_agent_config_last_reload_successful") == 1


def test_counters_go_on(world: World) -> None:
    world.flood()
    before = world.metric("vigia_agent_webhook_requests_total", code="200")
    world.reload()
    assert world.metric("vigia_agent_webhook_requests_total", code="200") == before == 1


@pytest.mark.parametrize(
    "change",
    [{"listen": "127.0.0.1:9999"}, {"database": "sqlite:///other.db"}, {"audit_log": "other.jsonl"}],
)
def test_what_is_fixed_while_it_runs(world: World, change: dict[str, Any]) -> None:
    _ = world.agent
    world.extra = change
    world.write_files()
    with pytest.raises(
        ServiceError, match=f"{next(iter(change))} cannot change from .* while the program runs; restart it"
    ):
        world.agent.reload("test")
    assert not (world.dir / "other.db").exists()


def test_tokens_can_be_changed(world: World) -> None:
    _ = world.agent
    secret(world.dir / "api.token", "another-token-0123456789")
    world.agent.reload("test")
    assert world.api("GET", "/v1/actions").status_code == 401
    fresh = {"Authorization": "Bearer another-token-0123456789"}
    assert world.client.get("/v1/actions", headers=fresh).status_code == 200
    assert (
        world.client.get("/v1/actions", headers={"Authorization": f"Bearer {API_TOKEN}"}).status_code == 401
    )


def test_host_is_added(world: World) -> None:
    world.step()
    second = world.add_node("lb2")
    second.add("lb2-red-1", "red", guarantee=GUARANTEE)
    second.flood("lb2-red-1")
    message = world.alert("lb2-red-1", "red", labels={"node": "lb2"})
    world.post(message)
    world.step()
    assert world.metric("vigia_agent_alerts_total", outcome="rejected", status="firing") == 1
    world.reload()
    world.post(message)
    world.step()
    assert world.only_action()["state"] == "active"
    assert world.metric("vigia_agent_enforcer_up", node="lb2") == 1


def test_host_is_taken_out_with_a_limit_in_force(world: World) -> None:
    second = world.add_node("lb2")
    second.add("lb2-red-1", "red", guarantee=GUARANTEE)
    second.flood("lb2-red-1")
    world.post(world.alert("lb2-red-1", "red", labels={"node": "lb2"}))
    world.step()
    assert world.only_action()["state"] == "active"
    del world.enforcers["lb2"]
    world.reload()
    world.run(40)
    action = world.only_action()
    assert (action["state"], action["cause"]) == ("expired", "ttl")
    assert "add it to hosts" in action["reason"]
    text = world.client.get("/metrics").text
    assert 'vigia_agent_enforcer_up{node="lb2"}' not in text
    second.stop()


def test_enforcer_that_moved_is_found_again(world: World) -> None:
    action = world.flood()
    old = world.enforcer
    moved = FakeEnforcer(world.clock, "lb1", ports=old.ports)
    old.stop()
    world.enforcers["lb1"] = moved
    world.reload()
    world.run(20)
    assert world.action(action["id"])["state"] == "active"
    assert moved.count("apply") > 0


def test_policy_taken_out_releases_its_limits(world: World) -> None:
    action = world.flood()
    world.policies = [policy("another")]
    world.reload()
    world.step(1)
    action = world.action(action["id"])
    assert (action["state"], action["cause"]) == ("reverted", "operator")
    assert "no longer in the policy file" in action["reason"]


@pytest.mark.parametrize(
    "change",
    [
        {"guards": {"kill_switch": True}},
        {"guards": {"allow": [{"tenant": "red", "role": "source", "reason": "agreed"}]}},
        {"guards": {"infrastructure": ["red"]}},
        {"policies": [policy(dry_run=True)]},
        {"extra": {"dry_run": True}},
    ],
)
def test_what_an_operator_switches_on_lifts_limits_in_force(world: World, change: dict[str, Any]) -> None:
    action = world.flood()
    for name, value in change.items():
        setattr(world, name, value)
    world.reload()
    world.step(1)
    action = world.action(action["id"])
    assert (action["state"], action["cause"]) == ("reverted", "operator")
    assert world.enforcer.limit_of(PORT) is None


def test_action_keeps_the_times_that_it_was_decided_with(world: World) -> None:
    world.flood()
    world.policies = [policy(ttl="60s", release={"hold": "30s", "offered_below": 0.1, "probe": "0s"})]
    world.reload()
    world.enforcer.calm(PORT)
    world.run(12)
    assert world.only_action()["state"] == "reverted"


def test_reloads_one_after_the_other_before_a_turn(world: World) -> None:
    for _ in range(3):
        world.reload()
    world.policies = [policy(level="L0")]
    world.reload()
    assert world.flood()["state"] == "observing"


def test_file_that_changes_while_it_is_written_is_whole_or_refused(world: World) -> None:
    _ = world.agent
    text = (world.dir / "policies.yaml").read_text()
    refused = 0
    for cut in range(0, len(text), 40):
        (world.dir / "policies.yaml").write_text(text[:cut])
        refused += world.api("POST", "/-/reload").status_code == 500
    assert refused >= 3
    assert world.agent.settings.policies.named("udp-flood") is not None
    (world.dir / "policies.yaml").write_text(yaml.safe_dump(yaml.safe_load(text)))
    assert world.api("POST", "/-/reload").status_code == 200
