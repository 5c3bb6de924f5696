"""Frames as a tenant may write them: every header is the sender's own, true or not.

What is written here is sent as it is by a packet socket, so that no protocol of the
sending kernel corrects it. Every frame ends with the mark of its stream, by which the
receiving end counts it.
"""

from __future__ import annotations

import ipaddress
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vigia.isolation.segments import checksum

__all__ = [
    "MARK",
    "Maker",
    "StreamEnds",
    "arp",
    "broadcast",
    "clients",
    "dressed_as_tunnel",
    "ethertype",
    "extension_chain",
    "fragments",
    "fragments_behind_options",
    "gre",
    "ipv6",
    "later_fragments",
    "multicast",
    "protocol",
    "protocol6",
    "spoofed_mac",
    "spoofed_source",
    "tags",
    "tcp",
    "truncated",
    "udp",
    "victims_address",
]

MARK = 8
"""Bytes of the mark at the end of a frame."""

FULL = 1400
"""Bytes that most frames carry behind their IP header."""

_MINIMUM = 60
_IPV4, _IPV6, _ARP, _VLAN = 0x0800, 0x86DD, 0x0806, 0x8100
_TCP, _UDP, _GRE, _FRAGMENT, _OPTIONS = 6, 17, 47, 44, 60


@dataclass(frozen=True)
class StreamEnds:
    """Where a stream goes from and to, and what its sender may know."""

    mac: str
    """of the sending guest"""
    address: str
    peer_mac: str
    """of the guest that it is for"""
    peer_address: str
    other_mac: str
    """of the same tenant's guest on a third host"""
    victim_mac: str
    """of the victim on the node of the receiver"""
    victim_address: str
    victim_network: int
    """VNI of the victim's network"""
    node: str
    """underlay address of the sending node"""
    peer_node: str
    """and of the receiving one"""


Maker = Callable[[StreamEnds, random.Random], Sequence[bytes]]
"""Makes the frames that a stream repeats, without their marks."""


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _frame(  # noqa: PLR0913 - a header
    e: StreamEnds, kind: int, body: bytes, source: str = "", tagged: bytes = b"", to: str = ""
) -> bytes:
    raw = _mac(to or e.peer_mac) + _mac(source or e.mac) + tagged + struct.pack("!H", kind) + body
    return raw.ljust(_MINIMUM - MARK, b"\0")


def _ip4(  # noqa: PLR0913 - a header
    source: str, to: str, proto: int, body: bytes, fragment: int = 0, identity: int = 0
) -> bytes:
    """Return an IPv4 packet; the stream's mark is counted in its length."""
    head = struct.pack(
        "!BBHHHBBH4s4s",
        0x45,
        0,
        20 + len(body) + MARK,
        identity,
        fragment,
        64,
        proto,
        0,
        ipaddress.IPv4Address(source).packed,
        ipaddress.IPv4Address(to).packed,
    )
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body


def _ip6(source: ipaddress.IPv6Address, to: ipaddress.IPv6Address, proto: int, body: bytes) -> bytes:
    head = struct.pack("!IHBB", 6 << 28, len(body) + MARK, proto, 64)
    return head + source.packed + to.packed + body


def _udp(source: int, to: int, length: int = FULL, body: bytes = b"") -> bytes:
    """Return a UDP header without a checksum and so many bytes behind it, the stream's mark left out."""
    return struct.pack("!HHHH", source, to, length + 8, 0) + body.ljust(length - MARK, b"\0")


def _random_mac(r: random.Random) -> str:
    return "02:" + ":".join(f"{r.randrange(256):02x}" for _ in range(5))


def _addresses(e: StreamEnds, r: random.Random, count: int) -> list[str]:
    base = int(ipaddress.IPv4Address(e.peer_address)) & 0xFFFF0000
    return [str(ipaddress.IPv4Address(base | r.randrange(1, 0xFFFF))) for _ in range(count)]


