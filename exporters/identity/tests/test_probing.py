"""Ports to probe between: made, kept, removed, and told to nodes, against a server that answers as Neutron does."""

from __future__ import annotations

import json
import logging
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from vigia_config import ConfigError, parse
from vigia_identity.cli import main
from vigia_identity.clouds import CloudError, Identity, neutron
from vigia_identity.config import Config, OpenStack
from vigia_identity.probing import prober
from vigia_identity.probing.plan import Host, Made, Network, Pair, plan
from vigia_identity.probing.prober import Outcome, Prober
from vigia_testing import eventually

# The SDK warns of what it will drop.
pytestmark = pytest.mark.filterwarnings("ignore")

Cloud = Any  # of conftest.py

OPERATOR = f"{7:032x}"
NETWORKS = ("vxlan", "gre")


def network(number: int, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"net-{number}",
        "mtu": 1450,
        "tags": [],
        "project_id": OPERATOR,
        "provider:network_type": kind,
        **more,
    }


def subnet(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"sub-{number}",
        "network_id": f"net-{number}",
        "cidr": f"10.{number}.0.0/24",
        "project_id": OPERATOR,
        **more,
    }


def agent(host: str, kind: str = "Open vSwitch agent", **more: Any) -> dict[str, Any]:
    return {
        "id": f"agent-{host}-{kind}",
        "host": host,
        "agent_type": kind,
        "alive": True,
        "admin_state_up": True,
        "configurations": {"tunneling_ip": f"192.0.2.{int(host[-1])}"},
        **more,
    }


class Site:
    """An operator's configuration, what it makes, and the cloud that it is made in."""

    def __init__(self, cloud: Cloud, clouds_file: Path, folder: Path) -> None:
        self.cloud, self.folder = cloud, folder / "probes"
        self.folder.mkdir()
        self.file, self.probes = folder / "identity.yaml", {}
        self.content: dict[str, Any] = {
            "tenants_file": str(folder / "tenants.yaml"),
            "every": "10s",
            "timeout": "60s",
            "openstack": {"cloud": "lab", "clouds_file": str(clouds_file), "operator": OPERATOR},
        }
        self.say(networks=[{"name": kind, "type": kind} for kind in NETWORKS])
        self.prober = Prober(lambda: self.config)

    def say(self, **probes: Any) -> None:
        """Change the configuration."""
        self.probes = {"dir": str(self.folder), **self.probes, **probes}
        self.content["openstack"]["probes"] = self.probes
        self.file.write_text(json.dumps(self.content))
        self.config = parse("identity.yaml", self.file.read_text(), Config)

    def look(self) -> Outcome:
        return self.prober.look()

    def ours(self) -> list[dict[str, Any]]:
        mine = ("vigia:probe", OPERATOR)
        return [p for p in self.cloud.ports if (p["device_owner"], p["project_id"]) == mine]

    def pairs(self) -> list[tuple[str, str]]:
        return sorted((p["network_id"], p["binding:host_id"]) for p in self.ours())

    def endpoints(self, host: str) -> list[dict[str, Any]]:
        content = yaml.safe_load((self.folder / f"{host}.yaml").read_text())
        assert content["version"] == 1
        return list(content["endpoints"])

    def nodes(self) -> dict[str, dict[str, str]]:
        return {
            g["labels"]["node"]: g["labels"] for g in json.loads((self.folder / "nodes.json").read_text())
        }

    def plug(self) -> None:
        """Have agents find all ports plugged."""
        for port in self.ours():
            port["status"] = "ACTIVE"

    def requests(self, method: str) -> int:
        return sum(said.startswith(f"{method} /network/") for said in self.cloud.asked)


@pytest.fixture
def site(cloud: Cloud, clouds_file: Path, tmp_path: Path) -> Site:
    cloud.networks = [
        network(1, "vxlan"),
        network(2, "gre", mtu=0),
        network(3, "vxlan", project_id="tenant"),
    ]
    cloud.subnets = [subnet(1), subnet(2, cidr="fd00:2::0/64"), subnet(3, project_id="tenant")]
    cloud.agents = [agent("c1"), agent("c2"), agent("c1", "DHCP agent"), agent("c9", "L3 agent")]
    tenants = {"device_owner": "compute:nova", "network_id": "net-3", "binding:host_id": "c1"}
    # Others' ports: a tenant's, one with the name of ours, and one that says it is ours in another project.
    cloud.ports = [
        {"id": "tenants", "project_id": "tenant", **tenants},
        {"id": "named", "project_id": OPERATOR, "name": "vigia-probe-vxlan-c1", **tenants},
        {"id": "forged", "project_id": "tenant", **tenants, "device_owner": "vigia:probe"},
    ]
    return Site(cloud, clouds_file, tmp_path)


