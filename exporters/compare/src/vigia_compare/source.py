"""Where windows come from: Prometheus, and those of them that are known already."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vigia_compare import windows
from vigia_compare.windows import Grid, Windowed
from vigia_prometheus import Prometheus, Sample
from vigia_statistics.samples import Floats

__all__ = ["AGAIN", "MOST_VALUES", "WHOLE", "Memory", "Source"]

AGAIN = 2
"""Newest known windows that are asked for again with the next one: samples may come late."""

WHOLE = 3600.0
"""Seconds after which all windows of a question are asked for again: what came later still, when a store had
been away for long, and what was deleted, shows up then."""

MOST_VALUES = 4_000_000
"""Values that are kept, 32 MB; questions beyond it are asked as a whole each time."""

_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Kept:
    """The answer to one question."""

    grid: Grid
    whole: float
    """End of the grid when all of it was asked for."""
    series: dict[_Labels, Floats]

    @property
    def size(self) -> int:
        return len(self.series) * self.grid.count


@dataclass
class Memory:
    """Windows that were read, by question. Belongs to one server and one configuration, and to one thread."""

    most: int = MOST_VALUES
    _kept: dict[str, _Kept] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Values that are kept."""
        return sum(k.size for k in self._kept.values())

    def windows(self, prometheus: Prometheus, expression: str, grid: Grid) -> list[Windowed]:
        """Return what Source.windows does, asking for windows that are not known."""
        kept = self._kept.get(expression)
        steps = grid.steps_after(kept.grid) if kept is not None else None
        if kept is None or steps is None or not self._continues(kept, grid, steps):
            found = {_key(s): s.values for s in windows.read(prometheus, expression, grid)}
            kept = _Kept(grid, grid.end, found)
        elif steps > 0:
            new = grid.newest(steps + AGAIN)
            found = {_key(s): s.values for s in windows.read(prometheus, expression, new)}
            kept = _Kept(grid, kept.whole, _moved(kept.series, found, grid.count, steps))
        self._keep(expression, kept)
        return [Windowed(dict(labels), values) for labels, values in kept.series.items()]

    @staticmethod
    def _continues(kept: _Kept, grid: Grid, steps: int) -> bool:
        return 0 <= steps < grid.count - AGAIN and grid.end - kept.whole < WHOLE

    def _keep(self, expression: str, kept: _Kept) -> None:
        self._kept.pop(expression, None)
        for other in [e for e, k in self._kept.items() if kept.grid.end - k.grid.end > WHOLE]:
            del self._kept[other]  # not asked any more
        if self.size + kept.size <= self.most:
            self._kept[expression] = kept


def _key(series: Windowed) -> _Labels:
    return tuple(sorted(series.labels.items()))


def _moved(
    old: dict[_Labels, Floats], new: dict[_Labels, Floats], count: int, steps: int
) -> dict[_Labels, Floats]:
    """Return all series ``steps`` windows later: the newest as they are now, the others as they were."""
    out = {}
    for labels in old | new:
        values = np.full(count, np.nan)
        if labels in old:
            values[: count - steps - AGAIN] = old[labels][steps : count - AGAIN]
        if labels in new:
            values[count - steps - AGAIN :] = new[labels]
        if np.isfinite(values).any():
            out[labels] = values
    return out


class Source:
    """A Prometheus server, asked by windows. Every method raises PrometheusError."""

    def __init__(self, prometheus: Prometheus, memory: Memory | None = None) -> None:
        """Take the server, and what is known of it: without that, every window is asked for."""
        self._prometheus = prometheus
        self._memory = memory

    def last_recorded(self, now: float) -> float:
        """Return at which instant the newest windows end that Prometheus has recorded, Unix time."""
        return windows.last_recorded(self._prometheus, now)

    def windows(self, expression: str, grid: Grid) -> list[Windowed]:
        """Evaluate an expression, see Grid.question, at the end of every window. Values are shared."""
        if self._memory is None:
            return windows.read(self._prometheus, expression, grid)
        return self._memory.windows(self._prometheus, expression, grid)

    def fresh(self, expression: str, grid: Grid) -> list[Windowed]:
        """Evaluate an expression at the end of every window, and remember nothing."""
        return windows.read(self._prometheus, expression, grid)

    def instant(self, expression: str, at: float) -> list[Sample]:
        """Evaluate an expression at one moment, Unix time."""
        return self._prometheus.instant(expression, at)
