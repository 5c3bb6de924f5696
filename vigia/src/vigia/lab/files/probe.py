"""probe.yaml: configuration of a node's vigia-probe."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from vigia.lab import naming
from vigia.lab.model import Datapath, Lab, Node, Target
from vigia.lab.schema import PathSpec

__all__ = ["content"]

_STAMP_PORT = 862  # RFC 8762 section 4.1
_BULK_PORT = 9876  # of vigia-probe; here it also answers the connections of tcp-connect probes
_STAMP = {"name": "stamp-64", "protocol": "stamp", "size": 64, "interval": "50ms", "deadline": "1s"}
_ECHO = {"name": "icmp-56", "protocol": "icmp", "size": 56, "interval": "1s", "deadline": "1s"}
_CONNECT = {"name": "tcp-connect", "protocol": "tcp-connect", "interval": "1s", "deadline": "1s"}


def content(lab: Lab, node: Node, datapath: Datapath) -> Mapping[str, object]:
    """Return what the node reflects, and what it measures to its peer node.

    Bulk tests of others are accepted; none are run, for they would load the links.
    """
    targets = lab.targets(node)
    operators = [t for t in targets if t.tenant == naming.INFRA]
    direct = next((p.name for p in lab.paths_of(node) if p.kind == "direct"), None)
    sources = {node.underlay.network} | {e.address.network for e in node.endpoints}
    allowed = [str(n) for n in sorted(_merged(sources))]
    return {
        "node": node.name,
        "reflector": {
            "listeners": [{"netns": t.netns, "address": f"{t.address}:{_STAMP_PORT}"} for t in targets],
            "allow": allowed,
            "max_rate": 10000,
        },
        "paths": [_path(p, datapath) for p in lab.paths_of(node)],
        "classes": [dict(_STAMP), dict(_ECHO), dict(_CONNECT)],
        "targets": [
            *(_stamp(t, direct) for t in targets),
            *(_target(t, "icmp-56", str(t.peer)) for t in operators),
            *(_target(t, "tcp-connect", f"{t.peer}:{_BULK_PORT}") for t in operators),
        ],
        "bulk": {
            "listeners": [{"netns": t.netns, "address": f"{t.address}:{_BULK_PORT}"} for t in operators],
            "allow": list(allowed),
        },
    }


def _stamp(target: Target, direct: str | None) -> Mapping[str, object]:
    """Return a STAMP target, probed at the same moment as the direct path beneath it."""
    content = _target(target, "stamp-64", f"{target.peer}:{_STAMP_PORT}")
    if direct is None or target.path == direct:
        return content
    return {**content, "twin": direct}


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


def _merged(networks: set[ipaddress.IPv4Network]) -> list[ipaddress.IPv4Network]:
    return list(ipaddress.collapse_addresses(networks))


def _path(path: PathSpec, datapath: Datapath) -> Mapping[str, object]:
    if path.kind in ("macvlan", "sriov", "ipsec"):
        return {
            "name": path.name,
            "dataplane": path.over or "none" if path.kind == "ipsec" else path.kind,
            "encap": "esp" if path.kind == "ipsec" else "none",
            "mode": "normal",
            "security": "ipsec" if path.kind == "ipsec" else "none",
            "layer": "overlay",
            "placement": "remote",
        }
    dataplane = {None: "none", "linuxbridge": "linuxbridge", "openvswitch": f"ovs-{datapath}"}[path.switch]
    return {
        "name": path.name,
        "dataplane": dataplane,
        "encap": path.encap or "none",
        "mode": path.mode,
        "security": "none",
        "layer": "underlay" if path.kind == "direct" else "overlay",
        "placement": "remote",
    }
