"""The files for the nodes' agents, whole: VIGIA_UPDATE_GOLDEN=1 writes the expected ones anew."""

from __future__ import annotations

import os
from collections.abc import Callable
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
def test_golden(demo: Lab, testdata: Path, node: str, datapath: model.Datapath) -> None:
    folder = testdata / "golden" / f"{node}-{datapath}"
    contents = files.contents(demo, demo.node(node), datapath)
    if os.environ.get("VIGIA_UPDATE_GOLDEN"):
        folder.mkdir(exist_ok=True)
        for name, value in contents.items():
            (folder / name).write_text(files.dump(value))
    assert {p.name for p in folder.iterdir()} == set(contents)
    for name, value in contents.items():
        assert files.dump(value) == (folder / name).read_text(), f"{node} {name}"


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


def test_two_nodes_fit_together(demo: Lab) -> None:
    """Every target of a node is a listener of its peer, which answers the target's source."""
    for node in demo.nodes:
        mine = files.probe.content(demo, node, "userspace")
        peer = files.probe.content(demo, demo.node(node.peer), "userspace")
        listeners = {
            (x["netns"].replace(f"-{node.peer}", f"-{node.name}"), x["address"])
            for x in peer["reflector"]["listeners"]  # type: ignore[index]
        }
        targets: Any = mine["targets"]
        wanted = {(t["netns"], t["address"]) for t in targets if t["probe"] == "stamp-64"}
        assert wanted == listeners


def test_overlays_are_compared_with_the_path_beneath_them(demo: Lab) -> None:
    for node in demo.nodes:
        targets: Any = files.probe.content(demo, node, "userspace")["targets"]
        twins = {t["path"]: t.get("twin") for t in targets if t["probe"] == "stamp-64"}
        assert twins.pop("direct") is None
        assert set(twins.values()) == {"direct"}


def test_connections_go_where_the_peer_listens(demo: Lab) -> None:
    for node in demo.nodes:
        mine: Any = files.probe.content(demo, node, "userspace")
        peer: Any = files.probe.content(demo, demo.node(node.peer), "userspace")
        listeners = {x["address"] for x in peer["bulk"]["listeners"]}
        wanted = {t["address"] for t in mine["targets"] if t["probe"] == "tcp-connect"}
        assert wanted and wanted <= listeners
        assert "targets" not in mine["bulk"], "the demo's links are for its tenants"


def test_every_port_is_known_either_by_file_or_by_database(demo: Lab) -> None:
    for node in demo.nodes:
        contents = files.contents(demo, node, "userspace")
        for name in ("exporter.yaml", "enforcer.yaml"):
            keys = set(contents[name]) & {"ovsdb", "ports_file"}
            assert keys == ({"ovsdb"} if node.switch == "openvswitch" else {"ports_file"})
        assert ("ports.yaml" in contents) == (node.switch == "linuxbridge")


def test_the_operator_has_no_contract(demo: Lab) -> None:
    contracts = files.enforcer.content(demo, demo.node("lb1"))["contracts"]
    assert contracts == [
        {"tenant": "red", "guarantee": "40Mbit", "ceiling": "200Mbit", "match": [{"vxlan": 110}]},
        {"tenant": "blue", "guarantee": "100Mbit", "ceiling": "200Mbit", "match": [{"vxlan": 120}]},
    ]


def test_tenants_are_told_apart_in_every_tunnel(demo: Lab) -> None:
    for node in demo.nodes:
        content: Any = files.enforcer.content(demo, node)
        keys = {(encap, key) for c in content["contracts"] for m in c["match"] for encap, key in m.items()}
        assert keys == {(e.encap, e.key) for e in node.endpoints if e.tenant != "_infra"}
        assert content["links"] == [{"device": "eth0", "rate": "200Mbit"}]


def test_enforcers_know_those_that_they_can_reach(demo: Lab) -> None:
    for node in demo.nodes:
        site: Any = files.enforcer.site(demo, node)
        mine: Any = files.enforcer.content(demo, node)["fast_loop"]
        assert {n["node"] for n in site["nodes"]} == {node.name, node.peer}
        assert mine["listen"] in {n["address"] for n in site["nodes"]}
        assert len(site["ports"]) == len(node.endpoints) + len(demo.node(node.peer).endpoints)


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