def others(site: Site) -> list[str]:
    return [p["id"] for p in site.cloud.ports if p["id"] in ("tenants", "named", "forged")]


ALL = [("net-1", "c1"), ("net-1", "c2"), ("net-2", "c1"), ("net-2", "c2")]


def test_each_network_has_a_port_on_each_host(site: Site) -> None:
    outcome = site.look()
    assert (outcome.made, outcome.ports, outcome.problems, outcome.more) == (4, 4, [], False)
    assert site.pairs() == ALL
    assert {p["device_id"] for p in site.ours()} == {"c1", "c2"}
    entries = site.endpoints("c1")
    assert [e["network"] for e in entries] == ["gre", "vxlan"]
    port = next(p for p in site.ours() if p["network_id"] == "net-1" and p["binding:host_id"] == "c1")
    assert entries[1] == {
        "network": "vxlan",
        "port": port["id"],
        "mac": port["mac_address"],
        "mtu": 1450,
        "addresses": [port["fixed_ips"][0]["ip_address"] + "/24"],
        "switch": "openvswitch",
        "bridge": "br-int",
    }
    assert entries[0]["mtu"] == 1500, "a network without one"
    assert entries[0]["addresses"][0].endswith("/64")


def test_the_second_look_only_looks(site: Site) -> None:
    site.look()
    before, posts = site.cloud.ports.copy(), site.requests("POST")
    outcome = site.look()
    assert (outcome.made, outcome.removed, outcome.ports, outcome.down) == (0, 0, 4, 4)
    assert site.cloud.ports == before
    assert site.requests("POST") == posts and site.requests("DELETE") == 0
    files = {f: f.stat().st_ino for f in site.folder.iterdir()}
    site.look()
    assert {f: f.stat().st_ino for f in site.folder.iterdir()} == files, "nothing is written again"


def test_a_port_is_probed_once_it_has_worked_and_for_as_long_as_it_is_there(site: Site) -> None:
    site.look()
    assert site.nodes() == {"c1": {"node": "c1"}, "c2": {"node": "c2"}}, "nobody has plugged them"
    site.plug()
    assert site.look().down == 0
    labels = site.nodes()["c1"]
    assert sorted(labels) == ["at_gre", "at_vxlan", "node"]
    assert labels["at_vxlan"] == site.endpoints("c1")[1]["addresses"][0].partition("/")[0]
    assert ":" in labels["at_gre"], "IPv6 where there is no other"
    targets = [g["targets"] for g in json.loads((site.folder / "nodes.json").read_text())]
    assert targets == [["192.0.2.1"], ["192.0.2.2"]], "the underlay, where the agent says so"
    for port in site.ours():
        port["status"] = "DOWN"
    site.look()
    assert site.nodes()["c1"] == labels, "that one does not work any more is to be seen"


