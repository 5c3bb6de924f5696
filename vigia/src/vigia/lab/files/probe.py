"""probe.yaml: configuration of a node's vigia-probe."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from vigia.lab import naming
from vigia.lab.model import STAMP_PORT, Datapath, Lab, MachinePair, Node, Target
from vigia.lab.naming import joined
from vigia.lab.schema import PathSpec

__all__ = ["MESH", "NODES", "content", "nodes"]

NODES = "nodes.yaml"
"""The file in which a probe finds the nodes of its mesh."""

_BULK_PORT = 9876  # of vigia-probe; here it also answers the connections of tcp-connect probes
_STAMP = {"name": "stamp-64", "protocol": "stamp", "size": 64, "interval": "50ms", "deadline": "1s"}
_ECHO = {
    "name": "icmp-56",
    "protocol": "icmp",
    "size": 56,
    "interval": "1s",
    "deadline": "1s",
    "path_mtu": {"interval": "10m"},
}
"""Searches the path MTU as well: tunnels and IPsec make it smaller."""
_CONNECT = {"name": "tcp-connect", "protocol": "tcp-connect", "interval": "1s", "deadline": "1s"}

_TECHNOLOGY = {"name": "stamp-128", "protocol": "stamp", "size": 128, "interval": "200ms", "deadline": "1s"}
"""What compares OpenFlow rules, stations and IPsec, among themselves and with what is beneath them: there
are many of them, so each is asked less often than what tenants use."""

_IPV6 = {**_TECHNOLOGY, "name": "stamp-64-ipv6", "size": 64}
"""What tenants have beside IPv4."""

MESH = "stamp-64-mesh"
"""The probes among nodes that find each other."""

_MESH = {"name": MESH, "protocol": "stamp", "size": 64, "interval": "1s", "deadline": "1s"}
"""What every node asks every other one, whatever else is configured."""

_PROMISED = {"delay": "100ms", "jitter": "50ms"}
"""Objectives of the path without an overlay; those of the others are learned in the first hour."""

_CLOCK = {"error_bound": "1us"}
"""All nodes read the clock of one machine: what one-way delays need to be known is known."""

_BULK_TCP = {"name": "bulk-tcp", "protocol": "tcp", "duration": "500ms", "max_bytes": 4_000_000}
_BULK_UDP = {
    "name": "bulk-udp",
    "protocol": "udp",
    "duration": "100ms",
    "rates": ["100Mbit", "150Mbit", "200Mbit"],
    "size": 1400,
}
"""Bursts that are short beside the windows of the comparison: 4 and 5.6 MB."""

_MACHINES = (2, 4, 8)
"""Machines that take part in a bulk test of an overlay, and connections of the direct path likewise, where
there are as many: bytes and rate are those of all together."""

_BULK_SLOT = 10
"""Seconds from one bulk test of a link to the next; each direction has every second slot."""

_BULK_HOURLY = 1_000_000_000
"""Bytes that a node sends in any hour at most: its 180 slots take 0.9 GB."""

_BURNING = 0.99
"""Share of a tenant's probes that have to be answered for bulk tests to be run."""