def _link_local(mac: str) -> ipaddress.IPv6Address:
    m = bytearray(_mac(mac))
    m[0] ^= 2
    return ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + bytes(m[:3]) + b"\xff\xfe" + bytes(m[3:]))


def udp(
    *, ports: int = 1, destinations: int = 1, unlisted: bool = False, length: int = FULL, sources: int = 1
) -> Maker:
    """Make UDP to so many ports of so many addresses, from so many ports of its own."""

    def make(e: StreamEnds, r: random.Random) -> list[bytes]:
        to = [e.peer_address] if destinations == 1 and not unlisted else _addresses(e, r, destinations)
        numbers = r.sample(range(1024, 65536), ports)
        own = r.sample(range(1024, 65536), sources)
        count = max(ports, len(to), sources)
        return [
            _frame(
                e,
                _IPV4,
                _ip4(
                    e.address,
                    to[i % len(to)],
                    _UDP,
                    _udp(own[i % sources], numbers[i % ports], length),
                ),
            )
            for i in range(count)
        ]

    return make


def clients(count: int, length: int, *, answers: bool) -> Maker:
    """Make what a server's many clients ask of one port, or what the server answers them."""

    def make(e: StreamEnds, r: random.Random) -> list[bytes]:
        there = _addresses(e, r, count)
        frames = []
        for address in there:
            port = r.randrange(1024, 65536)
            if answers:
                body = _ip4(e.address, address, _UDP, _udp(53, port, length))
            else:
                body = _ip4(address, e.peer_address, _UDP, _udp(port, 53, length))
            frames.append(_frame(e, _IPV4, body))
        return frames

    return make


def spoofed_mac(*, own: bool = False, victims: bool = False) -> Maker:
    """Make UDP from random MAC addresses, or from that of the tenant's other guest, or of the victim."""

    def make(e: StreamEnds, r: random.Random) -> list[bytes]:
        body = _ip4(e.address, e.peer_address, _UDP, _udp(4000, 4001))
        if own or victims:
            return [_frame(e, _IPV4, body, e.other_mac if own else e.victim_mac)]
        return [_frame(e, _IPV4, body, _random_mac(r)) for _ in range(2048)]

    return make


def spread_mac(e: StreamEnds, r: random.Random) -> list[bytes]:
    """Make UDP to random MAC addresses, which nobody has."""
    body = _ip4(e.address, e.peer_address, _UDP, _udp(4000, 4001))
    return [_frame(e, _IPV4, body, to=_random_mac(r)) for _ in range(2048)]


def spoofed_source(e: StreamEnds, r: random.Random) -> list[bytes]:
    """Make UDP from random IPv4 addresses."""
    return [
        _frame(
            e,
            _IPV4,
            _ip4(
                str(ipaddress.IPv4Address(r.randrange(1 << 24, 223 << 24))),
                e.peer_address,
                _UDP,
                _udp(4000, 4001),
            ),
        )
        for _ in range(2048)
    ]


def ipv6(*, destinations: int = 1) -> Maker:
    """Make UDP over IPv6 link-local addresses, which no site file lists."""

    def make(e: StreamEnds, r: random.Random) -> list[bytes]:
        to = [_link_local(e.peer_mac)]
        if destinations > 1:
            to = [_link_local(_random_mac(r)) for _ in range(destinations)]
        return [_frame(e, _IPV6, _ip6(_link_local(e.mac), a, _UDP, _udp(4000, 4001))) for a in to]

    return make


