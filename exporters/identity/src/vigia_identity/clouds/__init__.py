"""What clouds say of tenants and ports. Each cloud is a module with ``ask``, and a row in looker.CLOUDS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "HOST",
    "ID",
    "MAC",
    "MAX_NODES",
    "MAX_PORTS",
    "MAX_TENANTS",
    "OPERATOR",
    "PROBES",
    "CloudError",
    "Endpoint",
    "Identity",
    "Port",
    "Site",
    "bounded",
    "printable",
]

MAX_TENANTS, MAX_PORTS, MAX_NODES = 200_000, 2_000_000, 10_000
MAX_NAME = 128  # bytes of UTF-8, as vigia-exporter takes them

OPERATOR = "_infra"
"""The tenant of what the operator measures with."""

PROBES = "vigia:probe"
"""device_owner of Neutron's ports that vigia-identity makes to probe between: they are known by it alone."""

ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,127}")
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")


class CloudError(Exception):
    """A cloud that does not answer, or not as documented."""


@dataclass(frozen=True)
class Port:
    """A Neutron port that is plugged into a host."""

    device: str
    port: str
    tenant: str
    network: str
    workload: str


@dataclass(frozen=True, order=True)
class Endpoint:
    """Where a program of Vigia listens, and on which node."""

    node: str
    address: str
    """HOST:PORT"""
    zone: str = ""
    rack: str = ""
    others: tuple[tuple[str, str], ...] = ()
    """Further addresses of the node, by name."""


@dataclass
class Site:
    """Who may ask whom to limit whose ports, as vigia-enforcer reads it."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Hosts that enforcers are on, by name."""
    ports: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Ports by tenant, once for each address."""


@dataclass
class Identity:
    """Who is who: names by tenant, ports by host, and Vigia's own programs by service."""

    names: dict[str, str] = field(default_factory=dict)
    ports: dict[str, list[Port]] = field(default_factory=dict)
    services: dict[str, list[Endpoint]] = field(default_factory=dict)
    unwell: list[str] = field(default_factory=list)
    """Pods of Vigia's own that do not serve, by name."""
    contracts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """What ports have bought, by host, as vigia-enforcer reads contracts."""
    site: Site | None = None
    """None where nobody has asked for it."""
    problems: list[str] = field(default_factory=list)
    """What is missing, and is nobody's failure to answer."""
    shown: Any = None
    """What all this was made of, for whoever asks the cloud what has changed."""
    asked: int = 0
    """When the cloud was asked for the ports, in Unix seconds."""


def printable(value: object, most: int = MAX_NAME) -> str:
    """Return a name without control characters and at most so many bytes long."""
    text = "".join(c for c in str(value or "") if c.isprintable()).strip()
    return text.encode()[:most].decode(errors="ignore")


def bounded(items: Iterable[Any], most: int, what: str) -> Iterator[Any]:
    for i, item in enumerate(items):
        if i >= most:
            raise CloudError(f"there are more than {most} {what}")
        yield item
