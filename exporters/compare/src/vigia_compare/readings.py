"""What Prometheus has of a metric: one value per path, pair of hosts and window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from vigia_compare.measures import LOST, SENT, Measure
from vigia_compare.paths import Known
from vigia_compare.source import Source
from vigia_compare.windows import Grid, Windowed
from vigia_statistics.samples import Floats

__all__ = ["MAX_PATHS", "Cell", "Hosts", "Readings", "Table", "finest", "read", "recorded"]

MAX_PATHS = 32
"""Paths of one cell: 496 pairs."""

Hosts = tuple[str, str]
"""Source and destination node."""

Table = Mapping[str, Mapping[Hosts, Floats]]
"""Values by path and hosts, one per window of a grid, shape (grid.count,); NaN where there is none."""

Ask = Callable[[str, Grid], Sequence[Windowed]]


@dataclass(frozen=True, order=True)
class Cell:
    """What is alike of the paths that are compared: a cell of the winners table."""

    metric: str
    placement: str
    machines: str
    """Number of machines that transfer at the same time, of bulk tests; empty for probes."""
    probe: str
    """Class of the packets; for UDP throughput with its rate."""


@dataclass
class Readings:
    """A metric on a grid, by cell."""

    metric: str
    grid: Grid
    cells: dict[Cell, dict[str, dict[Hosts, Floats]]] = field(default_factory=dict)
    sent: dict[Cell, dict[str, dict[Hosts, Floats]]] = field(default_factory=dict)
    """Probes per window, of the loss."""
    twins: dict[Cell, dict[str, dict[Hosts, Floats]]] = field(default_factory=dict)
    """A path's probes minus their twins on the underlay, of the round trip."""


def recorded(source: Source, measure: Measure, tenant: str, grid: Grid, known: Known) -> Readings:
    """Read what the rules record of a metric. Raises PrometheusError."""
    return read(source.windows, measure, tenant, grid, known)


def read(ask: Ask, measure: Measure, tenant: str, grid: Grid, known: Known) -> Readings:
    """Ask about a metric on a grid. Raises PrometheusError."""
    out = Readings(measure.name, grid)

    def table(expression: str) -> dict[Cell, dict[str, dict[Hosts, Floats]]]:
        return _table(ask(expression.replace("TENANT", tenant), grid), measure, known)

    if measure.rare:
        out.sent, lost = table(SENT), table(LOST)
        for cell, paths in out.sent.items():
            for path, hosts in paths.items():
                for pair, sent in hosts.items():
                    gone = lost.get(cell, {}).get(path, {}).get(pair, np.zeros(sent.size))
                    with np.errstate(invalid="ignore", divide="ignore"):
                        # More lost than sent is of probes from the window before.
                        ratio = np.where(sent > 0.0, np.minimum(np.nan_to_num(gone), sent) / sent, np.nan)
                    out.cells.setdefault(cell, {}).setdefault(path, {})[pair] = ratio
        return out
    out.cells = table(measure.expression)
    if measure.twins:
        out.twins = table(measure.twins)
    return out


def finest(ask: Ask, measure: Measure, tenant: str, grid: Grid, known: Known) -> Readings:
    """Ask about a metric's raw series on a grid of a few seconds. Raises PrometheusError."""
    found = ask(measure.fine.replace("TENANT", tenant), grid)
    return Readings(measure.name, grid, _table(found, measure, known))


def _table(
    series: Sequence[Windowed], measure: Measure, known: Known
) -> dict[Cell, dict[str, dict[Hosts, Floats]]]:
    out: dict[Cell, dict[str, dict[Hosts, Floats]]] = {}
    for s in sorted(series, key=lambda s: sorted(s.labels.items())):
        path, src, dst = (s.labels.get(n, "") for n in ("path", "src", "dst"))
        if not path or not np.isfinite(s.values).any():
            continue
        paths = out.setdefault(_cell(s.labels, measure, known), {})
        if path in paths or len(paths) < MAX_PATHS:
            paths.setdefault(path, {})[(src, dst)] = s.values
    return out


def _cell(labels: Mapping[str, str], measure: Measure, known: Known) -> Cell:
    what = known.of(labels.get("src", ""), labels.get("path", ""))
    rate = labels.get("rate", "")
    probe = labels.get("probe", "") + (f" {rate}" if rate not in ("", "unlimited") else "")
    return Cell(measure.name, what.placement, labels.get("machines", ""), probe)
