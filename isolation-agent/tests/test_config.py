"""Configuration and policies: what is accepted, what each mistake says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from isolation_agent.config import Config, load_settings
from isolation_agent.errors import AgentError
from isolation_agent.policy import INFRASTRUCTURE, AllowEntry, PolicyFile, load_policies
from vigia_config import ConfigError, parse
from vigia_service.errors import ServiceError

from .support.world import World, policy

MINIMAL = """\
auth: {webhook_token_file: w, api_token_file: a}
policies: p.yaml
hosts:
  - {node: lb1, url: "http://127.0.0.1:9873", token_file: e}
"""


def config(**extra: Any) -> Config:
    return parse("c.yaml", yaml.safe_dump(yaml.safe_load(MINIMAL) | extra, sort_keys=False), Config)


def test_defaults() -> None:
    got = parse("c.yaml", MINIMAL, Config)
    assert got.listen == "127.0.0.1:9874"
    assert got.bind == ("127.0.0.1", 9874)
    assert got.database == "sqlite:////var/lib/vigia/isolation-agent.db"
    assert got.dry_run is False
    assert got.controller.tick == 1.0
    assert got.limits.body_bytes == 16 << 20


def test_all_fields() -> None:
    got = config(
        listen="[::1]:1234",
        database="sqlite:///x.db",
        audit_log="a.jsonl",
        dry_run=True,
        limits={
            "body_bytes": 4096,
            "alerts": 5,
            "inbox_messages": 6,
            "inbox_bytes": 8192,
            "request_time": "3s",
            "threads": 2,
            "kept_actions": 7,
        },
        controller={
            "tick": "500ms",
            "reconcile": "20s",
            "enforcer_timeout": "1s",
            "attempts": 3,
            "backoff": "100ms",
            "backoff_max": "1s",
            "max_alert_age": "1m",
            "episode_timeout": "2h",
        },
    )
    assert got.bind == ("::1", 1234)
    assert got.controller.tick == 0.5
    assert got.limits.request_time == 3.0


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"listn": "x"}, 'unknown key "listn"'),
        ({"listen": "9874"}, "listen: \"9874\": is not an address; write HOST:PORT"),
        ({"listen": "127.0.0.1:"}, "is not an address"),
        ({"listen": "127.0.0.1:65536"}, "is not an address"),
        ({"listen": ":80"}, "is not an address"),
        ({"listen": 9874}, "is not an address"),
        ({"database": "mysql://x/y"}, "database: is not a database that can be used; write sqlite:////"),
        ({"database": "postgresql://u:geheim@x/y"}, "database: has a password in it; write postgresql://user@host/name?passfile="),
        ({"database": "sqlite://"}, "is not a database that can be used"),
        ({"database": "sqlite:///:memory:"}, "is not a database that can be used"),
        ({"database": "agent.db"}, "is not a database that can be used"),
        ({"auth": {"webhook_token_file": "w"}}, "auth.api_token_file: is missing"),
        ({"auth": {"webhook_token_file": "w", "api_token_file": "a", "token": "x"}}, 'unknown key "token"; known here: api_token_file, session, users, webhook_token_file'),
        ({"hosts": []}, "hosts: is missing and so is hosts_file; name the enforcers in one of the two"),
        ({"hosts": [], "hosts_file": {"path": "h"}}, "hosts_file.token_file: is missing"),
        ({"hosts_file": {"path": "h", "token_file": "e", "scheme": "ftp"}}, "hosts_file.scheme"),
        ({"hosts": [{"node": "a b", "url": "http://x", "token_file": "e"}]}, 'hosts[0].node: "a b"'),
        ({"hosts": [{"node": "a", "url": "ftp://x", "token_file": "e"}]}, "is not the base URL of an enforcer; write for example http://127.0.0.1:9873"),
        ({"hosts": [{"node": "a", "url": "http://x/path", "token_file": "e"}]}, "is not the base URL"),
        ({"hosts": [{"node": "a", "url": "http://user:pw@x", "token_file": "e"}]}, "is not the base URL"),
        ({"hosts": [{"node": "a", "url": "http://x:99999", "token_file": "e"}]}, "is not the base URL"),
        ({"hosts": [{"node": "a", "url": "http://", "token_file": "e"}]}, "is not the base URL"),
        ({"hosts": [{"node": "a", "url": "http://x", "token_file": "e"}] * 2}, 'hosts[1].node: "a" appears twice; keep one host per node'),
        ({"dry_run": "perhaps"}, 'dry_run: "perhaps"'),
        ({"limits": {"body_bytes": 0}}, "limits.body_bytes"),
        ({"limits": {"threads": 65}}, "limits.threads"),
        ({"limits": {"request_time": 10}}, 'limits.request_time: "10": is not a duration'),
        ({"controller": {"tick": "0s"}}, "controller.tick: \"0s\": must be more than zero"),
        ({"controller": {"attempts": 0}}, "controller.attempts"),
        ({"controller": {"tock": "1s"}}, 'unknown key "tock"'),
    ],
)  # fmt: skip
def test_mistakes_name_field_value_and_fix(extra: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as e:
        config(**extra)
    assert says in str(e.value)
    assert str(e.value).startswith("c.yaml:")


def test_url_is_reduced_to_its_base() -> None:
    assert (
        config(hosts=[{"node": "a", "url": "HTTPS://Enforcer:9873/", "token_file": "e"}]).hosts[0].url
        == "https://Enforcer:9873"
    )


# Everything that it points to


def test_paths_are_relative_to_the_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    settings = world.settings()
    assert settings.audit_path == world.dir / "audit.jsonl"
    assert settings.database_path == world.dir / "agent.db"
    assert settings.database_url == f"sqlite:///{world.dir / 'agent.db'}"


def test_relative_configuration_path(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write_files()
    monkeypatch.chdir(world.dir)
    settings = load_settings(Path("agent.yaml"))
    monkeypatch.chdir("/")
    assert settings.path == world.dir / "agent.yaml"
    assert settings.audit_path == world.dir / "audit.jsonl"


def test_absolute_paths_stay(world: World, tmp_path: Path) -> None:
    world.extra = {"database": f"sqlite:///{tmp_path}/x/y.db", "audit_log": "/var/log/audit.jsonl"}
    settings = world.settings()
    assert settings.database_path == tmp_path / "x" / "y.db"
    assert settings.audit_path == Path("/var/log/audit.jsonl")


def test_missing_files(world: World) -> None:
    world.write_files()
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read: No such file"):
        load_settings(world.dir / "absent.yaml")
    (world.dir / "policies.yaml").unlink()
    with pytest.raises(ConfigError, match=r"policies\.yaml: cannot be read: No such file"):
        load_settings(world.config_path)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("webhook.token", "auth.webhook_token_file"),
        ("api.token", "auth.api_token_file"),
        ("enforcer.token", "hosts[0].token_file"),
    ],
)
def test_bad_token_files_name_the_field(world: World, name: str, field: str) -> None:
    (world.dir / name).chmod(0o644)
    with pytest.raises(ServiceError) as e:
        world.settings()
    assert str(e.value).startswith(f"{field}: {world.dir / name}: everybody on this machine")


def test_two_tokens_have_to_differ(world: World) -> None:
    (world.dir / "api.token").write_bytes((world.dir / "webhook.token").read_bytes())
    with pytest.raises(AgentError, match="both token files hold the same token; use two"):
        world.settings()


def test_ttl_has_to_leave_room_for_ticks(world: World) -> None:
    world.extra = {"controller": {"tick": "6s"}}
    with pytest.raises(AgentError, match="policy udp-flood: ttl 30s is shorter than six ticks of 6s"):
        world.settings()


# Policies


def policies(*entries: dict[str, Any], **extra: Any) -> PolicyFile:
    document = {"version": 1, "policies": list(entries) or [policy()]} | extra
    return parse("p.yaml", yaml.safe_dump(document, sort_keys=False), PolicyFile)


def test_policy_defaults() -> None:
    got = policies({"name": "a", "match": {"alertname": "A"}, "level": "L2"}).policies[0]
    assert got.params() == {"ttl": 30.0, "hold": 10.0, "probe": 5.0, "offered_below": 0.8, "cooldown": 30.0}
    assert got.dry_run is False


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"step": {"up_to": "L3"}}, "policies[0].step.harm: is missing; add it"),
        ({"step": {"up_to": "L2", "harm": {"alertname": "H"}}}, 'policies[0].step.up_to: "L2" is not above level L2; write a higher level'),
        ({"step": {"up_to": "L3", "harm": {"node": "a"}}}, "policies[0].step.harm: has no alertname"),
        ({"ttl_max": "10s"}, "policies[0].ttl_max: 10s is less than ttl; write a longer ttl_max"),
        ({"level": "L5"}, "L5 (filter upstream) needs a BGP speaker"),
        ({"level": "L6"}, "policies[0].level"),
        ({"level": 2}, "policies[0].level"),
        ({"match": {}}, "policies[0].match: has no alertname; name the alert"),
        ({"match": {"alertname": ""}}, "has no alertname"),
        ({"match": {"alertname": ["a"]}}, "policies[0].match.alertname"),
        ({"name": "a b"}, "policies[0].name"),
        ({"name": ""}, "policies[0].name"),
        ({"ttl": "30"}, "is not a duration"),
        ({"ttl": "1s"}, "must be whole seconds from 2s to 60s"),
        ({"ttl": "2h"}, "must be whole seconds from 2s to 60s"),
        ({"ttl": "2500ms"}, "must be whole seconds from 2s to 60s"),
        ({"ttl": "19s"}, "policies[0].release.hold: 10s is more than half of ttl, so the limit would end before the release; write a longer ttl or a shorter hold"),
        ({"release": {"hold": "10s", "offered_below": 0}}, "policies[0].release.offered_below"),
        ({"release": {"hold": "10s", "offered_below": 1.5}}, "policies[0].release.offered_below"),
        ({"release": {"hold": "10s", "offered_under": 0.5}}, 'unknown key "offered_under"; known here: hold, offered_below, probe'),
        ({"rate": "1Mbit"}, 'unknown key "rate"'),
        ({"dry_run": "no idea"}, "policies[0].dry_run"),
    ],
)  # fmt: skip
def test_policy_mistakes(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as e:
        policies(policy(**change))
    assert says in str(e.value)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"version": 2}, "version"),
        ({"policies": []}, "policies: list should have at least 1 item"),
        ({"policies": [policy(), policy()]}, 'policies[1].name: "udp-flood" appears twice; rename one'),
        ({"guards": {"max_active": 0}}, "guards.max_active"),
        ({"guards": {"max_per_tenant": 0}}, "guards.max_per_tenant"),
        ({"guards": {"kill": True}}, 'unknown key "kill"'),
        ({"guards": {"allow": [{"role": "source", "reason": "x"}]}}, "guards.allow[0]: names neither tenant nor port; add tenant, port or both"),
        ({"guards": {"allow": [{"tenant": "a", "reason": "x"}]}}, "guards.allow[0].role: is missing"),
        ({"guards": {"allow": [{"tenant": "a", "role": "sender", "reason": "x"}]}}, "guards.allow[0].role"),
        ({"guards": {"allow": [{"tenant": "a", "role": "source"}]}}, "guards.allow[0].reason: is missing"),
        ({"guards": {"allow": [{"port": "a", "role": "victim", "reason": "x"}]}}, "guards.allow[0].role: \"victim\" needs a tenant"),
        ({"guards": {"infrastructure": ["a b"]}}, "guards.infrastructure[0]"),
    ],
)  # fmt: skip
def test_policy_file_mistakes(extra: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as e:
        policies(**extra)
    assert says in str(e.value)


def test_builtin_infrastructure_cannot_be_taken_out() -> None:
    guards = policies(guards={"infrastructure": ["dns"]}).guards
    assert guards.protected_tenants == (*INFRASTRUCTURE, "dns")


@pytest.mark.parametrize(
    ("labels", "matches"),
    [
        ({"alertname": "A", "team": "x"}, True),
        ({"alertname": "A", "team": "x", "more": "y"}, True),
        ({"alertname": "A", "team": "x", "policy": "p"}, True),
        ({"alertname": "A", "team": "x", "policy": "q"}, False),
        ({"alertname": "A"}, False),
        ({"alertname": "A", "team": "X"}, False),
        ({"alertname": "B", "team": "x"}, False),
        ({}, False),
    ],
)
def test_match_is_equality_of_every_label(labels: dict[str, str], matches: bool) -> None:
    made = policies(policy("p", match={"alertname": "A", "team": "x"})).policies[0]
    assert made.matches(labels) is matches


def test_version_changes_with_the_meaning_and_not_with_comments(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"

    def version(text: str) -> str:
        path.write_text(text)
        return load_policies(path).version

    base = "version: 1\npolicies:\n  - {name: a, match: {alertname: A}, level: L2}\n"
    first = version(base)
    assert len(first) == 12
    assert version("# a comment\n" + base) == first
    assert version(base.replace("L2", "L2, ttl: 40s")) != first
    assert version(base + "guards: {max_active: 3}\n") != first


def test_roles_of_allow_entries() -> None:
    both = AllowEntry(tenant="a", role="either", reason="r")
    assert both.shields_source("a", "p")
    assert both.shields_victim("a")
    assert not both.shields_source("b", "p")
    assert not AllowEntry(port="p", role="source", reason="r").shields_victim("a")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://h:9875", "http://h:9875/"),
        ("https://h/vigia/", "https://h/vigia/"),
        ("http://[::1]:1", "http://[::1]:1/"),
    ],
)
def test_the_pages_may_be_elsewhere(given: str, kept: str) -> None:
    assert config(pages=given).pages == kept
    assert config().pages is None


@pytest.mark.parametrize(
    "given",
    [
        "h:9875",
        "javascript:alert(1)",
        "http://u:p@h/",
        "http://h/?x=1",
        "http://h:0",
        "http:// h",
        "//h/",
        "",
    ],
)
def test_what_is_no_address_of_pages_is_refused_with_field_and_fix(given: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^c\.yaml:\d+: pages: .*is not the URL of pages; write for example http://"
    ) as e:
        config(pages=given)
    assert "http://127.0.0.1:9875" in str(e.value) and "\n" not in str(e.value)
