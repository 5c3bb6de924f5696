"""A topology worked out: names, addresses, keys, what can be measured."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from vigia.errors import VigiaError
from vigia.lab import model, naming, topology
from vigia.lab.model import Lab
from vigia.lab.naming import Layout


def test_namespaces(pairs: Lab) -> None:
    names = pairs.namespaces()
    assert len(names) == len(set(names)) == 2 + 4 + 18
    assert {"vigia-demo-wire-lb", "vigia-demo-lb1", "vigia-demo-lb1-red-linuxbridge-vxlan"} <= set(names)
    assert "vigia-demo-ovs2-infra-ovs-gre" in names
    assert all(name.startswith(pairs.layout.prefix) for name in names)


def test_an_endpoint(pairs: Lab) -> None:
    red = pairs.endpoint("lb1", "red", "linuxbridge-vxlan")
    assert (red.device, red.port, red.key) == ("red-110", "lb1-red-110", 110)
    assert (str(red.address), str(red.peer)) == ("192.168.1.1/24", "192.168.1.2")
    other = pairs.endpoint("lb2", "red", "linuxbridge-vxlan")
    assert (str(other.address), str(other.peer)) == ("192.168.1.2/24", "192.168.1.1")


def test_tenants_have_the_same_addresses_and_different_hardware_addresses(pairs: Lab) -> None:
    endpoints = list(pairs.endpoints)
    assert len({e.address for e in endpoints}) == 2
    assert len({e.mac for e in endpoints}) == len(endpoints) == 18


def test_ports_and_devices_are_unique(pairs: Lab) -> None:
    assert len({e.port for e in pairs.endpoints}) == 18
    for node in pairs.nodes:
        assert len({e.device for e in node.endpoints}) == len(node.endpoints)


def test_every_network_of_an_ovs_node_has_its_own_vlan(pairs: Lab) -> None:
    for name in ("ovs1", "ovs2"):
        assert sorted(e.vlan for e in pairs.node(name).endpoints) == [1, 2, 3, 4, 5, 6]
    by_key = {e.key: e.vlan for e in pairs.node("ovs1").endpoints}
    assert by_key == {e.key: e.vlan for e in pairs.node("ovs2").endpoints}


def test_nodes(pairs: Lab) -> None:
    lb1, ovs2 = pairs.node("lb1"), pairs.node("ovs2")
    assert (lb1.peer, str(lb1.agent), str(lb1.tunnel), str(lb1.tunnel_peer)) == (
        "lb2",
        "127.77.0.1",
        "10.99.1.1/24",
        "10.99.1.2",
    )
    assert (ovs2.peer, str(ovs2.agent), str(ovs2.underlay), str(ovs2.tunnel)) == (
        "ovs1",
        "127.77.0.4",
        "10.99.2.2/24",
        "10.99.3.2/24",
    )
    assert (str(ovs2.underlay_peer), str(ovs2.tunnel_peer)) == ("10.99.2.1", "10.99.3.1")


def test_links(pairs: Lab) -> None:
    lb = pairs.links[0]
    assert (lb.name, lb.netns, lb.nodes) == ("lb", "vigia-demo-wire-lb", ("lb1", "lb2"))
    assert (lb.rate, lb.queue, lb.burst) == (25_000_000, 250_000, 50_000)


def test_a_slow_link_still_passes_whole_frames(edited: Callable[..., Path]) -> None:
    path = edited(
        ("nodes: [lb1, lb2], rate: 200Mbit, queue: 10ms", "nodes: [lb1, lb2], rate: 1Mbit, queue: 100ms"),
        ("guarantee: 40Mbit", "guarantee: 100kbit"),
        ("guarantee: 100Mbit", "guarantee: 100kbit"),
    )
    lb = model.resolve(topology.load(path)).links[0]
    assert (lb.queue, lb.burst) == (12_500, 2 * 1614)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (
            "lb1",
            [
                ("direct", "_infra", "vigia-demo-lb1", "10.99.1.1", "10.99.1.2"),
                (
                    "linuxbridge-vxlan",
                    "_infra",
                    "vigia-demo-lb1-infra-linuxbridge-vxlan",
                    "192.168.1.1",
                    "192.168.1.2",
                ),
                (
                    "linuxbridge-vxlan",
                    "red",
                    "vigia-demo-lb1-red-linuxbridge-vxlan",
                    "192.168.1.1",
                    "192.168.1.2",
                ),
                (
                    "linuxbridge-vxlan",
                    "blue",
                    "vigia-demo-lb1-blue-linuxbridge-vxlan",
                    "192.168.1.1",
                    "192.168.1.2",
                ),
            ],
        ),
        (
            "ovs2",
            [
                ("direct", "_infra", "vigia-demo-ovs2", "10.99.2.2", "10.99.2.1"),
                ("ovs-vxlan", "_infra", "vigia-demo-ovs2-infra-ovs-vxlan", "192.168.1.2", "192.168.1.1"),
                ("ovs-vxlan", "red", "vigia-demo-ovs2-red-ovs-vxlan", "192.168.1.2", "192.168.1.1"),
                ("ovs-vxlan", "blue", "vigia-demo-ovs2-blue-ovs-vxlan", "192.168.1.2", "192.168.1.1"),
                ("ovs-gre", "_infra", "vigia-demo-ovs2-infra-ovs-gre", "192.168.1.2", "192.168.1.1"),
                ("ovs-gre", "red", "vigia-demo-ovs2-red-ovs-gre", "192.168.1.2", "192.168.1.1"),
                ("ovs-gre", "blue", "vigia-demo-ovs2-blue-ovs-gre", "192.168.1.2", "192.168.1.1"),
            ],
        ),
    ],
)
def test_targets(pairs: Lab, node: str, expected: list[tuple[str, ...]]) -> None:
    targets = pairs.targets(pairs.node(node))
    assert [(t.path, t.tenant, t.netns, str(t.address), str(t.peer)) for t in targets] == expected
    assert {t.source for t in targets} == {node}


def test_unknown_places_name_the_known_ones(pairs: Lab) -> None:
    with pytest.raises(VigiaError) as e:
        pairs.node("lb9")
    assert str(e.value) == 'lab demo has no node "lb9"; its nodes are lb1, lb2, ovs1, ovs2'
    with pytest.raises(VigiaError) as e:
        pairs.endpoint("lb1", "red", "ovs-gre")
    assert str(e.value) == (
        'node lb1 has no endpoint "red/ovs-gre"; its endpoints are '
        "_infra/linuxbridge-vxlan, red/linuxbridge-vxlan, blue/linuxbridge-vxlan"
    )


@pytest.mark.parametrize(
    ("tenant", "key", "device"),
    [
        ("red", 110, "red-110"),
        ("_infra", 100, "infra-100"),
        ("longtenant12", 7, "longtena-7"),
        ("longtenant12", 999_999, "longtena-999999"),
        ("longtenant12", 16_777_215, "longte-16777215"),
        ("longtenant12", 4_294_967_295, "long-4294967295"),
    ],
)
def test_device_names_fit_into_the_kernel(tenant: str, key: int, device: str) -> None:
    assert naming.device(tenant, key) == device
    assert len(device) <= 15


def test_port_names() -> None:
    assert naming.port("lb1", "red", 110) == "lb1-red-110"
    assert naming.port("lb1", "_infra", 100) == "lb1-infra-100"


def test_hardware_addresses_are_stable_local_and_unicast() -> None:
    mac = naming.mac("vigia-demo-lb1", "eth0")
    assert re.fullmatch(r"02(:[0-9a-f]{2}){5}", mac)
    assert mac == "02:76:b9:95:7d:4f", "the same in every version"
    assert mac != naming.mac("vigia-demo-lb2", "eth0") != naming.mac("vigia-demo-lb2", "eth1")


def test_files() -> None:
    layout = Layout("demo")
    assert str(layout.directory) == "/run/vigia/demo"
    assert str(layout.state_file) == "/run/vigia/demo/state.json"
    assert str(layout.lock_file) == "/run/vigia/demo.lock"
    assert str(layout.pins("lb1")) == "/run/vigia/demo/bpffs/lb1"
    assert str(layout.ovs("ovs1")) == "/run/vigia/demo/nodes/ovs1/ovs"
    assert str(layout.token_file) == "/run/vigia/demo/enforcer.token"


@pytest.mark.parametrize("name", ["", "test", "Demo", "demo-1", "../x", "a" * 11, "1a", "demo\n"])
def test_a_lab_that_cannot_be(name: str) -> None:
    """Removing a lab called test would remove the namespaces of the project's tests."""
    with pytest.raises(VigiaError) as e:
        naming.layout_of(name)
    assert str(e.value) == f'--lab "{name}" is not the name of a lab; write for example demo'


def test_one_labs_prefix_never_begins_anothers() -> None:
    """What begins with one lab's prefix belongs to it: names of labs have no dash."""
    assert not Layout("demo2").prefix.startswith(Layout("demo").prefix)
    assert not Layout("demo").prefix.startswith(Layout("dem").prefix)
