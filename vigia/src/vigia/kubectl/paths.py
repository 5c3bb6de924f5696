"""What the paths of a cluster are made of, and what each costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vigia_prometheus.client import Prometheus

__all__ = ["HEADER", "ClusterPath", "read"]

WINDOW = "5m"
HEADER = ("path", "made of", "nodes", "median", "p99", "loss", "more than its twin")
_RTT = f"sum by (path) (rate(vigia_probe_mesh_rtt_seconds[{WINDOW}]))"
_APPLICATION = f"sum by (path) (rate(vigia_probe_rtt_application_seconds[{WINDOW}]))"
_TAX = f"sum by (path) (rate(vigia_probe_mesh_overlay_tax_seconds[{WINDOW}]))"
_OTHER_TAX = f"sum by (path) (rate(vigia_probe_overlay_tax_seconds[{WINDOW}]))"
"""Of what is no mesh: the cluster's DNS and API server."""
_SENT = (
    f"sum by (path) (rate(vigia_probe_mesh_sent_total[{WINDOW}]) or rate(vigia_probe_sent_total[{WINDOW}]))"
)
_LOST = (
    f"sum by (path) (rate(vigia_probe_mesh_lost_total[{WINDOW}]) or rate(vigia_probe_lost_total[{WINDOW}]))"
)
QUERIES = {
    "median": f"histogram_quantile(0.5, {_RTT}) or histogram_quantile(0.5, {_APPLICATION})",
    "p99": f"histogram_quantile(0.99, {_RTT}) or histogram_quantile(0.99, {_APPLICATION})",
    "tax": f"histogram_quantile(0.5, {_TAX}) or histogram_quantile(0.5, {_OTHER_TAX})",
    "loss": f"{_LOST} / {_SENT}",
    "nodes": "count by (path) (count by (path, src) (vigia_probe_mesh_sent_total or vigia_probe_sent_total))",
}
_INFO = "group by (path, dataplane, encap, mode) (vigia_path_info)"


@dataclass
class ClusterPath:
    """A path, and its last minutes; not a number where nothing is known."""

    name: str
    made_of: str = ""
    nodes: float = math.nan
    median: float = math.nan
    """Seconds."""
    p99: float = math.nan
    tax: float = math.nan
    loss: float = math.nan

    def row(self) -> tuple[str, ...]:
        """Return it for people."""
        nodes = "" if math.isnan(self.nodes) else f"{self.nodes:.0f}"
        loss = "" if math.isnan(self.loss) else f"{self.loss:.2%}"
        return (self.name, self.made_of, nodes, _shown(self.median), _shown(self.p99), loss, _shown(self.tax))


def read(server: Prometheus) -> list[ClusterPath]:
    """Ask a Prometheus. Raises PrometheusError."""
    paths: dict[str, ClusterPath] = {}
    for name, query in QUERIES.items():
        for sample in server.instant(query):
            path = paths.setdefault(sample.labels.get("path", ""), ClusterPath(sample.labels.get("path", "")))
            setattr(path, name, sample.value)
    for sample in server.instant(_INFO):
        if found := paths.get(sample.labels.get("path", "")):
            found.made_of = _made_of(sample.labels)
    return [paths[name] for name in sorted(paths)]


def _made_of(labels: Mapping[str, str]) -> str:
    parts = [labels.get(k, "") for k in ("dataplane", "encap", "mode")]
    return ", ".join(p for p in parts if p not in ("", "none", "normal")) or "the network itself"


def _shown(seconds: float) -> str:
    """Return a time for people, for example 41 µs."""
    if math.isnan(seconds):
        return ""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
