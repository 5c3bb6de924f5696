"""What got worse: paths against their own past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vigia_compare import engine
from vigia_compare.conditions import WORSE
from vigia_compare.config import Config
from vigia_compare.measures import MEASURES, Measure
from vigia_compare.source import Source
from vigia_compare.units import independent, runs
from vigia_compare.windows import Grid
from vigia_statistics import Comparison, Direction, Verdict, compare, judge
from vigia_text import numbers

__all__ = ["Change", "as_json", "as_text", "changes"]


@dataclass(frozen=True)
class Change:
    """One path now (a) against itself before (b)."""

    measure: Measure
    probe: str
    path: str
    comparison: Comparison

    @property
    def said(self) -> str:
        """better, worse, tie or not enough data."""
        return {Verdict.A: "better", Verdict.B: WORSE}.get(
            self.comparison.verdict, self.comparison.verdict.value
        )


def changes(source: Source, config: Config, now: float, ago: float) -> list[Change]:
    """Compare every path with itself ``ago`` seconds earlier. Raises PrometheusError.

    Holm's family are all paths of a metric.
    """
    grid = Grid.before(source.last_recorded(now), config.window, config.period)
    out: list[Change] = []
    for name in config.metrics:
        measure = MEASURES[name]
        present = _samples(source, measure, config.tenant, grid)
        past = _samples(source, measure, config.tenant, grid.earlier(ago))
        found = []
        for probe, path in sorted(set(present) & set(past)):
            x, y = independent(present[(probe, path)], past[(probe, path)], measure.rare)
            if min(x.size, y.size) >= 2:
                found.append(
                    Change(measure, probe, path, compare("now", "before", x, y, confidence=config.confidence))
                )
        judged = judge(
            [c.comparison for c in found],
            Direction(measure.better),
            alpha=1.0 - config.confidence,
            minimum_samples=config.minimum_windows,
        )
        out += [replace(c, comparison=j) for c, j in zip(found, judged, strict=True)]
    return out


def _samples(source: Source, measure: Measure, tenant: str, grid: Grid) -> dict[tuple[str, str], Any]:
    out = {}
    for s in engine.read(source, measure.expression, tenant, grid):
        values = s.values[np.isfinite(s.values)]
        if values.size:
            key = (s.labels.get("probe", ""), s.labels.get("path", ""))
            out[key] = runs(values) if measure.runs else values
    return out


def as_json(found: Sequence[Change]) -> dict[str, Any]:
    """Return changes as data, in base units; shift is now minus before."""
    return {
        "version": 1,
        "changes": [
            {
                "metric": c.measure.name,
                "unit": c.measure.unit,
                "probe": c.probe,
                "path": c.path,
                "now": c.comparison.median_a,
                "before": c.comparison.median_b,
                "shift": c.comparison.shift,
                "interval": [c.comparison.lower, c.comparison.upper],
                "adjusted_p_value": c.comparison.adjusted_p_value,
                "verdict": c.said,
            }
            for c in found
        ],
    }


def as_text(found: Sequence[Change]) -> str:
    """Return changes for people, one line each."""
    if not found:
        return "nothing to compare: no path has windows in both periods"
    return "\n".join(_line(c) for c in found)


def _line(change: Change) -> str:
    c, unit = change.comparison, change.measure.unit
    return (
        f"{change.measure.name} {change.path} {change.probe}: {numbers.quantity(c.median_b, unit)} -> "
        f"{numbers.quantity(c.median_a, unit)}, shift {numbers.interval(c.shift, c.lower, c.upper, unit)}, "
        f"p {numbers.probability(c.adjusted_p_value)}: {change.said}"
    )
