"""Namespaces, wires between nodes, virtual machines: what is the same for every switch."""

from __future__ import annotations

from pathlib import Path

from vigia.host import commands, netns
from vigia.lab import naming
from vigia.lab.model import Endpoint, Lab, Link, Node
from vigia.lab.schema import Host

__all__ = [
    "UNDERLAY_MTU",
    "add_address",
    "make_endpoint",
    "make_links",
    "make_namespaces",
    "make_node",
    "make_ports",
    "make_wire",
    "mount_bpffs",
]

UNDERLAY_MTU = 1600
"""Leaves room for a tenant's 1500 bytes in VXLAN (50, and 20 more over IPv6) or GRE."""

# Off on underlay devices, so that the wire queues frames of MTU size, one by one.
_SEGMENTATION = (
    "tso",
    "gso",
    "gro",
    "tx-udp-segmentation",
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
)

# Inside every namespace. Values of the root namespace are inherited, so each is set.
_SETTINGS = {
    "net/ipv4/ip_forward": "0",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    # A node has several devices in one segment; only the owner of an address answers for it.
    "net/ipv4/conf/all/arp_ignore": "1",
    "net/ipv4/conf/all/arp_announce": "2",
    # Nothing is sent that nobody asked for (router solicitations, MLD).
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    # The host's firewall (br_netfilter) has no say between tenants.
    "net/bridge/bridge-nf-call-iptables": "0",
    "net/bridge/bridge-nf-call-ip6tables": "0",
    "net/bridge/bridge-nf-call-arptables": "0",
}


# In this order: a device takes no address of its own when it gets IPv6.
_IPV6 = {
    "addr_gen_mode": "1",
    "accept_ra": "0",
    "router_solicitations": "0",
    "disable_ipv6": "0",
}


def mount_bpffs(lab: Lab) -> str:
    """Mount the lab's own BPF file system; return what was done."""
    lab.layout.bpffs.mkdir(mode=0o700)
    commands.run(["mount", "-t", "bpf", "-o", "mode=0700", "bpf", str(lab.layout.bpffs)])
    return f"mounted {lab.layout.bpffs}"


def make_namespaces(lab: Lab) -> None:
    """Make all namespaces, with the settings that they share."""
    names = lab.namespaces()
    commands.ip_batch([f"netns add {name}" for name in names])
    for name in names:
        netns.inside(name, _apply_settings)


def _apply_settings() -> None:
    for key, value in _SETTINGS.items():
        file = Path("/proc/sys", key)
        if file.exists():  # IPv6 and br_netfilter may be missing
            file.write_text(value)


def make_links(lab: Lab) -> None:
    """Make the nodes' uplinks, both ends in place: nothing appears in the root namespace."""
    wires = {link.name: link.netns for link in lab.links}
    commands.ip_batch(
        [_veth(n.netns, "eth0", wires[n.link], n.name, UNDERLAY_MTU) for n in lab.nodes],
    )


def make_ports(node: Node) -> None:
    """Make the devices of a node's virtual machines, and those that join them to it, which are up."""
    commands.ip_batch([_veth(e.netns, "eth0", node.netns, e.device, 1500) for e in node.endpoints])
    commands.ip_batch([f"link set {e.device} up" for e in node.endpoints], netns=node.netns)


def _veth(netns_a: str, a: str, netns_b: str, b: str, mtu: int) -> str:
    return (
        f"link add name {a} netns {netns_a} mtu {mtu} address {naming.mac(netns_a, a)} type veth "
        f"peer name {b} netns {netns_b} mtu {mtu} address {naming.mac(netns_b, b)}"
    )


def make_wire(link: Link) -> None:
    """Make a link's switch: what comes in at one port leaves at the other, at the link's rate and queue.

    Frames are mirrored, not forwarded: a copy does not count against the send
    buffer of the socket that it came from. So a full queue drops, as in a real
    switch, and does not hold back the sender, which shares this kernel. The
    queue counts frames: one that counted bytes would still have room for small
    ones when it is full, and probes would pass where tenants' frames are lost.
    """
    commands.ip_batch(
        ["link set lo up", *(f"link set {port} arp off up" for port in link.nodes)], netns=link.netns
    )
    shape = f"tbf rate {link.rate * 8}bit burst {link.burst} limit {link.queue}"
    lines = []
    for port, other in (link.nodes, link.nodes[::-1]):
        lines += [
            f"qdisc add dev {port} root handle 1: {shape}",
            f"qdisc add dev {port} parent 1: handle 10: pfifo limit {link.frames}",
            f"qdisc add dev {port} clsact",
            f"filter add dev {port} ingress protocol all prio 1 u32 match u32 0 0 "
            f"action mirred egress mirror dev {other}",
        ]
    commands.tc_batch(lines, netns=link.netns)


def make_node(node: Node) -> None:
    """Bring up a node's underlay device: frames of MTU size, its address, nothing else."""
    switches = [word for feature in _SEGMENTATION for word in (feature, "off")]
    commands.run(["ethtool", "-K", "eth0", *switches], netns=node.netns)
    commands.ip_batch(
        [
            "link set lo up",
            *(add_address(node.netns, "eth0", a) for a in (node.underlay, node.underlay6) if a is not None),
            "link set eth0 up",
        ],
        netns=node.netns,
    )


def make_endpoint(endpoint: Endpoint, *, checksum_offload: bool) -> None:
    """Bring up a tenant's VM."""
    if not checksum_offload:
        # ovs-vswitchd passes on half-made checksums as they are: TCP would be dead.
        commands.run(["ethtool", "-K", "eth0", "tx", "off", "tso", "off"], netns=endpoint.netns)
    lines = ["link set lo up", f"addr add {endpoint.address} dev eth0", "link set eth0 up"]
    if endpoint.address6 is not None:
        lines.append(add_address(endpoint.netns, "eth0", endpoint.address6))
    commands.ip_batch(lines, netns=endpoint.netns)


def add_address(namespace: str, device: str, address: Host) -> str:
    """Return the line for ip that gives a device an address; it has IPv6 then, if that is one."""
    if address.version == 4:
        return f"addr add {address} dev {device}"
    netns.inside(namespace, lambda: _enable_ipv6("lo", device))
    return f"addr add {address} dev {device} nodad"


def _enable_ipv6(*devices: str) -> None:
    """Let devices of this namespace have IPv6: the addresses that they are given, none of their own accord.

    What a namespace sends to its own addresses comes in by lo.
    """
    for device in devices:
        for key, value in _IPV6.items():
            Path("/proc/sys/net/ipv6/conf", device, key).write_text(value)