def test_what_is_wanted_no_more_goes_and_nothing_else(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vigia_identity.probing.prober.GRACE", 0.0)
    site.look()
    site.plug()
    site.look()
    site.say(hosts=["c1"], networks=[{"name": "vxlan", "type": "vxlan"}])
    outcome = site.look()
    assert (outcome.removed, outcome.ports) == (3, 1)
    assert others(site) == ["tenants", "named", "forged"]
    assert [e["network"] for e in site.endpoints("c1")] == ["vxlan"]
    assert site.endpoints("c2") == [], "so that the node unplugs"
    assert list(site.nodes()) == ["c1"]
    site.cloud.agents = [
        a for a in site.cloud.agents if a["host"] != "c1"
    ]  # the operator has removed the host
    site.say(hosts=["c*"])
    assert site.look().removed == 1
    assert site.endpoints("c1") == []


def test_all_goes_where_no_network_is_named(site: Site) -> None:
    site.look()
    site.say(networks=[])
    outcome = site.look()
    assert (outcome.removed, outcome.ports, outcome.problems) == (4, 0, [])
    assert site.endpoints("c1") == site.endpoints("c2") == [] and site.pairs() == []
    assert others(site) == ["tenants", "named", "forged"]


def test_a_server_that_does_not_filter_gets_nobody_elses_port_removed(site: Site) -> None:
    site.cloud.neutron.filters = False
    site.look()
    site.say(hosts=["c1"])
    assert site.look().removed == 2
    assert others(site) == ["tenants", "named", "forged"]


def test_who_is_told_first_when_a_port_goes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is told before its port goes: what is probed is there."""
    site.look()
    site.plug()
    site.look()
    seen: list[bool] = []
    real = site.cloud.neutron.delete

    def deleting(path: str) -> Any:
        seen.append("c2" in site.nodes() or bool(site.endpoints("c2")))
        return real(path)

    monkeypatch.setattr(site.cloud.neutron, "delete", deleting)
    site.say(hosts=["c1"])
    site.look()
    assert seen == [False, False]


@pytest.mark.parametrize("lost_after", range(4))
def test_what_a_crash_leaves_is_found_by_the_next_run(site: Site, lost_after: int) -> None:
    site.cloud.neutron.broken_after = lost_after
    with pytest.raises(CloudError, match="503"):
        site.look()
    site.cloud.neutron.broken_after = None
    fresh = Prober(lambda: site.config)  # a new process knows nothing
    assert fresh.look().problems == []
    assert site.pairs() == ALL, "each of them once"
    assert len(site.endpoints("c1")) == len(site.endpoints("c2")) == 2


def test_of_two_ports_for_one_place_the_one_that_works_stays(site: Site) -> None:
    site.look()
    (first,) = (p for p in site.ours() if p["network_id"] == "net-1" and p["binding:host_id"] == "c1")
    twin = {**first, "id": "ffffffff-5a0e-4a5f-8c0d-0f1e2d3c4b5a", "status": "ACTIVE"}
    site.cloud.ports.append(twin)
    assert site.look().removed == 1
    assert twin in site.cloud.ports and first not in site.cloud.ports
    assert site.endpoints("c1")[1]["port"] == twin["id"]


def test_a_quota_is_told_once_and_asked_no_further(site: Site) -> None:
    site.cloud.neutron.quota = 3  # one of the project's is no port of ours
    outcome = site.look()
    assert outcome.made == 2
    (problem,) = outcome.problems
    assert "quota of ports" in problem and f"openstack quota set --ports NUMBER {OPERATOR}" in problem
    assert site.requests("POST") == 3, "the one that is refused is the last"
    assert sum(len(site.endpoints(h)) for h in ("c1", "c2")) == 2, "what there is, is whole"
    site.cloud.neutron.quota = None
    outcome = site.look()
    assert outcome.problems == [] and outcome.ports == 4


def test_rights_that_are_missing_are_named(site: Site) -> None:
    site.cloud.neutron.forbidden = {"POST"}
    (problem,) = site.look().problems
    assert "403" in problem and "create_port:binding:host_id" in problem and "role admin" in problem
    assert site.requests("POST") == 1
    site.cloud.neutron.forbidden = set()
    site.look()
    site.say(hosts=["c1"])
    site.cloud.neutron.forbidden = {"DELETE"}
    with pytest.raises(CloudError, match=r"may not delete port .* role admin"):
        site.look()
    assert site.pairs() == ALL


def test_a_user_who_does_not_see_bindings_removes_nothing(site: Site) -> None:
    site.look()
    before = site.pairs()
    for port in site.ours():
        port.pop("binding:host_id")
    with pytest.raises(CloudError, match=r"binding:host_id.*role admin"):
        site.look()
    assert len(site.ours()) == len(before) and site.requests("DELETE") == 0


@pytest.mark.parametrize(
    ("vif", "said"),
    [
        ("binding_failed", "could not bind it .binding_failed.*tunnel_types"),
        ("unbound", "could not bind it .unbound"),
        ("vhostuser", "kind vhostuser, which vigia-probe cannot plug"),
        ("hw_veb", "take the host out of openstack.probes.hosts"),
    ],
)
def test_a_port_that_cannot_be_plugged_is_not_left(site: Site, vif: str, said: str) -> None:
    site.cloud.neutron.vif["c2"] = vif
    outcome = site.look()
    assert len(outcome.problems) == 2 and outcome.made == 2
    for problem, name in zip(sorted(outcome.problems), ("gre", "vxlan"), strict=True):
        assert problem.startswith(f"network {name}, host c2: ") and re.search(said, problem), problem
    assert {host for _, host in site.pairs()} == {"c1"}
    assert site.endpoints("c2") == []
    del site.cloud.neutron.vif["c2"]
    assert site.look().problems == []


def test_what_was_refused_comes_last(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that never can does not keep the others from having theirs."""
    monkeypatch.setattr(prober, "CHANGES", 2)
    site.cloud.neutron.vif["c1"] = "binding_failed"
    looks = 0
    while sum(p["binding:host_id"] == "c2" for p in site.ours()) < 2:
        looks += 1
        assert looks < 5, site.pairs()
        assert site.look().more


def test_a_port_whose_binding_broke_is_made_anew(site: Site) -> None:
    site.look()
    broken = site.ours()[0]
    broken["binding:vif_type"] = "binding_failed"
    outcome = site.look()
    assert (outcome.removed, outcome.made, outcome.ports) == (1, 1, 4)
    assert broken not in site.cloud.ports


def test_a_host_whose_agent_is_away_keeps_what_it_has(site: Site) -> None:
    site.look()
    site.plug()
    site.look()
    before, endpoints = site.pairs(), site.endpoints("c2")
    site.cloud.agents[1]["alive"] = False
    for port in site.ours():
        if port["binding:host_id"] == "c2":
            port["binding:vif_type"] = "binding_failed"
    assert site.look().problems == []
    assert site.pairs() == before and site.endpoints("c2") == endpoints
    site.cloud.agents.append(agent("c3", alive=False))
    (problem,) = site.look().problems
    assert problem.startswith("host c3: ") and "not alive" in problem and "start it" in problem
    assert site.requests("POST") == 4, "no port was tried there"


def test_a_host_whose_agent_is_not_listed_keeps_its_ports_for_a_while(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OVN's controller takes its chassis away when it ends, and is back in seconds."""
    site.look()
    site.plug()
    site.look()
    before, ids = site.pairs(), {p["id"] for p in site.ours()}
    kept, told = site.cloud.agents.pop(1), site.nodes()
    assert site.look().removed == 0
    assert site.pairs() == before and site.nodes() == told and len(site.endpoints("c2")) == 2
    site.cloud.agents.append(kept)
    assert site.look().problems == [] and {p["id"] for p in site.ours()} == ids
    # But not for ever, and not if the operator wants none there.
    site.cloud.agents.remove(kept)
    site.say(hosts=["c1"])
    assert site.look().removed == 2 and {host for _, host in site.pairs()} == {"c1"}
    site.say(hosts=["*"])
    site.cloud.agents.append(kept)
    assert site.look().made == 2
    site.cloud.agents.remove(kept)
    monkeypatch.setattr("vigia_identity.probing.prober.GRACE", 0.0)
    assert site.look().removed == 2


def test_a_host_without_an_agent_is_named(site: Site) -> None:
    site.say(hosts=["c1", "c7", "d*"])
    outcome = site.look()
    assert outcome.made == 2
    (problem,) = outcome.problems
    assert problem.startswith("host c7: Neutron has no agent there") and "start it" in problem


def test_no_agent_at_all_changes_nothing(site: Site) -> None:
    site.look()
    before = site.pairs()
    site.cloud.agents = []
    (problem,) = site.look().problems
    assert "role admin" in problem and site.pairs() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda c: c.networks.pop(1),
            "network gre: project .* has none of type gre .*openstack network create",
        ),
        (
            lambda c: c.networks.append(network(4, "gre")),
            "network gre: project .* has 2 of type gre.*--tag vigia-probe",
        ),
        (lambda c: c.subnets.pop(1), "network gre: net-2 has no subnet.*openstack subnet create"),
        (lambda c: c.subnets[1].update(cidr="nonsense"), "network gre: net-2 has no subnet"),
    ],
)
def test_a_network_that_is_not_found_changes_nothing(site: Site, change: Any, said: str) -> None:
    site.look()
    before, endpoints = site.pairs(), site.endpoints("c1")
    change(site.cloud)
    site.say(hosts=["c1"])
    outcome = site.look()
    assert len(outcome.problems) == 1 and re.search(said, outcome.problems[0]), outcome.problems
    assert site.pairs() == before and site.endpoints("c1") == endpoints


