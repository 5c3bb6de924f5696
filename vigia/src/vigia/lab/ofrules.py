"""Rules as ovs-ofctl(8) writes them, in the words of OpenFlow 1.4: matches by OXM, actions by set_field.

Knows what the lab's rules are made of and refuses everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vigia.errors import VigiaError

__all__ = ["FlowAction", "FlowRule", "translate"]

IPV4, ARP, ICMP, UDP, VLAN = 0x0800, 0x0806, 1, 17, 0x8100
UNTAGGED = 0
"""OFPVID_NONE."""

Value = int | str


@dataclass(frozen=True)
class FlowAction:
    """output (to a port), normal, set (a field) or push_vlan."""

    kind: str
    field: str = ""
    value: Value = 0


@dataclass(frozen=True)
class FlowRule:
    """One permanent flow entry of table 0."""

    priority: int
    cookie: int
    match: Mapping[str, Value]
    actions: tuple[FlowAction, ...]
    """None of them drops."""


def _mac(text: str) -> str:
    if re.fullmatch(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}", text) is None:
        raise ValueError
    return text


def _address(text: str) -> str:
    if re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}", text) is None:
        raise ValueError
    return text


def _number(text: str) -> int:
    return int(text, 0)


def _dscp(text: str) -> int:
    return int(text, 0) >> 2


def _vlan(text: str) -> int:
    if _number(text) != 0xFFFF:  # OpenFlow 1.0's word for no tag
        raise ValueError
    return UNTAGGED


_Reader = Callable[[str], Value]

_FIELDS: Mapping[str, tuple[str, _Reader]] = {
    "in_port": ("in_port", _number),
    "dl_src": ("eth_src", _mac),
    "dl_dst": ("eth_dst", _mac),
    "dl_type": ("eth_type", _number),
    "dl_vlan": ("vlan_vid", _vlan),
    "nw_src": ("ipv4_src", _address),
    "nw_dst": ("ipv4_dst", _address),
    "nw_tos": ("ip_dscp", _dscp),
    "tp_src": ("udp_src", _number),
    "tp_dst": ("udp_dst", _number),
}
_SHORT: Mapping[str, Mapping[str, Value]] = {
    "arp": {"eth_type": ARP},
    "icmp": {"eth_type": IPV4, "ip_proto": ICMP},
    "udp": {"eth_type": IPV4, "ip_proto": UDP},
}
_SETS: Mapping[str, tuple[str, _Reader]] = {
    "mod_dl_dst": ("eth_dst", _mac),
    "mod_nw_src": ("ipv4_src", _address),
    "mod_nw_dst": ("ipv4_dst", _address),
    "mod_nw_tos": ("ip_dscp", _dscp),
    "mod_tp_src": ("udp_src", _number),
    "mod_tp_dst": ("udp_dst", _number),
}


def translate(text: str) -> FlowRule:
    """Read a rule. Raises VigiaError naming what is not understood."""
    head, _, actions = text.partition("actions=")
    numbers = {"priority": 32768, "cookie": 0}
    match: dict[str, Value] = {}
    for word in filter(None, head.split(",")):
        name, _, value = word.partition("=")
        try:
            if name in numbers:
                numbers[name] = _number(value)
            elif name in _SHORT and not value:
                match |= _SHORT[name]
            else:
                field, read = _FIELDS[name]
                match[field] = read(value)
        except (KeyError, ValueError) as e:
            raise VigiaError(f'the rule "{text}" has "{word}", which is not supported') from e
    found = tuple(a for word in actions.split(",") for a in _actions(word, text))
    return FlowRule(numbers["priority"], numbers["cookie"], match, found)


def _actions(word: str, rule: str) -> tuple[FlowAction, ...]:
    name, _, value = word.partition(":")
    try:
        if word == "drop":
            return ()
        if word == "NORMAL":
            return (FlowAction("normal"),)
        if name == "output":
            return (FlowAction("output", value=_number(value)),)
        if name == "mod_vlan_pcp":  # OpenFlow 1.0 gives an untagged packet its tag with the priority
            return (FlowAction("push_vlan", value=VLAN), FlowAction("set", "vlan_pcp", _number(value)))
        field, read = _SETS[name]
        return (FlowAction("set", field, read(value)),)
    except (KeyError, ValueError) as e:
        raise VigiaError(f'the rule "{rule}" has the action "{word}", which is not supported') from e
