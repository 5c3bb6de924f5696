"""ports.yaml: who is behind the ports of a Linux bridge, which does not know it."""

from __future__ import annotations

from collections.abc import Mapping

from vigia.lab import rules
from vigia.lab.model import Lab, Node

__all__ = ["FILE", "content", "source"]

FILE = "ports.yaml"


def content(node: Node) -> Mapping[str, object]:
    """Return the identity of each tenant port of the node's Linux bridge."""
    return {
        "version": 1,
        "ports": [
            {"device": e.device, "port": e.port, "tenant": e.tenant, "network": e.path, "workload": e.netns}
            for e in node.endpoints_on("linuxbridge")
        ],
    }


def source(lab: Lab, node: Node) -> Mapping[str, object]:
    """Return the keys that exporter.yaml and enforcer.yaml share: where the node's ports are."""
    identities: dict[str, str] = {}
    if node.has("openvswitch"):
        identities["ovsdb"] = f"unix:{lab.layout.ovs(node.name)}/db.sock"
    if node.has("linuxbridge"):
        identities["ports_file"] = str(lab.layout.node(node.name) / FILE)
    return {
        "node": node.name,
        "netns": node.netns,
        "bpf": {"pin_dir": str(lab.layout.pins(node.name)), "max_ports": rules.MAX_PORTS},
        **identities,
    }
