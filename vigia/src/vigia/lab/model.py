"""The lab as it will be built: a topology with every name, address and key worked out."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from vigia.errors import VigiaError
from vigia.lab import matching, naming, rules
from vigia.lab.matching import Match, Rewrite
from vigia.lab.naming import Layout
from vigia.lab.schema import Host, NodeSpec, PathSpec, TenantSpec
from vigia.lab.topology import Topology

__all__ = ["Datapath", "Endpoint", "Installer", "Lab", "Link", "Node", "Switch", "Target", "resolve"]

Installer = Literal["ovs-ofctl", "os-ken"]
"""Who installs the rules of bridges that forward by OpenFlow alone."""

Datapath = Literal["kernel", "userspace"]
"""Where Open vSwitch forwards: in its kernel module, or in ovs-vswitchd itself."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

Switch = Literal["linuxbridge", "openvswitch"]
"""A virtual switch."""

STAMP_PORT = 862
"""Where probes are answered (RFC 8762 section 4.1)."""

ASKS = 20862
"""Where probes come from that OpenFlow rules know by their ports."""

_BURST_SECONDS = 0.002  # a timer that is late by this much costs no throughput


@dataclass(frozen=True)
class Endpoint:
    """A tenant's VM on a node, and the port that joins it to the node's switch."""

    node: str
    tenant: str
    path: str
    switch: Switch
    """Which of the node's virtual switches it is on."""
    encap: str
    key: int
    vlan: int
    """Access VLAN on the node's integration bridge (Open vSwitch)."""
    mode: Literal["normal", "openflow"]
    machine: int
    """Which of the tenant's VMs on this node and network it is, from 1."""
    netns: str
    device: str
    """Device on the node's side; inside the VM it is eth0."""
    port: str
    address: ipaddress.IPv4Interface
    peer: ipaddress.IPv4Address
    """Address of the same tenant's endpoint of the same number on the other node."""
    peer_mac: str
    rules_by: Installer = "ovs-ofctl"
    match: Match | None = None
    rewrite: Rewrite = "none"
    address6: ipaddress.IPv6Interface | None = None
    peer6: ipaddress.IPv6Address | None = None
    bridge: str = ""
    """Bridge of its network on the node, and the device of its tunnel (Linux bridge)."""
    tunnel: str = ""

    @property
    def mac(self) -> str:
        """Hardware address of the VM."""
        return naming.mac(self.netns, "eth0")


@dataclass(frozen=True)
class Station:
    """An end of a path that needs no port on a switch: it bypasses the switch, or it is an IPsec gateway."""

    path: str
    kind: Literal["macvlan", "sriov", "ipsec"]
    netns: str
    address: ipaddress.IPv4Interface
    peer: ipaddress.IPv4Address
    outer: Address | None
    """Address that an ipsec path goes out from."""
    outer_peer: Address | None


@dataclass(frozen=True)
class Node:
    """A compute node."""

    name: str
    peer: str
    link: str
    switch: Literal["linuxbridge", "openvswitch", "both"]
    netns: str
    agent: ipaddress.IPv4Address
    underlay: Host
    underlay_peer: Address
    underlay6: ipaddress.IPv6Interface | None
    underlay6_peer: ipaddress.IPv6Address | None
    tunnel: Host
    """Tunnel endpoint of Open vSwitch; without it the underlay address, which is that of a Linux bridge."""
    tunnel_peer: Address
    endpoints: tuple[Endpoint, ...]
    stations: tuple[Station, ...] = ()

    def has(self, switch: Switch) -> bool:
        """Whether the node has a virtual switch of that kind."""
        return self.switch in (switch, "both")

    def endpoints_on(self, switch: Switch) -> list[Endpoint]:
        """Return the endpoints on one of the node's virtual switches."""
        return [e for e in self.endpoints if e.switch == switch]


