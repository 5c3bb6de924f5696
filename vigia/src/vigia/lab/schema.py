"""The keys of a lab's topology file: what each value may be.

What values must be together is in rules.py, and topology.py reads files.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer
from pydantic_core import PydanticCustomError

from vigia.lab import naming
from vigia.lab.matching import Match, Rewrite
from vigia_config import Rate, Seconds, Strict

__all__ = ["LinkSpec", "NetworkSpec", "NodeSpec", "PathSpec", "TenantSpec", "TopologySpec"]

T = TypeVar("T")

Host = ipaddress.IPv4Interface | ipaddress.IPv6Interface
"""An address of the underlay and its network."""


def _matching(pattern: str, what: str) -> BeforeValidator:
    compiled = re.compile(pattern)

    def validate(value: object) -> str:
        if isinstance(value, str) and compiled.fullmatch(value):
            return value
        raise PydanticCustomError("vigia", f"is not a name; write {what}")

    return BeforeValidator(validate)


def _parsed(parse: Callable[[str], T], what: str, example: str) -> BeforeValidator:
    def validate(value: object) -> T:
        if isinstance(value, str):
            try:
                return parse(value)
            except ValueError:
                pass
        raise PydanticCustomError("vigia", f"is not {what}; write for example {example}")

    return BeforeValidator(validate)


def _interface(text: str) -> Host:
    address = ipaddress.ip_interface(text)
    if "/" not in text or (address.network.num_addresses > 2 and address.ip in _ends(address.network)):
        raise ValueError(text)
    return address


def _ends(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> tuple[object, object]:
    return network.network_address, network.broadcast_address


_text = PlainSerializer(str)
_SHORT = "1 to 12 lower-case letters and digits, a letter first"

LabName = Annotated[str, _matching(naming.LAB_NAME, "1 to 10 lower-case letters and digits, a letter first")]
Name = Annotated[str, _matching("[a-z][a-z0-9]{0,11}", _SHORT)]
TenantOrInfra = Annotated[str, _matching("_infra|[a-z][a-z0-9]{0,11}", f"{_SHORT}; or _infra")]
PathName = Annotated[
    str,
    _matching(
        "(?=.{1,32}$)[a-z][a-z0-9]*(-[a-z0-9]+)*",
        "1 to 32 lower-case letters, digits and single dashes, a letter first",
    ),
]
Device = Annotated[str, _matching("[A-Za-z0-9][A-Za-z0-9._-]{0,14}", "the name of a network device")]
Address = Annotated[
    ipaddress.IPv4Address, _parsed(ipaddress.IPv4Address, "an IPv4 address", "127.0.0.1"), _text
]
Interface = Annotated[
    Host,
    _parsed(_interface, "a host address with its prefix length", "10.99.1.1/24"),
    _text,
]
Interface6 = Annotated[
    ipaddress.IPv6Interface,
    _parsed(ipaddress.IPv6Interface, "an IPv6 address with its prefix length", "fd00:99::1/64"),
    _text,
]
Subnet = Annotated[
    ipaddress.IPv4Network, _parsed(ipaddress.IPv4Network, "an IPv4 network", "192.168.1.0/24"), _text
]

Subnet6 = Annotated[
    ipaddress.IPv6Network, _parsed(ipaddress.IPv6Network, "an IPv6 network", "fd00:1::/64"), _text
]


class TenantSpec(Strict):
    """A customer: what it bought."""

    name: Name = Field(
        description="Name of the tenant, 1 to 12 lower-case letters and digits; the label `tenant`."
    )
    guarantee: Rate = Field(
        description="Rate that is always the tenant's at each of its ports, for example `40Mbit`."
    )
    ceiling: Rate = Field(
        description="Highest rate that the tenant may reach while bandwidth is idle; at least the guarantee."
    )


class LinkSpec(Strict):
    """The underlay between two nodes: a switch whose ports are shared by all tenants."""

    name: Name = Field(description="Name of the link, 1 to 12 lower-case letters and digits.")
    nodes: tuple[Name, Name] = Field(
        description="The two nodes that it joins; a node is on exactly one link."
    )
    rate: Rate = Field(default=25_000_000, description="Rate of the link in each direction, 1Mbit to 10Gbit.")
    queue: Seconds = Field(
        default=0.01,
        description="Queue towards each node, as the time to empty it of full frames, 0.1ms to 1s.",
    )


class NodeSpec(Strict):
    """A compute node."""

    name: Name = Field(description="Name of the node, 1 to 12 lower-case letters and digits.")
    switch: Literal["linuxbridge", "openvswitch", "both"] = Field(
        description="Virtual switch: `linuxbridge`, `openvswitch`, or `both` side by side, so that what they "
        "carry is compared on the same hosts; both ends of a link have the same."
    )
    underlay: Interface = Field(
        description="Address on the link, IPv4 or IPv6: the `direct` path, and the tunnel endpoint of a "
        "Linux bridge."
    )
    underlay6: Interface6 | None = Field(
        default=None,
        description="IPv6 address on the link beside an IPv4 underlay: what the tenants' IPv6 costs above it "
        "is measured.",
    )
    tunnel: Interface | None = Field(
        default=None,
        description="Tunnel endpoint of Open vSwitch, in another subnet; not for `linuxbridge`.",
    )
    agent_address: Address | None = Field(
        default=None,
        description="Loopback address of the node's agents; without it host i of `agents` for the i-th node.",
    )


class PathSpec(Strict):
    """A configuration under comparison."""

    name: PathName = Field(description="Name of the path; the label `path`.")
    kind: Literal["direct", "overlay", "local", "macvlan", "sriov", "ipsec"] = Field(
        description="`direct`: the underlay between the nodes of every link. "
        "`overlay`: the networks of tenants on the links of one switch. "
        "`local`: within a node: between two of the operator's machines on the network of an overlay, or "
        "over `direct` from the node to itself, which is beneath these. "
        "`macvlan`: machines whose device bypasses the switch, on every link. "
        "`sriov`: machines whose device is a virtual function of a network card, on every link; "
        "the card joins them. "
        "`ipsec`: ESP, AES-256 with HMAC-SHA2, over another path."
    )
    over: PathName | None = Field(
        default=None,
        description="The path that an `ipsec` path goes over; the overlay or `direct` of a `local` path.",
    )
    subnet: Subnet | None = Field(
        default=None,
        description="Addresses of a `macvlan`, `sriov` or `ipsec` path: the first host on the link's first "
        "node, the second on its second.",
    )
    device: Device | None = Field(
        default=None,
        description="Network card (physical function) of an `sriov` path; without it the first with enough "
        "virtual functions that are down.",
    )
    switch: Literal["linuxbridge", "openvswitch"] | None = Field(
        default=None, description="Virtual switch of an overlay."
    )
    encap: Literal["vxlan", "gre", "geneve"] | None = Field(
        default=None,
        description="Encapsulation of an overlay; a Linux bridge has `vxlan` only.",
    )
    mode: Literal["normal", "openflow"] = Field(
        default="normal",
        description="How an overlay's switch decides: `normal` learns addresses; `openflow` forwards by "
        "rules alone, which are installed beforehand (`openvswitch` only).",
    )
    rules: Literal["ovs-ofctl", "os-ken"] = Field(
        default="ovs-ofctl",
        description="Who installs the rules of an `openflow` path beforehand: `ovs-ofctl`, or an `os-ken` "
        "controller that ends once they are there. The same for all paths.",
    )
    match: Match | None = Field(
        default=None,
        description="What the rules of an `openflow` path look at, which has one machine of the operator's "
        "on each node: `in_port`; `mac` and `ip`, both addresses; `udp_port`, addresses and UDP ports; "
        "`exact`, all twelve fields of OpenFlow 1.0. Without it the port and the destination's MAC address.",
    )
    rewrite: Rewrite = Field(
        default="none",
        description="What the rules write into probes beside `match: udp_port`: `mac` and `ip`, the peer's "
        "address in place of an alias; `vlan_priority`; `ip_tos`; `udp_port`.",
    )
    optional: bool = Field(
        default=False,
        description="Leave the path out, and say so, where the machine lacks what it needs.",
    )


class NetworkSpec(Strict):
    """A tenant's network on an overlay path: an endpoint (a VM) on every node that the path joins."""

    tenant: TenantOrInfra = Field(
        description="A tenant's name, or `_infra` for the operator's own endpoints, which measure."
    )
    path: PathName = Field(description="An overlay path.")
    key: int = Field(
        description="Key of the network on the wire: a VNI (1 to 16777215) or a GRE key (1 to 4294967295); "
        "unique in the lab."
    )
    subnet: Subnet = Field(
        description="Addresses of the endpoints: the first host on the link's first node, the second on its "
        "second. "
        "Networks may have the same subnet."
    )
    subnet6: Subnet6 | None = Field(
        default=None,
        description="IPv6 addresses beside these, numbered alike; networks may have the same. Not on a path "
        "with `match`.",
    )
    machines: int = Field(
        default=1,
        ge=1,
        le=16,
        description="Endpoints (VMs) of the tenant on each of the two nodes, 1 to 16; the n-th ones have the "
        "subnet's hosts 2n-1 and 2n.",
    )


class TopologySpec(Strict):
    """The whole lab."""

    version: Literal[1] = Field(description="Version of this format: 1.")
    name: LabName = Field(
        default="demo",
        description="Name of the lab, 1 to 10 lower-case letters and digits; "
        "everything that the lab makes is called `vigia-<name>-...`.",
    )
    agents: Subnet = Field(
        default=ipaddress.IPv4Network("127.77.0.0/24"),
        description="Loopback addresses of the nodes' agents, inside 127.0.0.0/8; labs that run at once need "
        "different ones.",
    )
    stack_address: Address = Field(
        default=ipaddress.IPv4Address("127.0.0.1"),
        description="Loopback address of the site's services (Prometheus, Alertmanager, isolation agent).",
    )
    tenants: list[TenantSpec] = Field(description="The tenants.", max_length=64)
    links: list[LinkSpec] = Field(description="The links.", min_length=1, max_length=16)
    nodes: list[NodeSpec] = Field(description="The compute nodes.", min_length=2, max_length=32)
    paths: list[PathSpec] = Field(description="The paths.", min_length=1, max_length=64)
    networks: list[NetworkSpec] = Field(
        default=[], description="The tenants' networks; at most 64 on one node.", max_length=1024
    )
