"""The topology that comes with the program, and what its paths ask of their networks."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from labkit import DEMO

from vigia.lab import matching, topology
from vigia_config import ConfigError


def test_the_demo() -> None:
    t = topology.default()
    assert t.name == "demo"
    assert [(n.name, n.switch) for n in t.nodes] == [("node1", "both"), ("node2", "both")]
    assert [(x.name, x.guarantee * 8, x.ceiling * 8) for x in t.tenants] == [
        ("red", 40_000_000, 200_000_000),
        ("blue", 100_000_000, 200_000_000),
    ]
    assert [(x.name, x.rate * 8, x.queue) for x in t.links] == [("lan", 200_000_000, 0.01)]
    assert [p.name for p in t.paths if p.kind in ("direct", "overlay") and p.match is None] == [
        "direct",
        "linuxbridge-vxlan",
        "ovs-vxlan",
        "ovs-gre",
    ]
    assert [p.match for p in t.paths if p.match and p.rewrite == "none"] == list(matching.MATCHES)
    assert {p.rewrite for p in t.paths if p.match == "udp_port"} == set(matching.REWRITES)
    assert {p.over for p in t.paths if p.kind == "local"} == {
        "direct",
        "linuxbridge-vxlan",
        "ovs-vxlan",
        "ovs-gre",
    }
    assert {p.kind for p in t.paths} == {"direct", "overlay", "local", "macvlan", "ipsec"}
    tenants = [n for n in t.networks if n.tenant != "_infra"]
    assert {n.subnet for n in tenants} == {ipaddress.IPv4Network("192.168.1.0/24")}, "tenants overlap"


def test_rules_that_look_at_addresses_have_subnets_of_their_own(tmp_path: Path) -> None:
    text = DEMO.read_text()
    other = text.replace("key: 402, subnet: 192.168.42.0/24", "key: 402, subnet: 192.168.40.0/23")
    path = tmp_path / "overlapping.yaml"
    path.write_text(other)
    with pytest.raises(ConfigError) as e:
        topology.load(path)
    assert str(e.value).endswith(
        '"192.168.40.0/23" overlaps with that of ovs-openflow-in-port; '
        "give each path with match a subnet of its own"
    )
    path.write_text(text.replace("key: 402, subnet: 192.168.42.0/24", "key: 402, subnet: 192.168.42.0/30"))
    with pytest.raises(ConfigError, match="has no address to spare; write a /29 or larger"):
        topology.load(path)
