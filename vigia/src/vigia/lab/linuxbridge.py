"""Nodes with the Linux bridge: a kernel VXLAN device and a bridge for every network."""

from __future__ import annotations

from vigia.host import commands
from vigia.lab import naming
from vigia.lab.model import Node

__all__ = ["make_switch"]


def make_switch(node: Node) -> None:
    """Join a node's tenant ports to their networks."""
    lines = []
    here = node.endpoints_on("linuxbridge")
    for e in (e for e in here if e.machine == 1):
        bridge, tunnel = e.bridge, e.tunnel
        lines += [
            f"link add name {bridge} mtu 1500 address {naming.mac(node.netns, bridge)} "
            "type bridge mcast_snooping 0",
            f"link add name {tunnel} mtu 1500 address {naming.mac(node.netns, tunnel)} type vxlan id {e.key} "
            f"local {node.underlay.ip} remote {node.underlay_peer} dstport 4789 dev eth0",
            f"link set {tunnel} master {bridge} up",
            f"link set {bridge} up",
        ]
    lines += [f"link set {e.device} master {e.bridge}" for e in here]
    commands.ip_batch(lines, netns=node.netns)