def fragments(e: StreamEnds, r: random.Random) -> list[bytes]:
    """Make datagrams of three fragments each."""
    frames = []
    for _ in range(256):
        identity = r.randrange(1 << 16)
        first = _udp(4000, 4001, FULL - 8 + 2 * FULL)[: FULL - MARK]
        for at, body in ((0, first), (FULL, bytes(FULL - MARK)), (2 * FULL, bytes(FULL - MARK))):
            more = 0x2000 if at < 2 * FULL else 0
            frames.append(
                _frame(
                    e,
                    _IPV4,
                    _ip4(e.address, e.peer_address, _UDP, body, more | at // 8, identity),
                )
            )
    return frames


def later_fragments(e: StreamEnds, r: random.Random) -> list[bytes]:
    """Make fragments of datagrams whose first one never comes."""
    body = bytes(FULL - MARK)
    return [
        _frame(e, _IPV4, _ip4(e.address, e.peer_address, _UDP, body, 0x2000 | 185, r.randrange(1 << 16)))
        for _ in range(512)
    ]


def fragments_behind_options(e: StreamEnds, r: random.Random) -> list[bytes]:
    """Make later fragments over IPv6 whose fragment header is behind destination options."""
    options = bytes([_FRAGMENT, 0, 1, 4, 0, 0, 0, 0])
    frames = []
    for _ in range(512):
        head = struct.pack("!BBHI", _UDP, 0, 185 << 3 | 1, r.randrange(1 << 32))
        body = options + head + bytes(FULL - MARK)
        frames.append(
            _frame(e, _IPV6, _ip6(_link_local(e.mac), _link_local(e.peer_mac), _OPTIONS, body)),
        )
    return frames


def extension_chain(e: StreamEnds, r: random.Random) -> list[bytes]:
    """Make UDP over IPv6 behind twelve extension headers, more than anybody reads."""
    chain = b""
    for i in range(12):
        chain += bytes([_OPTIONS if i < 11 else _UDP, 0, 1, 4, 0, 0, 0, 0])
    body = chain + _udp(4000, 4001, FULL - 96)
    return [_frame(e, _IPV6, _ip6(_link_local(e.mac), _link_local(e.peer_mac), _OPTIONS, body))]


def protocol(number: int, head: bytes = b"") -> Maker:
    """Make IPv4 packets of a protocol, with the beginning of its header."""

    def make(e: StreamEnds, r: random.Random) -> list[bytes]:
        return [_frame(e, _IPV4, _ip4(e.address, e.peer_address, number, head.ljust(FULL, b"\0")))]

    return make


def protocol6(number: int, head: bytes = b"") -> Maker:
    """Make IPv6 packets of a protocol, with the beginning of its header."""

    def make(e: StreamEnds, r: random.Random) -> list[bytes]:
        body = head.ljust(FULL, b"\0")
        return [_frame(e, _IPV6, _ip6(_link_local(e.mac), _link_local(e.peer_mac), number, body))]

    return make


def ethertype(number: int) -> Maker:
    """Make frames of an ethertype that is not IP."""

    def make(e: StreamEnds, r: random.Random) -> list[bytes]:
        return [_frame(e, number, bytes(FULL))]

    return make


def tags(count: int) -> Maker:
    """Make UDP behind so many VLAN tags."""

    def make(e: StreamEnds, r: random.Random) -> list[bytes]:
        tagged = b"".join(struct.pack("!HH", _VLAN, 1 + i) for i in range(count))
        body = _ip4(e.address, e.peer_address, _UDP, _udp(4000, 4001, FULL - 4 * count))
        return [_frame(e, _IPV4, body, tagged=tagged)]

    return make


def arp(*, everybody: bool = False) -> Maker:
    """Make ARP requests, as long as frames may be, or to everybody, for thousands of addresses."""

    def make(e: StreamEnds, r: random.Random) -> list[bytes]:
        asked = _addresses(e, r, 4096 if everybody else 256)
        question = struct.pack("!HHBBH", 1, _IPV4, 6, 4, 1) + _mac(e.mac)
        question += ipaddress.IPv4Address(e.address).packed + bytes(6)
        rest, to = (bytes(200), "ff:ff:ff:ff:ff:ff") if everybody else (bytes(FULL), "")
        return [_frame(e, _ARP, question + ipaddress.IPv4Address(a).packed + rest, to=to) for a in asked]

    return make


def broadcast(e: StreamEnds, r: random.Random) -> list[bytes]:
    """Make UDP to everybody in the tenant's network."""
    body = _ip4(e.address, "255.255.255.255", _UDP, _udp(4000, 4001))
    return [b"\xff" * 6 + _mac(e.mac) + struct.pack("!H", _IPV4) + body]


def multicast(e: StreamEnds, r: random.Random) -> list[bytes]:
    """Make UDP to a group that nobody has joined (RFC 1112)."""
    body = _ip4(e.address, "239.1.2.3", _UDP, _udp(4000, 4001))
    return [bytes.fromhex("01005e010203") + _mac(e.mac) + struct.pack("!H", _IPV4) + body]


def victims_address(e: StreamEnds, r: random.Random) -> list[bytes]:
    """Make UDP from the victim's address to the victim's address."""
    return [_frame(e, _IPV4, _ip4(e.victim_address, e.victim_address, _UDP, _udp(4000, 4001)))]


def truncated(e: StreamEnds, r: random.Random) -> list[bytes]:
    """Make packets that say they have headers and lengths which they have not."""
    options = bytearray(_ip4(e.address, e.peer_address, _UDP, bytes(FULL)))
    options[0] = 0x4F  # 60 bytes of header
    long = bytearray(_ip4(e.address, e.peer_address, _UDP, bytes(FULL)))
    long[2:4] = b"\xff\xff"
    return [_frame(e, _IPV4, bytes(body)) for body in (options, long)]


def tcp(*, syn: bool) -> Maker:
    """Make TCP that heeds no loss: segments of connections that nobody has, or SYN."""

    def make(e: StreamEnds, r: random.Random) -> list[bytes]:
        frames = []
        for _ in range(1024):
            head = struct.pack(
                "!HHIIBBHHH", r.randrange(1024, 65536), 5201, r.randrange(1 << 32), 0 if syn else 1,
                0x50, 0x02 if syn else 0x10, 65535, 0, 0,
            )  # fmt: skip
            body = head + (b"" if syn else bytes(FULL - 20))
            frames.append(_frame(e, _IPV4, _ip4(e.address, e.peer_address, _TCP, body)))
        return frames

    return make


def _inner(e: StreamEnds) -> bytes:
    """Return a frame to the victim, as if it came from within its network."""
    body = _ip4(e.victim_address, e.victim_address, _UDP, _udp(4000, 4001, FULL - 60))
    return _mac(e.victim_mac) + _mac(e.victim_mac) + struct.pack("!H", _IPV4) + body


def dressed_as_tunnel(*, geneve: bool = False, nodes: bool = False, tags: int = 0) -> Maker:
    """Make what a tunnel would carry for the victim, to a guest or between the nodes' addresses."""

    def make(e: StreamEnds, r: random.Random) -> list[bytes]:
        tagged = b"".join(struct.pack("!HH", _VLAN, e.victim_network + i) for i in range(tags))
        vni = struct.pack("!I", e.victim_network << 8)
        head = struct.pack("!HH", 0, 0x6558) + vni if geneve else struct.pack("!I", 0x08000000) + vni
        inner = head + _inner(e)
        packet = struct.pack("!HHHH", 50000, 6081 if geneve else 4789, 8 + len(inner) + MARK, 0) + inner
        source, to = (e.node, e.peer_node) if nodes else (e.address, e.peer_address)
        return [_frame(e, _IPV4, _ip4(source, to, _UDP, packet), tagged=tagged)]

    return make


def gre(e: StreamEnds, r: random.Random) -> list[bytes]:
    """Make GRE with the victim's network for its key."""
    head = struct.pack("!HHI", 0x2000, 0x6558, e.victim_network)
    return [_frame(e, _IPV4, _ip4(e.address, e.peer_address, _GRE, head + _inner(e)))]
