"""What the probes measure on every path, read from Prometheus."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from vigia.errors import VigiaError
from vigia.lab.model import Lab
from vigia.lab.naming import INFRA
from vigia_prometheus import Prometheus
from vigia_service.patience import Patience
from vigia_text import numbers, tables

__all__ = ["PathFigures", "as_table", "read", "wait_for_samples"]

SAMPLES = 100
"""Answered probes that every path has before its figures are shown: five seconds of them, in two scrapes."""

WINDOW = 60
"""Seconds that the figures look back: four scrapes."""

_BY = "by (src, dst, path)"
_DEADLINE = 120.0
_PAUSE = 0.5  # seconds between two questions


@dataclass(frozen=True)
class PathFigures:
    """One direction of a path, as the operator's own probes see it; times in seconds."""

    path: str
    source: str
    destination: str
    p50: float
    p99: float
    jitter: float
    loss: float
    """Share of the probes, 0 to 1."""
    samples: int

    def as_json(self) -> dict[str, Any]:
        """Return the figures as data."""
        return asdict(self)


def _wanted(lab: Lab) -> set[tuple[str, str, str]]:
    return {(t.path, t.source, t.destination) for n in lab.nodes for t in lab.targets(n) if t.tenant == INFRA}


def _samples(seconds: int) -> str:
    """Expression: stamped answers in the last seconds, by path and direction."""
    only = f'{{tenant="{INFRA}"}}[{seconds}s]'
    return f"sum {_BY} (histogram_count(increase(vigia_probe_rtt_seconds{only})))"


def wait_for_samples(
    lab: Lab, prometheus: Prometheus, count: int = SAMPLES, window: int = WINDOW
) -> Iterator[int]:
    """Wait until every direction of every path has so many stamped answers in a window of seconds.

    Yields how many directions have. Raises VigiaError that names one that never does.
    """
    wanted = _wanted(lab)
    patience = Patience(_DEADLINE)
    while True:
        have = {_key(s.labels) for s in prometheus.instant(_samples(window)) if s.value >= count}
        yield len(have & wanted)
        missing = sorted(wanted - have)
        if not missing:
            return
        if patience.over():
            path, source, destination = missing[0]
            raise VigiaError(
                f"path {path} from {source} to {destination} still has fewer than {count} answered probes in "
                f"{window} s; see http://{lab.node(source).agent}:9871/debug/targets"
            )
        time.sleep(_PAUSE)


def _key(labels: Any) -> tuple[str, str, str]:
    return labels["path"], labels["src"], labels["dst"]


def read(lab: Lab, prometheus: Prometheus, seconds: int = WINDOW) -> list[PathFigures]:
    """Return the figures of the last seconds. Raises VigiaError if a direction has none."""
    only = f'{{tenant="{INFRA}"}}[{seconds}s]'

    def by_path(expression: str) -> dict[tuple[str, str, str], float]:
        found = prometheus.instant(expression)
        return {_key(s.labels): s.value for s in found if not math.isnan(s.value)}

    quantile = f"histogram_quantile(%s, sum {_BY} (rate(vigia_probe_rtt_seconds{only})))"
    p50, p99 = by_path(quantile % "0.5"), by_path(quantile % "0.99")
    jitter = by_path(f"avg {_BY} (avg_over_time(vigia_probe_jitter_seconds{only}))")
    samples = by_path(_samples(seconds))
    lost_of_sent = [f"sum {_BY} (increase(vigia_probe_{name}_total{only}))" for name in ("lost", "sent")]
    lost = by_path(" / ".join(lost_of_sent))
    figures = []
    for key in sorted(_wanted(lab)):
        tables = (p50, p99, jitter, lost, samples)
        if any(key not in t for t in tables):
            raise VigiaError(f"Prometheus has no figures of path {key[0]} from {key[1]} to {key[2]}")
        path, source, destination = key
        figures.append(
            PathFigures(
                path, source, destination, p50[key], p99[key], jitter[key], lost[key], round(samples[key])
            )
        )
    return figures


def as_table(figures: list[PathFigures], width: int | None = None) -> str:
    """Return the figures for people, in so many columns."""
    rows = [
        (
            f.path,
            f.source,
            f.destination,
            numbers.seconds(f.p50),
            numbers.seconds(f.p99),
            numbers.seconds(f.jitter),
            numbers.percent(f.loss),
            f.samples,
        )
        for f in figures
    ]
    header = ("path", "from", "to", "RTT p50", "RTT p99", "jitter", "loss", "samples")
    return tables.table(header, rows, width=width)