def test_networks_are_told_apart_by_tags(site: Site) -> None:
    site.cloud.networks += [network(4, "vxlan", tags=["vigia-probe", "x"]), network(5, "vxlan", tags=None)]
    site.cloud.subnets.append(subnet(4))
    site.say(networks=[{"name": "vxlan", "type": "vxlan", "tag": "vigia-probe"}])
    assert site.look().problems == []
    assert {n for n, _ in site.pairs()} == {"net-4"}
    site.say(networks=[{"name": "one", "tag": "x"}, {"name": "two", "tag": "vigia-probe"}])
    (problem,) = site.look().problems
    assert "networks one and two are one network, net-4" in problem


def test_a_linux_bridge_is_called_after_its_network(site: Site) -> None:
    site.cloud.agents = [agent("c1", "Linux bridge agent")]
    site.cloud.neutron.vif["c1"] = "bridge"
    site.cloud.networks[1]["id"] = "2d2f8c1e-aaaa-4bbb-8ccc-0123456789ab"
    site.cloud.subnets[1]["network_id"] = site.cloud.networks[1]["id"]
    site.look()
    assert {(e["network"], e["switch"], e["bridge"]) for e in site.endpoints("c1")} == {
        ("vxlan", "linuxbridge", "brqnet-1"),
        ("gre", "linuxbridge", "brq2d2f8c1e-aa"),
    }


