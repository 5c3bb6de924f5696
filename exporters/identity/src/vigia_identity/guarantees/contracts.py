"""What namespaces and pods bought: NetworkGuarantees and the annotations of CNI's bandwidth plugin."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from vigia_identity.clouds import ID
from vigia_identity.guarantees.pods import EGRESS, INGRESS, Pod, selector
from vigia_identity.guarantees.quantities import bits

__all__ = ["GROUP", "PATH", "Bandwidth", "Bought", "Contract", "Guarantee", "bought", "contracts_text"]

GROUP = "vigia.internal/v1alpha1"
PATH = f"/apis/{GROUP}/networkguarantees"
MAX_GUARANTEES, MAX_PODS = 10_000, 100_000


@dataclass(frozen=True)
class Bandwidth:
    """What was bought in one direction."""

    guarantee: int
    """Bits per second."""
    ceiling: int
    packets: int = 0
    """A second; 0: any number."""


@dataclass(frozen=True)
class Contract:
    """A contract as enforcers read it."""

    tenant: str
    port: str
    """Empty: all ports of the tenant that have none of their own."""
    send: Bandwidth
    receive: Bandwidth
    new_flows: int = 0


@dataclass
class Guarantee:
    """A NetworkGuarantee, and what became of it."""

    item: dict[str, Any]
    problem: str = ""
    """Why it is not accepted, with the fix."""
    reason: str = "Accepted"
    contracts: list[Contract] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return str(self.item["metadata"]["namespace"])

    @property
    def name(self) -> str:
        return str(self.item["metadata"]["name"])


@dataclass
class Bought:
    """All that was bought."""

    guarantees: list[Guarantee] = field(default_factory=list)
    annotated: list[Contract] = field(default_factory=list)

    def contracts(self) -> list[Contract]:
        """Return one contract for each owner: a pod's NetworkGuarantee goes before its annotations."""
        found: dict[tuple[str, str], Contract] = {}
        for contract in (*(c for g in self.guarantees for c in g.contracts), *self.annotated):
            found.setdefault((contract.tenant, contract.port), contract)
        return [found[key] for key in sorted(found)]


def bought(items: Iterable[Any], pods: Collection[Pod], *, annotations: bool) -> Bought:
    """Return what NetworkGuarantees and pods' annotations say together."""
    out = Bought()
    owners: dict[tuple[str, str], str] = {}  # who bought for an owner first
    of: dict[str, list[Pod]] = {}
    for pod in pods:
        of.setdefault(pod.namespace, []).append(pod)
    for item in sorted(items, key=_age):
        guarantee = Guarantee(item)
        out.guarantees.append(guarantee)
        try:
            _fill(guarantee, of.get(guarantee.namespace, ()), owners)
        except ValueError as e:
            guarantee.reason, guarantee.problem, guarantee.contracts = "Invalid", str(e), []
    if annotations:
        out.annotated = [c for c in map(_annotated, pods) if c is not None]
    return out


def _age(item: Any) -> tuple[str, str]:
    return item["metadata"].get("creationTimestamp") or "", item["metadata"]["name"]


def _fill(guarantee: Guarantee, pods: Iterable[Pod], owners: dict[tuple[str, str], str]) -> None:
    """Find whose a guarantee is. Raises ValueError."""
    spec = guarantee.item["spec"]
    if not ID.fullmatch(guarantee.namespace):
        raise ValueError("the namespace's name cannot be a tenant")
    send = _bandwidth(spec["send"])
    receive = _bandwidth(spec["receive"]) if spec.get("receive") else send
    ports = [""]
    if spec.get("podSelector") is not None:
        selects = selector(spec["podSelector"])
        ports = sorted(p.port for p in pods if selects(p.labels))
    taken = ""
    for port in ports:
        first = owners.setdefault((guarantee.namespace, port), guarantee.name)
        if first != guarantee.name:
            taken = first
            continue
        new_flows = int(spec.get("newFlowsPerSecond") or 0)
        guarantee.contracts.append(Contract(guarantee.namespace, port, send, receive, new_flows))
    if taken and not guarantee.contracts:
        guarantee.reason = "Conflict"
        guarantee.problem = (
            f"NetworkGuarantee {taken} is older and holds for the same pods; "
            "delete one of the two, or change podSelector"
        )


def _bandwidth(spec: Mapping[str, Any]) -> Bandwidth:
    rate = bits(spec["rate"])
    ceiling = bits(spec["ceiling"]) if spec.get("ceiling") is not None else rate
    if ceiling < rate:
        raise ValueError(f"the ceiling {spec['ceiling']} is below the rate {spec['rate']}")
    return Bandwidth(rate, ceiling, int(spec.get("packetsPerSecond") or 0))


def _annotated(pod: Pod) -> Contract | None:
    """Return what a pod's annotations say; what is no rate is the plugin's to refuse."""
    found = {}
    for key, value in pod.marks.items():
        try:
            found[key] = bits(value)
        except ValueError:
            continue
    if not found or not ID.fullmatch(pod.namespace):
        return None
    one, other = (found.get(k) for k in (EGRESS, INGRESS))
    send, receive = one or other or 0, other or one or 0
    return Contract(pod.namespace, pod.port, Bandwidth(send, send), Bandwidth(receive, receive))


def contracts_text(contracts: Iterable[Contract]) -> str:
    """Return what vigia-enforcer reads as contracts_file."""
    entries = []
    for c in contracts:
        entry: dict[str, Any] = {"tenant": c.tenant}
        if c.port:
            entry["port"] = c.port
        entry |= _entry(c.send) | {"receive": _entry(c.receive)}
        if c.new_flows:
            entry["new_flows_per_second"] = c.new_flows
        entries.append(entry)
    return yaml.dump({"version": 1, "contracts": entries}, Dumper=yaml.CSafeDumper, sort_keys=False)


def _entry(b: Bandwidth) -> dict[str, Any]:
    entry: dict[str, Any] = {"guarantee": f"{b.guarantee}bit", "ceiling": f"{b.ceiling}bit"}
    if b.packets:
        entry["packets_per_second"] = b.packets
    return entry
