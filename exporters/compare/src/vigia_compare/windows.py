"""Measurements by windows: what evaluations ask of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vigia_prometheus import Prometheus, Series
from vigia_statistics.samples import Floats

__all__ = ["Grid", "Source", "Windowed"]


@dataclass(frozen=True)
class Grid:
    """Windows of equal length that touch and do not overlap, aligned to their length."""

    end: float
    """Unix time at which the last window ends."""
    window: float
    count: int

    @classmethod
    def before(cls, now: float, window: float, period: float) -> Grid:
        """Return the complete windows of a period that ends now."""
        return cls(now // window * window, window, int(period // window))

    @property
    def start(self) -> float:
        """Unix time at which the first window ends."""
        return self.end - (self.count - 1) * self.window

    def earlier(self, seconds: float) -> Grid:
        """Return the same grid that many whole windows earlier."""
        return Grid(self.end - round(seconds / self.window) * self.window, self.window, self.count)


@dataclass(frozen=True)
class Windowed:
    """One series on a grid."""

    labels: Mapping[str, str]
    values: Floats
    """One value per window, shape (grid.count,); NaN where there is none."""


class Source:
    """A Prometheus server, asked by windows. Every method raises PrometheusError."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus

    def labels(self, expression: str, at: float) -> list[Mapping[str, str]]:
        """Return the label sets of the series that an instant query finds."""
        return [s.labels for s in self._prometheus.instant(expression, at)]

    def windows(self, expression: str, grid: Grid) -> list[Windowed]:
        """Evaluate an expression at the end of every window; WINDOW in it is the length."""
        text = expression.replace("WINDOW", f"{grid.window * 1000:.0f}ms")
        return [_on(grid, s) for s in self._prometheus.range(text, grid.start, grid.end, grid.window)]


def _on(grid: Grid, series: Series) -> Windowed:
    values = np.full(grid.count, np.nan)
    for at, value in series.points:
        index = round((at - grid.start) / grid.window)
        if 0 <= index < grid.count and np.isfinite(value):
            values[index] = value
    return Windowed(series.labels, values)
