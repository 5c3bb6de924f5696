"""The files for the nodes' agents, whole: VIGIA_UPDATE_GOLDEN=1 writes the expected ones anew."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from vigia.lab import files, model, topology
from vigia.lab.model import Lab

GOLDEN = [
    ("lb1", "userspace"),
    ("lb2", "userspace"),
    ("ovs1", "userspace"),
    ("ovs2", "userspace"),
    ("ovs1", "kernel"),
]


@pytest.mark.parametrize(("node", "datapath"), GOLDEN)
def test_golden(pairs: Lab, testdata: Path, node: str, datapath: model.Datapath) -> None:
    _compare(testdata / "golden" / f"{node}-{datapath}", files.contents(pairs, pairs.node(node), datapath))


def test_golden_of_the_demo(demo: Lab, testdata: Path) -> None:
    _compare(testdata / "golden/node1-userspace", files.contents(demo, demo.node("node1"), "userspace"))


def _compare(folder: Path, contents: Mapping[str, Mapping[str, object]]) -> None:
    if os.environ.get("VIGIA_UPDATE_GOLDEN"):
        folder.mkdir(exist_ok=True)
        for name, value in contents.items():
            (folder / name).write_text(files.dump(value))
    assert {p.name for p in folder.iterdir()} == set(contents)
    for name, value in contents.items():
        assert files.dump(value) == (folder / name).read_text(), f"{folder.name} {name}"


def test_only_the_datapath_label_depends_on_the_datapath(testdata: Path) -> None:
    for name in ("exporter.yaml", "enforcer.yaml"):
        kernel, userspace = (testdata / "golden" / f"ovs1-{d}" / name for d in ("kernel", "userspace"))
        assert kernel.read_text() == userspace.read_text()
    kernel, userspace = (
        yaml.safe_load((testdata / "golden" / f"ovs1-{d}" / "probe.yaml").read_text())
        for d in ("kernel", "userspace")
    )
    assert {p["dataplane"] for p in kernel["paths"]} == {"none", "ovs-kernel"}
    assert {p["dataplane"] for p in userspace["paths"]} == {"none", "ovs-userspace"}
    assert kernel["targets"] == userspace["targets"]


def test_two_nodes_fit_together(pairs: Lab) -> None:
    """Every target of a node is a listener of its peer, which answers the target's source."""
    for node in pairs.nodes:
        mine = files.probe.content(pairs, node, "userspace")
        peer = files.probe.content(pairs, pairs.node(node.peer), "userspace")
        listeners = {
            (x["netns"].replace(f"-{node.peer}", f"-{node.name}"), x["address"])
            for x in peer["reflector"]["listeners"]  # type: ignore[index]
        }
        targets: Any = mine["targets"]
        wanted = {(t["netns"], t["address"]) for t in targets if t["probe"] == "stamp-64"}
        assert wanted == listeners


def test_overlays_are_compared_with_the_path_beneath_them(pairs: Lab) -> None:
    for node in pairs.nodes:
        targets: Any = files.probe.content(pairs, node, "userspace")["targets"]
        twins = {t["path"]: t.get("twin") for t in targets if t["probe"] == "stamp-64"}
        assert twins.pop("direct") is None
        assert set(twins.values()) == {"direct"}


def test_connections_go_where_the_peer_listens(pairs: Lab) -> None:
    for node in pairs.nodes:
        mine: Any = files.probe.content(pairs, node, "userspace")
        peer: Any = files.probe.content(pairs, pairs.node(node.peer), "userspace")
        listeners = {x["address"] for x in peer["bulk"]["listeners"]}
        wanted = {t["address"] for t in mine["targets"] if t["probe"] == "tcp-connect"}
        assert wanted and wanted <= listeners


def test_bulk_tests_of_every_path_take_turns_within_their_budget(demo: Lab) -> None:
    """Both ways, TCP and UDP at three rates, and none while a tenant suffers."""
    for node in demo.nodes:
        mine: Any = files.probe.content(demo, node, "userspace")
        bulk = mine["bulk"]
        tcp, udp = ({t["path"] for t in bulk["targets"] if t["probe"] == f"bulk-{p}"} for p in ("tcp", "udp"))
        assert tcp == udp | {"macvlan", "ipsec-macvlan", "ipsec-ovs-vxlan"}
        across = {"direct", "linuxbridge-vxlan", "ovs-vxlan", "ovs-gre"}
        assert udp == across | {f"{p}-local" for p in across}
        ends = {(x["netns"], x["address"]) for x in bulk["listeners"]}
        peer: Any = files.probe.content(demo, demo.node(node.peer), "userspace")
        theirs = {x["address"] for x in peer["bulk"]["listeners"]}
        for t in bulk["targets"]:
            numbers = [2, 4, 8] if t["path"] in across else [2, 4] if t["path"] in udp else None
            assert t.get("machines") == numbers, t["path"]
            pairs = [t, *t.get("pairs", ())]
            assert len(pairs) == max(numbers or [2]) // 2
            machines = {(p["netns"], p["source"], p["address"]) for p in pairs}
            assert len(machines) == (1 if "direct" in t["path"] else len(pairs)), "each is a pair of its own"
            local = t["dst"] == node.name
            assert {p["address"] for p in pairs} <= ({address for _, address in ends} if local else theirs)
        assert bulk["nodes"] == ["node1", "node2"]
        by_name = {c["name"]: c for c in bulk["classes"]}
        assert by_name["bulk-udp"]["rates"] == ["100Mbit", "150Mbit", "200Mbit"]
        most = max(by_name["bulk-tcp"]["max_bytes"], 450e6 / 8 * 0.1)
        slots = 3600 / (2 * float(bulk["slot"].removesuffix("s")))
        assert slots * most <= 1.02 * bulk["hourly_bytes"], "no hour ends early"
        assert {o["tenant"] for o in mine["objectives"]} == {"red", "blue"}


