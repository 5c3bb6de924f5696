"""What a table shows, without a Grafana: rows as its transformations make them of real answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from vigia_dashboards.expressions import substituted
from vigia_dashboards.model import Panel
from vigia_prometheus import Prometheus

__all__ = ["Row", "at", "holes", "joined"]

Row = tuple[Mapping[str, str], Mapping[str, float]]
"""Labels, and values by the legends of their queries."""


def joined(panel: Panel, answers: Sequence[Sequence[tuple[Mapping[str, str], float]]]) -> list[Row]:
    """Return the rows of which merge makes one table: frames are joined where all their labels are equal."""
    rows: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for query, answer in zip(panel.queries, answers, strict=True):
        for labels, value in answer:
            key = tuple(sorted((k, v) for k, v in labels.items() if v))
            rows.setdefault(key, {})[query.legend] = value
    return [(dict(labels), values) for labels, values in rows.items()]


def at(server: Prometheus, panel: Panel, now: float) -> list[Row]:
    """Return the rows of a table at an instant, variables at All. Raises PrometheusError."""
    asked = (server.instant(substituted(query.expression), now) for query in panel.asked)
    return joined(panel, [[(s.labels, s.value) for s in answer] for answer in asked])


def holes(panel: Panel, rows: Sequence[Row]) -> list[str]:
    """Say which cells have nothing in them, though the panel does not say that this is normal.

    A label is one that decides unless it is of those that come after the values.
    """
    return [hole for labels, values in rows for hole in _of_row(panel, labels, values)]


def _of_row(panel: Panel, labels: Mapping[str, str], values: Mapping[str, float]) -> Iterator[str]:
    where = " ".join(f"{k}={v}" for k, v in sorted(labels.items()))
    for label in panel.columns:
        if label not in panel.after and not labels.get(label) and "" not in panel.texts.get(label, {}):
            yield f"{panel.title}: no {label} in {where}"
    for query in panel.queries:
        value = values.get(query.legend, math.nan)
        if query.hidden or (math.isnan(value) and panel.missing):
            continue
        words = {word for word, *_ in query.words or panel.words}
        if not math.isfinite(value):
            yield f"{panel.title}: {query.legend} is {value} in {where}"
        elif words and f"{value:g}" not in words:
            yield f"{panel.title}: {query.legend} has no word for {value:g} in {where}"