@pytest.mark.parametrize(
    ("said", "bridge"),
    [
        ("br-physnet1", "br-physnet1"),  # bridge_mappings of the agent
        ("longer-than-devices", "brqnet-1"),
        ("x\n  - {}", "brqnet-1"),
        (7, "brqnet-1"),
    ],
)
def test_a_linux_bridge_may_be_the_operators_own(site: Site, said: object, bridge: str) -> None:
    site.cloud.agents = [agent("c1", "Linux bridge agent")]
    site.cloud.neutron.vif["c1"] = "bridge"
    site.look()
    for port in site.ours():
        port["binding:vif_details"] = {"bridge_name": said}
    site.look()
    assert next(e for e in site.endpoints("c1") if e["network"] == "vxlan")["bridge"] == bridge
    for port in site.ours():
        port["binding:vif_details"], port["network_id"] = {}, "net-\n1"
    assert "\n1" not in (site.folder / "c1.yaml").read_text()


def test_ovn_does_not_say_where_tunnels_end(site: Site) -> None:
    said = {"configurations": {"chassis_name": "x"}}
    site.cloud.agents = [agent("c1", "OVN Controller agent", **said), agent("c2", configurations=None)]
    site.look()
    targets = [g["targets"] for g in json.loads((site.folder / "nodes.json").read_text())]
    assert targets == [["c1"], ["c2"]]


def test_subnets_without_a_free_address(site: Site) -> None:
    site.cloud.neutron.free = 3
    outcome = site.look()
    assert outcome.made == 3 and len(outcome.problems) == 1
    assert "no free address" in outcome.problems[0] and "openstack subnet create" in outcome.problems[0]


def test_a_look_has_so_many_changes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "CHANGES", 3)
    assert (site.look().made, site.requests("POST")) == (3, 3)
    outcome = site.look()
    assert outcome.made == 1 and not outcome.more
    lists = site.requests("GET")
    site.look()
    assert site.requests("GET") - lists <= 8, "four lists of two pages at most, whatever there is"


def test_hostile_answers_do_not_reach_nodes(site: Site) -> None:
    site.look()
    mine = site.ours()
    mine[0]["mac_address"] = "$(reboot)"
    mine[1]["fixed_ips"] = [{"subnet_id": "sub-1", "ip_address": "1.2.3.4; reboot"}]
    mine[2]["id"] = "../../etc/passwd"
    mine[3]["binding:vif_details"] = {"bridge_name": "x\n  - {}"}
    for host in ("../evil", None, "a" * 300):
        site.cloud.agents.append({**agent("c4"), "id": str(host), "host": host})
    site.look()
    text = "".join(f.read_text() for f in site.folder.iterdir())
    assert not any(bad in text for bad in ("reboot", "passwd", "evil", "- {}", "aaa"))
    assert sorted(f.name for f in site.folder.iterdir()) == ["c1.yaml", "c2.yaml", "nodes.json"]


def test_a_file_of_nodes_that_is_broken_is_made_anew(site: Site) -> None:
    site.look()
    site.plug()
    for text in ("", "[1]", '{"a": 2}', '[{"labels": {}}]'):
        (site.folder / "nodes.json").write_text(text)
        site.look()
        assert sorted(site.nodes()) == ["c1", "c2"]