def test_technologies_are_compared_with_what_is_beneath_them(demo: Lab) -> None:
    """One class has every OpenFlow path, its normal mode, the stations, and direct, which all are paired with."""
    for node in demo.nodes:
        content: Any = files.probe.content(demo, node, "userspace")
        by_path = {t["path"]: t for t in content["targets"] if t["probe"] == "stamp-128"}
        openflow = {p.name for p in demo.topology.paths if p.match}
        assert len(openflow) == 10
        assert set(by_path) == openflow | {
            "direct",
            "ovs-vxlan",
            "macvlan",
            "ipsec-macvlan",
            "ipsec-ovs-vxlan",
        }
        assert {t.get("twin") for p, t in by_path.items() if p != "direct"} == {"direct"}
        usual = {t["path"] for t in content["targets"] if t["probe"] == "stamp-64"}
        assert not usual & openflow
        sources = {p: t["source"] for p, t in by_path.items()}
        asks = {p for p, s in sources.items() if s.endswith(":20862")}
        assert asks == {p.name for p in demo.topology.paths if p.match in ("udp_port", "exact")}
        side = 1 if node.name == "node1" else 2
        assert by_path["ovs-openflow-set-ip"]["address"] == "192.168.52.254:862"
        assert by_path["ovs-openflow-set-udp-port"]["address"] == f"192.168.55.{3 - side}:9862"
        assert by_path["ovs-openflow-set-mac"]["address"] == f"192.168.51.{3 - side}:862"


def test_what_paths_are_made_of(demo: Lab) -> None:
    content: Any = files.probe.content(demo, demo.node("node1"), "userspace", "kernel")
    made = {
        p["name"]: tuple(p[k] for k in ("dataplane", "encap", "mode", "security", "layer", "placement"))
        for p in content["paths"]
    }
    assert made["direct"] == ("none", "none", "normal", "none", "underlay", "remote")
    assert made["linuxbridge-vxlan"] == ("linuxbridge", "vxlan", "normal", "none", "overlay", "remote")
    assert made["ovs-gre-local"] == ("ovs-userspace", "none", "normal", "none", "overlay", "local")
    assert made["ovs-openflow-exact"] == ("ovs-userspace", "vxlan", "openflow", "none", "overlay", "remote")
    assert made["macvlan"] == ("macvlan", "none", "normal", "none", "overlay", "remote")
    assert made["ipsec-macvlan"] == ("macvlan", "none", "normal", "ipsec-kernel", "overlay", "remote")
    assert made["ipsec-ovs-vxlan"] == (
        "ovs-userspace",
        "vxlan",
        "normal",
        "ipsec-kernel",
        "overlay",
        "remote",
    )


def test_two_machines_of_one_node(demo: Lab) -> None:
    for node in demo.nodes:
        content: Any = files.probe.content(demo, node, "userspace")
        local = [t for t in content["targets"] if t["dst"] == node.name]
        within = {"linuxbridge-vxlan-local", "ovs-vxlan-local", "ovs-gre-local"}
        assert {t["path"] for t in local} == {"direct-local", *within}
        listeners = {(x["netns"], x["address"]) for x in content["reflector"]["listeners"]}
        for t in local:
            own = t["path"] == "direct-local"
            beside = t["netns"] if own else f"{t['netns']}-2"
            assert (beside, t["address"]) in listeners
            assert t.get("twin") == (None if own else "direct-local"), "what a switch costs is paired"


def test_a_node_with_both_switches_has_both_sources_of_identity(demo: Lab) -> None:
    for node in demo.nodes:
        contents: Any = files.contents(demo, node, "userspace")
        for name in ("exporter.yaml", "enforcer.yaml"):
            assert {"ovsdb", "ports_file"} <= set(contents[name])
        assert {p["network"] for p in contents["ports.yaml"]["ports"]} == {"linuxbridge-vxlan"}
        cookies = {c["cookie"] for c in contents["exporter.yaml"]["openflow"]["cookies"]}
        assert cookies == {str(n.key) for n in demo.topology.networks if n.path.startswith("ovs-openflow")}


