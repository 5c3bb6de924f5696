"""What the values of a topology must be together: one function per rule."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable
from itertools import combinations

from vigia.lab import naming
from vigia.lab.schema import NetworkSpec, NodeSpec, PathSpec, TopologySpec
from vigia_config import fault

__all__ = ["FRAME", "MAX_PORTS", "RULES", "agent_addresses", "check"]

GIVEN_OUT = 0.94
"""Share of a link that enforcers guarantee at most: less their headroom, and what has no contract."""

FRAME = 1614
"""Largest frame on an underlay link in bytes: MTU 1600 and the Ethernet header."""

MAX_PORTS = 64
"""Tenant ports that a node may have."""

_LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")
_LARGEST_KEY = {"vxlan": 2**24 - 1, "gre": 2**32 - 1, "geneve": 2**24 - 1}
_ENCAPS = {"linuxbridge": ("vxlan",), "openvswitch": ("vxlan", "gre", "geneve")}

Where = tuple[str | int, ...]


def check(t: TopologySpec) -> None:
    """Raise the error of the first rule that the topology breaks."""
    for rule in RULES:
        rule(t)


def agent_addresses(t: TopologySpec) -> dict[str, ipaddress.IPv4Address]:
    """Return the address of each node's agents."""
    first = t.agents.network_address
    return {n.name: n.agent_address or first + i for i, n in enumerate(t.nodes, start=1)}


def _unique(values: Iterable[tuple[object, Where]], what: str, fix: str) -> None:
    seen: set[object] = set()
    for value, where in values:
        if value in seen:
            raise fault(where, f'{what} "{value}" is used twice', fix)
        seen.add(value)


def _unique_names(t: TopologySpec) -> None:
    for section in ("tenants", "links", "nodes", "paths"):
        items = getattr(t, section)
        _unique(
            ((item.name, (section, i, "name")) for i, item in enumerate(items)),
            f"the {section[:-1]} name",
            "give each its own name",
        )


def _reserved_names(t: TopologySpec) -> None:
    reserved: list[tuple[str, Where, str, str]] = [
        (t.name, ("name",), naming.RESERVED_LAB, "the project's own tests"),
    ]
    for i, node in enumerate(t.nodes):
        reserved.append((node.name, ("nodes", i, "name"), "wire", "links"))
        reserved.append((node.name, ("nodes", i, "name"), "check", "a test of the kernel"))
    for i, tenant in enumerate(t.tenants):
        reserved.append((tenant.name, ("tenants", i, "name"), "infra", "the operator"))
    for name, where, taken, by in reserved:
        if name == taken:
            raise fault(where, f'the name "{name}" is kept for {by}', "choose another name")


def _agents(t: TopologySpec) -> None:
    if not t.agents.subnet_of(_LOOPBACK):
        raise fault(("agents",), f'"{t.agents}" is not in {_LOOPBACK}', "write for example 127.77.0.0/24")
    if t.agents.num_addresses < len(t.nodes) + 2:
        raise fault(
            ("agents",), f'"{t.agents}" is too small for {len(t.nodes)} nodes', "write a shorter prefix"
        )
    if t.stack_address not in _LOOPBACK:
        raise fault(("stack_address",), f'"{t.stack_address}" is not in {_LOOPBACK}', "write 127.0.0.1")
    for i, node in enumerate(t.nodes):
        if node.agent_address and node.agent_address not in _LOOPBACK:
            where = ("nodes", i, "agent_address")
            raise fault(where, f'"{node.agent_address}" is not in {_LOOPBACK}', "write a loopback address")
    addresses = agent_addresses(t)
    _unique(
        [(t.stack_address, ("stack_address",))]
        + [(addresses[n.name], _agent_field(i, n)) for i, n in enumerate(t.nodes)],
        "the agents' address",
        "give each node its own, and the stack another",
    )


def _agent_field(index: int, node: NodeSpec) -> Where:
    return ("nodes", index, "agent_address") if node.agent_address else ("nodes", index)


def _tenants(t: TopologySpec) -> None:
    for i, tenant in enumerate(t.tenants):
        if tenant.guarantee <= 0:
            raise fault(("tenants", i, "guarantee"), "is zero", "write for example 40Mbit")
        if tenant.ceiling < tenant.guarantee:
            raise fault(("tenants", i, "ceiling"), "is below the guarantee", "write at least the guarantee")


