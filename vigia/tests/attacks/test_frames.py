"""What the corpus writes, read by another implementation of the protocols."""

from __future__ import annotations

import random

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment
from scapy.layers.ipsec import AH
from scapy.layers.l2 import ARP, GRE, Dot1Q, Ether
from scapy.layers.sctp import SCTP
from scapy.layers.vxlan import VXLAN

from vigia.attacks import frames
from vigia.attacks.corpus import ATTACKS, CORPUS, LEGITIMATE, Entry
from vigia.attacks.frames import Maker, StreamEnds

ENDS = StreamEnds(
    mac="02:00:00:3d:00:03",
    address="10.61.0.3",
    peer_mac="02:00:00:3d:00:01",
    peer_address="10.61.0.1",
    other_mac="02:00:00:3d:00:02",
    victim_mac="02:00:00:3c:00:01",
    victim_address="10.60.0.1",
    victim_network=100,
    node="10.58.0.3",
    peer_node="10.58.0.1",
)


def raw(maker: Maker) -> list[bytes]:
    """The frames as they are sent: with a mark behind them."""
    return [frame + b"vigia\0\0\1" for frame in maker(ENDS, random.Random(1))]  # noqa: S311


def made(maker: Maker, most: int = 200) -> list[Ether]:
    return [Ether(frame) for frame in raw(maker)[:most]]


def attack(name: str, most: int = 200) -> list[Ether]:
    return made(CORPUS[name].streams[0].maker, most)


def field(name: str, first: int, last: int) -> int:
    """How many different values some bytes of an attack's frames have."""
    return len({frame[first:last] for frame in raw(CORPUS[name].streams[0].maker)})


@pytest.mark.parametrize("entry", [*ATTACKS, *LEGITIMATE], ids=lambda e: e.name)
def test_every_frame_fits_and_its_packet_ends_with_the_mark(entry: Entry) -> None:
    for stream in entry.streams:
        lengths = [len(frame) for frame in raw(stream.maker)]
        assert min(lengths) >= 60
        assert max(lengths) <= 1514
        for frame in made(stream.maker, 10):
            if IP in frame and entry.name != "truncated":
                assert frame[IP].len <= len(frame) - 14
                honest = frame.copy()
                del honest[IP].chksum
                assert Ether(bytes(honest))[IP].chksum == frame[IP].chksum
            if IPv6 in frame:
                assert frame[IPv6].plen == len(frame) - 14 - 40


def test_nothing_is_sent_but_to_the_receivers_guest_or_to_all() -> None:
    for entry in (*ATTACKS, *LEGITIMATE):
        for stream in entry.streams:
            to = {frame[:6].hex(":") for frame in raw(stream.maker)}
            if entry.name == "many-macs":  # nobody's, in networks that the bed made
                assert {mac[:3] for mac in to} == {"02:"}
                continue
            assert to <= {ENDS.peer_mac, "ff:ff:ff:ff:ff:ff", "01:00:5e:01:02:03"}, entry.name


def test_ports_and_addresses() -> None:
    assert field("many-ports", 36, 38) == 4000
    assert field("one-port", 36, 38) == 1
    assert field("many-sources", 34, 36) == 8000
    assert field("many-destinations", 30, 34) > 3800
    assert field("many-destinations", 26, 30) == 1
    assert field("spoofed-source", 26, 30) > 2000
    assert field("ipv6-destinations", 38, 54) > 3800
    assert ENDS.peer_address not in {f[IP].dst for f in attack("unlisted-address")}
    frame = attack("one-port")[0]
    assert (frame[IP].src, frame[IP].dst, frame[UDP].dport) == (
        ENDS.address,
        ENDS.peer_address,
        frame[UDP].dport,
    )


def test_mac_addresses_are_not_the_senders_own() -> None:
    assert field("spoofed-mac", 6, 12) > 2000
    assert field("many-macs", 0, 6) > 2000
    assert field("arp-everybody", 38, 42) > 3000 and field("arp-everybody", 0, 6) == 1
    assert {f.src for f in attack("spoofed-mac-own")} == {ENDS.other_mac}
    assert {f.src for f in attack("spoofed-mac-victim")} == {ENDS.victim_mac}
    assert {f.src for f in attack("one-port")} == {ENDS.mac}


