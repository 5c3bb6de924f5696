"""Readings of a test's choice, and what is found in them: everything is the program's own but Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from prometheus_client.metrics_core import Metric

from vigia_compare.evaluation import Evaluation, PathSummary
from vigia_compare.evidence import Book, Terms
from vigia_compare.exposition import Metrics
from vigia_compare.findings import Finding
from vigia_compare.measures import MEASURES
from vigia_compare.paths import Known, PathAttributes
from vigia_compare.readings import Cell, Hosts, Readings
from vigia_compare.standings import standings
from vigia_compare.windows import Grid
from vigia_statistics import median_interval
from vigia_statistics.samples import Floats
from vigia_statistics.sequential import QUESTIONS

__all__ = [
    "BASE",
    "END",
    "HOSTS",
    "KNOWN",
    "TERMS",
    "attributes",
    "evaluation_of",
    "families",
    "found_in",
    "known",
    "readings",
]

END = 1_800_000_017.0
HOSTS: Hosts = ("n1", "n2")
RNG = np.random.default_rng(31)
BASE = 20e-6 * RNG.lognormal(0.0, 0.05, 60)
TERMS = Terms(0.05, 60.0, "_infra", {name: q.margin for name, q in QUESTIONS.items()})


def families(evaluation: Evaluation | None) -> list[Metric]:
    """Return what the service exposes of an evaluation, on any page."""
    metrics = Metrics()
    before = {f.name for f in metrics.registry.collect()}
    metrics.show(evaluation)
    return [f for r in (metrics.registry, metrics.verdicts) for f in r.collect() if f.name not in before]


def attributes(**values: str) -> PathAttributes:
    usual = {
        "placement": "remote",
        "dataplane": "ovs-kernel",
        "encap": "gre",
        "mode": "normal",
        "security": "none",
        "layer": "overlay",
    }
    return PathAttributes(**{**usual, **values})


KNOWN = {
    "gre": attributes(),
    "ipsec": attributes(security="esp"),
    "openflow": attributes(mode="openflow"),
    "both": attributes(mode="openflow", security="esp"),
    "direct": attributes(dataplane="none", encap="none", layer="underlay"),
    "vxlan": attributes(encap="vxlan"),
    "bridge": attributes(encap="vxlan", dataplane="linuxbridge"),
    "netdev": attributes(dataplane="ovs-userspace"),
    "macvlan": attributes(dataplane="macvlan", encap="none"),
}


def known(
    more: Mapping[str, PathAttributes] | None = None, changed: Mapping[tuple[str, str], float] | None = None
) -> Known:
    return Known({}, KNOWN | dict(more or {}), changed or {})


def readings(
    metric: str,
    paths: Mapping[str, Floats | Mapping[Hosts, Floats]],
    end: float = END,
    window: float = 60.0,
    sent: float = 100.0,
    twins: Mapping[str, Floats | Mapping[Hosts, Floats]] | None = None,
) -> Readings:
    """What is read of paths of one cell; values alone are between HOSTS, of loss its ratio."""
    cell = Cell(metric, "remote", "", "stamp-64")
    by_hosts = {p: dict(v) if isinstance(v, Mapping) else {HOSTS: v} for p, v in paths.items()}
    count = next(v.size for hosts in by_hosts.values() for v in hosts.values())
    made = Readings(metric, Grid(end, window, count), {cell: by_hosts})
    if MEASURES[metric].rare:
        made.sent = {cell: {p: {h: np.full(count, sent) for h in hosts} for p, hosts in by_hosts.items()}}
    if twins:
        made.twins = {cell: {p: dict(v) if isinstance(v, Mapping) else {HOSTS: v} for p, v in twins.items()}}
    return made


def found_in(
    *given: Readings, book: Book | None = None, of: Known | None = None, fine: bool = False
) -> list[Finding]:
    """What a book finds in readings, shown by the medians of their paths."""
    book = book or Book(TERMS)
    book.take(given, of or known(), fine)
    usual = {
        (cell, path): float(np.nanmedian(np.array(list(hosts.values()))))
        for r in given
        for cell, paths in r.cells.items()
        for path, hosts in paths.items()
    }
    return book.findings(given[0].grid.end, usual, 0.0)


def evaluation_of(*given: Readings, of: Known | None = None) -> Evaluation:
    """An evaluation of readings alone."""
    found = found_in(*given, of=of)
    paths: Sequence[PathSummary] = [
        PathSummary(cell, path, values.size, median_interval(values))
        for r in given
        for cell, paths in r.cells.items()
        for path, hosts in sorted(paths.items())
        for values in hosts.values()
    ]
    return Evaluation(at=END + 15.0, findings=found, standings=standings(found), paths=paths, end=END)