def _links(t: TopologySpec) -> None:
    nodes = {n.name: n for n in t.nodes}
    _unique(
        (
            (name, ("links", i, "nodes", j))
            for i, link in enumerate(t.links)
            for j, name in enumerate(link.nodes)
        ),
        "the node",
        "a node is on one link",
    )
    for i, link in enumerate(t.links):
        for j, name in enumerate(link.nodes):
            if name not in nodes:
                raise fault(
                    ("links", i, "nodes", j), f'there is no node "{name}"', f"write one of {', '.join(nodes)}"
                )
        a, b = (nodes[name] for name in link.nodes)
        if a.switch != b.switch:
            raise fault(
                ("links", i, "nodes"),
                f"{a.name} has {a.switch} and {b.name} has {b.switch}",
                "join nodes of one switch",
            )
        _link_rate(t, i)
    joined = {name for link in t.links for name in link.nodes}
    for i, node in enumerate(t.nodes):
        if node.name not in joined:
            raise fault(
                ("nodes", i), f'the node "{node.name}" is on no link', "add a link or remove the node"
            )


def _link_rate(t: TopologySpec, index: int) -> None:
    link = t.links[index]
    if not 125_000 <= link.rate <= 1_250_000_000:
        raise fault(
            ("links", index, "rate"), f"{link.rate * 8} bit/s is out of range", "write 1Mbit to 10Gbit"
        )
    if not 1e-4 <= link.queue <= 1 or link.rate * link.queue < 2 * FRAME:
        raise fault(
            ("links", index, "queue"),
            f"{link.queue:g} s hold {link.rate * link.queue:.0f} bytes at this rate",
            f"write 0.1ms to 1s, and enough for two frames of {FRAME} bytes",
        )
    promised = sum(tenant.guarantee for tenant in t.tenants)
    given = int(link.rate * GIVEN_OUT)
    if promised > given:
        raise fault(
            ("links", index, "rate"),
            f"{GIVEN_OUT:.0%} of {link.rate * 8} bit/s are less than the tenants' guarantees together, "
            f"{promised * 8} bit/s",
            "raise the rate or lower the guarantees",
        )


def _tunnels(t: TopologySpec) -> None:
    for i, node in enumerate(t.nodes):
        if node.switch != "linuxbridge" and node.tunnel is None:
            raise fault(("nodes", i), f"tunnel of {node.name} is missing", "add it, for example 10.99.3.1/24")
        if node.switch == "linuxbridge" and node.tunnel is not None:
            raise fault(
                ("nodes", i, "tunnel"), "a linuxbridge node has none", "remove it; underlay is the endpoint"
            )


def _both(t: TopologySpec, ends: tuple[int, int], names: tuple[str, str]) -> None:
    """Both ends of a link have IPv6 beside IPv4, or neither."""
    for i, other in (ends, ends[::-1]):
        if t.nodes[i].underlay6 is None:
            continue
        where: Where = ("nodes", i, "underlay6")
        if t.nodes[i].underlay.version == 6:
            raise fault(where, "underlay is IPv6 already", "remove it")
        if t.nodes[other].underlay6 is None:
            fix = f"give both {names[0]} and {names[1]} one"
            raise fault(where, f"{t.nodes[other].name} has none", fix)


def _underlay(t: TopologySpec) -> None:
    """Both ends of a link are in one subnet, and no two subnets of the underlay overlap."""
    index = {n.name: i for i, n in enumerate(t.nodes)}
    subnets: list[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, Where]] = []
    addresses: list[tuple[object, Where]] = []
    for link in t.links:
        first, second = (index[name] for name in link.nodes)
        for field in ("underlay", "underlay6", "tunnel"):
            a, b = getattr(t.nodes[first], field), getattr(t.nodes[second], field)
            if field == "underlay6":
                _both(t, (first, second), link.nodes)
            if a is None:
                continue
            addresses += [(a.ip, ("nodes", first, field)), (b.ip, ("nodes", second, field))]
            if a.network != b.network:
                raise fault(
                    ("nodes", second, field),
                    f'"{b}" is not in the subnet of {link.nodes[0]}, {a.network}',
                    "put both ends of the link into one subnet",
                )
            subnets.append((a.network, ("nodes", first, field)))
    _unique(addresses, "the underlay address", "give each node its own")
    for (one, _), (other, where) in combinations(subnets, 2):
        if one.overlaps(other):
            raise fault(where, f'"{other}" overlaps with {one}', "give each link, and each tunnel, a subnet")