def test_fragments() -> None:
    first, second, last = attack("fragments")[:3]
    assert first[IP].flags.MF
    assert (first[IP].frag, second[IP].frag * 8, last[IP].frag * 8) == (0, 1400, 2800)
    assert len(first[IP]) - 20 == 1400, "each is where the one before it ends"
    assert len(second[IP]) - 20 == 1400
    assert (second[IP].flags.MF, last[IP].flags.MF) == (True, False)
    assert first[IP].id == second[IP].id == last[IP].id
    assert all(f[IP].frag for f in attack("later-fragments"))
    for frame in attack("fragments-behind-options"):
        assert frame[IPv6].nh == 60
        assert frame[IPv6ExtHdrFragment].offset == 185
        assert frame[IPv6ExtHdrFragment].nh == 17


def test_protocols() -> None:
    assert {name: attack(name)[0][IP].proto for name in ("udp-lite", "ipip", "esp", "unknown-protocol")} == {
        "udp-lite": 136,
        "esp": 50,
        "ipip": 4,
        "unknown-protocol": 253,
    }
    assert SCTP in attack("sctp")[0]
    assert attack("icmp")[0][ICMP].type == 8
    assert attack("ipv6-ah")[0][AH].nh == 17
    assert attack("unknown-ethertype")[0].type == 0x88B5
    assert attack("arp")[0][ARP].op == 1
    assert attack("broadcast")[0].dst == "ff:ff:ff:ff:ff:ff"
    assert attack("multicast")[0][IP].dst == "239.1.2.3"
    assert [(f[IP].ihl, f[IP].len) for f in attack("truncated")] == [(15, 1428), (5, 65535)]
    same = attack("victims-address")[0][IP]
    assert (same.src, same.dst) == (ENDS.victim_address, ENDS.victim_address)
    assert attack("tcp-without-heed")[0][TCP].flags == "A"
    assert attack("syn")[0][TCP].flags == "S"


def test_tags_and_extension_headers_are_more_than_anybody_reads() -> None:
    tagged = attack("three-tags")[0]
    assert bytes(tagged)[12:24:4] == b"\x81" * 3
    assert (tagged[Dot1Q].vlan, tagged.getlayer(Dot1Q, 3) is not None) == (1, True)
    assert tagged[UDP].dport == 4001
    chain = attack("extension-chain")[0]
    assert chain.getlayer(IPv6ExtHdrDestOpt, 12) is not None
    assert chain[UDP].dport == 4001


def test_what_looks_like_a_tunnel_names_the_victims_network() -> None:
    inside = attack("vxlan-inside")[0]
    assert (inside[UDP].dport, inside[VXLAN].vni) == (4789, ENDS.victim_network)
    assert inside[VXLAN][Ether].dst == ENDS.victim_mac
    between = attack("vxlan-between-nodes")[0]
    assert (between[IP].src, between[IP].dst) == (ENDS.node, ENDS.peer_node)
    for name, tags in (("vxlan-behind-a-tag", 1), ("vxlan-behind-two-tags", 2)):
        behind = attack(name)[0]
        assert behind[Dot1Q].vlan == ENDS.victim_network
        assert (behind.getlayer(Dot1Q, tags) is not None, behind.getlayer(Dot1Q, tags + 1)) == (True, None)
        assert (behind[IP].src, behind[UDP].dport, behind[VXLAN].vni) == (
            ENDS.node,
            4789,
            ENDS.victim_network,
        )
    assert attack("geneve-inside")[0][UDP].dport == 6081
    inner = attack("gre-inside")[0][GRE]
    assert (inner.key, inner[Ether].dst) == (ENDS.victim_network, ENDS.victim_mac)


def test_one_guest_sends_to_both_others_of_its_tenant() -> None:
    streams = CORPUS["own-destinations"].streams
    assert {(s.tenant, s.source, s.sink) for s in streams} == {("b", 3, 1), ("b", 3, 2)}


def test_a_servers_clients() -> None:
    asked = made(frames.clients(1000, 60, answers=False), 1000)
    assert len({f[IP].src for f in asked}) > 950
    assert {f[UDP].dport for f in asked} == {53}
    answered = made(frames.clients(1000, 200, answers=True), 1000)
    assert len({f[IP].dst for f in answered}) > 950
    assert {f[UDP].sport for f in answered} == {53}
    assert {len(f[UDP]) for f in answered} == {208}
