"""Rule sets between two endpoints of an OpenFlow bridge: kinds of match, header rewriting, a full table.

In the terms of OpenFlow 1.0, whose twelve fields every switch knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vigia.lab.model import Endpoint

__all__ = [
    "ALIAS_MAC",
    "ALIAS_PORT",
    "MATCHES",
    "PRIORITY",
    "REWRITES",
    "TOS",
    "Rewrite",
    "SwitchedFlow",
    "filler",
    "rules",
]

MATCHES = ("in_port", "mac", "ip", "udp_port", "exact", "normal")
"""What a rule looks at; normal is no match but the switch's own learning."""

ALIAS_MAC = "06:00:00:00:00:01"
ALIAS_PORT = 9862
TOS = 0xB8
"""Expedited forwarding (RFC 3246), as the six upper bits of the field."""
PRIORITY = 5
"""IEEE 802.1Q priority that is set."""


@dataclass(frozen=True)
class SwitchedFlow:
    """A UDP flow between two ports of a bridge."""

    client: Endpoint
    server: Endpoint
    client_number: int
    """OpenFlow port number of the client's port."""
    server_number: int
    client_port: int
    """UDP port."""
    server_port: int

    @property
    def alias(self) -> str:
        """Address in the server's network that nobody has."""
        return str(self.server.address.network.broadcast_address - 1)


@dataclass(frozen=True)
class Rewrite:
    """What the client sends to, and what the switch makes of it."""

    there: str = ""
    """Actions before the output, client to server."""
    back: str = ""
    """Actions before the output, server to client: what the client needs to know its answer."""
    address: str = ""
    """IP address that the client sends to, if not the server's."""
    port: int = 0
    mac: str = ""


REWRITES = ("none", "mac", "ip", "vlan_priority", "ip_tos", "udp_port")


def rewrite(name: str, flow: SwitchedFlow) -> Rewrite:
    """Return a rewriting by its name."""
    server = flow.server
    known: Mapping[str, Rewrite] = {
        "none": Rewrite(),
        "mac": Rewrite(there=f"mod_dl_dst:{server.mac},", mac=ALIAS_MAC),
        "ip": Rewrite(
            there=f"mod_nw_dst:{server.address.ip},", back=f"mod_nw_src:{flow.alias},", address=flow.alias
        ),
        "vlan_priority": Rewrite(there=f"mod_vlan_pcp:{PRIORITY},"),
        "ip_tos": Rewrite(there=f"mod_nw_tos:{TOS},"),
        "udp_port": Rewrite(
            there=f"mod_tp_dst:{flow.server_port},", back=f"mod_tp_src:{ALIAS_PORT},", port=ALIAS_PORT
        ),
    }
    return known[name]


def rules(match: str, how: Rewrite, flow: SwitchedFlow) -> list[str]:
    """Return the permanent rules of a flow: there, back, and ARP beside them."""
    arp = [
        f"priority=50,arp,in_port={flow.client_number},actions=output:{flow.server_number}",
        f"priority=50,arp,in_port={flow.server_number},actions=output:{flow.client_number}",
    ]
    if match == "normal":
        return ["priority=0,actions=NORMAL"]
    there, back = _match(match, flow, how)
    return [
        f"priority=1000,{there},actions={how.there}output:{flow.server_number}",
        f"priority=1000,{back},actions={how.back}output:{flow.client_number}",
        *arp,
    ]


def _match(match: str, flow: SwitchedFlow, how: Rewrite) -> tuple[str, str]:
    """Return the match there, before rewriting, and the match back."""
    client, server = flow.client, flow.server
    sent_to = how.address or str(server.address.ip)
    port = how.port or flow.server_port
    mac = how.mac or server.mac
    ends = f"nw_src={client.address.ip},nw_dst={sent_to}"
    there = {
        "in_port": f"in_port={flow.client_number}",
        "mac": f"dl_src={client.mac},dl_dst={mac}",
        "ip": f"dl_type=0x0800,{ends}",
        "udp_port": f"udp,{ends},tp_src={flow.client_port},tp_dst={port}",
    }
    back = {
        "in_port": f"in_port={flow.server_number}",
        "mac": f"dl_src={server.mac},dl_dst={client.mac}",
        "ip": f"dl_type=0x0800,nw_src={server.address.ip},nw_dst={client.address.ip}",
        "udp_port": f"udp,nw_src={server.address.ip},nw_dst={client.address.ip},"
        f"tp_src={flow.server_port},tp_dst={flow.client_port}",
    }
    if match == "exact":
        return _exact(there), _exact(back)
    return there[match], back[match]


def _exact(parts: Mapping[str, str]) -> str:
    """All twelve fields of OpenFlow 1.0; an untagged frame (dl_vlan=0xffff) has no priority to match."""
    return f"{parts['in_port']},{parts['mac']},dl_vlan=0xffff,{parts['udp_port']},nw_tos=0"


def filler(count: int) -> Iterator[str]:
    """Yield so many rules that match nothing that is sent, each of its own."""
    for i in range(count):
        address = f"172.{16 + (i >> 16 & 15)}.{i >> 8 & 255}.{i & 255}"
        ports = f"tp_src=9,tp_dst={1 + (i >> 20)}"
        yield f"priority=900,udp,nw_src={address},nw_dst=198.18.0.1,{ports},actions=drop"
