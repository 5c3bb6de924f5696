"""Loss pinned to a counter: which drop counter on the path counted when probes were lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vigia_compare.coincidence import Candidate, rank, rank_correlation
from vigia_compare.limits import LEAST_WINDOWS
from vigia_compare.source import Source
from vigia_compare.windows import Grid, grown
from vigia_statistics.samples import Floats

__all__ = ["COUNTERS", "Counter", "Pinned", "find", "pin"]

_KEY = ("src", "dst", "path", "tenant")

_PROBES = grown('vigia_probe_lost_total{cause!~"send_error|local_overflow|reflector_overflow"}')

LOST = f"sum by (src, dst, path, tenant) ({_PROBES})"

_PLACES: Mapping[str, str] = {
    "vigia_port_drops_total": "node, reason",
    "vigia_isolation_policed_packets_total": "node",
    "vigia_qdisc_drops_total": "node, device",
    "vigia_ovs_port_drops_total": "node, device",
    'vigia_ovs_datapath_lookups_total{result="lost"}': "node, result",
    "vigia_reflector_overflow_total": "node",
    "node_softnet_dropped_total": "node",
    "node_qdisc_drops_total": "node, device",
    "node_network_receive_drop_total": "node, device",
    "node_network_transmit_drop_total": "node, device",
}

COUNTERS: Mapping[str, str] = {
    counter.partition("{")[0]: f"sum by ({place}) ({grown(counter)})" for counter, place in _PLACES.items()
}
"""Drop counters, with the labels that tell where: at most one beside the node."""

_DETAILS = ("reason", "device", "result")

LEAST_CORRELATION = 0.3


@dataclass(frozen=True)
class Counter:
    """One drop counter and how it fits."""

    node: str
    """Empty for a counter of the whole site."""
    name: str
    detail: str
    """Reason, device, or result of a look-up."""
    coincidence: float
    p_value: float
    packets: float
    """What it counted in the lossy windows."""


@dataclass(frozen=True)
class Pinned:
    """What is known of one lossy path."""

    src: str
    dst: str
    path: str
    tenant: str
    lost: float
    lossy_windows: int
    counters: Sequence[Counter]
    known: int = LEAST_WINDOWS
    """Windows from the first to the last that the path's losses are known of."""

    @property
    def verdict(self) -> str:
        """Pinned, insufficient evidence, or no counter where none counted anything."""
        if not self.counters:
            return "no counter" if self.known >= LEAST_WINDOWS else "insufficient evidence"
        best = self.counters[0]
        fits = best.p_value <= 0.05 and best.coincidence >= LEAST_CORRELATION
        return "pinned" if fits else "insufficient evidence"


def find(source: Source, grid: Grid) -> list[Pinned]:
    """Look at every path that lost probes. Raises PrometheusError."""
    lossy = [([s.labels.get(k, "") for k in _KEY], s.values) for s in source.windows(LOST, grid)]
    lossy = [(key, values) for key, values in lossy if np.nansum(values) >= 1.0]
    if not lossy:
        return []
    counters = _counters(source, grid)
    out = []
    for (src, dst, path, tenant), lost in lossy:
        near = {k: v for k, v in counters.items() if k[0] in (src, dst, "")}
        out.append(pin(src, dst, path, tenant, lost, near))
    return out


def _counters(source: Source, grid: Grid) -> dict[tuple[str, str, str], Floats]:
    found: dict[tuple[str, str, str], Floats] = {}
    for name, expression in COUNTERS.items():
        for s in source.windows(expression, grid):
            values = np.nan_to_num(s.values)
            if values.sum() > 0.0:
                detail = next((s.labels[k] for k in _DETAILS if s.labels.get(k)), "")
                found[(s.labels.get("node", ""), name, detail)] = values
    return found


def pin(  # noqa: PLR0913
    src: str,
    dst: str,
    path: str,
    tenant: str,
    lost: Floats,
    near: Mapping[tuple[str, str, str], Floats],
) -> Pinned:
    """Rank the counters near a path by their coincidence with its losses, shape (windows,) each.

    Windows before the path was measured do not count: nothing was lost and
    nothing counted then, which alone would look like a coincidence.
    """
    known = np.flatnonzero(np.isfinite(lost))
    span = slice(int(known[0]), int(known[-1]) + 1) if known.size else slice(0)
    lost = np.nan_to_num(lost[span])
    joined = {"\0".join(key): values[span] for key, values in near.items()}
    ranked: Sequence[Candidate] = rank(lost, joined, rank_correlation)
    bad = lost > 0.0
    counters = []
    for candidate in ranked:
        node, name, detail = candidate.name.split("\0")
        packets = float(joined[candidate.name][bad].sum())
        counters.append(Counter(node, name, detail, candidate.share, candidate.p_value, packets))
    counters.sort(key=lambda c: (-c.coincidence, -c.packets, c.name, c.node, c.detail))
    return Pinned(src, dst, path, tenant, float(lost.sum()), int(bad.sum()), counters, lost.size)
