"""What got worse: conditions for exit codes, and paths against their own past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np

from vigia_compare import engine
from vigia_compare.config import Config
from vigia_compare.engine import Group
from vigia_compare.measures import MEASURES, Measure
from vigia_compare.prometheus import Grid, Prometheus
from vigia_compare.report import quantity
from vigia_compare.units import independent, runs
from vigia_statistics import Comparison, Direction, Verdict, compare, judge

__all__ = ["Change", "Condition", "as_json", "as_text", "changes", "condition"]

WORSE = "worse"


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


@dataclass(frozen=True)
class Condition:
    """One --fail-if."""

    text: str
    path: str
    other: str

    def fails_on_groups(self, groups: Sequence[Group]) -> bool:
        """Whether path is worse than other on any metric."""
        return any(
            (c.a, c.b, c.verdict) in ((self.path, self.other, Verdict.B), (self.other, self.path, Verdict.A))
            for g in groups
            for c in g.pairs
        )

    def fails_on_changes(self, found: Sequence[Change]) -> bool:
        """Whether any path is worse than it was."""
        return any(c.said == WORSE for c in found)


def condition(text: str, with_past: bool) -> Condition:
    """Parse a --fail-if. Raises click.UsageError."""
    path, colon, other = text.partition(":")
    if with_past and text == WORSE:
        return Condition(text, "", "")
    if not with_past and colon and path and other and path != other:
        return Condition(text, path, other)
    fix = (
        "with --against write worse" if with_past else "write A:B with two paths, or add --against for worse"
    )
    raise click.UsageError(f"--fail-if {text}: is no condition here; {fix}")


def changes(prometheus: Prometheus, config: Config, now: float, ago: float) -> list[Change]:
    """Compare every path with itself ``ago`` seconds earlier. Raises CompareError.

    Holm's family are all paths of a metric.
    """
    grid = Grid.before(now, config.window, config.period)
    out: list[Change] = []
    for name in config.metrics:
        measure = MEASURES[name]
        present = _samples(prometheus, measure, config.tenant, grid)
        past = _samples(prometheus, measure, config.tenant, grid.earlier(ago))
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


def _samples(prometheus: Prometheus, measure: Measure, tenant: str, grid: Grid) -> dict[tuple[str, str], Any]:
    out = {}
    for s in engine.read(prometheus, measure.expression, measure.classic, tenant, grid):
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
    def shown(value: float) -> str:
        return quantity(value, change.measure.unit)

    c = change.comparison
    return (
        f"{change.measure.name} {change.path} {change.probe}: {shown(c.median_b)} -> {shown(c.median_a)}, "
        f"shift {shown(c.shift)} [{shown(c.lower)}, {shown(c.upper)}], "
        f"p {c.adjusted_p_value:.2g}: {change.said}"
    )
