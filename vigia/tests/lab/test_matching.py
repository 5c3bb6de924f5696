"""Rules between two ends of a tunnel: what is sent by either end arrives at the other, and is answered."""

from __future__ import annotations

import ipaddress
from itertools import product

import pytest

from vigia.lab import matching, ofrules
from vigia.lab.matching import ALIAS_MAC, ALIAS_PORT, MATCHES, REWRITES, Ends, Match, Rewrite
from vigia.lab.ofrules import FlowRule

Packet = dict[str, int | str]

HERE, TUNNEL, ASKS, ANSWERS = 3, 1003, 20862, 862
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
ADDRESSES = ("192.168.41.1", "192.168.41.2")
ALIAS = "192.168.41.254"
WAYS = [(m, "none") for m in MATCHES] + [("udp_port", r) for r in REWRITES if r != "none"]


def table(match: Match, rewrite: Rewrite, side: int) -> list[FlowRule]:
    ends = Ends(
        here=HERE,
        tunnel=TUNNEL,
        mac=MACS[side],
        peer_mac=MACS[1 - side],
        address=ADDRESSES[side],
        peer=ADDRESSES[1 - side],
        alias=ALIAS,
        asks=ASKS,
        answers=ANSWERS,
    )
    return [ofrules.translate(rule) for rule in matching.pair(match, rewrite, ends)]


def forward(rules: list[FlowRule], packet: Packet) -> tuple[int, Packet]:
    """Do what a switch does: the rule of the highest priority that matches. Returns the port, 0 where none does."""
    fitting = [r for r in rules if all(packet.get(k) == v for k, v in r.match.items())]
    if not fitting:
        return 0, packet
    rule = max(fitting, key=lambda r: r.priority)
    sent, port = dict(packet), 0
    for action in rule.actions:
        if action.kind == "set":
            sent[action.field] = action.value
        elif action.kind == "output":
            port = int(action.value)
    return port, sent


def across(match: Match, rewrite: Rewrite, side: int, packet: Packet) -> Packet | None:
    """Send a packet from a machine through both switches; None if one has no rule for it."""
    port, sent = forward(table(match, rewrite, side), {**packet, "in_port": HERE})
    if port != TUNNEL:
        return None
    port, got = forward(table(match, rewrite, 1 - side), {**sent, "in_port": TUNNEL})
    return got if port == HERE else None


def datagram(side: int, mac: str, address: str, source: int, destination: int) -> Packet:
    return {
        "eth_type": 0x0800,
        "ip_proto": 17,
        "vlan_vid": 0,
        "ip_dscp": 0,
        "eth_src": MACS[side],
        "eth_dst": mac,
        "ipv4_src": ADDRESSES[side],
        "ipv4_dst": address,
        "udp_src": source,
        "udp_dst": destination,
    }


@pytest.mark.parametrize(("way", "side"), product(WAYS, (0, 1)))
def test_a_probe_arrives_and_its_answer_comes_from_where_it_was_sent_to(
    way: tuple[Match, Rewrite], side: int
) -> None:
    match, rewrite = way
    mac = ALIAS_MAC if rewrite == "mac" else MACS[1 - side]
    address = ALIAS if rewrite == "ip" else ADDRESSES[1 - side]
    port = ALIAS_PORT if rewrite == "udp_port" else ANSWERS
    got = across(match, rewrite, side, datagram(side, mac, address, ASKS, port))
    assert got is not None
    assert (got["eth_dst"], got["ipv4_dst"], got["udp_dst"]) == (MACS[1 - side], ADDRESSES[1 - side], ANSWERS)
    assert got["ip_dscp"] == (matching.TOS >> 2 if rewrite == "ip_tos" else 0)
    assert got.get("vlan_pcp") == (matching.PRIORITY if rewrite == "vlan_priority" else None)

    seen = str(got["ipv4_src"])
    assert seen == (ALIAS if rewrite == "ip" else ADDRESSES[side])
    back = across(
        match,
        rewrite,
        1 - side,
        datagram(1 - side, ALIAS_MAC if rewrite == "mac" else MACS[side], seen, ANSWERS, ASKS),
    )
    assert back is not None
    assert (back["ipv4_src"], back["udp_src"]) == (address, port), "a connected socket takes no other"
    assert (back["eth_dst"], back["ipv4_dst"], back["udp_dst"]) == (MACS[side], ADDRESSES[side], ASKS)


@pytest.mark.parametrize(("way", "kind"), product(WAYS, ("arp", "icmp")))
def test_neighbours_and_echoes_pass_beside_probes(way: tuple[Match, Rewrite], kind: str) -> None:
    match, rewrite = way
    mac = ALIAS_MAC if rewrite == "mac" else MACS[1]
    packet: Packet = {"eth_src": MACS[0], "eth_dst": mac, "eth_type": 0x0806}
    if kind == "icmp":
        packet |= {"eth_type": 0x0800, "ip_proto": 1, "ipv4_src": ADDRESSES[0], "ipv4_dst": ADDRESSES[1]}
    got = across(match, rewrite, 0, packet)
    assert got is not None
    if kind == "icmp":
        assert got["eth_dst"] == MACS[1]


@pytest.mark.parametrize("match", ["udp_port", "exact"])
def test_other_ports_are_dropped(match: Match) -> None:
    assert across(match, "none", 0, datagram(0, MACS[1], ADDRESSES[1], 5000, ANSWERS)) is None


@pytest.mark.parametrize(
    ("match", "field", "other"),
    [
        ("mac", "eth_src", "02:00:00:00:00:09"),
        ("ip", "ipv4_src", "192.168.41.9"),
        ("exact", "ip_dscp", 10),
        ("exact", "eth_src", "02:00:00:00:00:09"),
    ],
)
def test_a_rule_looks_at_what_its_name_says(match: Match, field: str, other: int | str) -> None:
    packet = {**datagram(0, MACS[1], ADDRESSES[1], ASKS, ANSWERS), field: other}
    assert across(match, "none", 0, packet) is None


def test_an_alias_is_an_address_that_no_machine_has() -> None:
    network = ipaddress.IPv4Network("192.168.41.0/24")
    assert matching.alias(network) == ALIAS


def test_an_exact_rule_has_all_twelve_fields() -> None:
    rule = next(iter(matching.pair("exact", "none", Ends(1, 2, *MACS, *ADDRESSES, ALIAS, ASKS, ANSWERS))))
    names = {w.partition("=")[0] for w in rule.partition(",actions=")[0].split(",")} - {"priority"}
    # udp says the Ethernet type and the protocol; an untagged frame has no VLAN priority.
    assert names == {
        "in_port",
        "dl_src",
        "dl_dst",
        "dl_vlan",
        "udp",
        "nw_src",
        "nw_dst",
        "tp_src",
        "tp_dst",
        "nw_tos",
    }