@dataclass(frozen=True)
class Link:
    """The wire between two nodes: a switch in a namespace of its own."""

    name: str
    netns: str
    nodes: tuple[str, str]
    rate: int
    """Bytes per second in each direction."""
    queue: int
    """Bytes that wait towards each node before frames are dropped."""
    burst: int
    """Bytes that may pass at once after idle time."""

    @property
    def frames(self) -> int:
        """Frames that wait towards each node: a queue counts them whole, small ones too."""
        return self.queue // rules.FRAME


@dataclass(frozen=True)
class Target:
    """One measurable pair: from an endpoint (or node) to the same tenant's at the peer node."""

    source: str
    destination: str
    path: str
    tenant: str
    netns: str
    address: Address
    peer: Address
    asked_at: tuple[str, int] | None = None
    """Address and UDP port that probes are sent to, where OpenFlow rules rewrite either."""
    asks_from: int = 0
    """UDP port that probes come from, where OpenFlow rules look at it."""
    beside: str | None = None
    """Namespace of the other machine, where both are on one node."""
    again: bool = False
    """By IPv6, what another target is by IPv4."""


@dataclass(frozen=True)
class MachinePair:
    """Two machines of the operator's on a path: the one that sends, and the one that it sends to."""

    netns: str
    address: Address
    peer: Address
    beside: str | None = None
    """Namespace of the second, where it is on the same node."""


@dataclass(frozen=True)
class Lab:
    """Everything about a lab that is known before it is built."""

    topology: Topology
    layout: Layout
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]

    @property
    def name(self) -> str:
        """Name of the lab."""
        return self.topology.name

    @property
    def endpoints(self) -> Iterator[Endpoint]:
        """The endpoints of all nodes."""
        for node in self.nodes:
            yield from node.endpoints

    def node(self, name: str) -> Node:
        """Return a node. Raises VigiaError."""
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(n.name for n in self.nodes)
        raise VigiaError(f'lab {self.name} has no node "{name}"; its nodes are {known}')

    def endpoint(self, node: str, tenant: str, path: str, machine: int = 1) -> Endpoint:
        """Return a tenant's endpoint on a node. Raises VigiaError."""
        here = self.node(node).endpoints
        for endpoint in here:
            if (endpoint.tenant, endpoint.path, endpoint.machine) == (tenant, path, machine):
                return endpoint
        known = ", ".join(f"{e.tenant}/{e.path}" for e in here if e.machine == machine) or "none"
        raise VigiaError(f'node {node} has no endpoint "{tenant}/{path}"; its endpoints are {known}')

    def paths_of(self, node: Node) -> list[PathSpec]:
        """Return the paths that a node is on."""
        stations = {s.path for s in node.stations}
        overlays = {
            p.name for p in self.topology.paths if p.kind == "overlay" and p.switch and node.has(p.switch)
        }
        direct = {p.name for p in self.topology.paths if p.kind == "direct"}
        return [
            p
            for p in self.topology.paths
            if p.kind == "direct"
            or p.name in stations
            or p.name in overlays
            or (p.kind == "local" and p.over in overlays | direct)
        ]

    def tenants(self) -> list[TenantSpec]:
        """Return the tenants that bought something."""
        return self.topology.tenants

    def targets(self, node: Node) -> list[Target]:
        """Return what can be measured from a node: every path, for every tenant that is on it.

        A tenant's first machines measure; the further ones are there for load.
        """
        found: list[Target] = []
        for path in self.paths_of(node):
            if path.kind == "direct":
                found += _direct(node, path)
            for e in node.endpoints:
                if e.path == path.name and e.machine == 1:
                    found += _across(node, e)
            if path.kind == "local":
                pair = self.pairs(node, path)[0]
                found.append(
                    Target(
                        node.name,
                        node.name,
                        path.name,
                        naming.INFRA,
                        pair.netns,
                        pair.address,
                        pair.peer,
                        beside=pair.beside,
                    )
                )
            found += [
                Target(node.name, node.peer, s.path, naming.INFRA, s.netns, s.address.ip, s.peer)
                for s in node.stations
                if s.path == path.name
            ]
        return found

    def pairs(self, node: Node, path: PathSpec) -> list[MachinePair]:
        """Return the operator's pairs of machines on a path, from a node: those that can transfer at once.

        Of a direct path it is the node itself, once.
        """
        direct = {p.name for p in self.topology.paths if p.kind == "direct"}
        if path.kind == "direct":
            return [MachinePair(node.netns, node.underlay.ip, node.underlay_peer)]
        if path.kind == "local" and path.over in direct:
            return [MachinePair(node.netns, node.underlay.ip, node.underlay.ip, node.netns)]
        over = path.over if path.kind == "local" else path.name
        ends = sorted(
            (e for e in node.endpoints if (e.tenant, e.path) == (naming.INFRA, over)), key=lambda e: e.machine
        )
        if path.kind == "local":
            return [
                MachinePair(a.netns, a.address.ip, b.address.ip, b.netns)
                for a, b in zip(ends[::2], ends[1::2], strict=False)
            ]
        stations = [MachinePair(s.netns, s.address.ip, s.peer) for s in node.stations if s.path == path.name]
        return stations or [MachinePair(e.netns, e.address.ip, e.peer) for e in ends]

    def namespaces(self) -> list[str]:
        """Return the names of all namespaces of the lab."""
        return [
            *(link.netns for link in self.links),
            *(node.netns for node in self.nodes),
            *(endpoint.netns for endpoint in self.endpoints),
            *(s.netns for node in self.nodes for s in node.stations if s.kind != "ipsec"),
        ]