def content(lab: Lab, node: Node, datapath: Datapath, esp: Datapath = "userspace") -> Mapping[str, object]:
    """Return what the node reflects, and what it measures to its peer node and within itself.

    esp says where IPsec is done.
    """
    everything = lab.targets(node)
    targets = [t for t in everything if not t.again]
    sixth = [t for t in everything if t.again]
    paths = {p.name: p for p in lab.paths_of(node)}
    operators = [t for t in targets if t.tenant == naming.INFRA]
    usual = [t for t in targets if not _is_technology(paths[t.path])]
    compared = _compared(operators, paths)
    # Rules that look at UDP ports let pass what they know alone.
    plain = [t for t in operators if paths[t.path].match is None and not t.beside]
    beneath = _Beneath.of(paths, targets, sixth)
    direct = beneath.across
    allowed = [str(n) for n in _sources(node)]
    ends = [(t.netns, t.address) for t in everything] + [(t.beside, t.peer) for t in targets if t.beside]
    classes: list[Mapping[str, object]] = [
        _STAMP if direct is None else {**_STAMP, "objectives": [{"path": direct, **_PROMISED}]},
        *([_TECHNOLOGY] if compared else []),
        *([_IPV6] if sixth else []),
        _ECHO,
        _CONNECT,
        *([] if direct is None else [_MESH]),
    ]
    return {
        "node": node.name,
        "reflector": {
            "listeners": [
                {"netns": netns, "address": joined(address, STAMP_PORT)}
                for netns, address in dict.fromkeys(ends)
            ],
            "allow": allowed,
            "max_rate": 10000,
        },
        "paths": [_path(p, paths, datapath, esp) for p in paths.values()],
        "classes": [dict(c) for c in classes],
        "targets": [
            *(_stamp(t, _STAMP, beneath) for t in usual),
            *(_stamp(t, _TECHNOLOGY, beneath) for t in compared),
            *(_stamp(t, _IPV6, beneath) for t in sixth),
            *(_target(t, "icmp-56", str(t.peer)) for t in plain),
            *(_target(t, "tcp-connect", joined(t.peer, _BULK_PORT)) for t in plain),
        ],
        "clock": dict(_CLOCK),
        **({} if direct is None else {"discovery": [_discovery(lab, node, direct)]}),
        "bulk": _bulk(lab, node, [t for t in operators if paths[t.path].match is None], allowed),
        "objectives": [{"tenant": t, "ratio": _BURNING} for t in dict.fromkeys(_customers(targets))],
    }


def nodes(lab: Lab, node: Node) -> Sequence[Mapping[str, object]]:
    """Return the nodes of the mesh, in the format of file_sd: those that share a network."""
    place = {"rack": "lab", "zone": lab.topology.name}
    return [
        {"targets": [str(n.underlay.ip)], "labels": {"node": n.name, **place}}
        for n in lab.nodes
        if n.name in (node.name, node.peer)
    ]


def _discovery(lab: Lab, node: Node, direct: str) -> Mapping[str, object]:
    """Return whom the node finds, and what it probes there: the underlay of every node."""
    own = next(t for t in lab.targets(node) if t.path == direct and not t.again)
    return {
        "files": [str(lab.layout.node(node.name) / NODES)],
        "targets": [
            {
                "path": direct,
                "tenant": own.tenant,
                "probe": _MESH["name"],
                "netns": own.netns,
                "source": str(own.address),
            }
        ],
    }


def _sources(node: Node) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Yield the networks that probes come from."""
    networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = [
        node.underlay.network,
        *([node.underlay6.network] if node.underlay6 is not None else []),
        *(e.address.network for e in node.endpoints),
        *(e.address6.network for e in node.endpoints if e.address6 is not None),
        *(s.address.network for s in node.stations),
    ]
    yield from ipaddress.collapse_addresses(n for n in networks if isinstance(n, ipaddress.IPv4Network))
    yield from ipaddress.collapse_addresses(n for n in networks if isinstance(n, ipaddress.IPv6Network))


def _customers(targets: Iterable[Target]) -> Iterator[str]:
    return (t.tenant for t in targets if t.tenant != naming.INFRA)


def _is_technology(path: PathSpec) -> bool:
    """Whether a path is there for what it is made of: no tenant has it."""
    return path.kind in ("macvlan", "sriov", "ipsec") or path.match is not None


def _compared(operators: Sequence[Target], paths: Mapping[str, PathSpec]) -> list[Target]:
    """Return the targets on technologies, and those on what they are compared with."""
    found = [paths[t.path] for t in operators if _is_technology(paths[t.path])]
    if not found:
        return []
    beneath = {p.over for p in found}
    encaps = {p.encap for p in found if p.match is not None}
    return [
        t
        for t in operators
        if (path := paths[t.path]) in found
        or path.kind == "direct"
        or path.name in beneath
        or (path.kind == "overlay" and path.switch == "openvswitch" and path.encap in encaps)
    ]


@dataclass(frozen=True)
class _Beneath:
    """The paths that others are probed at the same moment as: what is beneath them."""

    across: str | None
    by_ipv6: str | None
    within: str | None

    @classmethod
    def of(cls, paths: Mapping[str, PathSpec], targets: Sequence[Target], sixth: Sequence[Target]) -> Self:
        direct = next((p.name for p in paths.values() if p.kind == "direct"), None)
        within = next((p.name for p in paths.values() if p.kind == "local" and p.over == direct), None)
        return cls(direct, direct if direct in {t.path for t in sixth} else None, within)

    def path(self, t: Target) -> str | None:
        """Return the path beneath a target's; None for those that are beneath, and where there is none."""
        found = self.within if t.beside else self.by_ipv6 if t.again else self.across
        return None if found == t.path else found


