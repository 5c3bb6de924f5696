"""What a port has bought, by the policies of Neutron's QoS: a contract as vigia-enforcer reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from vigia_identity.config import PortTerms

__all__ = ["TUNNELS", "Bandwidth", "Terms", "contract", "match", "terms"]

TUNNELS = ("vxlan", "gre", "vlan")
"""Network types whose segmentation id is what frames bear. Not Geneve: OVN numbers its networks itself."""

_MOST = 1 << 60
_MAX_ID = {"vxlan": 2**24 - 1, "gre": 2**32 - 1, "vlan": 4094}


@dataclass(frozen=True)
class Bandwidth:
    """One direction, in bits and packets per second; None where no policy says."""

    guarantee: int | None = None
    ceiling: int | None = None
    packets: int = 0


@dataclass(frozen=True)
class Terms:
    """What a policy says, by the guest's directions."""

    send: Bandwidth = Bandwidth()
    receive: Bandwidth = Bandwidth()


def terms(rules: Any) -> Terms:
    """Return what the rules of a policy say together; what is not understood says nothing.

    Of two rules of one kind and direction the last counts; Neutron has one.
    """
    found = {"egress": Bandwidth(), "ingress": Bandwidth()}
    for rule in rules if isinstance(rules, list) else []:
        if not isinstance(rule, Mapping):
            continue
        direction = rule.get("direction") or "egress"
        if direction not in found:
            continue
        found[direction] = _with(found[direction], rule)
    return Terms(found["egress"], found["ingress"])


def _with(known: Bandwidth, rule: Mapping[str, Any]) -> Bandwidth:
    match rule.get("type"):
        case "minimum_bandwidth" if n := _number(rule.get("min_kbps")):
            return replace(known, guarantee=n * 1000)
        case "bandwidth_limit" if n := _number(rule.get("max_kbps")):
            return replace(known, ceiling=n * 1000)
        case "packet_rate_limit" if n := _number(rule.get("max_kpps")):
            return replace(known, packets=n * 1000)
    return known


def _number(value: Any) -> int:
    """Return a count, 0 for anything else: Neutron shows its largest number for no limit."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31 - 1:
        return 0
    return min(value, _MOST)


def contract(
    port: str, tenant: str, said: Terms, default: PortTerms, match: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a port's contract; what its policy does not say is as by default."""
    send, receive = (_complete(b, default) for b in (said.send, said.receive))
    out: dict[str, Any] = {"tenant": tenant, "port": port, **_rates(send)}
    if send.packets:
        out["packets_per_second"] = send.packets
    if receive != send:
        out["receive"] = _rates(receive)
        if receive.packets:
            out["receive"]["packets_per_second"] = receive.packets
    if match:
        out["match"] = [dict(match)]
    return out


def match(kind: Any, number: Any, mac: Any) -> dict[str, Any]:
    """Return how a port's frames are told on an uplink; empty where that cannot be known."""
    if kind not in TUNNELS or not isinstance(number, int) or not 0 < number <= _MAX_ID[kind]:
        return {}
    return {kind: number, "mac": mac} if isinstance(mac, str) and mac else {}


def _complete(said: Bandwidth, default: PortTerms) -> Bandwidth:
    """Fill in the default. A limit below it lowers the guarantee: nobody is promised what it may not have."""
    ceiling = said.ceiling or default.ceiling * 8
    guarantee = said.guarantee or min(default.guarantee * 8, ceiling)
    return Bandwidth(guarantee, max(ceiling, guarantee), said.packets)


def _rates(b: Bandwidth) -> dict[str, Any]:
    return {"guarantee": f"{b.guarantee}bit", "ceiling": f"{b.ceiling}bit"}