def _direct(node: Node, path: PathSpec) -> Iterator[Target]:
    """Yield the targets from a node to the other one, by the underlay's family and by IPv6 beside IPv4."""
    infra, address = naming.INFRA, node.underlay.ip
    yield Target(node.name, node.peer, path.name, infra, node.netns, address, node.underlay_peer)
    if node.underlay6 is not None and node.underlay6_peer is not None:
        own, peer = node.underlay6.ip, node.underlay6_peer
        yield Target(node.name, node.peer, path.name, infra, node.netns, own, peer, again=True)


def _across(node: Node, e: Endpoint) -> Iterator[Target]:
    """Yield the targets from a machine to the same tenant's on the other node, by IPv4 and by IPv6."""
    asked_at = None
    if e.rewrite == "ip":
        asked_at = (matching.alias(e.address.network), STAMP_PORT)
    elif e.rewrite == "udp_port":
        asked_at = (str(e.peer), matching.ALIAS_PORT)
    asks_from = ASKS if e.match in ("udp_port", "exact") else 0
    yield Target(node.name, node.peer, e.path, e.tenant, e.netns, e.address.ip, e.peer, asked_at, asks_from)
    if e.address6 is not None and e.peer6 is not None:
        yield Target(node.name, node.peer, e.path, e.tenant, e.netns, e.address6.ip, e.peer6, again=True)


def resolve(topology: Topology) -> Lab:
    """Work out everything that follows from a topology."""
    layout = Layout(topology.name)
    sides = {name: (link, side) for link in topology.links for side, name in enumerate(link.nodes)}
    by_name = {n.name: n for n in topology.nodes}
    agents = rules.agent_addresses(topology)
    nodes = []
    for given in topology.nodes:
        link, side = sides[given.name]
        peer = by_name[link.nodes[1 - side]]
        endpoints = tuple(_endpoints(topology, layout, (given.name, peer.name), given.switch, side))
        nodes.append(
            Node(
                name=given.name,
                peer=peer.name,
                link=link.name,
                switch=given.switch,
                netns=layout.node_netns(given.name),
                agent=agents[given.name],
                underlay=given.underlay,
                underlay_peer=peer.underlay.ip,
                underlay6=given.underlay6,
                underlay6_peer=peer.underlay6.ip if peer.underlay6 is not None else None,
                tunnel=given.tunnel or given.underlay,
                tunnel_peer=(peer.tunnel or peer.underlay).ip,
                endpoints=endpoints,
                stations=tuple(_stations(topology, layout, (given, peer), endpoints, side)),
            )
        )
    links = tuple(
        Link(
            name=link.name,
            netns=layout.wire_netns(link.name),
            nodes=link.nodes,
            rate=link.rate,
            queue=int(link.rate * link.queue),
            burst=max(int(link.rate * _BURST_SECONDS), 2 * rules.FRAME),
        )
        for link in topology.links
    )
    return Lab(topology=topology, layout=layout, nodes=tuple(nodes), links=links)


