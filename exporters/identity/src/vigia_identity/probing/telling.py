"""What nodes are told: what each has to plug, and where the others can be probed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vigia_identity.files import as_yaml, replace
from vigia_identity.probing.plan import Host, Made, Network, Pair

__all__ = ["NODES", "tell"]

NODES = "nodes.json"
"""The file of all nodes, in the format of Prometheus's file_sd."""

_MAX_NODES_FILE = 64 << 20  # bytes


def tell(
    folder: Path,
    networks: Sequence[Network],
    hosts: Mapping[str, Host],
    ports: Mapping[Pair, Made],
) -> int:
    """Write HOST.yaml of every host, and nodes.json; return how many have changed. Raises OSError."""
    nodes = _nodes(folder / NODES, hosts, ports)
    texts = {folder / f"{host}.yaml": text for host, text in _hosts(folder, networks, hosts, ports).items()}
    texts[folder / NODES] = json.dumps(nodes, indent=1) + "\n"
    return sum(replace(path, text) for path, text in texts.items())


def _hosts(
    folder: Path, networks: Sequence[Network], hosts: Mapping[str, Host], ports: Mapping[Pair, Made]
) -> dict[str, str]:
    """Return each host's file; one that is wanted no more has nothing to plug.

    That of a host whose agent is not alive, and whose bindings broke since, is left as it is.
    """
    wanted: dict[str, list[Any]] = {f.stem: [] for f in folder.glob("*.yaml")} | {h: [] for h in hosts}
    known = {n.name: n for n in networks}
    for pair in sorted(ports):
        wanted.setdefault(pair.host, []).append(_endpoint(known[pair.network], ports[pair]))
    left = {pair.host for pair, port in ports.items() if port.switch is None or not port.addresses}
    return {
        host: as_yaml({"version": 1, "endpoints": endpoints})
        for host, endpoints in wanted.items()
        if host not in left
    }


def _endpoint(network: Network, port: Made) -> dict[str, Any]:
    entry = {
        "network": network.name,
        "port": port.id,
        "mac": port.mac,
        "mtu": network.mtu,
        "addresses": [
            f"{address}/{network.prefixes[subnet]}"
            for subnet, address in port.addresses
            if subnet in network.prefixes
        ],
        "switch": port.switch,
    }
    return {**entry, "bridge": port.bridge} if port.bridge else entry


def _nodes(file: Path, hosts: Mapping[str, Host], ports: Mapping[Pair, Made]) -> list[Any]:
    """Return every host, with the addresses at which it can be probed.

    That is those of ports that work, and of those that once did: who probes them shall see that they do not.
    """
    before = _announced(file)
    found = []
    for host in sorted({*hosts, *(pair.host for pair in ports)}):
        labels = {"node": host}
        for pair, port in sorted(ports.items()):
            address = _first(port)
            label = f"at_{pair.network}"
            if pair.host == host and address and (port.active or before.get(host, {}).get(label) == address):
                labels[label] = address
        known = hosts.get(host)
        found.append({"targets": [known.address if known and known.address else host], "labels": labels})
    return found


def _first(port: Made) -> str:
    """Return the address by which a port is probed: one of IPv4 if it has any."""
    addresses = [address for _, address in port.addresses]
    return next((a for a in addresses if ":" not in a), addresses[0] if addresses else "")


def _announced(file: Path) -> dict[str, Mapping[str, str]]:
    """Return the labels of each host that the file has; none where there is no such file."""
    try:
        with file.open("rb") as f:
            groups = json.loads(f.read(_MAX_NODES_FILE))
        return {g["labels"]["node"]: dict(g["labels"]) for g in groups}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
