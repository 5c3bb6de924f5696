"""The files by which enforcers know each other and each other's guests, as Neutron has them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from vigia_config import ConfigError, parse
from vigia_identity import sitefiles
from vigia_identity.clouds import neutron, openstack
from vigia_identity.clouds.sites import Guest, site
from vigia_identity.config import Config, Notices
from vigia_identity.looker import Looker

# The SDK warns of what it will drop.
pytestmark = pytest.mark.filterwarnings("ignore")

Cloud = Any  # of conftest.py

ENFORCER = Path(__file__).parents[3] / "bin/vigia-enforcer"
RED, BLUE, OPERATOR = (f"{n:032x}" for n in (1, 2, 3))


def agent(host: str, end: object, kind: str = "Open vSwitch agent") -> dict[str, Any]:
    return {
        "id": f"agent-{host}-{kind}",
        "host": host,
        "agent_type": kind,
        "alive": True,
        "admin_state_up": True,
        "configurations": {"tunneling_ip": end},
    }


def port(number: int, project: str, host: str, *addresses: object, **more: Any) -> dict[str, Any]:
    return {
        "id": f"{number:08x}-5a0e-4a5f-8c0d-0f1e2d3c4b5a",
        "project_id": project,
        "network_id": "net-1",
        "device_id": f"vm-{number}",
        "device_owner": "compute:nova",
        "binding:host_id": host,
        "mac_address": f"fa:16:3e:00:00:{number:02x}",
        "fixed_ips": [{"subnet_id": "s", "ip_address": a} for a in addresses],
        **more,
    }


@pytest.fixture
def looker(cloud: Cloud, clouds_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Looker:
    monkeypatch.setattr(neutron, "PAGE", cloud.page)
    monkeypatch.setattr(openstack, "SHARE", 0)
    cloud.networks, cloud.policies = [{"id": "net-1"}], []
    cloud.agents = [
        agent("c1", "10.20.0.1"),
        agent("c2", "2001:db8::2", "Linux bridge agent"),
        agent("c3", "10.20.0.3"),
        agent("net1", "10.20.0.9", "L3 agent"),
    ]
    cloud.ports = [
        port(1, RED, "c1", "192.168.0.1", "fd00::1"),
        port(2, RED, "c2", "192.168.0.2"),
        port(3, BLUE, "c2", "192.168.0.1"),
        port(4, OPERATOR, "c1", "10.40.0.1", device_owner="vigia:probe"),
        port(5, BLUE, "c2", "192.168.0.5", device_owner="network:dhcp"),
    ]
    for folder in ("sites", "contracts"):
        (tmp_path / folder).mkdir()
    config = {
        "tenants_file": tmp_path / "tenants.yaml",
        "contracts_dir": tmp_path / "contracts",
        "sites_dir": tmp_path / "sites",
        "openstack": {
            "cloud": "lab",
            "clouds_file": clouds_file,
            "operator": OPERATOR,
            "default": {"guarantee": "10Mbit", "ceiling": "1Gbit"},
        },
    }
    return Looker(Config.model_validate(config))


def read(looker: Looker, host: str) -> dict[str, Any]:
    assert looker.config.sites_dir is not None
    found: dict[str, Any] = yaml.safe_load((looker.config.sites_dir / f"{host}.yaml").read_text())
    return found


def where(looker: Looker, host: str) -> list[tuple[str, str, str]]:
    return [(p["node"], p["port"][:8], p.get("ip", "")) for p in read(looker, host)["ports"]]


def test_each_host_has_all_hosts_and_the_ports_of_its_own_tenants(looker: Looker) -> None:
    assert looker.once()
    nodes = [
        {"node": "c1", "address": "10.20.0.1:9876", "tunnel": "10.20.0.1"},
        {"node": "c2", "address": "[2001:db8::2]:9876", "tunnel": "2001:db8::2"},
        {"node": "c3", "address": "10.20.0.3:9876", "tunnel": "10.20.0.3"},
    ]
    red = [
        ("c1", "00000001", "192.168.0.1"),
        ("c1", "00000001", "fd00::1"),
        ("c2", "00000002", "192.168.0.2"),
    ]
    assert where(looker, "c1") == red
    assert where(looker, "c2") == [*red, ("c2", "00000003", "192.168.0.1")]
    assert where(looker, "c3") == []
    assert all(read(looker, host)["nodes"] == nodes for host in ("c1", "c2", "c3"))
    first = read(looker, "c1")["ports"][0]
    assert (first["tenant"], first["mac"]) == (RED, "fa:16:3e:00:00:01")


def test_an_enforcer_takes_them(looker: Looker, tmp_path: Path) -> None:
    """Of every host, and issues keys by them."""
    assert looker.once()
    (tmp_path / "master").write_text(f"1 {'ab' * 32}\n")
    (tmp_path / "master").chmod(0o600)
    for host in ("c1", "c2", "c3"):
        issue = ["issue-keys", f"--site={tmp_path}/sites/{host}.yaml", f"--master={tmp_path}/master"]
        done = subprocess.run(
            [ENFORCER, *issue, f"--node={host}"], capture_output=True, text=True, check=True, timeout=60
        )
        (tmp_path / "keys").write_text(done.stdout)
        (tmp_path / "keys").chmod(0o600)
        (tmp_path / "token").write_text("0123456789abcdef\n")
        (tmp_path / "token").chmod(0o600)
        config = {
            "node": host,
            "cni_results_dir": "/var/lib/cni/results",
            "bpf": {"pin_dir": "/sys/fs/bpf/vigia"},
            "token_file": str(tmp_path / "token"),
            "links": [{"device": "eth0", "rate": "1Gbit"}],
            "fast_loop": {
                "listen": "127.0.0.1:9876",
                "site_file": f"{tmp_path}/sites/{host}.yaml",
                "keys_file": str(tmp_path / "keys"),
            },
        }
        (tmp_path / "enforcer.yaml").write_text(json.dumps(config))
        check = [ENFORCER, "check-config", f"--config={tmp_path}/enforcer.yaml"]
        checked = subprocess.run(check, capture_output=True, text=True, check=False, timeout=60)
        assert checked.returncode == 0, checked.stderr


def test_what_others_do_changes_nothing_on_a_host(looker: Looker, cloud: Cloud, tmp_path: Path) -> None:
    assert looker.once()
    c1 = (tmp_path / "sites/c1.yaml").read_bytes()
    cloud.ports.append(port(6, BLUE, "c3", "192.168.0.6"))
    assert looker.follow(), "without a look at everything"
    assert where(looker, "c3") == [("c2", "00000003", "192.168.0.1"), ("c3", "00000006", "192.168.0.6")]
    assert (tmp_path / "sites/c1.yaml").read_bytes() == c1
    # A port that goes away leaves its tenant's other hosts, too.
    del cloud.ports[0]
    assert looker.follow()
    assert where(looker, "c1") == []
    assert ("c1", "00000001", "192.168.0.1") not in where(looker, "c2")


def test_a_machine_that_migrates_is_on_both_hosts(looker: Looker, cloud: Cloud) -> None:
    cloud.ports[1]["binding:profile"] = {"migrating_to": "c3"}
    assert looker.once()
    moving = [("c2", "00000002", "192.168.0.2"), ("c3", "00000002", "192.168.0.2")]
    assert where(looker, "c3")[-2:] == moving and where(looker, "c1")[-2:] == moving


def test_addresses_that_change_are_followed(looker: Looker, cloud: Cloud) -> None:
    assert looker.once()
    cloud.ports[1] |= {"fixed_ips": [{"ip_address": "192.168.0.77"}], "revision_number": 9}
    assert looker.follow()
    assert ("c2", "00000002", "192.168.0.77") in where(looker, "c1")


@pytest.mark.parametrize(
    "hostile",
    [
        {"mac_address": "fa:16:3e:00:00:01\n- evil"},
        {"mac_address": None},
        {"binding:host_id": "c1\n../../etc"},
        {"id": "../../../etc/passwd"},
        {"project_id": "[red"},
    ],
)
def test_what_is_none_is_left_out(looker: Looker, cloud: Cloud, hostile: dict[str, Any]) -> None:
    cloud.ports[0] |= hostile
    assert looker.once()
    assert ("c2", "00000002", "192.168.0.2") in where(looker, "c2"), "and nothing else is"
    assert not [
        p for host in ("c1", "c2") for p in read(looker, host)["ports"] if p["port"].startswith("00000001")
    ]


@pytest.mark.parametrize(
    "fixed",
    [
        None,
        [],
        "10.0.0.1",
        [
            {"ip_address": "x: y"},
            {"ip_address": 7},
            {"ip_address": True},
            {"ip_address": "fe80::1%eth0"},
            "text",
            {},
        ],
    ],
)
def test_a_port_without_an_address_is_there_all_the_same(looker: Looker, cloud: Cloud, fixed: Any) -> None:
    """It sends by other addresses; nobody evades by having none."""
    cloud.ports[0]["fixed_ips"] = fixed
    assert looker.once()
    assert where(looker, "c2")[0] == ("c1", "00000001", "")
    assert where(looker, "c1") == [("c1", "00000001", ""), ("c2", "00000002", "192.168.0.2")]
    assert "ip" not in read(looker, "c1")["ports"][0]


def test_a_port_has_sixteen_addresses_at_most(looker: Looker, cloud: Cloud) -> None:
    cloud.ports[0] |= port(1, RED, "c1", *(f"192.168.1.{n}" for n in range(200)))
    assert looker.once()
    assert len(where(looker, "c1")) == 17


def test_by_hand_goes_what_neutron_does_not_say_or_says_otherwise() -> None:
    notices = Notices.model_validate(
        {
            "port": 9900,
            "nodes": {
                "c1": {"address": "192.0.2.1:9876"},
                "c2": {"tunnel": "10.30.0.2", "vlan": 12},
                "sriov1": {"address": "[2001:db8::9]:1"},
                "c9": {},
            },
        }
    )
    hosts = {"c1": "10.20.0.1", "c2": "10.20.0.2", "c3": "10.20.0.3", "ovn1": "", "ovn2": ""}
    found, problems = site(notices, hosts, {RED: [Guest("c2", "p", "fa:16:3e:00:00:01", ["10.0.0.1"])]})
    assert list(found.nodes.values()) == [
        {"node": "c1", "address": "192.0.2.1:9876", "tunnel": "10.20.0.1"},
        {"node": "c2", "address": "10.30.0.2:9900", "tunnel": "10.30.0.2", "vlan": 12},
        {"node": "c3", "address": "10.20.0.3:9900", "tunnel": "10.20.0.3"},
        {"node": "sriov1", "address": "[2001:db8::9]:1"},
    ]
    (said,) = problems
    assert "c9, ovn1, ovn2 do not say where tunnels end" in said and "openstack.notices.nodes" in said
    assert [p["node"] for p in found.ports[RED]] == ["c2"]


def test_ports_of_hosts_that_nobody_can_reach_are_left_out() -> None:
    guests = [Guest(h, "p", "fa:16:3e:00:00:01", ["10.0.0.1", "10.0.0.1"]) for h in ("c1", "ovn1")]
    found, _ = site(Notices(), {"c1": "10.20.0.1", "ovn1": ""}, {RED: guests, BLUE: guests[1:]})
    assert [p["node"] for p in found.ports[RED]] == ["c1"] and BLUE not in found.ports


def test_a_tenant_of_very_many_ports_costs_its_hosts_no_more_than_that() -> None:
    """Of the largest tenants a host reads its own ports, and on which other hosts they are."""
    hosts = {f"c{n}": f"10.20.{n // 250}.{n % 250 + 1}" for n in range(300)}
    guests = {
        RED: [Guest(f"c{n % 300}", f"p{n}", "fa:16:3e:00:00:01", ["10.0.0.1"]) for n in range(3000)],
        BLUE: [Guest(f"c{n}", f"q{n}", "fa:16:3e:00:00:02", ["10.0.0.2", "10.0.0.3"]) for n in range(3)],
    }
    found, problems = site(Notices(), hosts, guests)
    assert problems == []
    texts = dict(sitefiles.texts(found, most=400))
    assert set(texts) == set(hosts)
    # Every entry has a line of its own, those of hosts too.
    assert max(text.count("\n- ") for text in texts.values()) <= 300 + 400
    c0 = yaml.load(texts["c0"], Loader=yaml.CSafeLoader)
    assert len(c0["nodes"]) == 300
    small = [p["port"] for p in c0["ports"] if p["tenant"] == BLUE]
    assert small == ["q0", "q0", "q1", "q1", "q2", "q2"]
    red = [p for p in c0["ports"] if p["tenant"] == RED]
    assert [p["port"] for p in red if p["node"] == "c0"] == sorted(f"p{n}" for n in range(0, 3000, 300))
    assert sorted(p["node"] for p in red if p["node"] != "c0") == sorted(set(hosts) - {"c0"})
    whole = dict(sitefiles.texts(found))
    assert [whole[h].count("\n- ") for h in ("c0", "c7")] == [300 + 3006, 300 + 3000]


def test_nobody_is_pushed_off_a_list_by_others() -> None:
    """However much the others have: all ports of each tenant on the host, and that it is on the other."""
    tenants = [f"{n:032x}" for n in range(1, 6)]
    guests = {
        t: [
            Guest(h, f"{t}-{h}-{n}", "fa:16:3e:00:00:01", ["10.0.0.1"])
            for h in ("c1", "c2")
            for n in range(7)
        ]
        for t in tenants
    }
    found, _ = site(Notices(), {"c1": "10.20.0.1", "c2": "10.20.0.2"}, guests)
    for most in (0, 1, 20, 69, 70):
        for host, text in sitefiles.texts(found, most=most):
            listed = yaml.safe_load(text)["ports"]
            for tenant in tenants:
                own = [p["node"] for p in listed if p["tenant"] == tenant]
                assert own.count(host) == 7 and set(own) == {"c1", "c2"}, (most, host, tenant)


def test_of_two_agents_on_a_host_one_that_lives_and_says_its_end_counts(looker: Looker, cloud: Cloud) -> None:
    dead = {**agent("c1", "10.99.0.1", "Linux bridge agent"), "alive": False}
    mute = agent("c1", None, "OVN Controller agent")
    for listed in ([dead, mute, agent("c1", "10.20.0.1")], [agent("c1", "10.20.0.1"), mute, dead]):
        cloud.agents = [*listed, agent("c2", "10.20.0.2")]
        assert looker.once()
        assert read(looker, "c1")["nodes"][0]["tunnel"] == "10.20.0.1"


def test_who_may_not_see_agents_is_told(
    looker: Looker, cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    """Neutron answers with an empty list."""
    cloud.agents = []
    assert looker.once()
    (said,) = [r.__dict__["err"] for r in caplog.records if r.message == "not all of the site is known"]
    assert "no agent that plugs ports" in said and "the role admin" in said


def test_sites_alone_are_followed_too(looker: Looker, cloud: Cloud) -> None:
    looker.config = looker.config.model_copy(update={"contracts_dir": None})
    assert looker.wait() == looker.config.openstack.changes  # type: ignore[union-attr]
    assert looker.once()
    del cloud.asked[:]
    cloud.ports.append(port(6, BLUE, "c3", "192.168.0.6"))
    assert looker.follow()
    assert ("c3", "00000006", "192.168.0.6") in where(looker, "c2")
    assert not [a for a in cloud.asked if "qos" in a or a.endswith("/networks")]
    assert not looker.follow()


def test_what_is_missing_is_said_once(looker: Looker, cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    cloud.agents[2]["configurations"] = {"tunneling_ip": None}
    for _ in range(3):
        assert looker.once()
    assert [r.message for r in caplog.records].count("not all of the site is known") == 1
    assert {n["node"] for n in read(looker, "c1")["nodes"]} == {"c1", "c2"}
    assert looker.config.sites_dir is not None and not (looker.config.sites_dir / "c3.yaml").exists()


def test_without_sites_nobody_asks_for_agents_or_addresses(looker: Looker, cloud: Cloud) -> None:
    looker.config = looker.config.model_copy(update={"sites_dir": None})
    assert looker.once()
    assert not [a for a in cloud.asked if a.endswith("/agents")]
    assert not [q for q in cloud.queries if "fixed_ips" in q.get("fields", ())]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sites_dir": "sites"}, "sites_dir"),
        (
            {"sites_dir": "/x", "contracts_dir": "/x"},
            "sites_dir: is contracts_dir; give each a folder of its own",
        ),
        ({"openstack": None, "kubernetes": {}}, "sites_dir: is of no use without openstack; remove it"),
        ({"notices": {"port": 0}}, "openstack.notices.port"),
        ({"notices": {"nodes": {"c 1": {}}}}, "is not the name of a host; write it as Neutron's agents do"),
        ({"notices": {"nodes": {"c1": {"address": "10.0.0.1"}}}}, "openstack.notices.nodes.c1.address"),
        (
            {"notices": {"nodes": {"c1": {"address": "compute1:9876"}}}},
            "is not address:port; write for example",
        ),
        ({"notices": {"nodes": {"c1": {"address": "2001:db8::1:9876"}}}}, "is not address:port"),
        ({"notices": {"nodes": {"c1": {"address": "[10.0.0.1]:9876"}}}}, "is not address:port"),
        ({"notices": {"nodes": {"c1": {"address": "10.0.0.1:65536"}}}}, "is not address:port"),
        (
            {"notices": {"nodes": {"c1": {"tunnel": "tun0"}}}},
            "is not an IP address; write for example 10.20.0.9",
        ),
        ({"notices": {"nodes": {"c1": {"tunnel": "fe80::1%eth0"}}}}, "is not an IP address"),
        ({"notices": {"nodes": {"c1": {"address": "[fe80::1%eth0]:9876"}}}}, "is not address:port"),
        ({"notices": {"nodes": {"c1": {"vlan": 4095}}}}, "openstack.notices.nodes.c1.vlan"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], said: str) -> None:
    stack: dict[str, Any] = {"cloud": "lab", "default": {"guarantee": "1Mbit", "ceiling": "1Mbit"}}
    if "notices" in change:
        stack["notices"] = change.pop("notices")
    document = {"tenants_file": "/t.yaml", "sites_dir": "/sites", "openstack": stack, **change}
    with pytest.raises(ConfigError) as caught:
        parse(
            "identity.yaml", json.dumps({k: v for k, v in document.items() if v is not None}).encode(), Config
        )
    assert said in str(caught.value)