def test_the_ports_are_the_operators(site: Site) -> None:
    """vigia-exporter learns whose the devices are on nodes that do not know."""
    site.look()
    (port,) = (p for p in site.ours() if p["network_id"] == "net-1" and p["binding:host_id"] == "c2")
    config = OpenStack.model_validate({"cloud": "lab", "operator": OPERATOR})
    shown = neutron.Objects({p["id"]: p for p in site.cloud.ports})
    told = neutron.tell(config, shown, Identity(), neutron.Wanted()).ports["c2"]
    assert (f"tap{port['id'][:11]}", "_infra") in {(p.device, p.tenant) for p in told}


def test_the_thread_looks_again_and_ends(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site.cloud.broken = True
    site.prober.start()
    eventually(lambda: any("503" in str(vars(r).get("err")) for r in caplog.records), lambda: caplog.text)
    site.cloud.broken = False
    site.prober.wake()
    eventually(lambda: len(site.endpoints("c2")) == 2 if (site.folder / "c2.yaml").exists() else 0, "ports")
    eventually(lambda: "all ports to probe between are there" in caplog.text, lambda: caplog.text)
    site.prober.stop()
    eventually(lambda: "probes" not in {t.name for t in threading.enumerate()}, "the thread to end")


def test_problems_are_logged_when_they_are_others(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.cloud.neutron.quota = 0
    for _ in range(3):
        site.prober.attempt()
    assert sum("not all ports" in r.message for r in caplog.records) == 1
    site.cloud.agents = [agent(f"c{i}") for i in range(9)]
    site.cloud.neutron.quota = None
    site.cloud.neutron.vif = {f"c{i}": "binding_failed" for i in range(9)}
    caplog.clear()
    site.prober.attempt()
    assert len(caplog.records) == prober.SHOWN + 1, "five, and how many more"


def test_the_command_makes_them_once(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    try:
        assert main(["--config", str(site.file), "--once"]) == 0
        assert len(site.endpoints("c1")) == 2
        site.cloud.neutron.quota = 0
        site.cloud.agents.append(agent("c3"))
        assert main(["--config", str(site.file), "--once"]) == 1
        assert "quota of ports" in capsys.readouterr().err
    finally:
        root.handlers, root.level = handlers, level


def test_networks_that_are_gone_are_no_reason_to_forget_a_port() -> None:
    networks = [Network("vxlan", "net-1", 1450, {"sub-1": 24})]
    port = Made("p", "net-9", "c1", "m", (("sub-9", "10.9.0.1"),), "ovs", "br-int", True)
    found = plan(networks, {"c1": Host("c1", True)}, [port])
    assert list(found.remove) == [port] and list(found.make) == [Pair("vxlan", "c1")]


@pytest.mark.parametrize(
    ("probes", "said"),
    [
        ({}, "networks"),
        ({"networks": [{"name": f"n{i}", "tag": "x"} for i in range(17)]}, "networks"),
        ({"networks": [{"name": "vxlan"}]}, "write for example type: vxlan"),
        ({"networks": [{"name": "Vx", "type": "vxlan"}]}, "networks.*name"),
        ({"networks": [{"name": "a", "type": "vxlan"}, {"name": "a", "tag": "x"}]}, "is used twice"),
        ({"networks": [{"name": "a", "tag": "x"}], "dir": "probes"}, "is not an absolute path"),
        ({"networks": [{"name": "a", "tag": "x"}], "hosts": []}, "hosts"),
        ({"networks": [{"name": "a", "tag": "x"}], "other": 1}, "other"),
    ],
)
def test_mistakes_in_the_configuration(probes: Any, said: str) -> None:
    content = {
        "tenants_file": "/x/t.yaml",
        "openstack": {"cloud": "lab", "operator": OPERATOR, "probes": {"dir": "/x/probes", **probes}},
    }
    with pytest.raises(ConfigError, match=said):
        parse("identity.yaml", json.dumps(content), Config)


def test_ports_need_a_project() -> None:
    probes = {"dir": "/x/probes", "networks": [{"name": "a", "tag": "x"}]}
    content = {"tenants_file": "/x/t.yaml", "openstack": {"cloud": "lab", "probes": probes}}
    with pytest.raises(ConfigError, match="write its id as operator"):
        parse("identity.yaml", json.dumps(content), Config)
