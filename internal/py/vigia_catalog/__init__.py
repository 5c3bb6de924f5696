"""The catalogue of Vigia's metrics.

The YAML files in ``metrics/`` are the only place where a metric's name, type,
unit, labels and help are written. The Go package ``internal/catalog`` embeds
the same files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Literal, cast

import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["Factory", "Metric", "load", "part_metrics"]

MetricType = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class Metric:
    """One metric family as the catalogue declares it."""

    name: str
    type: MetricType
    unit: str
    labels: tuple[str, ...]
    help: str
    part: str


def load() -> dict[str, Metric]:
    """Return every metric by name; self metrics keep PART in their names."""
    out: dict[str, Metric] = {}
    for entry in sorted(files(__name__).joinpath("metrics").iterdir(), key=lambda e: e.name):
        document = cast(dict[str, Any], yaml.safe_load(entry.read_text(encoding="utf-8")))
        for raw in document["metrics"]:
            metric = Metric(**{**raw, "labels": tuple(raw["labels"]), "part": document["part"]})
            out[metric.name] = metric
    return out


COMMANDS = {"campaign"}
"""Parts that are no services: they have no self metrics."""


def part_metrics(part: str) -> list[Metric]:
    """Return one part's metrics, self metrics under the part's own name, sorted by name."""
    chosen = [
        replace(m, name=m.name.replace("PART", part), part=part) if m.part == "self" else m
        for m in load().values()
        if m.part == part or (m.part == "self" and part not in COMMANDS)
    ]
    return sorted(chosen, key=lambda m: m.name)


class Factory:
    """Builds a part's metrics from the catalogue and registers them.

    Asking for a metric that the catalogue does not declare for the part, or
    with another type, raises LookupError.
    """

    def __init__(self, part: str, registry: CollectorRegistry) -> None:
        self._metrics = {m.name: m for m in part_metrics(part)}
        self._registry = registry

    def _declared(self, name: str, kind: MetricType) -> Metric:
        metric = self._metrics.get(name)
        if metric is None or metric.type != kind:
            raise LookupError(f"the catalogue declares no {kind} {name} for this part")
        return metric

    def counter(self, name: str) -> Counter:
        """Register and return a catalogued counter."""
        m = self._declared(name, "counter")
        return Counter(m.name, m.help, m.labels, registry=self._registry)

    def gauge(self, name: str) -> Gauge:
        """Register and return a catalogued gauge."""
        m = self._declared(name, "gauge")
        return Gauge(m.name, m.help, m.labels, registry=self._registry)

    def histogram(self, name: str, buckets: tuple[float, ...]) -> Histogram:
        """Register and return a catalogued histogram with classic buckets."""
        m = self._declared(name, "histogram")
        return Histogram(m.name, m.help, m.labels, registry=self._registry, buckets=buckets)
