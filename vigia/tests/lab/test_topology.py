"""The topology file: what is accepted, and for each rule what a file that breaks it is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vigia.lab import rules, topology
from vigia_config import ConfigError

Edited = Callable[..., Path]

LB1 = "  - {name: lb1, switch: linuxbridge, underlay: 10.99.1.1/24}\n"
LB2 = "  - {name: lb2, switch: linuxbridge, underlay: 10.99.1.2/24}\n"
OVS1 = "  - {name: ovs1, switch: openvswitch, underlay: 10.99.2.1/24, tunnel: 10.99.3.1/24}\n"
LINK = "  - {name: lb, nodes: [lb1, lb2], rate: 200Mbit, queue: 10ms}\n"
DIRECT = "  - {name: direct, kind: direct}\n"
RED = "  - {tenant: red, path: linuxbridge-vxlan, key: 110, subnet: 192.168.1.0/24}\n"

NAME = "write 1 to 12 lower-case letters and digits, a letter first"

BAD = [
    # (what is wrong, replaced text, new text, exact message after "bad.yaml:")
    (
        "no version",
        "version: 1\n",
        "",
        "3: version: is missing; add it",
    ),
    (
        "other version",
        "version: 1",
        "version: 2",
        '3: version: "2": input should be 1',
    ),
    (
        "unknown key",
        "stack_address:",
        "stack_adress:",
        '6: unknown key "stack_adress"; known here: '
        "agents, links, name, networks, nodes, paths, stack_address, tenants, version",
    ),
    (
        "unknown key in a node",
        "switch: linuxbridge, underlay: 10.99.1.1/24",
        "switch: linuxbridge, underlay: 10.99.1.1/24, mtu: 9000",
        '17: unknown key "mtu"; known here: agent_address, name, switch, tunnel, underlay, underlay6',
    ),
    (
        "repeated key",
        "name: demo\n",
        "name: demo\nname: other\n",
        '5: key "name" appears twice (first in line 4); keep one',
    ),
    (
        "name of the lab too long",
        "name: demo\n",
        "name: demonstration\n",
        '4: name: "demonstration": is not a name; write 1 to 10 lower-case letters and digits, a letter first',
    ),
    (
        "name of the lab taken",
        "name: demo\n",
        "name: test\n",
        '4: name: the name "test" is kept for the project\'s own tests; choose another name',
    ),
    (
        "node name in capitals",
        "{name: lb1,",
        "{name: LB1,",
        f'17: nodes[0].name: "LB1": is not a name; {NAME}',
    ),
    (
        "node name with a dash",
        "{name: lb1,",
        "{name: lb-1,",
        f'17: nodes[0].name: "lb-1": is not a name; {NAME}',
    ),
    (
        "node name taken",
        LB1,
        LB1 + "  - {name: wire, switch: linuxbridge, underlay: 10.99.9.1/24}\n",
        '18: nodes[1].name: the name "wire" is kept for links; choose another name',
    ),
    (
        "node name taken by the check of the kernel",
        LB1,
        LB1 + "  - {name: check, switch: linuxbridge, underlay: 10.99.9.1/24}\n",
        '18: nodes[1].name: the name "check" is kept for a test of the kernel; choose another name',
    ),
    (
        "tenant name taken",
        "{name: blue, guarantee: 100Mbit",
        "{name: infra, guarantee: 100Mbit",
        '10: tenants[1].name: the name "infra" is kept for the operator; choose another name',
    ),
    (
        "path name with a space",
        "{name: direct,",
        "{name: the direct one,",
        '23: paths[0].name: "the direct one": is not a name; '
        "write 1 to 32 lower-case letters, digits and single dashes, a letter first",
    ),
    (
        "path name too long",
        "{name: direct,",
        "{name: a-path-whose-name-is-much-too-long,",
        '23: paths[0].name: "a-path-whose-name-is-much-too-long": is not a name; '
        "write 1 to 32 lower-case letters, digits and single dashes, a letter first",
    ),
    (
        "duplicate node",
        LB1,
        LB1 + LB1,
        '18: nodes[1].name: the node name "lb1" is used twice; give each its own name',
    ),
    (
        "duplicate tenant",
        "{name: blue, guarantee: 100Mbit",
        "{name: red, guarantee: 100Mbit",
        '10: tenants[1].name: the tenant name "red" is used twice; give each its own name',
    ),
    (
        "duplicate link",
        "{name: ovs, nodes",
        "{name: lb, nodes",
        '14: links[1].name: the link name "lb" is used twice; give each its own name',
    ),
    (
        "duplicate path",
        "{name: ovs-gre, kind",
        "{name: ovs-vxlan, kind",
        '26: paths[3].name: the path name "ovs-vxlan" is used twice; give each its own name',
    ),
    (
        "agents are no network",
        "127.77.0.0/24 ",
        "127.77.0.9/24 ",
        '5: agents: "127.77.0.9/24": is not an IPv4 network; write for example 192.168.1.0/24',
    ),
    (
        "agents outside the loopback network",
        "127.77.0.0/24 ",
        "10.77.0.0/24 ",
        '5: agents: "10.77.0.0/24" is not in 127.0.0.0/8; write for example 127.77.0.0/24',
    ),
    (
        "agents too few",
        "127.77.0.0/24 ",
        "127.77.0.0/30 ",
        '5: agents: "127.77.0.0/30" is too small for 4 nodes; write a shorter prefix',
    ),
    (
        "stack outside the loopback network",
        "stack_address: 127.0.0.1 ",
        "stack_address: 0.0.0.0 ",
        '6: stack_address: "0.0.0.0" is not in 127.0.0.0/8; write 127.0.0.1',
    ),
    (
        "stack is no address",
        "stack_address: 127.0.0.1 ",
        "stack_address: localhost ",
        '6: stack_address: "localhost": is not an IPv4 address; write for example 127.0.0.1',
    ),
    (
        "stack on a node's address",
        "stack_address: 127.0.0.1 ",
        "stack_address: 127.77.0.2 ",
        '18: nodes[1]: the agents\' address "127.77.0.2" is used twice; give each node its own, and the stack another',
    ),
    (
        "agent outside the loopback network",
        "underlay: 10.99.1.1/24}",
        "underlay: 10.99.1.1/24, agent_address: 10.0.0.1}",
        '17: nodes[0].agent_address: "10.0.0.1" is not in 127.0.0.0/8; write a loopback address',
    ),
    (
        "agent address twice",
        "underlay: 10.99.1.2/24}",
        "underlay: 10.99.1.2/24, agent_address: 127.77.0.1}",
        '18: nodes[1].agent_address: the agents\' address "127.77.0.1" is used twice; '
        "give each node its own, and the stack another",
    ),
    (
        "rate without unit",
        "guarantee: 40Mbit",
        "guarantee: 40",
        '9: tenants[0].guarantee: "40": is not a rate; write for example 200Mbit, 1Gbit or 64kbit',
    ),
    (
        "guarantee zero",
        "guarantee: 40Mbit",
        "guarantee: 0Mbit",
        "9: tenants[0].guarantee: is zero; write for example 40Mbit",
    ),
    (
        "ceiling below the guarantee",
        "guarantee: 40Mbit, ceiling: 200Mbit",
        "guarantee: 40Mbit, ceiling: 39Mbit",
        "9: tenants[0].ceiling: is below the guarantee; write at least the guarantee",
    ),
    (
        "three nodes on a link",
        "nodes: [lb1, lb2]",
        "nodes: [lb1, lb2, ovs1]",
        "13: links[0].nodes: tuple should have at most 2 items after validation, not 3",
    ),
    (
        "unknown node on a link",
        "nodes: [lb1, lb2]",
        "nodes: [lb1, lb3]",
        '13: links[0].nodes[1]: there is no node "lb3"; write one of lb1, lb2, ovs1, ovs2',
    ),
    (
        "node on a link with itself",
        "nodes: [lb1, lb2]",
        "nodes: [lb1, lb1]",
        '13: links[0].nodes[1]: the node "lb1" is used twice; a node is on one link',
    ),
    (
        "node on two links",
        LINK,
        LINK + LINK.replace("name: lb,", "name: lc,"),
        '14: links[1].nodes[0]: the node "lb1" is used twice; a node is on one link',
    ),
    (
        "different switches on a link",
        "{name: lb2, switch: linuxbridge, underlay: 10.99.1.2/24}",
        "{name: lb2, switch: openvswitch, underlay: 10.99.1.2/24, tunnel: 10.99.4.2/24}",
        "13: links[0].nodes: lb1 has linuxbridge and lb2 has openvswitch; join nodes of one switch",
    ),
    (
        "node on no link",
        LB1,
        LB1 + "  - {name: lb3, switch: linuxbridge, underlay: 10.99.1.3/24}\n",
        '18: nodes[1]: the node "lb3" is on no link; add a link or remove the node',
    ),
    (
        "link too slow",
        "nodes: [lb1, lb2], rate: 200Mbit",
        "nodes: [lb1, lb2], rate: 64kbit",
        "13: links[0].rate: 64000 bit/s is out of range; write 1Mbit to 10Gbit",
    ),
    (
        "link too fast",
        "nodes: [lb1, lb2], rate: 200Mbit",
        "nodes: [lb1, lb2], rate: 100Gbit",
        "13: links[0].rate: 100000000000 bit/s is out of range; write 1Mbit to 10Gbit",
    ),
    (
        "queue without unit",
        "nodes: [lb1, lb2], rate: 200Mbit, queue: 10ms",
        "nodes: [lb1, lb2], rate: 200Mbit, queue: 10",
        '13: links[0].queue: "10": is not a duration; write for example 500ms, 10s or 2m',
    ),
    (
        "queue too long",
        "nodes: [lb1, lb2], rate: 200Mbit, queue: 10ms",
        "nodes: [lb1, lb2], rate: 200Mbit, queue: 2s",
        "13: links[0].queue: 2 s hold 50000000 bytes at this rate; "
        "write 0.1ms to 1s, and enough for two frames of 1614 bytes",
    ),
    (
        "queue holds no two frames",
        "nodes: [lb1, lb2], rate: 200Mbit, queue: 10ms",
        "nodes: [lb1, lb2], rate: 200Mbit, queue: 0.1ms",
        "13: links[0].queue: 0.0001 s hold 2500 bytes at this rate; "
        "write 0.1ms to 1s, and enough for two frames of 1614 bytes",
    ),
    (
        "guarantees larger than the link",
        "guarantee: 100Mbit",
        "guarantee: 161Mbit",
        "13: links[0].rate: 94% of 200000000 bit/s are less than the tenants' guarantees together, 201000000 bit/s; "
        "raise the rate or lower the guarantees",
    ),
    (
        "unknown switch",
        "{name: lb1, switch: linuxbridge",
        "{name: lb1, switch: vpp",
        "17: nodes[0].switch: \"vpp\": input should be 'linuxbridge', 'openvswitch' or 'both'",
    ),
    (
        "address without prefix",
        "underlay: 10.99.1.1/24",
        "underlay: 10.99.1.1",
        '17: nodes[0].underlay: "10.99.1.1": is not a host address with its prefix length; '
        "write for example 10.99.1.1/24",
    ),
    (
        "address of a network",
        "underlay: 10.99.1.1/24",
        "underlay: 10.99.1.0/24",
        '17: nodes[0].underlay: "10.99.1.0/24": is not a host address with its prefix length; '
        "write for example 10.99.1.1/24",
    ),
    (
        "broadcast address",
        "underlay: 10.99.1.1/24",
        "underlay: 10.99.1.255/24",
        '17: nodes[0].underlay: "10.99.1.255/24": is not a host address with its prefix length; '
        "write for example 10.99.1.1/24",
    ),
    (
        "one end of IPv6",
        "underlay: 10.99.1.1/24",
        "underlay: fd00::1/64",
        '18: nodes[1].underlay: "10.99.1.2/24" is not in the subnet of lb1, fd00::/64; '
        "put both ends of the link into one subnet",
    ),
    (
        "IPv6 beside the underlay at one end",
        "underlay: 10.99.1.1/24}",
        'underlay: 10.99.1.1/24, underlay6: "fd00:9::1/64"}',
        "17: nodes[0].underlay6: lb2 has none; give both lb1 and lb2 one",
    ),
    (
        "IPv6 beside an underlay of IPv6",
        "underlay: 10.99.1.1/24}",
        'underlay: "fd00:8::1/64", underlay6: "fd00:9::1/64"}',
        '18: nodes[1].underlay: "10.99.1.2/24" is not in the subnet of lb1, fd00:8::/64; '
        "put both ends of the link into one subnet",
    ),
    (
        "IPv4 in place of IPv6 beside the underlay",
        "underlay: 10.99.1.1/24}",
        "underlay: 10.99.1.1/24, underlay6: 10.99.8.1/24}",
        '17: nodes[0].underlay6: "10.99.8.1/24": is not an IPv6 address with its prefix length; '
        "write for example fd00:99::1/64",
    ),
    (
        "duplicate underlay address",
        "underlay: 10.99.1.2/24",
        "underlay: 10.99.1.1/24",
        '18: nodes[1].underlay: the underlay address "10.99.1.1" is used twice; give each node its own',
    ),
    (
        "ends of a link in different subnets",
        "underlay: 10.99.1.2/24",
        "underlay: 10.99.9.2/24",
        '18: nodes[1].underlay: "10.99.9.2/24" is not in the subnet of lb1, 10.99.1.0/24; '
        "put both ends of the link into one subnet",
    ),
    (
        "tunnels in different subnets",
        "tunnel: 10.99.3.2/24",
        "tunnel: 10.99.4.2/24",
        '20: nodes[3].tunnel: "10.99.4.2/24" is not in the subnet of ovs1, 10.99.3.0/24; '
        "put both ends of the link into one subnet",
    ),
    (
        "no tunnel address",
        OVS1,
        OVS1.replace(", tunnel: 10.99.3.1/24", ""),
        "19: nodes[2]: tunnel of ovs1 is missing; add it, for example 10.99.3.1/24",
    ),
    (
        "tunnel address of a Linux bridge",
        "underlay: 10.99.1.1/24}",
        "underlay: 10.99.1.1/24, tunnel: 10.99.4.1/24}",
        "17: nodes[0].tunnel: a linuxbridge node has none; remove it; underlay is the endpoint",
    ),
    (
        "second direct path",
        DIRECT,
        DIRECT + DIRECT.replace("name: direct", "name: bypass"),
        "24: paths[1].kind: there is a direct path already; keep one",
    ),
    (
        "direct path with an encapsulation",
        "kind: direct}",
        "kind: direct, encap: vxlan}",
        "23: paths[0].encap: a direct path has none; remove it",
    ),
    (
        "direct path with a switch",
        "kind: direct}",
        "kind: direct, switch: linuxbridge}",
        "23: paths[0].switch: a direct path has none; remove it",
    ),
    (
        "unknown kind",
        "kind: direct}",
        "kind: underlay}",
        '23: paths[0].kind: "underlay": '
        "input should be 'direct', 'overlay', 'local', 'macvlan', 'sriov' or 'ipsec'",
    ),
    (
        "overlay without a switch",
        "{name: ovs-gre, kind: overlay, switch: openvswitch, encap: gre}",
        "{name: ovs-gre, kind: overlay, encap: gre}",
        "26: paths[3]: switch of the overlay ovs-gre is missing; add it",
    ),
    (
        "overlay without an encapsulation",
        "{name: ovs-gre, kind: overlay, switch: openvswitch, encap: gre}",
        "{name: ovs-gre, kind: overlay, switch: openvswitch}",
        "26: paths[3]: encap of the overlay ovs-gre is missing; add it",
    ),
    (
        "encapsulation that the switch has not",
        "switch: linuxbridge, encap: vxlan",
        "switch: linuxbridge, encap: gre",
        "24: paths[1].encap: linuxbridge has no gre; write vxlan",
    ),
    (
        "unknown encapsulation",
        "switch: openvswitch, encap: gre",
        "switch: openvswitch, encap: stt",
        "26: paths[3].encap: \"stt\": input should be 'vxlan', 'gre' or 'geneve'",
    ),
    (
        "rules for a path that learns addresses",
        "switch: openvswitch, encap: gre",
        "switch: openvswitch, encap: gre, rules: os-ken",
        "26: paths[3].rules: is for a path of mode openflow; remove it, or write mode: openflow",
    ),
    (
        "match of a path that learns addresses",
        "switch: openvswitch, encap: gre",
        "switch: openvswitch, encap: gre, match: mac",
        "26: paths[3].match: is for a path of mode openflow; remove it, or write mode: openflow",
    ),
    (
        "rewriting without a match",
        "switch: openvswitch, encap: gre",
        "switch: openvswitch, encap: gre, mode: openflow, rewrite: mac",
        "26: paths[3].rewrite: is for a path with match: udp_port; add it, or remove rewrite",
    ),
    (
        "rewriting beside another match",
        "switch: openvswitch, encap: gre",
        "switch: openvswitch, encap: gre, mode: openflow, match: mac, rewrite: mac",
        "26: paths[3].rewrite: is for a path with match: udp_port; add it, or remove rewrite",
    ),
    (
        "match of a path that tenants are on",
        "switch: openvswitch, encap: gre",
        "switch: openvswitch, encap: gre, mode: openflow, match: mac",
        "36: networks[7].path: the rules of ovs-gre know one machine of _infra; "
        "give _infra one machine there and nobody else any, or remove match",
    ),
    (
        "local path without a second machine",
        DIRECT,
        DIRECT + "  - {name: beside, kind: local, over: ovs-gre}\n",
        "24: paths[1].over: _infra has 1 machines on a node there; "
        "write machines: 2 for the network of _infra on ovs-gre",
    ),
    (
        "local path over nothing",
        DIRECT,
        DIRECT + "  - {name: beside, kind: local}\n",
        '24: paths[1].over: there is no overlay path "None"; '
        "write one of linuxbridge-vxlan, ovs-gre, ovs-vxlan",
    ),
    (
        "local path with a switch",
        DIRECT,
        DIRECT + "  - {name: beside, kind: local, over: ovs-gre, switch: openvswitch}\n",
        "24: paths[1].switch: a path of kind local has none; remove it",
    ),
    (
        "IPv6 addresses that no host has",
        RED,
        RED.replace("}", ', subnet6: "ff02::/64"}'),
        '30: networks[1].subnet6: "ff02::/64" has no addresses of hosts; write for example fd00:1::/64',
    ),
    (
        "too few IPv6 addresses",
        RED,
        RED.replace("}", ', subnet6: "fd00::/127"}'),
        '30: networks[1].subnet6: "fd00::/127" is too small; write a shorter prefix',
    ),
    (
        "network of an unknown tenant",
        RED,
        RED.replace("red", "green"),
        '30: networks[1].tenant: there is no tenant "green"; write one of _infra, blue, red',
    ),
    (
        "network on an unknown path",
        RED,
        RED.replace("linuxbridge-vxlan", "sriov"),
        '30: networks[1].path: there is no overlay path "sriov"; '
        "write one of linuxbridge-vxlan, ovs-gre, ovs-vxlan",
    ),
    (
        "network on the direct path",
        RED,
        RED.replace("linuxbridge-vxlan", "direct"),
        '30: networks[1].path: there is no overlay path "direct"; '
        "write one of linuxbridge-vxlan, ovs-gre, ovs-vxlan",
    ),
    (
        "two networks of a tenant on a path",
        RED,
        RED + RED.replace("110", "111"),
        '31: networks[2]: the network of "red on linuxbridge-vxlan" is used twice; '
        "a tenant has one network on a path",
    ),
    (
        "subnet too small",
        RED,
        RED.replace("192.168.1.0/24", "192.168.1.0/31"),
        '30: networks[1].subnet: "192.168.1.0/31" is too small; write a /30 or larger',
    ),
    (
        "subnet with host bits",
        RED,
        RED.replace("192.168.1.0/24", "192.168.1.1/24"),
        '30: networks[1].subnet: "192.168.1.1/24": is not an IPv4 network; write for example 192.168.1.0/24',
    ),
    (
        "key zero",
        "key: 110",
        "key: 0",
        "30: networks[1].key: 0 is out of range; write 1 to 16777215 for linuxbridge-vxlan",
    ),
    (
        "key that VXLAN has not",
        "key: 110",
        "key: 16777216",
        "30: networks[1].key: 16777216 is out of range; write 1 to 16777215 for linuxbridge-vxlan",
    ),
    (
        "key that GRE has not",
        "key: 310",
        "key: 4294967296",
        "36: networks[7].key: 4294967296 is out of range; write 1 to 4294967295 for ovs-gre",
    ),
    (
        "key used twice",
        "key: 310",
        "key: 110",
        '36: networks[7].key: the key "110" is used twice; give each its own',
    ),
    (
        "key is no number",
        "key: 110",
        "key: many",
        '30: networks[1].key: "many": input should be a valid integer, unable to parse string as an integer',
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_each_rule_names_line_value_and_fix(edited: Edited, old: str, new: str, message: str) -> None:
    path = edited((old, new))
    with pytest.raises(ConfigError) as e:
        topology.load(path)
    assert str(e.value) == f"{path}:{message}"


def test_overlapping_subnets_of_two_links(edited: Edited) -> None:
    path = edited(
        ("underlay: 10.99.2.1/24", "underlay: 10.99.1.3/24"),
        ("underlay: 10.99.2.2/24", "underlay: 10.99.1.4/24"),
    )
    with pytest.raises(ConfigError) as e:
        topology.load(path)
    assert str(e.value) == (
        f'{path}:19: nodes[2].underlay: "10.99.1.0/24" overlaps with 10.99.1.0/24; '
        "give each link, and each tunnel, a subnet"
    )


def test_tunnel_subnet_inside_the_underlay(edited: Edited) -> None:
    path = edited(
        ("tunnel: 10.99.3.1/24", "tunnel: 10.99.2.129/25"), ("tunnel: 10.99.3.2/24", "tunnel: 10.99.2.130/25")
    )
    with pytest.raises(ConfigError) as e:
        topology.load(path)
    assert str(e.value) == (
        f'{path}:19: nodes[2].tunnel: "10.99.2.128/25" overlaps with 10.99.2.0/24; '
        "give each link, and each tunnel, a subnet"
    )


def test_path_on_a_switch_that_no_link_has(edited: Edited) -> None:
    path = edited(
        ("  - {name: ovs, nodes: [ovs1, ovs2], rate: 200Mbit, queue: 10ms}\n", ""),
        (OVS1, ""),
        (OVS1.replace("ovs1", "ovs2").replace(".1/", ".2/"), ""),
    )
    with pytest.raises(ConfigError) as e:
        topology.load(path)
    assert str(e.value) == (
        f"{path}:22: paths[2].switch: no link has openvswitch; add nodes with it or remove the path"
    )


def test_more_ports_than_a_node_may_have(edited: Edited) -> None:
    tenants = "".join(f"  - {{name: t{i}, guarantee: 1Mbit, ceiling: 2Mbit}}\n" for i in range(33))
    networks = "".join(
        f"  - {{tenant: t{i}, path: {path}, key: {1000 * n + i}, subnet: 10.0.0.0/24}}\n"
        for n, path in enumerate(["ovs-vxlan", "ovs-gre"], start=1)
        for i in range(33)
    )
    last = "  - {tenant: blue, path: ovs-gre, key: 320, subnet: 192.168.1.0/24}\n"
    path = edited(("tenants:\n", f"tenants:\n{tenants}"), (last, last + networks))
    with pytest.raises(ConfigError) as e:
        topology.load(path)
    assert "networks: 72 endpoints on openvswitch are too many for a node; keep at most 64" in str(e.value)


def test_several_mistakes_of_values_are_reported_at_once(edited: Edited) -> None:
    path = edited(("guarantee: 40Mbit", "guarantee: fast"), ("key: 110", "key: many"))
    with pytest.raises(ConfigError) as e:
        topology.load(path)
    assert [line.split(": ")[0] for line in str(e.value).splitlines()] == [f"{path}:9", f"{path}:30"]


def test_every_rule_has_a_bad_file() -> None:
    """A rule is a function in rules.py; removing any one of them must make a test above fail."""
    messages = " ".join(b[3] for b in BAD)
    samples = {
        "_unique_names": 'name "lb1" is used twice',
        "_reserved_names": "is kept for",
        "_agents": "is not in 127.0.0.0/8",
        "_tenants": "below the guarantee",
        "_links": "is on no link",
        "_tunnels": "a linuxbridge node has none",
        "_underlay": "the underlay address",
        "_paths": "a direct path has none",
        "_installers": "is for a path of mode openflow",
        "_matches": "is for a path with match: udp_port",
        "_networks": "there is no tenant",
        "_keys": "is out of range; write 1 to",
        "_ports": "",  # test_more_ports_than_a_node_may_have
    }
    assert [rule.__name__ for rule in rules.RULES] == list(samples)
    assert all(sample in messages for sample in samples.values())


def test_a_node_with_both_switches_needs_a_tunnel(edited: Edited) -> None:
    path = edited(
        (LB1, LB1.replace("linuxbridge", "both")),
        (LB2, LB2.replace("linuxbridge", "both").replace("}", ", tunnel: 10.99.4.2/24}")),
    )
    with pytest.raises(ConfigError, match="tunnel of lb1 is missing"):
        topology.load(path)


def test_both_switches_share_the_ports_of_a_node(edited: Edited) -> None:
    tenants = "".join(f"  - {{name: t{i}, guarantee: 1Mbit, ceiling: 2Mbit}}\n" for i in range(30))
    networks = "".join(
        f"  - {{tenant: t{i}, path: {path}, key: {1000 * n + i}, subnet: 10.0.0.0/24}}\n"
        for n, path in enumerate(["linuxbridge-vxlan", "ovs-gre"], start=1)
        for i in range(30)
    )
    last = "  - {tenant: blue, path: ovs-gre, key: 320, subnet: 192.168.1.0/24}\n"
    ovs2 = OVS1.replace("ovs1", "ovs2").replace(".1/", ".2/")
    path = edited(
        ("tenants:\n", f"tenants:\n{tenants}"),
        (last, last + networks),
        (OVS1, OVS1.replace("openvswitch", "both")),
        (ovs2, ovs2.replace("openvswitch", "both")),
    )
    with pytest.raises(ConfigError, match="69 endpoints on both switches are too many for a node"):
        topology.load(path)


def test_defaults(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(
        "version: 1\n"
        "tenants: []\n"
        "links: [{name: l, nodes: [a, b]}]\n"
        "nodes: [{name: a, switch: linuxbridge, underlay: 10.0.0.1/30},"
        " {name: b, switch: linuxbridge, underlay: 10.0.0.2/30, agent_address: 127.9.9.9}]\n"
        "paths: [{name: direct, kind: direct}]\n"
    )
    t = topology.load(path)
    assert (t.name, str(t.agents), str(t.stack_address)) == ("demo", "127.77.0.0/24", "127.0.0.1")
    assert (t.links[0].rate * 8, t.links[0].queue) == (200_000_000, 0.01)
    assert {k: str(v) for k, v in rules.agent_addresses(t).items()} == {"a": "127.77.0.1", "b": "127.9.9.9"}
    assert t.networks == []


def test_what_is_written_down_can_be_read_again() -> None:
    t = topology.default()
    assert topology.Topology.model_validate(t.model_dump(mode="json")) == t


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        topology.load(tmp_path / "absent.yaml")
