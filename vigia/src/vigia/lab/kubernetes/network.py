"""Machines and wires of a cluster: a namespace for each node and the control plane, and two switches."""

from __future__ import annotations

from pathlib import Path

from vigia.host import commands, netns
from vigia.lab import naming
from vigia.lab.kubernetes.places import CONTROL, ClusterPlaces, api_address, members
from vigia.lab.model import Lab

__all__ = ["make"]

_SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/bridge/bridge-nf-call-iptables": "1",  # kube-proxy's rules apply between pods of one node, too
    # Nothing is sent that nobody asked for.
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
}
_SWITCH = "br0"
_FABRIC = "br1"  # of the pods' second network: a second wire from each node


def make(lab: Lab) -> str:
    """Make namespaces and wires; pods are reached by static routes. Returns what was done."""
    link, all_members = lab.links[0], members(lab)
    control = ClusterPlaces(lab.layout).control_netns
    machines = {m.name: m.node.netns for m in all_members} | {CONTROL: control}
    commands.ip_batch([f"netns add {name}" for name in (link.netns, *machines.values())])
    for name in (link.netns, *machines.values()):
        netns.inside(name, _apply_settings)
    for switch in (_SWITCH, _FABRIC):
        commands.ip_batch(
            ["link set lo up", f"link add {switch} type bridge", f"link set {switch} up"], netns=link.netns
        )
    commands.ip_batch(
        [
            f"link add name eth0 netns {namespace} address {naming.mac(namespace, 'eth0')} type veth "
            f"peer name {name} netns {link.netns}"
            for name, namespace in machines.items()
        ]
    )
    commands.ip_batch([f"link set {name} master {_SWITCH} up" for name in machines], netns=link.netns)
    for i, member in enumerate(all_members, start=1):
        namespace, port = member.node.netns, f"fabric{i}"
        commands.ip_batch(
            [
                f"link add name eth1 netns {namespace} address {naming.mac(namespace, 'eth1')} type veth "
                f"peer name {port} netns {link.netns}"
            ]
        )
        commands.ip_batch([f"link set {port} master {_FABRIC} up"], netns=link.netns)
        commands.ip_batch(["link set eth1 up"], netns=namespace)
    prefix = lab.nodes[0].underlay.network.prefixlen
    addresses = {m.name: m.address for m in all_members} | {CONTROL: api_address(lab)}
    for name, namespace in machines.items():
        routes = [f"route add {m.pods} via {m.address}" for m in all_members if m.name != name]
        default = [] if name == CONTROL else [f"route add default via {addresses[CONTROL]}"]
        own = f"addr add {addresses[name]}/{prefix} dev eth0"
        commands.ip_batch(["link set lo up", own, "link set eth0 up", *default, *routes], netns=namespace)
    shape = f"tbf rate {link.rate * 8}bit burst {link.burst} limit {link.queue}"
    commands.tc_batch(
        [f"qdisc add dev {m.name} root handle 1: {shape}" for m in all_members], netns=link.netns
    )
    return f"connected {len(all_members)} nodes and the control plane: {link.rate * 8 / 1e6:g} Mbit/s each"


def _apply_settings() -> None:
    for key, value in _SETTINGS.items():
        file = Path("/proc/sys", key)
        if file.exists():  # IPv6 and br_netfilter may be missing
            file.write_text(value)
