"""enforcer.yaml and site.yaml: what a node's vigia-enforcer keeps, and whom it listens to."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from itertools import combinations

from vigia.lab import naming
from vigia.lab.files import ports
from vigia.lab.model import Lab, Node

__all__ = ["NOTICES", "SITE", "content", "keys", "site"]

SITE = "site.yaml"
NOTICES = 9876
"""UDP port on the nodes' underlay addresses, where enforcers tell each other."""


def content(lab: Lab, node: Node) -> Mapping[str, object]:
    """Return where the node's ports are, what the tenants bought, and the uplink that they share."""
    return {
        **ports.source(lab, node),
        "token_file": str(lab.layout.token_file),
        "links": [{"device": "eth0", "rate": _rate(_link_rate(lab, node))}],
        "fast_loop": {
            "listen": naming.joined(node.underlay.ip, NOTICES),
            "site_file": str(lab.layout.node(node.name) / SITE),
            "keys_file": str(lab.layout.notice_keys(node.name)),
        },
        "contracts": [
            {
                "tenant": t.name,
                "guarantee": _rate(t.guarantee),
                "ceiling": _rate(t.ceiling),
                "match": matches,
            }
            for t in lab.tenants()
            if (matches := _matches(node, t.name))
        ],
    }


def site(lab: Lab, node: Node) -> Mapping[str, object]:
    """Return the nodes that share the node's link, and the guests on them."""
    nodes = [n for n in lab.nodes if n.link == node.link]
    return {
        "version": 1,
        "nodes": [
            {"node": n.name, "address": naming.joined(n.underlay.ip, NOTICES), "tunnel": str(n.tunnel.ip)}
            for n in nodes
        ],
        "ports": [
            {"node": e.node, "port": e.port, "tenant": e.tenant, "mac": e.mac, "ip": str(e.address.ip)}
            for n in nodes
            for e in n.endpoints
        ],
    }


def keys(nodes: Sequence[str]) -> Mapping[str, str]:
    """Draw a key for each pair of nodes, and return the file of each node: nobody has another pair's."""
    files = {name: "" for name in nodes}
    for a, b in combinations(nodes, 2):
        key = secrets.token_hex(32)
        files[a] += f"1 {b} {key}\n"
        files[b] += f"1 {a} {key}\n"
    return files


def _link_rate(lab: Lab, node: Node) -> int:
    return next(link.rate for link in lab.links if link.name == node.link)


def _matches(node: Node, tenant: str) -> list[dict[str, int]]:
    """Return how a tenant's frames are told on the uplink: by the networks that its ports are on."""
    networks = {(e.encap, e.key) for e in node.endpoints if e.tenant == tenant}
    return [{encap: key} for encap, key in sorted(networks)]


def _rate(bytes_per_second: int) -> str:
    bits = bytes_per_second * 8
    for unit, factor in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if bits % factor == 0:
            return f"{bits // factor}{unit}bit"
    return f"{bits}bit"
