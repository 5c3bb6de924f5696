"""Who may ask whom to limit whose ports: what vigia-enforcer reads as site_file of its fast loop."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vigia_identity.clouds import MAX_NODES, CloudError, Site
from vigia_identity.config import Notices

__all__ = ["Guest", "site"]

_NAMED = 8
"""Hosts that a message names."""
_NO_AGENT = (
    "sites_dir: Neutron shows no agent that plugs ports, and so no host: start one, or give the user the "
    "role admin, which get_agent needs"
)


@dataclass(frozen=True)
class Guest:
    """A port on a host, and who is behind it."""

    host: str
    port: str
    mac: str
    """Empty if it is not known."""
    addresses: Sequence[str]


def site(
    notices: Notices, hosts: Mapping[str, str], guests: Mapping[str, Sequence[Guest]]
) -> tuple[Site, list[str]]:
    """Return hosts and ports, and what is missing, of where each host's tunnels end and each tenant's guests.

    A host whose enforcer nobody can reach is left out, with its ports. A port without an address is not: it
    sends all the same. Raises CloudError.
    """
    found, unknown = Site(), []
    for host in sorted(hosts.keys() | notices.nodes.keys()):
        node = _node(notices, host, hosts.get(host, ""))
        if node is None:
            unknown.append(host)
        else:
            found.nodes[host] = node
    if len(found.nodes) > MAX_NODES:
        raise CloudError(f"there are more than {MAX_NODES} hosts")
    for tenant, own in guests.items():
        listed = [entry for g in own if g.mac and g.host in found.nodes for entry in _entries(tenant, g)]
        if listed:
            found.ports[tenant] = sorted(listed, key=lambda e: (e["node"], e["port"], e.get("ip", "")))
    if not found.nodes and not unknown:
        return found, [_NO_AGENT]
    return found, [_missing(unknown)] if unknown else []


def _node(notices: Notices, host: str, tunnel: str) -> dict[str, Any] | None:
    """Return a host as an enforcer reads it, None without an address; what is written by hand goes first."""
    own = notices.nodes.get(host)
    end = (own.tunnel if own else "") or tunnel
    address = (own.address if own else "") or (_joined(end, notices.port) if end else "")
    if not address:
        return None
    found: dict[str, Any] = {"node": host, "address": address}
    if end:
        found["tunnel"] = end
    if own and own.vlan:
        found["vlan"] = own.vlan
    return found


def _joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ipaddress.ip_address(address).version == 6 else f"{address}:{port}"


def _entries(tenant: str, guest: Guest) -> list[dict[str, Any]]:
    own = {"node": guest.host, "port": guest.port, "tenant": tenant, "mac": guest.mac}
    return [{**own, "ip": address} for address in dict.fromkeys(guest.addresses)] or [own]


def _missing(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
    return (
        f"sites_dir: the agents of {', '.join(hosts[:_NAMED])}{more} do not say where tunnels end, so "
        "not where enforcers are; write them as openstack.notices.nodes.HOST: {tunnel: 10.20.0.9}, and the "
        "address of the enforcer if it is another one"
    )