def _bulk(lab: Lab, node: Node, operators: Sequence[Target], allowed: Iterable[str]) -> Mapping[str, object]:
    """Return the throughput tests: one at a time, every path in turn, none while a tenant suffers.

    Those of a node with itself have their turns among those to the other node.
    """
    paths = {p.name: p for p in lab.paths_of(node)}
    overlays = [t for t in operators if not _is_technology(paths[t.path])]
    pairs = {t.path: lab.pairs(node, paths[t.path]) for t in operators}
    ends = {
        (pair.beside or pair.netns, pair.peer if pair.beside else pair.address): None
        for of_path in pairs.values()
        for pair in of_path
    }
    for one in overlays:
        if paths[one.path].kind == "direct" or paths[paths[one.path].over or one.path].kind == "direct":
            # Between the nodes themselves are as many connections as overlays have pairs of machines.
            alike = [pairs[t.path] for t in overlays if bool(t.beside) == bool(one.beside)]
            pairs[one.path] = pairs[one.path] * max(map(len, alike))
    return {
        "listeners": [{"netns": ns, "address": joined(address, _BULK_PORT)} for ns, address in ends],
        "allow": list(allowed),
        "hourly_bytes": _BULK_HOURLY,
        "slot": f"{_BULK_SLOT}s",
        "nodes": sorted((node.name, node.peer)),
        "classes": [dict(_BULK_TCP), dict(_BULK_UDP)],
        "targets": [
            *(_transfer(t, "bulk-tcp", pairs[t.path]) for t in operators),
            *(_transfer(t, "bulk-udp", pairs[t.path]) for t in overlays),
        ],
    }


def _transfer(target: Target, probe: str, pairs: Sequence[MachinePair]) -> Mapping[str, object]:
    """Return a throughput test, by each number of machines that there are, two for each pair."""
    content = dict(_target(target, probe, joined(pairs[0].peer, _BULK_PORT)))
    numbers = [n for n in _MACHINES if n // 2 <= len(pairs)]
    if len(numbers) > 1:
        content["machines"] = numbers
        content["pairs"] = [
            {"netns": p.netns, "source": str(p.address), "address": joined(p.peer, _BULK_PORT)}
            for p in pairs[1 : numbers[-1] // 2]
        ]
    return content


def _stamp(target: Target, of: Mapping[str, object], beneath: _Beneath) -> Mapping[str, object]:
    """Return a STAMP target, probed at the same moment as the path beneath it."""
    address, port = target.asked_at or (str(target.peer), STAMP_PORT)
    content = _target(target, str(of["name"]), joined(address, port))
    if target.asks_from:
        content = {**content, "source": f"{target.address}:{target.asks_from}"}
    twin = beneath.path(target)
    return content if twin is None else {**content, "twin": twin}


def _target(target: Target, probe: str, address: str) -> Mapping[str, object]:
    return {
        "dst": target.destination,
        "path": target.path,
        "tenant": target.tenant,
        "probe": probe,
        "netns": target.netns,
        "source": str(target.address),
        "address": address,
    }


def _path(
    path: PathSpec, paths: Mapping[str, PathSpec], datapath: Datapath, esp: Datapath
) -> Mapping[str, object]:
    """Return what a path is made of; one over another is that with IPsec, or without its tunnel."""
    if path.over is not None:
        below = _path(paths[path.over], paths, datapath, esp)
        if path.kind == "local":
            return {**below, "name": path.name, "encap": "none", "placement": "local"}
        return {**below, "name": path.name, "security": f"ipsec-{esp}", "layer": "overlay"}
    dataplane = {None: "none", "linuxbridge": "linuxbridge", "openvswitch": f"ovs-{datapath}"}[path.switch]
    return {
        "name": path.name,
        "dataplane": path.kind if path.kind in ("macvlan", "sriov") else dataplane,
        "encap": path.encap or "none",
        "mode": path.mode,
        "security": "none",
        "layer": "underlay" if path.kind == "direct" else "overlay",
        "placement": "remote",
    }
