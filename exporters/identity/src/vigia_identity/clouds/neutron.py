"""What Neutron shows of ports, networks and policies of QoS, and what follows from it for each host."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openstack.exceptions import SDKException

from vigia_identity.clouds import (
    HOST,
    ID,
    MAC,
    MAX_PORTS,
    OPERATOR,
    PROBES,
    Identity,
    Port,
    bounded,
    contracts,
    sites,
)
from vigia_identity.config import OpenStack

__all__ = [
    "ADDRESSES",
    "BOUGHT",
    "PORTS",
    "Kind",
    "Objects",
    "Wanted",
    "address",
    "agents",
    "alive",
    "listed",
    "read",
    "read_changed",
    "tell",
    "tunnel",
]

PAGE = 500
"""Objects of one answer of Neutron: it makes them in one piece, while others wait."""

SINGLE = 50
"""Ports of one question for single ones: their ids are in its address."""

PORTS = (
    "id",
    "project_id",
    "network_id",
    "device_id",
    "device_owner",
    "binding:host_id",
    "binding:profile",
)
"""What is asked of a port; without it Neutron looks up security groups, addresses and more of each."""

BOUGHT = ("mac_address", "qos_policy_id", "revision_number")
"""What is asked besides where contracts are wanted."""

ADDRESSES = ("mac_address", "fixed_ips", "revision_number")
"""What is asked besides where enforcers are to know each other's guests."""

MOST_ADDRESSES = 16
"""Of one port."""

AGENTS = {
    "Linux bridge agent",
    "OVN Controller agent",
    "OVN Controller Gateway agent",
    "Open vSwitch agent",
}
"""Types of agents on whose hosts ports can be plugged."""

MOST_AGENTS = 100_000

_FIELDS = {
    "networks": [
        *("id", "revision_number", "qos_policy_id"),
        *("provider:network_type", "provider:segmentation_id"),
    ],
    "qos/policies": ["id", "revision_number", "rules"],
}

Kind = Mapping[str, Mapping[str, Any]]
"""Objects of a kind by id, as Neutron shows them."""


@dataclass(frozen=True)
class Objects:
    """What Neutron showed last."""

    ports: Kind = field(default_factory=dict)
    networks: Kind = field(default_factory=dict)
    policies: Kind = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Where the tunnels of each host end, empty where its agent does not say it."""


@dataclass(frozen=True)
class Wanted:
    """What is wanted of ports, besides whose they are."""

    bought: bool = False
    """What they have bought."""
    site: bool = False
    """Their addresses, and the hosts' own."""


def _fields(kind: str, wanted: Wanted) -> list[str]:
    if kind != "ports":
        return _FIELDS[kind]
    more = (*(BOUGHT if wanted.bought else ()), *(ADDRESSES if wanted.site else ()))
    return list(dict.fromkeys((*PORTS, *more)))


def agents(network: Any) -> dict[str, Mapping[str, Any]]:
    """Return the agents that plug ports, by host. Raises CloudError, and whatever the SDK does.

    Of two on a host, one that lives goes first, and then one that says where tunnels end.
    """
    fields = ["id", "host", "agent_type", "alive", "admin_state_up", "configurations"]
    found: dict[str, Mapping[str, Any]] = {}
    for agent in bounded(listed(network, "agents", {"fields": fields}), MOST_AGENTS, "agents"):
        name = agent.get("host")
        if agent.get("agent_type") not in AGENTS or not isinstance(name, str) or not HOST.fullmatch(name):
            continue
        if name not in found or _worth(agent) > _worth(found[name]):
            found[name] = agent
    return found


def _worth(agent: Mapping[str, Any]) -> tuple[bool, bool]:
    return alive(agent), bool(tunnel(agent))


def alive(agent: Mapping[str, Any]) -> bool:
    """Whether an agent works."""
    return agent.get("alive") is True and agent.get("admin_state_up") is not False


def tunnel(agent: Mapping[str, Any]) -> str:
    """Return where a host's tunnels end, as its agent says; empty if it does not."""
    configurations = agent.get("configurations")
    return address(configurations.get("tunneling_ip") if isinstance(configurations, Mapping) else None)


def address(said: Any) -> str:
    """Return an IP address as everybody reads it, empty for what is none."""
    try:
        return str(ipaddress.ip_address(said)) if isinstance(said, str) and "%" not in said else ""
    except ValueError:
        return ""


def read(network: Any, kind: str, wanted: Wanted) -> Kind:
    """Return all objects of a kind. Raises CloudError, and whatever the SDK does."""
    return _by_id(listed(network, kind, {"fields": _fields(kind, wanted)}), kind)


def read_changed(network: Any, kind: str, known: Kind, wanted: Wanted) -> Kind | None:
    """Return all objects of a kind if there are others than are known, or with other revisions; else None.

    Neutron counts up the revision of a port or network when its policy is another one, and that of a policy
    with each change of its rules. It cannot list what has changed since a moment: changed_since is refused
    where filters are validated, which is the default.
    """
    asked = listed(network, kind, {"fields": ["id", "revision_number"]})
    found = _by_id(asked, kind)
    fresh = [i for i, o in found.items() if i not in known or _revision(o) != _revision(known[i])]
    if not fresh and len(found) == len(known):
        return None
    if kind != "ports" or len(fresh) > PAGE:
        return read(network, kind, wanted)
    kept = {i: o for i, o in known.items() if i in found}
    for start in range(0, len(fresh), SINGLE):
        some = {"fields": _fields(kind, wanted), "id": fresh[start : start + SINGLE]}
        kept.update(_by_id(listed(network, kind, some), kind))
    return kept