def test_every_port_is_known_either_by_file_or_by_database(pairs: Lab) -> None:
    for node in pairs.nodes:
        contents = files.contents(pairs, node, "userspace")
        for name in ("exporter.yaml", "enforcer.yaml"):
            keys = set(contents[name]) & {"ovsdb", "ports_file"}
            assert keys == ({"ovsdb"} if node.switch == "openvswitch" else {"ports_file"})
        assert ("ports.yaml" in contents) == (node.switch == "linuxbridge")


def test_the_operator_has_no_contract(pairs: Lab) -> None:
    contracts = files.enforcer.content(pairs, pairs.node("lb1"))["contracts"]
    assert contracts == [
        {"tenant": "red", "guarantee": "40Mbit", "ceiling": "200Mbit", "match": [{"vxlan": 110}]},
        {"tenant": "blue", "guarantee": "100Mbit", "ceiling": "200Mbit", "match": [{"vxlan": 120}]},
    ]


def test_tenants_are_told_apart_in_every_tunnel(pairs: Lab) -> None:
    for node in pairs.nodes:
        content: Any = files.enforcer.content(pairs, node)
        keys = {(encap, key) for c in content["contracts"] for m in c["match"] for encap, key in m.items()}
        assert keys == {(e.encap, e.key) for e in node.endpoints if e.tenant != "_infra"}
        assert content["links"] == [{"device": "eth0", "rate": "200Mbit"}]


def test_enforcers_know_those_that_they_can_reach(pairs: Lab) -> None:
    for node in pairs.nodes:
        site: Any = files.enforcer.site(pairs, node)
        mine: Any = files.enforcer.content(pairs, node)["fast_loop"]
        assert {n["node"] for n in site["nodes"]} == {node.name, node.peer}
        assert mine["listen"] in {n["address"] for n in site["nodes"]}
        assert len(site["ports"]) == len(node.endpoints) + len(pairs.node(node.peer).endpoints)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("1Gbit", "1Gbit"),
        ("1.5Mbit", "1500kbit"),
        ("64kbit", "64kbit"),
        ("12Mbit", "12Mbit"),
        ("800bit", "800bit"),
    ],
)
def test_rates_keep_their_value(edited: Callable[..., Path], written: str, read: str) -> None:
    path = edited(
        ("guarantee: 40Mbit, ceiling: 200Mbit", f"guarantee: {written}, ceiling: 2Gbit"),
        ("guarantee: 100Mbit", "guarantee: 1kbit"),
        ("nodes: [lb1, lb2], rate: 200Mbit", "nodes: [lb1, lb2], rate: 2Gbit"),
        ("nodes: [ovs1, ovs2], rate: 200Mbit", "nodes: [ovs1, ovs2], rate: 2Gbit"),
    )
    lab = model.resolve(topology.load(path))
    contracts = files.enforcer.content(lab, lab.node("lb1"))["contracts"]
    assert contracts[0] == {
        "tenant": "red",
        "guarantee": read,
        "ceiling": "2Gbit",
        "match": [{"vxlan": 110}],
    }  # type: ignore[index]


def test_subnets_that_contain_each_other_are_allowed_once(edited: Callable[..., Path]) -> None:
    path = edited(
        ("key: 110, subnet: 192.168.1.0/24", "key: 110, subnet: 192.168.0.0/16"),
        ("key: 120, subnet: 192.168.1.0/24", "key: 120, subnet: 172.16.5.0/30"),
    )
    lab = model.resolve(topology.load(path))
    reflector = files.probe.content(lab, lab.node("lb1"), "userspace")["reflector"]
    assert reflector["allow"] == ["10.99.1.0/24", "172.16.5.0/30", "192.168.0.0/16"]  # type: ignore[index]


def test_tenants_are_probed_by_ipv6_as_well(demo: Lab) -> None:
    for node in demo.nodes:
        content: Any = files.probe.content(demo, node, "userspace")
        every = [t for t in content["targets"] if t["probe"] == "stamp-64-ipv6"]
        found = [t for t in every if t["path"] != "direct"]
        (direct,) = (t for t in every if t["path"] == "direct")
        assert {t["twin"] for t in found} == {"direct"} and "twin" not in direct
        overlays = ("linuxbridge-vxlan", "ovs-vxlan", "ovs-gre")
        tenants = ("_infra", "red", "blue")
        assert {(t["path"], t["tenant"]) for t in found} == {(p, n) for p in overlays for n in tenants}
        side = 1 if node.name == "node1" else 2
        assert {(t["source"], t["address"]) for t in found} == {
            (f"fd00:1::{side}", f"[fd00:1::{3 - side}]:862")
        }
        assert (direct["source"], direct["address"]) == (f"fd00:99::{side}", f"[fd00:99::{3 - side}]:862")
        listeners = {(x["netns"], x["address"]) for x in content["reflector"]["listeners"]}
        assert {(t["netns"], f"[fd00:1::{side}]:862") for t in found} <= listeners
        assert (node.netns, f"[fd00:99::{side}]:862") in listeners
        assert {"fd00:1::/64", "fd00:99::/64"} <= set(content["reflector"]["allow"])
        assert "fd00:1::/64" in content["reflector"]["allow"]
