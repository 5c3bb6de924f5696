"""Who hurts whom: a tenant's bad windows against the traffic of its node's other tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vigia_compare.coincidence import Candidate, explained_shares, rank
from vigia_compare.prometheus import Grid, Prometheus, Series
from vigia_statistics.samples import Floats

__all__ = ["ATTRIBUTED", "INSUFFICIENT", "Interference", "attribute", "excess", "find"]

ATTRIBUTED = "attributed"
INSUFFICIENT = "insufficient evidence"

LEAST_SHARE = 0.1
"""An offender explains at least this share of the excess."""

LOSS = (
    "sum by (src, tenant) (increase(vigia_probe_lost_total"
    '{tenant!~"_.*",cause!~"send_error|local_overflow|reflector_overflow"}[WINDOW]))'
    ' / (sum by (src, tenant) (increase(vigia_probe_sent_total{tenant!~"_.*"}[WINDOW])) > 0)'
)
DELAY = (
    'histogram_quantile(0.99, sum by (src, tenant) (rate(vigia_probe_rtt_seconds{tenant!~"_.*"}[WINDOW])))'
)
TRAFFIC = (
    'sum by (node, tenant) (rate(vigia_port_bytes_total{direction="from_tenant",tenant!~"_.*"}[WINDOW]))'
)


@dataclass(frozen=True)
class Interference:
    """What is known of one tenant on one node that had bad windows."""

    node: str
    tenant: str
    measure: str
    """loss or delay: what was bad."""
    bad_windows: int
    offenders: Sequence[Candidate]
    """Co-tenants by share of the excess, best first."""

    def offender(self, alpha: float = 0.05) -> Candidate | None:
        """The co-tenant that the excess is attributed to; None for insufficient evidence."""
        best = self.offenders[0] if self.offenders else None
        return best if best and best.p_value <= alpha and best.share >= LEAST_SHARE else None


def find(prometheus: Prometheus, grid: Grid) -> list[Interference]:
    """Look at every tenant on every node. Raises CompareError."""
    loss, delay = (_by(prometheus.windows(e, grid), "src") for e in (LOSS, DELAY))
    traffic = _by(prometheus.windows(TRAFFIC, grid), "node")
    out = []
    for node, tenant in sorted(set(loss) | set(delay)):
        others = {t: np.nan_to_num(v) for (n, t), v in traffic.items() if n == node and t != tenant}
        found = attribute(node, tenant, loss.get((node, tenant)), delay.get((node, tenant)), others)
        if found is not None:
            out.append(found)
    return out


def attribute(
    node: str, tenant: str, loss: Floats | None, delay: Floats | None, others: Mapping[str, Floats]
) -> Interference | None:
    """Attribute a tenant's excess to its co-tenants; None while nothing is bad.

    Loss goes first: while probes are lost, the delay of those that arrive says little.
    """
    for measure, values, least in (("loss", loss, 0.01), ("delay", delay, 0.002)):
        if values is None:
            continue
        above = excess(values, least)
        bad = int((above > 0.0).sum())
        if bad:
            return Interference(node, tenant, measure, bad, rank(above, others, explained_shares))
    return None


def excess(values: Floats, least: float) -> Floats:
    """Return by how much windows exceed what is usual, 0 where they do not.

    Bad is a window above ``least`` and above five times the median of all; what
    is missing counts as usual.
    """
    known = values[np.isfinite(values)]
    if known.size == 0:
        return np.zeros(values.size)
    usual = float(np.median(known))
    filled = np.where(np.isfinite(values), values, usual)
    return np.where(filled > max(least, 5.0 * usual), filled - usual, 0.0)


def _by(series: Sequence[Series], node: str) -> dict[tuple[str, str], Floats]:
    return {(s.labels.get(node, ""), s.labels.get("tenant", "")): s.values for s in series}
