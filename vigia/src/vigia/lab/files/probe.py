"""probe.yaml: configuration of a node's vigia-probe."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from vigia.lab.model import Datapath, Lab, Node
from vigia.lab.topology import Path

__all__ = ["content"]

_STAMP_PORT = 862  # RFC 8762 section 4.1
_CLASS = {"name": "stamp-64", "protocol": "stamp", "size": 64, "interval": "50ms", "deadline": "1s"}


def content(lab: Lab, node: Node, datapath: Datapath) -> Mapping[str, object]:
    """Return what the node reflects, and what it measures to its peer node."""
    targets = lab.targets(node)
    sources = {node.underlay.network} | {e.address.network for e in node.endpoints}
    return {
        "node": node.name,
        "reflector": {
            "listeners": [{"netns": t.netns, "address": f"{t.address}:{_STAMP_PORT}"} for t in targets],
            "allow": [str(n) for n in sorted(_merged(sources))],
            "max_rate": 10000,
        },
        "paths": [_path(p, datapath) for p in lab.paths_of(node)],
        "classes": [dict(_CLASS)],
        "targets": [
            {
                "dst": t.destination,
                "path": t.path,
                "tenant": t.tenant,
                "probe": _CLASS["name"],
                "netns": t.netns,
                "source": str(t.address),
                "address": f"{t.peer}:{_STAMP_PORT}",
            }
            for t in targets
        ],
    }


def _merged(networks: set[ipaddress.IPv4Network]) -> list[ipaddress.IPv4Network]:
    return list(ipaddress.collapse_addresses(networks))


def _path(path: Path, datapath: Datapath) -> Mapping[str, object]:
    dataplane = {None: "none", "linuxbridge": "linuxbridge", "openvswitch": f"ovs-{datapath}"}[path.switch]
    return {
        "name": path.name,
        "dataplane": dataplane,
        "encap": path.encap or "none",
        "mode": "normal",
        "security": "none",
        "layer": "underlay" if path.kind == "direct" else "overlay",
        "placement": "remote",
    }
