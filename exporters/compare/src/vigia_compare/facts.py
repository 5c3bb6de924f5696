"""What the system knows of a period, in steps of 5 s: floods, limits, contracts, full elements, harm.

The pages that are scraped each second have series only of ports and targets with something to tell, so that
asking for them costs next to nothing while all is well. Counters are asked for afterwards, of the nodes alone
that those series name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vigia_compare.source import Source
from vigia_compare.windows import Grid, Windowed
from vigia_statistics.samples import Floats

__all__ = [
    "CONTENTION",
    "FAST",
    "LAG",
    "MOST_NODES",
    "SCRAPE",
    "STEP",
    "Facts",
    "Mask",
    "Port",
    "Target",
    "details",
    "gather",
    "grid_at",
]

STEP = 5.0
"""Seconds of a step."""

SCRAPE = 15
"""Seconds between two scrapes of counters."""

LAG = 3
"""Steps until counters, and the ratios of the last ten seconds, have what happened in a step."""

_SETTLED = 1.5
"""Seconds after which the pages of a second are stored."""

MOST_NODES = 16
"""Nodes whose counters are asked for: those with most to tell."""

CONTENTION = (
    "queue_full",
    "ring_full",
    "rate_limit",
    "upcall_lost",
    "cpu_backlog",
    "vhost_backpressure",
    "no_memory",
)
"""Reasons of drops that somebody else's load may be the cause of."""

Port = tuple[str, str, str]
"""Node, tenant, port."""

Target = tuple[str, str, str]
"""Probing node, probed node, tenant."""

Key = tuple[str, str]
"""Node and tenant, or node and element."""

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


def _fast(metric: str, part: str, more: str = "", over: str = "max") -> str:
    """Return the largest value in a step, of the page of a second alone: two pages are two series."""
    return f'{over}_over_time({metric}{{job="vigia-{part}-fast"{more}}}[$within])'


_SUFFERS = ',tenant!~"_.*"'
_BY_PORT = "max by (node, tenant, port)"
_BY_TARGET = "max by (src, dst, tenant)"

_GUARANTEE = "vigia_isolation_guarantee_bytes_per_second"

FAST: Mapping[str, str] = {
    "score": f"{_BY_PORT} ({_fast('vigia_port_flood_score', 'exporter')})",
    "spread": f"{_BY_PORT} ({_fast('vigia_port_udp_destination_ports', 'exporter')})",
    "scrapes": f"{_BY_PORT} ({_fast('vigia_port_flood_score', 'exporter', over='count')})",
    "limit": f"{_BY_PORT} ({_fast('vigia_isolation_limit_bytes_per_second', 'enforcer')})",
    "loss": f"{_BY_TARGET} ({_fast('vigia_probe_recent_loss_ratio', 'probe', _SUFFERS)})",
    "slow": f"{_BY_TARGET} ({_fast('vigia_probe_recent_slow_ratio', 'probe', _SUFFERS)})",
    "taken": f"max by (node, tenant, taker) ({_fast('vigia_isolation_taken_bytes_per_second', 'enforcer')})",
}
"""Asked at each look, of all nodes."""


def details(nodes: Iterable[str]) -> Mapping[str, str]:
    """Return what is asked of the nodes that have something to tell."""
    on = f"node=~{json.dumps('|'.join(re.escape(n) for n in nodes), ensure_ascii=False)}"

    def rate(metric: str, more: str = "") -> str:
        """Return growth per second since the scrape before: each count is in three steps."""
        selector = f"{metric}{{{on}{more}}}"
        return f"clamp_min({selector} - {selector} offset {SCRAPE}s, 0) / {SCRAPE}"

    def began(metric: str, more: str = "") -> str:
        """Return the same of a counter that has no series until it counts."""
        selector = f"{metric}{{{on}{more}}}"
        scraped = f'up{{job="vigia-exporter",{on}}} offset {SCRAPE}s == 1'
        first = f"({selector} unless {selector} offset {SCRAPE}s) and on (node) ({scraped})"
        return f"({rate(metric, more)} or ({first}) / {SCRAPE})"

    out, into = (rate("vigia_port_bytes_total", f',direction="{d}"') for d in ("from_tenant", "to_tenant"))
    dropped = began("vigia_port_drops_total", f',reason=~"{"|".join(CONTENTION)}"')
    packets = rate("vigia_port_packets_total", ',direction="from_tenant"')
    processes = rate("vigia_resource_seconds_total", ',kind="process"')
    full = rate("vigia_resource_full_seconds_total")
    return {
        "sent": f"sum by (node, tenant, port) ({out})",
        "packets": f"sum by (node, tenant) ({packets})",
        "received": f"sum by (node, tenant) ({into})",
        "guarantee": f"{_BY_PORT} ({_GUARANTEE}{{{on},direction='from_tenant'}})",
        "drops": f"sum by (node, tenant) ({dropped})",
        "lost_at": f"sum by (node, resource) ({began('vigia_resource_drops_total')})",
        "queues": f'max by (node, resource) (vigia_resource_utilization_ratio{{{on},kind="queue"}})',
        "processes": f"sum by (node, resource) ({processes})",
        "full": f"sum by (node, resource) ({full})",
        "used": f"sum by (node, resource, tenant) ({rate('vigia_tenant_resource_seconds_total')})",
        "watched": f'max by (node) (vigia_probe_recent_bad_targets{{job="vigia-probe-fast",{on}}})',
    }


