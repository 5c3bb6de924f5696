"""Enforcers that are found by somebody else come and go while the agent runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isolation_agent.errors import AgentError
from isolation_agent.found import read_hosts
from vigia_testing import eventually

from ..support.world import World, secret


def group(node: str, address: str) -> dict[str, Any]:
    return {"targets": [address], "labels": {"node": node, "zone": "z1"}}


def put(world: World, *groups: Any) -> Path:
    """Replace the file as the kubelet does: in one step."""
    path = world.dir / "enforcers.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps(groups))
    return new.replace(path)


@pytest.fixture
def found(world: World) -> World:
    """A world whose enforcers are in the file alone."""
    world.extra = {"hosts": [], "hosts_file": {"path": "enforcers.json", "token_file": "enforcer.token"}}
    return world


def address(world: World, node: str) -> str:
    return world.enforcers[node].url.removeprefix("http://")


def nodes(world: World) -> list[str]:
    return [host.node for host in world.agent.settings.config.hosts]


def test_a_flood_is_limited_at_a_node_of_the_file(found: World) -> None:
    put(found, group("lb1", address(found, "lb1")))
    assert nodes(found) == ["lb1"]
    assert found.flood()["state"] == "active"


def test_nodes_come_and_go_while_it_runs(found: World) -> None:
    assert nodes(found) == [], "nobody has written the file yet"
    found.step()
    found.agent.start()
    put(found, group("lb1", address(found, "lb1")))
    eventually(lambda: nodes(found) == ["lb1"], "the file is read when it is there")
    found.add_node("lb2")
    put(found, group("lb1", address(found, "lb1")), group("lb2", address(found, "lb2")))
    eventually(lambda: nodes(found) == ["lb1", "lb2"], "and when it changes")
    put(found, group("lb2", address(found, "lb2")))
    eventually(lambda: nodes(found) == ["lb2"], "also when a node leaves")


def test_what_failed_for_a_passing_reason_is_tried_again(found: World) -> None:
    """The token of the new file is there later than the file."""
    put(found, group("lb1", address(found, "lb1")))
    found.agent.start()
    token = found.dir / "enforcer.token"
    kept = token.read_text()
    token.unlink()
    put(found, group("lb1", address(found, "lb1")), group("lb2", "127.0.0.1:1"))
    eventually(lambda: found.metric("vigia_agent_config_last_reload_successful") == 0, "it is refused")
    secret(token, kept.strip())
    assert nodes(found) == ["lb1"]
    found.clock.advance(301)
    eventually(lambda: nodes(found) == ["lb1", "lb2"], "and taken without another change")


def test_a_wrong_file_is_refused_once_and_the_old_one_stays(found: World) -> None:
    put(found, group("lb1", address(found, "lb1")))
    found.agent.start()
    put(found, {"targets": []})
    eventually(lambda: found.metric("vigia_agent_config_last_reload_successful") == 0, "it is refused")
    assert nodes(found) == ["lb1"]
    asked = found.agent._hosts_asked_for
    found.agent.follow_hosts()
    assert found.agent._hosts_asked_for is asked, "not tried again at once"
    put(found, group("lb1", address(found, "lb1")), group("lb2", "127.0.0.1:1"))
    eventually(lambda: nodes(found) == ["lb1", "lb2"], "and then taken")


def test_the_configuration_goes_before_the_file(world: World) -> None:
    world.extra = {
        "hosts_file": {"path": "enforcers.json", "token_file": "enforcer.token", "scheme": "https"}
    }
    put(world, group("lb1", "10.0.0.1:9873"), group("lb2", "[2001:db8::2]:9873"))
    hosts = {h.node: h.url for h in world.settings().config.hosts}
    assert hosts == {"lb1": world.enforcer.url, "lb2": "https://[2001:db8::2]:9873"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("{}", "is not a list of groups"),
        ('[{"targets": ["a:1"]}]', "[0].labels.node is missing"),
        ('[{"targets": ["a:1"], "labels": {"node": 7}}]', "[0].labels.node is missing"),
        ('[{"targets": ["a:1", "b:1"], "labels": {"node": "n"}}]', "[0].targets is not one address"),
        ('[{"targets": [1], "labels": {"node": "n"}}]', "[0].targets is not one address"),
        ('[{"targets": ["a:1"], "labels": {"node": "n"}}, {"targets": ["b:1"], "labels": {"node": "n"}}]', '"n" appears twice'),
        ('[{"targets": ["a:1/x?y"], "labels": {"node": "n"}}]', "is not the base URL of an enforcer"),
        ('[{"targets": ["user@a:1"], "labels": {"node": "n"}}]', "is not the base URL of an enforcer"),
        ('[{"targets": ["a:1"], "labels": {"node": "a b"}}]', '"a b"'),
        ("[" * 100 + "]" * 100, "deep"),
    ],
)  # fmt: skip
def test_mistakes_are_named(found: World, text: str, says: str) -> None:
    (found.dir / "enforcers.json").write_text(text)
    with pytest.raises(AgentError) as e:
        found.settings()
    assert says in str(e.value)
    assert str(e.value).startswith("hosts_file.path: ")


def test_a_file_that_cannot_be_read_is_no_file_that_is_not_there(tmp_path: Path) -> None:
    assert read_hosts(tmp_path / "absent") == {}
    with pytest.raises(ValueError, match="cannot be read"):
        read_hosts(tmp_path)
