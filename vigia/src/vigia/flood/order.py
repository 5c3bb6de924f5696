"""What a flood may be: who, to whom inside the lab, how fast, how long."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from vigia.errors import OptionError
from vigia.flood.bounds import MAX_PORTS, MAX_RATE, MAX_SECONDS, MAX_SIZE, MIN_SIZE
from vigia.lab.model import Lab
from vigia_config import parse_rate

__all__ = ["FloodOrder", "make"]


@dataclass(frozen=True)
class FloodOrder:
    """A flood inside its bounds."""

    netns: str
    node: str
    tenant: str
    path: str
    source: str
    destination: str
    rate: int
    """Bytes of UDP payload per second."""
    seconds: float
    size: int
    """Bytes of UDP payload in a packet."""
    ports: int = MAX_PORTS
    """Different destination ports."""


def _rate(text: str) -> int:
    try:
        return parse_rate(text)
    except ValueError as e:
        raise OptionError(f'--rate "{text}" {e}') from e


def make(  # noqa: PLR0913 - one argument per option
    lab: Lab,
    *,
    tenant: str,
    path: str,
    node: str | None,
    to: str | None,
    rate: str,
    seconds: float,
    size: int,
    ports: int = MAX_PORTS,
) -> FloodOrder:
    """Return a flood from a tenant's endpoint to the same tenant's endpoint. Raises OptionError."""
    source = lab.endpoint(node or _first_node(lab, tenant, path), tenant, path)
    own, peer = source.address.ip, source.peer
    if to is not None and _address(to) != peer:
        reason = (
            "the flood's own address" if _address(to) == own else f"not an endpoint of {tenant} on {path}"
        )
        raise OptionError(f'--to "{to}" is {reason}; a flood from {source.node} may go to {peer} only')
    wanted = _rate(rate)
    if not size <= wanted <= MAX_RATE:
        raise OptionError(f'--rate "{rate}" is out of range; write one packet per second to 1Gbit')
    if not 0 < seconds <= MAX_SECONDS:
        raise OptionError(f"--seconds {seconds:g} is out of range; write above 0, at most {MAX_SECONDS:g}")
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise OptionError(f"--size {size} is out of range; write {MIN_SIZE} to {MAX_SIZE} bytes")
    if not 1 <= ports <= MAX_PORTS:
        raise OptionError(f"--ports {ports} is out of range; write 1 to {MAX_PORTS}")
    return FloodOrder(
        source.netns, source.node, tenant, path, str(own), str(peer), wanted, seconds, size, ports
    )


def _first_node(lab: Lab, tenant: str, path: str) -> str:
    for endpoint in lab.endpoints:
        if (endpoint.tenant, endpoint.path) == (tenant, path):
            return endpoint.node
    paths = sorted({e.path for e in lab.endpoints if e.tenant == tenant})
    tenants = sorted({e.tenant for e in lab.endpoints})
    there = (
        f"has them on {', '.join(paths)}"
        if paths
        else f"has none in this lab; its tenants are {', '.join(tenants)}"
    )
    raise OptionError(f'tenant "{tenant}" has no endpoint on path "{path}"; it {there}')


def _address(text: str) -> ipaddress.IPv4Address:
    try:
        return ipaddress.IPv4Address(text)
    except ValueError as e:
        raise OptionError(f'--to "{text}" is not an IPv4 address; leave it out for the tenant\'s peer') from e