def _revision(shown: Mapping[str, Any]) -> Any:
    return shown.get("revision_number")


def _by_id(items: Iterable[Mapping[str, Any]], kind: str) -> dict[str, Mapping[str, Any]]:
    return {o["id"]: o for o in bounded(items, MAX_PORTS, kind)}


def listed(network: Any, kind: str, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all objects of a kind as Neutron shows them."""
    last, more = "", True
    while more:
        found, more = _page(network, kind, {**query, "marker": last} if last else query)
        yield from found
        if not found or found[-1]["id"] == last:
            return
        last = found[-1]["id"]


def _page(network: Any, kind: str, query: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """Return one page of objects, and whether there are more; what is none is left out.

    A page may be shorter than asked for: Neutron has a limit of its own (pagination_max_limit).
    """
    answer = network.get(f"/{kind}", params={"limit": PAGE, **query})
    answer.raise_for_status()
    name = kind.rpartition("/")[2]
    try:
        said = answer.json()
        found, links = said[name], said.get(f"{name}_links") or []
        more = any(link["rel"] == "next" for link in links)
    except (ValueError, LookupError, TypeError, AttributeError):
        found, more = None, False
    if not isinstance(found, list):
        raise SDKException(f"Neutron's answer to /{kind} is not as documented")
    return [o for o in found if isinstance(o, dict) and isinstance(o.get("id"), str)], more


def tell(config: OpenStack, shown: Objects, out: Identity, wanted: Wanted) -> Identity:
    """Add to out whose each host's ports are and, if wanted, what they bought and who is where; return it."""
    rules = {i: p.get("rules") for i, p in shown.policies.items()} if wanted.bought else {}
    terms = {i: contracts.terms(r) for i, r in rules.items()}
    guests: dict[str, list[sites.Guest]] = {}
    for port in shown.ports.values():
        owner, project = port.get("device_owner"), port.get("project_id")
        if not isinstance(owner, str) or not owner.startswith(("compute:", PROBES)):
            continue
        if not ID.fullmatch(port["id"]) or not isinstance(project, str) or not ID.fullmatch(project):
            continue
        tenant = OPERATOR if config.operator and project == config.operator else project
        others = [v if isinstance(v, str) and ID.fullmatch(v) else "" for v in _names(port)]
        # Nova, the OVS agent and the linuxbridge agent name the tap so.
        entry = Port("tap" + port["id"][:11], port["id"], tenant, *others)
        for host in _hosts(port):
            out.ports.setdefault(host, []).append(entry)
            if wanted.bought and tenant != OPERATOR:
                sold = _contract(config, shown, port, tenant, terms)
                out.contracts.setdefault(host, []).append(sold)
            if wanted.site and tenant != OPERATOR:
                guest = sites.Guest(host, port["id"], *_addresses(port))
                guests.setdefault(tenant, []).append(guest)
    if wanted.site:
        out.site, problems = sites.site(config.notices, shown.hosts, guests)
        out.problems += problems
    return out


def _addresses(port: Mapping[str, Any]) -> tuple[str, Sequence[str]]:
    """Return a port's MAC address and its fixed ones, without what is none."""
    mac, fixed = port.get("mac_address"), port.get("fixed_ips")
    said = [i.get("ip_address") for i in fixed if isinstance(i, Mapping)] if isinstance(fixed, list) else []
    found = [a for item in said[:MOST_ADDRESSES] if (a := address(item))]
    return (mac if isinstance(mac, str) and MAC.fullmatch(mac) else ""), found


def _names(port: Mapping[str, Any]) -> tuple[Any, Any]:
    return port.get("network_id"), port.get("device_id")


def _hosts(port: Mapping[str, Any]) -> set[str]:
    """Return where a port is. While a machine migrates it is on both hosts, before Neutron binds it anew."""
    profile = port.get("binding:profile")
    other = profile.get("migrating_to") if isinstance(profile, Mapping) else None
    return {h for h in (port.get("binding:host_id"), other) if isinstance(h, str) and HOST.fullmatch(h)}


def _contract(
    config: OpenStack,
    shown: Objects,
    port: Mapping[str, Any],
    tenant: str,
    terms: Mapping[str, contracts.Terms],
) -> dict[str, Any]:
    assert config.default is not None  # noqa: S101 - contracts are made only if it is
    of = shown.networks.get(str(port.get("network_id")), {})
    # A port shows its network's policy, too, but keeps its revision when that changes: ask the network.
    policy = port.get("qos_policy_id") or of.get("qos_policy_id")
    said = terms.get(policy, contracts.Terms()) if isinstance(policy, str) else contracts.Terms()
    match = contracts.match(
        of.get("provider:network_type"), of.get("provider:segmentation_id"), port.get("mac_address")
    )
    return contracts.contract(port["id"], tenant, said, config.default, match)
