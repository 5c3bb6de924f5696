"""The corpus: what attackers send, and what honest tenants send that looks like it.

One entry is one experiment. Tenant a is the victim: its TCP goes from host 2 to host 1 all the
time. Tenant b, and c where two tenants collude, are who sends what the entry says. To add an
attack, add an entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vigia.attacks import frames
from vigia.attacks.frames import Maker
from vigia.isolation.model import TrafficFlow

__all__ = ["ATTACKS", "CORPUS", "LEGITIMATE", "SHARES", "SHORT", "Entry", "Stream"]

SHARES = {"a": 0.5, "b": 0.2, "c": 0.2}
"""What tenants bought, of what a link gives out. Two attackers' and the victim's fit into one."""

FLOOD = 2.0
"""Rate of a flood, of the link: five to ten times what its sender bought."""


@dataclass(frozen=True)
class Stream:
    """Frames from a tenant's guest on one host to that on another."""

    maker: Maker
    source: int = 3
    sink: int = 1
    tenant: str = "b"
    rate: float = FLOOD
    """bytes of frames a second while it sends, of the link's rate"""
    on: float = 0.0
    """seconds of every period in which it sends; 0 = all the time"""
    period: float = 0.0
    ramp: float = 0.0
    """seconds in which it rises to its rate"""


@dataclass(frozen=True)
class Entry:
    """One experiment of the corpus."""

    name: str
    what: str
    """for people"""
    streams: Sequence[Stream] = ()
    flows: Sequence[TrafficFlow] = ()
    """by ordinary sockets"""
    gaps: Mapping[str, str] = field(default_factory=dict)
    """by switch, why the requirement is known not to be met there; elsewhere it must be"""
    seconds: float = 5.0
    """that it is looked at"""


def _attack(  # noqa: PLR0913 - what varies
    name: str, what: str, maker: Maker, *, source: int = 3, rate: float = FLOOD, ramp: float = 0.0
) -> Entry:
    return Entry(name, what, [Stream(maker, source=source, rate=rate, ramp=ramp)])


def _pulses(milliseconds: int) -> Entry:
    on = milliseconds / 1000
    stream = Stream(frames.udp(), on=on, period=2 * on)
    return Entry(
        f"pulses-{milliseconds}ms",
        f"one port, for {milliseconds} ms of every {2 * milliseconds}",
        [stream],
        seconds=max(5.0, 4 * on),
    )


_ECHO = bytes([8, 0])
_SECURITY_HEADER = bytes([17, 4]) + bytes(22)  # of AH (RFC 4302): UDP follows
_SCTP = bytes([0x0F, 0xA0, 0x0F, 0xA1])