@dataclass(frozen=True)
class Facts:
    """Arrays of one value per step; what is missing is NaN, and a series that is missing has no array."""

    grid: Grid
    score: Mapping[Port, Floats] = field(default_factory=dict)
    """How much a port's UDP looks like a flood, 0 to 100; at least 30."""
    spread: Mapping[Port, Floats] = field(default_factory=dict)
    """Destination ports of it."""
    scrapes: Mapping[Port, Floats] = field(default_factory=dict)
    """Scrapes that saw a score."""
    limit: Mapping[Port, Floats] = field(default_factory=dict)
    """Limit in force, bytes per second."""
    loss: Mapping[Target, Floats] = field(default_factory=dict)
    """Share of the probes of ten seconds that the network lost."""
    slow: Mapping[Target, Floats] = field(default_factory=dict)
    """Share of their round trips that took longer than the objective."""
    taken: Mapping[tuple[str, str, str], Floats] = field(default_factory=dict)
    """What a tenant had of a full link beyond its contract while another waited, bytes per second: by node,
    who waited and who took."""
    sent: Mapping[Port, Floats] = field(default_factory=dict)
    """Bytes per second that the tenant offers, before any limit."""
    packets: Mapping[Key, Floats] = field(default_factory=dict)
    """Packets per second that a tenant offers."""
    received: Mapping[Key, Floats] = field(default_factory=dict)
    guarantee: Mapping[Port, Floats] = field(default_factory=dict)
    """What the port's contract promises it, bytes per second."""
    drops: Mapping[Key, Floats] = field(default_factory=dict)
    """Packets of a tenant that were dropped for want of room, per second."""
    lost_at: Mapping[Key, Floats] = field(default_factory=dict)
    """Packets that a shared element dropped, per second."""
    queues: Mapping[Key, Floats] = field(default_factory=dict)
    """How busy the link behind a queue is."""
    processes: Mapping[Key, Floats] = field(default_factory=dict)
    """Processors that ovs-vswitchd uses."""
    full: Mapping[Key, Floats] = field(default_factory=dict)
    """Seconds per second in which it used a processor whole."""
    used: Mapping[tuple[str, str, str], Floats] = field(default_factory=dict)
    """Seconds per second of an element that a tenant uses, by node, element and tenant."""
    watched: Mapping[str, Floats] = field(default_factory=dict)
    """There while the node's vigia-probe says how many targets suffer."""

    def at(self, step: int) -> float:
        """Return when a step ends, Unix time."""
        return self.grid.start + step * self.grid.window


_LABELS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("score", "spread", "scrapes", "limit", "sent", "guarantee"), ("node", "tenant", "port")),
    **dict.fromkeys(("loss", "slow"), ("src", "dst", "tenant")),
    **dict.fromkeys(("packets", "received", "drops"), ("node", "tenant")),
    **dict.fromkeys(("lost_at", "queues", "processes", "full"), ("node", "resource")),
    "used": ("node", "resource", "tenant"),
    "taken": ("node", "tenant", "taker"),
    "watched": ("node",),
}


def grid_at(now: float, period: float) -> Grid:
    """Return the steps of a period until now, but for what is not stored yet."""
    return Grid((now - _SETTLED) // STEP * STEP, STEP, int(period // STEP))


def gather(source: Source, grid: Grid, suffering: Iterable[str] = ()) -> Facts:
    """Return what is known, of the nodes named besides as well. Raises PrometheusError."""
    found = {name: _keyed(name, source.windows(e, grid)) for name, e in FAST.items()}
    nodes = _nodes(found, suffering)
    if nodes:
        found |= {name: _keyed(name, source.windows(e, grid)) for name, e in details(nodes).items()}
    return Facts(grid, **found)


def _nodes(found: Mapping[str, Mapping[Any, Floats]], suffering: Iterable[str]) -> list[str]:
    """Return the nodes with something to tell, in order; of too many, those with the most steps of it."""
    told: dict[str, float] = dict.fromkeys(suffering, 1.0)
    for name, series in found.items():
        for key, values in series.items():
            steps = float(np.isfinite(values).sum())
            for node in key[:2] if _LABELS[name][0] == "src" else key[:1]:
                # What floods goes before what suffers: it may be what many suffer from.
                told[node] = told.get(node, 0.0) + steps * (1e6 if "port" in _LABELS[name] else 1.0)
    most = sorted(sorted(n for n in told if n), key=lambda n: -told[n])[:MOST_NODES]
    return sorted(most)  # the same nodes are the same question


def _keyed(name: str, series: Sequence[Windowed]) -> dict[Any, Floats]:
    labels = _LABELS[name]
    if len(labels) == 1:
        return {s.labels.get(labels[0], ""): s.values for s in series}
    return {tuple(s.labels.get(label, "") for label in labels): s.values for s in series}
