"""What got worse: paths against their own past, at one look and with a test for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vigia_compare.conditions import WORSE
from vigia_compare.config import Config
from vigia_compare.measures import MEASURES, Measure
from vigia_compare.paths import Known, attributes
from vigia_compare.readings import Cell, Hosts, recorded
from vigia_compare.source import Source
from vigia_compare.units import independent, runs
from vigia_compare.windows import Grid
from vigia_statistics import Comparison, Direction, Verdict, compare, judge
from vigia_statistics.samples import Floats
from vigia_text import numbers

__all__ = ["Change", "as_json", "as_text", "changes"]


@dataclass(frozen=True)
class Change:
    """One path now (a) against itself before (b)."""

    measure: Measure
    cell: Cell
    path: str
    comparison: Comparison

    @property
    def said(self) -> str:
        """better, worse, tie or not enough data."""
        return {Verdict.A: "better", Verdict.B: WORSE}.get(
            self.comparison.verdict, self.comparison.verdict.value
        )


def changes(source: Source, config: Config, now: float, ago: float, least: int) -> list[Change]:
    """Compare every path with itself ``ago`` seconds earlier, between the same hosts. Raises PrometheusError.

    ``least`` windows make a verdict. Holm's family are all paths of a metric.
    """
    grid = Grid.before(source.last_recorded(now), config.window, config.period)
    known = attributes(source, grid)
    out: list[Change] = []
    for name in config.metrics:
        measure = MEASURES[name]
        present, past = (
            _by_hosts(source, measure, config.tenant, g, known) for g in (grid, grid.earlier(ago))
        )
        found = []
        for cell, path in sorted(set(present) & set(past)):
            shared = sorted(set(present[(cell, path)]) & set(past[(cell, path)]))
            if not shared:
                continue
            now_, before = (_sample(measure, [of[(cell, path)][h] for h in shared]) for of in (present, past))
            x, y = independent(now_, before, measure.rare)
            if min(x.size, y.size) >= 2:
                said = compare("now", "before", x, y, confidence=config.confidence)
                found.append(Change(measure, cell, path, said))
        judged = judge(
            [c.comparison for c in found],
            Direction(measure.better),
            alpha=1.0 - config.confidence,
            minimum_samples=least,
        )
        out += [replace(c, comparison=j) for c, j in zip(found, judged, strict=True)]
    return out


def _by_hosts(
    source: Source, measure: Measure, tenant: str, grid: Grid, known: Known
) -> dict[tuple[Cell, str], Mapping[Hosts, Floats]]:
    found = recorded(source, measure, tenant, grid, known)
    return {(cell, path): by_hosts for cell, paths in found.cells.items() for path, by_hosts in paths.items()}


def _sample(measure: Measure, values: Sequence[Floats]) -> Floats:
    """Return one value per window, or run: the mean over the pairs of hosts, each counted alike."""
    if measure.runs:
        return np.concatenate([runs(v[np.isfinite(v)]) for v in values])
    known = np.isfinite(np.array(values))
    count = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    return np.asarray(total[count > 0] / count[count > 0])


def as_json(found: Sequence[Change]) -> dict[str, Any]:
    """Return changes as data, in base units; shift is now minus before."""
    return {
        "version": 1,
        "changes": [
            {
                "metric": c.measure.name,
                "unit": c.measure.unit,
                "placement": c.cell.placement,
                "machines": c.cell.machines or None,
                "probe": c.cell.probe,
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
        f"{change.measure.name} {change.path} {change.cell.probe}: {numbers.quantity(c.median_b, unit)} -> "
        f"{numbers.quantity(c.median_a, unit)}, shift {numbers.interval(c.shift, c.lower, c.upper, unit)}, "
        f"p {numbers.probability(c.adjusted_p_value)}: {change.said}"
    )