def _paths(t: TopologySpec) -> None:
    switches = {s for n in t.nodes for s in (_ENCAPS if n.switch == "both" else (n.switch,))}
    direct = [i for i, p in enumerate(t.paths) if p.kind == "direct"]
    if len(direct) > 1:
        raise fault(("paths", direct[1], "kind"), "there is a direct path already", "keep one")
    for i, path in enumerate(t.paths):
        if path.kind in ("macvlan", "sriov", "ipsec"):
            _station(t, i, path)
            continue
        if path.kind == "local":
            _local(t, i, path)
            continue
        for field in ("over", "subnet", "device"):
            if getattr(path, field):
                raise fault(("paths", i, field), f"a path of kind {path.kind} has none", "remove it")
        if path.kind == "direct":
            for field in ("switch", "encap", *(["mode"] if path.mode != "normal" else [])):
                if getattr(path, field):
                    raise fault(("paths", i, field), "a direct path has none", "remove it")
        else:
            _overlay(i, path, switches)


def _station(t: TopologySpec, index: int, path: PathSpec) -> None:
    """A path whose ends are machines of the operator's own."""
    where: Where = ("paths", index)
    for field in ("switch", "encap", *_foreign(path)):
        if getattr(path, field):
            raise fault((*where, field), f"a path of kind {path.kind} has none", "remove it")
    if path.subnet is None or path.subnet.prefixlen > 30:
        raise fault((*where, "subnet"), "is missing or too small", "write for example 192.168.9.0/24")
    if path.kind != "ipsec":
        return
    below = {p.name: p for p in t.paths if p.kind != "ipsec"}
    if path.over not in below:
        raise fault((*where, "over"), f'there is no path "{path.over}"', f"write one of {_list(below)}")
    measured = {n.path for n in t.networks if n.tenant == naming.INFRA}
    if below[path.over].kind == "overlay" and path.over not in measured:
        fix = f"give {naming.INFRA} a network on {path.over}"
        raise fault((*where, "over"), f"{naming.INFRA} has no machine there", fix)


def _local(t: TopologySpec, index: int, path: PathSpec) -> None:
    """A path between two machines of the operator's on one node."""
    where: Where = ("paths", index)
    for field in ("switch", "encap", "subnet", "device", *(["mode"] if path.mode != "normal" else [])):
        if getattr(path, field):
            raise fault((*where, field), "a path of kind local has none", "remove it")
    if path.over in {p.name for p in t.paths if p.kind == "direct"}:
        return
    overlays = [p.name for p in t.paths if p.kind == "overlay" and p.mode == "normal"]
    if path.over not in overlays:
        raise fault(
            (*where, "over"), f'there is no overlay path "{path.over}"', f"write one of {_list(overlays)}"
        )
    there = sum(n.machines for n in t.networks if (n.tenant, n.path) == (naming.INFRA, path.over))
    if there < 2:
        raise fault(
            (*where, "over"),
            f"{naming.INFRA} has {there} machines on a node there",
            f"write machines: 2 for the network of {naming.INFRA} on {path.over}",
        )


def _matches(t: TopologySpec) -> None:
    """Rules that look at addresses alone tell networks apart by them, and know one machine on each node."""
    paths = {p.name: p for p in t.paths}
    for i, path in enumerate(t.paths):
        if path.match is not None and path.mode != "openflow":
            raise fault(
                ("paths", i, "match"), "is for a path of mode openflow", "remove it, or write mode: openflow"
            )
        if path.rewrite != "none" and path.match != "udp_port":
            raise fault(
                ("paths", i, "rewrite"), "is for a path with match: udp_port", "add it, or remove rewrite"
            )
    taken: dict[ipaddress.IPv4Network, str] = {}
    for i, network in enumerate(t.networks):
        if network.path not in paths or paths[network.path].match is None:
            continue
        where: Where = ("networks", i)
        if network.tenant != naming.INFRA or network.machines != 1:
            fix = f"give {naming.INFRA} one machine there and nobody else any, or remove match"
            raise fault(
                (*where, "path"), f"the rules of {network.path} know one machine of {naming.INFRA}", fix
            )
        for subnet, path_name in taken.items():
            if subnet.overlaps(network.subnet):
                fix = "give each path with match a subnet of its own"
                raise fault((*where, "subnet"), f'"{network.subnet}" overlaps with that of {path_name}', fix)
        if network.subnet.num_addresses < 8:
            raise fault(
                (*where, "subnet"), f'"{network.subnet}" has no address to spare', "write a /29 or larger"
            )
        taken[network.subnet] = network.path