def _stations(
    topology: Topology,
    layout: Layout,
    pair: tuple[NodeSpec, NodeSpec],
    endpoints: Sequence[Endpoint],
    side: int,
) -> Iterator[Station]:
    """Yield the stations of the first node of pair; those below others come first."""
    node, peer = pair
    below: dict[str, tuple[str, Address, Address]] = {
        e.path: (e.netns, e.address.ip, e.peer)
        for e in endpoints
        if e.tenant == naming.INFRA and e.machine == 1
    }
    below |= {
        p.name: (layout.node_netns(node.name), node.underlay.ip, peer.underlay.ip)
        for p in topology.paths
        if p.kind == "direct"
    }
    for path in sorted(topology.paths, key=lambda p: p.kind == "ipsec"):
        if path.subnet is None:
            continue
        hosts = [path.subnet.network_address + 1, path.subnet.network_address + 2]
        own = ipaddress.IPv4Interface(f"{hosts[side]}/{path.subnet.prefixlen}")
        kind: Literal["macvlan", "sriov"] = "sriov" if path.kind == "sriov" else "macvlan"
        if path.kind != "ipsec":
            netns = layout.endpoint_netns(node.name, naming.INFRA, path.name)
            below[path.name] = (netns, own.ip, hosts[1 - side])
            yield Station(path.name, kind, netns, own, hosts[1 - side], None, None)
        elif path.over in below:
            netns, outer, outer_peer = below[path.over]
            yield Station(path.name, "ipsec", netns, own, hosts[1 - side], outer, outer_peer)


def _endpoints(
    topology: Topology, layout: Layout, pair: tuple[str, str], switch: str, side: int
) -> Iterator[Endpoint]:
    """Yield the endpoints of the first node of pair, which is on that side of its link (0 or 1)."""
    node, peer = pair
    paths = {p.name: p for p in topology.paths if p.switch and switch in (p.switch, "both")}
    here = [n for n in topology.networks if n.path in paths]
    for vlan, network in enumerate(here, start=1):
        tenant, path, key = network.tenant, network.path, network.key
        for machine in range(1, network.machines + 1):
            first = network.subnet.network_address + 2 * machine - 1
            hosts = [first, first + 1]
            yield Endpoint(
                node=node,
                tenant=tenant,
                path=path,
                switch=paths[path].switch or "linuxbridge",
                encap=paths[path].encap or "",
                key=key,
                vlan=vlan,
                mode=paths[path].mode,
                machine=machine,
                netns=layout.endpoint_netns(node, tenant, path, machine),
                device=naming.device(tenant, key, machine),
                port=naming.port(node, tenant, key, machine),
                address=ipaddress.IPv4Interface(f"{hosts[side]}/{network.subnet.prefixlen}"),
                peer=hosts[1 - side],
                peer_mac=naming.mac(layout.endpoint_netns(peer, tenant, path, machine), "eth0"),
                rules_by=paths[path].rules,
                match=paths[path].match,
                rewrite=paths[path].rewrite,
                address6=_sixth(network.subnet6, machine, side),
                bridge=f"br{key}",
                tunnel=f"vx{key}",
                peer6=ends.ip if (ends := _sixth(network.subnet6, machine, 1 - side)) else None,
            )


def _sixth(subnet: ipaddress.IPv6Network | None, machine: int, side: int) -> ipaddress.IPv6Interface | None:
    """Return the IPv6 address of the n-th machine on a side of its link."""
    if subnet is None:
        return None
    return ipaddress.IPv6Interface(f"{subnet.network_address + 2 * machine - 1 + side}/{subnet.prefixlen}")
