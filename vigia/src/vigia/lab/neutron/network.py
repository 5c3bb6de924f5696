"""Machines and wires: those of any lab, and a management network with the control plane beside them."""

from __future__ import annotations

from pathlib import Path

from vigia.errors import VigiaError
from vigia.host import commands, netns
from vigia.lab import naming, underlay
from vigia.lab.model import Lab
from vigia.lab.neutron.places import NeutronPlaces, management

__all__ = ["make"]

_SWITCH = "br-mgmt"
_DEVICE = "mgmt0"


def make(lab: Lab) -> str:
    """Make namespaces, the nodes' links and the management network; return what was done."""
    places = NeutronPlaces(lab.layout)
    commands.ip_batch([f"netns add {places.netns}"])
    underlay.make_namespaces(lab)
    underlay.make_links(lab)
    for link in lab.links:
        underlay.make_wire(link)
    for node in lab.nodes:
        underlay.make_node(node)
        if node.has("linuxbridge"):
            netns.inside(node.netns, _filter_bridges)
    _manage(lab, places)
    rates = ", ".join(f"{link.name} {link.rate * 8 / 1e6:g} Mbit/s" for link in lab.links)
    return f"connected {len(lab.nodes)} nodes and the control plane: {rates}"


def _filter_bridges() -> None:
    """Have security groups hold: they are rules of iptables, which bridged frames skip otherwise."""
    for kind in ("arptables", "ip6tables", "iptables"):
        file = Path(f"/proc/sys/net/bridge/bridge-nf-call-{kind}")
        if not file.exists():
            raise VigiaError("the kernel does not filter bridges; run: modprobe br_netfilter")
        file.write_text("1")


def _manage(lab: Lab, places: NeutronPlaces) -> None:
    addresses = management(lab)
    prefix = next(iter(addresses.values())).partition("/")[2]
    commands.ip_batch(
        [
            f"link add name {_DEVICE} netns {node.netns} address {naming.mac(node.netns, _DEVICE)} type veth "
            f"peer name {node.name} netns {places.netns}"
            for node in lab.nodes
        ]
    )
    commands.ip_batch(
        [
            "link set lo up",
            f"link add {_SWITCH} type bridge",
            *(f"link set {node.name} master {_SWITCH} up" for node in lab.nodes),
            f"addr add {places.address}/{prefix} dev {_SWITCH}",
            f"link set {_SWITCH} up",
        ],
        netns=places.netns,
    )
    for node in lab.nodes:
        lines = [f"addr add {addresses[node.name]} dev {_DEVICE}", f"link set {_DEVICE} up"]
        commands.ip_batch(lines, netns=node.netns)