def _installers(t: TopologySpec) -> None:
    """A node has one bridge that forwards by rules, which has one that installs them."""
    first = next((p.rules for p in t.paths if p.mode == "openflow"), "")
    for i, path in enumerate(t.paths):
        where: Where = ("paths", i, "rules")
        if path.mode != "openflow" and path.rules != "ovs-ofctl":
            raise fault(where, "is for a path of mode openflow", "remove it, or write mode: openflow")
        if path.mode == "openflow" and path.rules != first:
            raise fault(where, f'"{path.rules}" differs from that of another path', f"write {first}")


def _foreign(path: PathSpec) -> list[str]:
    """Return the keys of other kinds of stations."""
    return {"macvlan": ["over", "device"], "sriov": ["over"]}.get(path.kind, ["device"])


def _overlay(index: int, path: PathSpec, switches: Collection[str]) -> None:
    where: Where = ("paths", index)
    if path.switch is None or path.encap is None:
        field = "switch" if path.switch is None else "encap"
        raise fault(where, f"{field} of the overlay {path.name} is missing", "add it")
    if path.switch not in switches:
        raise fault((*where, "switch"), f"no link has {path.switch}", "add nodes with it or remove the path")
    if path.encap not in _ENCAPS[path.switch]:
        raise fault(
            (*where, "encap"), f"{path.switch} has no {path.encap}", f"write {_ENCAPS[path.switch][0]}"
        )
    if path.mode == "openflow" and path.switch != "openvswitch":
        raise fault(
            (*where, "mode"), f"{path.switch} has no openflow", "write normal, or switch: openvswitch"
        )


def _networks(t: TopologySpec) -> None:
    tenants = {tenant.name for tenant in t.tenants} | {naming.INFRA}
    overlays = {p.name for p in t.paths if p.kind == "overlay"}
    for i, network in enumerate(t.networks):
        where = ("networks", i)
        if network.tenant not in tenants:
            raise fault(
                (*where, "tenant"), f'there is no tenant "{network.tenant}"', f"write one of {_list(tenants)}"
            )
        if network.path not in overlays:
            raise fault(
                (*where, "path"),
                f'there is no overlay path "{network.path}"',
                f"write one of {_list(overlays)}" if overlays else "add an overlay path",
            )
        if network.subnet.num_addresses < 2 * network.machines + 2:
            fix = "write a /30 or larger" if network.machines == 1 else "write a shorter prefix"
            raise fault((*where, "subnet"), f'"{network.subnet}" is too small', fix)
        if network.subnet6 is not None:
            _subnet6(t, (*where, "subnet6"), network)
    _unique(
        ((f"{n.tenant} on {n.path}", ("networks", i)) for i, n in enumerate(t.networks)),
        "the network of",
        "a tenant has one network on a path",
    )


def _subnet6(t: TopologySpec, where: Where, network: NetworkSpec) -> None:
    subnet = network.subnet6
    if subnet is None:
        return
    if subnet.is_multicast or subnet.is_link_local:
        raise fault(where, f'"{subnet}" has no addresses of hosts', "write for example fd00:1::/64")
    if subnet.num_addresses < 2 * network.machines + 2:
        raise fault(where, f'"{subnet}" is too small', "write a shorter prefix")
    if any(p.name == network.path and p.match is not None for p in t.paths):
        raise fault(where, f"the rules of {network.path} know IPv4 alone", "remove it")


def _shown(switch: str) -> str:
    return "both switches" if switch == "both" else switch


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _keys(t: TopologySpec) -> None:
    encaps = {p.name: p.encap for p in t.paths}
    for i, network in enumerate(t.networks):
        largest = _LARGEST_KEY[encaps[network.path] or ""]
        if not 1 <= network.key <= largest:
            raise fault(
                ("networks", i, "key"),
                f"{network.key} is out of range",
                f"write 1 to {largest} for {network.path}",
            )
    _unique(
        ((n.key, ("networks", i, "key")) for i, n in enumerate(t.networks)), "the key", "give each its own"
    )


def _ports(t: TopologySpec) -> None:
    switches = {p.name: p.switch for p in t.paths}
    for switch in dict.fromkeys(n.switch for n in t.nodes):
        count = sum(n.machines for n in t.networks if switch in (switches[n.path], "both"))
        if count > MAX_PORTS:
            raise fault(
                ("networks",),
                f"{count} endpoints on {_shown(switch)} are too many for a node",
                f"keep at most {MAX_PORTS}",
            )


RULES: tuple[Callable[[TopologySpec], None], ...] = (
    _unique_names,
    _reserved_names,
    _agents,
    _tenants,
    _links,
    _tunnels,
    _underlay,
    _paths,
    _installers,
    _matches,
    _networks,
    _keys,
    _ports,
)
"""In this order: a rule may rely on those before it."""
