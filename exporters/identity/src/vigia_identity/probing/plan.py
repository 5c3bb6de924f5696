"""Which ports there are to be: what follows from the networks, hosts and ports that Neutron shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

__all__ = ["Host", "Made", "Network", "Pair", "Plan", "Refused", "plan"]

Switch = Literal["openvswitch", "linuxbridge"]


class Refused(Exception):
    """Neutron, or a host, does not take a port. The text says how that can be mended."""

    def __init__(self, problem: str, *, all_alike: bool = False) -> None:
        super().__init__(problem)
        self.all_alike = all_alike
        """Whether every other port would be refused as well."""


class Pair(NamedTuple):
    """A network and a host, between which there is to be one port."""

    network: str
    """As the operator calls it."""
    host: str


@dataclass(frozen=True)
class Network:
    """A network of the operator's project."""

    name: str
    """As the operator calls it in the configuration."""
    id: str
    mtu: int
    """In bytes."""
    prefixes: Mapping[str, int]
    """Lengths of its subnets' prefixes, by subnet."""


@dataclass(frozen=True)
class Host:
    """A host with an agent of Neutron that plugs ports."""

    name: str
    alive: bool
    address: str = ""
    """Where its tunnels end; empty where the agent does not say."""


@dataclass(frozen=True)
class Made:
    """A port that vigia-identity has made, as Neutron shows it."""

    id: str
    network: str
    """Id of its network."""
    host: str
    mac: str
    addresses: tuple[tuple[str, str], ...]
    """Subnet and address of each."""
    vif: str
    """binding:vif_type."""
    bridge: str
    """Of Open vSwitch, or of Linux."""
    active: bool
    """Whether it works: the agent has found it plugged."""

    @property
    def switch(self) -> Switch | None:
        """What the port is to be plugged into; None for what vigia-probe cannot plug."""
        kinds: dict[str, Switch] = {"ovs": "openvswitch", "bridge": "linuxbridge"}
        return kinds.get(self.vif)

    @property
    def bound(self) -> bool:
        """Whether a mechanism driver took the port for its host."""
        return self.vif not in ("", "unbound", "binding_failed")


@dataclass(frozen=True)
class Plan:
    """What there is, what is to go, and what is to be made."""

    keep: Mapping[Pair, Made] = field(default_factory=dict)
    remove: Sequence[Made] = ()
    make: Sequence[Pair] = ()


def plan(networks: Sequence[Network], hosts: Mapping[str, Host], ports: Sequence[Made]) -> Plan:
    """Return what is to be done.

    A host whose agent is not alive keeps what it has, as it is, and gets nothing new. Ports of other networks
    and hosts than these are wanted no more.
    """
    by_id = {n.id: n for n in networks}
    keep: dict[Pair, Made] = {}
    remove: list[Made] = []
    for port in sorted(
        ports, key=lambda p: (not p.active, not p.bound, p.id)
    ):  # of two the one that works stays
        network, host = by_id.get(port.network), hosts.get(port.host)
        if network is None or host is None:
            remove.append(port)
            continue
        pair = Pair(network.name, host.name)
        if pair in keep or (host.alive and not _usable(port, network)):
            remove.append(port)
        else:
            keep[pair] = port
    wanted = (Pair(n.name, h.name) for n in networks for h in hosts.values() if h.alive)
    return Plan(keep, remove, sorted(pair for pair in wanted if pair not in keep))


def _usable(port: Made, network: Network) -> bool:
    """Whether a port is bound, and has addresses of subnets that are there."""
    known = [subnet for subnet, _ in port.addresses if subnet in network.prefixes]
    return port.switch is not None and bool(known) and len(known) == len(port.addresses)
