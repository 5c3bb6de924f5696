"""What OpenFlow rules look at and write, in the words of OpenFlow 1.0, which every switch knows."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

__all__ = [
    "ALIAS_MAC",
    "ALIAS_PORT",
    "MATCHES",
    "PRIORITY",
    "REWRITES",
    "TOS",
    "Ends",
    "Headers",
    "Match",
    "Rewrite",
    "alias",
    "pair",
    "words",
]

Match = Literal["in_port", "mac", "ip", "udp_port", "exact"]
"""in_port; both MAC addresses; both IP addresses; IP addresses and UDP ports; all twelve fields."""

Rewrite = Literal["none", "mac", "ip", "vlan_priority", "ip_tos", "udp_port"]
"""What is written on the way to the other end: its MAC or IP address, a priority (802.1Q), the DSCP, its UDP
port."""

MATCHES: tuple[Match, ...] = ("in_port", "mac", "ip", "udp_port", "exact")
REWRITES: tuple[Rewrite, ...] = ("none", "mac", "ip", "vlan_priority", "ip_tos", "udp_port")

ALIAS_MAC = "06:00:00:00:00:01"
ALIAS_PORT = 9862
TOS = 0xB8
"""Expedited forwarding (RFC 3246), as the six upper bits of the field."""
PRIORITY = 5
"""IEEE 802.1Q priority that is set."""

_MATCHING, _OTHER = 1000, 50  # priorities


@dataclass(frozen=True)
class Headers:
    """A frame of a UDP flow, untagged."""

    in_port: int
    """OpenFlow port that it comes in at."""
    eth_src: str
    eth_dst: str
    ip_src: str
    ip_dst: str
    udp_src: int
    udp_dst: int


def words(match: str, of: Headers) -> str:
    """Return the match of a frame, as ovs-ofctl(8) writes it."""
    mac = f"dl_src={of.eth_src},dl_dst={of.eth_dst}"
    ends = f"nw_src={of.ip_src},nw_dst={of.ip_dst}"
    udp = f"udp,{ends},tp_src={of.udp_src},tp_dst={of.udp_dst}"
    return {
        "in_port": f"in_port={of.in_port}",
        "mac": mac,
        "ip": f"dl_type=0x0800,{ends}",
        "udp_port": udp,
        # All twelve fields; an untagged frame (dl_vlan=0xffff) has no priority to match.
        "exact": f"in_port={of.in_port},{mac},dl_vlan=0xffff,{udp},nw_tos=0",
    }[match]


def alias(network: ipaddress.IPv4Network) -> str:
    """Return an address of a network that nobody has."""
    return str(network.broadcast_address - 1)


@dataclass(frozen=True)
class Ends:
    """A machine here and its peer behind a tunnel, and the UDP ports of the probes between them."""

    here: int
    """OpenFlow port number of the machine."""
    tunnel: int
    mac: str
    peer_mac: str
    address: str
    peer: str
    alias: str
    """What the machine calls its peer where IP addresses are rewritten."""
    asks: int
    """UDP port that probes come from, at either end."""
    answers: int


def pair(match: Match, rewrite: Rewrite, ends: Ends) -> Iterator[str]:
    """Yield the permanent rules of one end: probes and answers, out and in, and ARP and ICMP beside them.

    The other end has the same ones, seen from there: what is written on the way out arrives as if
    nothing had been, and answers come back from where the probe was sent to.
    """
    peer = ends.alias if rewrite == "ip" else ends.peer
    mac = ALIAS_MAC if rewrite == "mac" else ends.peer_mac
    port = ALIAS_PORT if rewrite == "udp_port" else ends.answers
    asked = Headers(ends.here, ends.mac, mac, ends.address, peer, ends.asks, port)
    answered = replace(asked, udp_src=ends.answers, udp_dst=ends.asks)
    incoming = Headers(ends.tunnel, ends.peer_mac, ends.mac, ends.peer, ends.address, ends.answers, ends.asks)
    back = f"mod_nw_src:{ends.alias}," if rewrite == "ip" else ""
    to_peer = {"mac": f"mod_dl_dst:{ends.peer_mac},", "ip": f"mod_nw_dst:{ends.peer},"}.get(rewrite, "")
    probe = {
        "vlan_priority": f"mod_vlan_pcp:{PRIORITY},",
        "ip_tos": f"mod_nw_tos:{TOS},",
        "udp_port": f"mod_tp_dst:{ends.answers},",
    }.get(rewrite, "")
    named = f"mod_tp_src:{ALIAS_PORT}," if rewrite == "udp_port" else ""
    out, into = f"output:{ends.tunnel}", f"output:{ends.here}"
    flows = [
        (words(match, asked), f"{to_peer}{probe}{out}"),
        (words(match, answered), f"{to_peer}{out}"),
        (words(match, incoming), f"{back}{named}{into}"),
        (words(match, replace(incoming, udp_src=ends.asks, udp_dst=ends.answers)), f"{back}{into}"),
    ]
    for text, actions in dict(flows).items():  # probes and answers look alike without the ports
        yield f"priority={_MATCHING},{text},actions={actions}"
    if match == "in_port":
        return
    for kind in ("arp", "icmp"):
        written = to_peer if kind == "icmp" and rewrite == "mac" else ""
        yield f"priority={_OTHER},{kind},in_port={ends.here},actions={written}{out}"
        yield f"priority={_OTHER},{kind},in_port={ends.tunnel},actions={into}"