ATTACKS: Sequence[Entry] = (
    _attack("one-port", "UDP to one port", frames.udp()),
    _attack("many-ports", "UDP to 4 000 ports", frames.udp(ports=4000)),
    _attack("many-destinations", "UDP to 4 000 addresses", frames.udp(destinations=4000)),
    _attack("many-sources", "UDP from 8 000 ports", frames.udp(sources=8000)),
    _attack("small-packets", "UDP of 60 bytes", frames.udp(length=18), rate=0.25),
    _attack("from-the-victims-node", "UDP to one port, from the victim's node", frames.udp(), source=2),
    _attack("spoofed-mac", "random source MAC addresses", frames.spoofed_mac()),
    _attack("many-macs", "UDP to random MAC addresses", frames.spread_mac),
    _attack("spoofed-mac-own", "the MAC address of its own guest elsewhere", frames.spoofed_mac(own=True)),
    _attack("spoofed-mac-victim", "the victim's MAC address", frames.spoofed_mac(victims=True)),
    _attack("spoofed-source", "random source addresses", frames.spoofed_source),
    _attack("unlisted-address", "an address that the site file does not list", frames.udp(unlisted=True)),
    _attack("ipv6", "UDP over IPv6, link-local", frames.ipv6()),
    _attack("ipv6-destinations", "UDP over IPv6 to 4 000 addresses", frames.ipv6(destinations=4000)),
    _attack("fragments", "datagrams in three fragments", frames.fragments),
    _attack("later-fragments", "fragments without a first one", frames.later_fragments),
    _attack(
        "fragments-behind-options",
        "later fragments behind IPv6 destination options",
        frames.fragments_behind_options,
    ),
    _attack("udp-lite", "UDP-Lite", frames.protocol(136)),
    _attack("sctp", "SCTP", frames.protocol(132, _SCTP)),
    _attack("ipip", "IP in IP", frames.protocol(4)),
    _attack("esp", "ESP", frames.protocol(50)),
    _attack("icmp", "ICMP echo requests", frames.protocol(1, _ECHO)),
    _attack("unknown-protocol", "IP protocol 253", frames.protocol(253)),
    _attack("unknown-ethertype", "ethertype 0x88b5", frames.ethertype(0x88B5)),
    _attack("three-tags", "three VLAN tags", frames.tags(3)),
    _attack("ipv6-ah", "IPv6 authentication header", frames.protocol6(51, _SECURITY_HEADER)),
    _attack("extension-chain", "twelve IPv6 extension headers", frames.extension_chain),
    _attack("arp", "ARP requests of full length", frames.arp()),
    _attack(
        "arp-everybody",
        "ARP requests to everybody for 4 000 addresses",
        frames.arp(everybody=True),
        rate=0.25,
    ),
    _attack("broadcast", "UDP to everybody of its network", frames.broadcast),
    _attack("multicast", "UDP to a multicast group", frames.multicast),
    _attack("truncated", "IP headers with wrong lengths", frames.truncated),
    _attack("victims-address", "UDP from the victim's address to the victim's", frames.victims_address),
    _attack("tcp-without-heed", "TCP segments that heed no loss", frames.tcp(syn=False)),
    _attack("syn", "TCP SYN", frames.tcp(syn=True), rate=0.25),
    *(_pulses(ms) for ms in (50, 100, 200, 500, 1000, 2000)),
    Entry(
        "rare-pulses",
        "one port, for 200 ms of every 2 000",
        [Stream(frames.udp(), on=0.2, period=2.0)],
    ),
    _attack("ramp", "one port, from nothing to twice the link in 5 s", frames.udp(), ramp=5.0),
    Entry(
        "two-senders",
        "two guests of one tenant, on two nodes",
        [Stream(frames.udp()), Stream(frames.udp(), source=2)],
    ),
    Entry(
        "own-destinations",
        "one guest to both other guests of its tenant",
        [Stream(frames.udp()), Stream(frames.udp(), sink=2)],
    ),
    Entry(
        "two-tenants",
        "guests of two tenants on one node",
        [Stream(frames.udp(), rate=1.0), Stream(frames.udp(), tenant="c", rate=1.0)],
    ),
    Entry(
        "alternating",
        "two guests of one tenant, on two nodes, 250 ms each in turn",
        [
            Stream(frames.udp(), on=0.25, period=0.5),
            Stream(frames.udp(), source=2, on=0.25, period=0.5),
        ],
    ),
    _attack("vxlan-inside", "its own VXLAN with the victim's VNI", frames.dressed_as_tunnel()),
    _attack(
        "vxlan-between-nodes",
        "VXLAN with the victim's VNI and the nodes' addresses",
        frames.dressed_as_tunnel(nodes=True),
    ),
    _attack(
        "vxlan-behind-a-tag",
        "the same behind a VLAN tag",
        frames.dressed_as_tunnel(nodes=True, tags=1),
    ),
    _attack(
        "vxlan-behind-two-tags",
        "the same behind two VLAN tags",
        frames.dressed_as_tunnel(nodes=True, tags=2),
    ),
    _attack("geneve-inside", "its own Geneve with the victim's VNI", frames.dressed_as_tunnel(geneve=True)),
    _attack("gre-inside", "its own GRE with the victim's VNI as its key", frames.gre),
    Entry(
        "forged-replies",
        "an accomplice answers every fourth packet",
        [Stream(frames.udp()), Stream(frames.udp(length=60), source=1, sink=3, rate=0.05)],
    ),
)


def _within(name: str, what: str, *streams: Stream, flows: Sequence[TrafficFlow] = ()) -> Entry:
    return Entry(name, what, streams, flows)


LEGITIMATE: Sequence[Entry] = (
    _within(
        "quic",
        "QUIC-like, both ways",
        Stream(frames.udp(length=1200), rate=0.12),
        Stream(frames.udp(length=1200), source=1, sink=3, rate=0.12),
    ),
    _within(
        "rtp",
        "calls both ways and a video stream",
        Stream(frames.udp(ports=8, length=172), rate=0.02),
        Stream(frames.udp(ports=8, length=172), source=1, sink=3, rate=0.02),
        Stream(frames.udp(length=1200), source=2, rate=0.08),
    ),
    _within(
        "dns",
        "a name server with 1 000 clients, five packets to a query",
        Stream(frames.clients(1000, 60, answers=False), source=2, rate=0.011),
        Stream(frames.clients(1000, 200, answers=True), source=1, sink=2, rate=0.12),
    ),
    _within(
        "nfs",
        "NFS over UDP, 8 KiB in fragments",
        flows=[TrafficFlow("b", 3, 1, "udp", rate=6e6, size=8192, delay=2.0, early=0.3)],
    ),
    _within(
        "iperf",
        "iperf over UDP, at most what it bought",
        flows=[TrafficFlow("b", 3, 1, "udp", rate=8e6, delay=2.0, early=0.3)],
    ),
    _within(
        "backup",
        "TCP for three seconds, as much as there is",
        flows=[TrafficFlow("b", 3, 1, delay=2.0, early=3.0)],
    ),
    _within(
        "game",
        "64 players, small packets both ways",
        Stream(frames.udp(sources=64, length=80), rate=0.04),
        Stream(frames.udp(ports=64, length=120), source=1, sink=3, rate=0.06),
    ),
    _within("ipv6-video", "a video stream over IPv6", Stream(frames.ipv6(), rate=0.15)),
    _within("export", "flow records, one way", Stream(frames.udp(length=1300), rate=0.1)),
    _within("vpn", "ESP, as much as it bought", Stream(frames.protocol(50), rate=0.15)),
)

CORPUS: Mapping[str, Entry] = {e.name: e for e in (*ATTACKS, *LEGITIMATE)}

SHORT = ("one-port", "spoofed-source", "extension-chain", "dns")
"""What make test runs on Linux bridges; the first and the last on Open vSwitch, too."""
