"""What Neutron shows of ports, networks and policies of QoS, and what follows from it for each host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from openstack.exceptions import SDKException

from vigia_identity.clouds import HOST, ID, MAX_PORTS, OPERATOR, PROBES, Identity, Port, bounded, contracts
from vigia_identity.config import OpenStack

__all__ = ["BOUGHT", "PORTS", "Kind", "Objects", "listed", "read", "read_changed", "tell"]

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

_FIELDS = {
    "ports": [*PORTS, *BOUGHT],
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


def read(network: Any, kind: str, *, bought: bool = True) -> Kind:
    """Return all objects of a kind. Raises CloudError, and whatever the SDK does."""
    fields = _FIELDS[kind] if bought else list(PORTS)
    return _by_id(listed(network, kind, {"fields": fields}), kind)


def read_changed(network: Any, kind: str, known: Kind) -> Kind | None:
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
        return read(network, kind)
    kept = {i: o for i, o in known.items() if i in found}
    for start in range(0, len(fresh), SINGLE):
        some = {"fields": _FIELDS[kind], "id": fresh[start : start + SINGLE]}
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


def tell(config: OpenStack, shown: Objects, out: Identity, *, bought: bool) -> Identity:
    """Add to out whose each host's ports are and, if wanted, what they have bought; return it."""
    terms = {i: contracts.terms(p.get("rules")) for i, p in shown.policies.items()} if bought else {}
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
            if bought and tenant != OPERATOR:
                sold = _contract(config, shown, port, tenant, terms)
                out.contracts.setdefault(host, []).append(sold)
    return out


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
