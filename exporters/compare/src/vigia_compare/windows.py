"""Measurements by windows: what evaluations ask of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vigia_compare.counters import counted, grown
from vigia_compare.limits import MINUTE
from vigia_prometheus import Prometheus, Series
from vigia_statistics.samples import Floats

__all__ = ["CLOCK", "LATE", "Grid", "Windowed", "counted", "grown", "last_recorded", "read"]

LATE = 15.0
"""Seconds after which everything is stored that was scraped, or evaluated by a rule, at an instant."""

_RECENT = 600.0
"""Seconds for which the rules may record nothing; Prometheus looks back half of that."""

CLOCK = "max(timestamp(path:vigia_probe_rtt_seconds:p99_rate1m))"
"""When the rules of the windows were evaluated."""


@dataclass(frozen=True)
class Grid:
    """Windows of equal length that touch and do not overlap."""

    end: float
    """Unix time at which the last window ends."""
    window: float
    count: int

    @classmethod
    def before(cls, at: float, window: float, period: float) -> Grid:
        """Return the complete windows of a period; all end at the part of a minute that ``at`` is at.

        So each evaluation of a rule is in one window, whenever in a minute the rule is evaluated; and windows
        of several minutes stay where they are while time goes by.
        """
        # In milliseconds, as Prometheus counts: seconds as floats would lose windows to rounding.
        now, length, minute = round(at * 1000), round(window * 1000), round(MINUTE * 1000)
        phase = now % minute
        end = (now - phase) // length * length + phase
        return cls(end / 1000, window, int(period // window))

    @property
    def start(self) -> float:
        """Unix time at which the first window ends."""
        return self.end - (self.count - 1) * self.window

    def earlier(self, seconds: float) -> Grid:
        """Return the same grid that many whole windows earlier."""
        return Grid(self.end - round(seconds / self.window) * self.window, self.window, self.count)

    def newest(self, count: int) -> Grid:
        """Return the last windows of the grid."""
        return Grid(self.end, self.window, count)

    def steps_after(self, other: Grid) -> int | None:
        """Return how many windows later than another this grid ends; None if their windows differ."""
        moved, length = round((self.end - other.end) * 1000), round(self.window * 1000)
        alike = (self.window, self.count) == (other.window, other.count) and moved % length == 0
        return moved // length if alike else None

    def question(self, expression: str) -> str:
        """Return an expression with $window, $within, $half and $twice replaced by lengths.

        $seconds is the window as a number.

        $within is a millisecond short of the window: ranges of Prometheus 2 hold both their ends, and what is
        recorded just when a window begins is the one's before. $twice holds just two scrapes where one is
        made in each window, so that a rate is of what the window counted.
        """
        length = round(self.window * 1000)
        for word, value in (
            ("$window", length),
            ("$within", length - 1),
            ("$half", length // 2),
            ("$twice", 2 * length - 1),
        ):
            expression = expression.replace(word, f"{value}ms")
        return expression.replace("$seconds", f"{self.window:g}")


@dataclass(frozen=True)
class Windowed:
    """One series on a grid."""

    labels: Mapping[str, str]
    values: Floats
    """One value per window, shape (grid.count,); NaN where there is none."""


def read(prometheus: Prometheus, expression: str, grid: Grid) -> list[Windowed]:
    """Evaluate an expression at the end of every window. Raises PrometheusError."""
    found = prometheus.range(grid.question(expression), grid.start, grid.end, grid.window)
    return [_on(grid, s) for s in found]


def last_recorded(prometheus: Prometheus, now: float) -> float:
    """Return when the rules of the windows were evaluated last, Unix time. Raises PrometheusError.

    Where they have recorded nothing for minutes: the last whole one by the clock.
    """
    settled = now - LATE
    at = [s.value for s in prometheus.instant(CLOCK, settled) if 0.0 <= settled - s.value < _RECENT]
    return at[0] if at else settled // MINUTE * MINUTE


def _on(grid: Grid, series: Series) -> Windowed:
    values = np.full(grid.count, np.nan)
    for at, value in series.points:
        index = round((at - grid.start) / grid.window)
        if 0 <= index < grid.count and np.isfinite(value):
            values[index] = float(f"{value:.12g}")  # equal sums, added up in another order, are to tie
    return Windowed(series.labels, values)
