"""Rule sets between two endpoints of an OpenFlow bridge: kinds of match, header rewriting, a full table.

In the terms of OpenFlow 1.0, whose twelve fields every switch knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vigia.lab import matching
from vigia.lab.matching import ALIAS_MAC, ALIAS_PORT, PRIORITY, REWRITES, TOS, Headers
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

MATCHES = (*matching.MATCHES, "normal")
"""What a rule looks at; normal is no match but the switch's own learning."""


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
        return matching.alias(self.server.address.network)


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
    there = Headers(
        in_port=flow.client_number,
        eth_src=client.mac,
        eth_dst=how.mac or server.mac,
        ip_src=str(client.address.ip),
        ip_dst=how.address or str(server.address.ip),
        udp_src=flow.client_port,
        udp_dst=how.port or flow.server_port,
    )
    back = Headers(
        in_port=flow.server_number,
        eth_src=server.mac,
        eth_dst=client.mac,
        ip_src=str(server.address.ip),
        ip_dst=str(client.address.ip),
        udp_src=flow.server_port,
        udp_dst=flow.client_port,
    )
    return matching.words(match, there), matching.words(match, back)


def filler(count: int) -> Iterator[str]:
    """Yield so many rules that match nothing that is sent, each of its own."""
    for i in range(count):
        address = f"172.{16 + (i >> 16 & 15)}.{i >> 8 & 255}.{i & 255}"
        ports = f"tp_src=9,tp_dst={1 + (i >> 20)}"
        yield f"priority=900,udp,nw_src={address},nw_dst=198.18.0.1,{ports},actions=drop"
