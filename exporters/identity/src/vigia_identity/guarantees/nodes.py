"""What the enforcers have in force, from their metrics: no token is needed to read them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx

import vigia_http
from vigia_identity.clouds import Endpoint

__all__ = ["InForce", "Limit", "ask"]

MAX_PAGE = 16 << 20
AT_ONCE = 16
_LINE = re.compile(r"(vigia_isolation_[a-z_]+)\{([^}]*)\} ([0-9.eE+-]+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Limit:
    """A limit that is in a node's kernel."""

    node: str
    port: str
    tenant: str
    protocol: str
    bits: float
    """A second."""
    expires: float
    """Seconds from now; 0 where it is not known."""


@dataclass
class InForce:
    """What all nodes that answered have."""

    nodes: set[str] = field(default_factory=set)
    guarantees: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    """Bits per second by tenant and port, and then by direction."""
    limits: list[Limit] = field(default_factory=list)


def ask(enforcers: Iterable[Endpoint], timeout: float) -> InForce:
    """Ask every enforcer; those that do not answer are not among the nodes."""
    out = InForce()
    pods = list(enforcers)
    with (
        httpx.Client(timeout=timeout, headers=vigia_http.IDENTITY, trust_env=False) as client,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        pages = list(pool.map(lambda p: _page(client, p, timeout), pods))
    for pod, page in zip(pods, pages, strict=True):
        if page is not None:
            out.nodes.add(pod.node)
            _read(out, pod.node, page)
    return out


def _page(client: httpx.Client, pod: Endpoint, timeout: float) -> str | None:
    try:
        with client.stream("GET", f"http://{pod.address}/metrics") as response:
            response.raise_for_status()
            return vigia_http.read(response, MAX_PAGE, timeout).decode()
    except (httpx.HTTPError, vigia_http.AnswerError, UnicodeDecodeError):
        return None


def _read(out: InForce, node: str, page: str) -> None:
    expires: dict[str, float] = {}
    limits = []
    for line in page.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        labels, value = dict(_LABEL.findall(match[2])), float(match[3])
        port, tenant = labels.get("port", ""), labels.get("tenant", "")
        if not port or not tenant:
            continue
        match match[1]:
            case "vigia_isolation_guarantee_bytes_per_second":
                of_port = out.guarantees.setdefault((tenant, port), {})
                of_port[labels.get("direction", "")] = value * 8
            case "vigia_isolation_limit_expires_seconds":
                expires[port] = value
            case "vigia_isolation_limit_bytes_per_second":
                limits.append((port, tenant, labels.get("protocol", ""), value * 8))
    out.limits += [Limit(node, p, t, protocol, b, expires.get(p, 0.0)) for p, t, protocol, b in limits]
