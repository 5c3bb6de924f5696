"""Each path by itself: did its own level change for good? With few false alarms a month."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from vigia_compare.measures import MEASURES
from vigia_compare.paths import Known
from vigia_compare.readings import Cell, Hosts, Readings
from vigia_compare.windows import Grid
from vigia_statistics.samples import Floats
from vigia_statistics.sequential import QUESTIONS, Change, Detector, Question

__all__ = ["FALSE_ALARMS", "Level", "Levels"]

FALSE_ALARMS = 0.1
"""False alarms a month and path, at most on average."""

MAX_LEVELS = 2000
"""Series that are watched."""

_KEPT = 2 * 86400.0
"""Seconds for which a series that is measured no more is remembered."""


@dataclass(frozen=True)
class Level:
    """A path between two hosts whose level is not the usual one any more."""

    cell: Cell
    path: str
    hosts: Hosts
    change: Change


@dataclass
class _Series:
    cell: Cell
    path: str
    hosts: Hosts
    fingerprint: str
    detector: Detector
    seen: float


def _key(cell: Cell, path: str, hosts: Hosts) -> str:
    return json.dumps([cell.metric, cell.placement, cell.machines, cell.probe, path, *hosts])


def _give(one: _Series, grid: Grid, values: Floats) -> None:
    """Give a series the windows that it has not seen."""
    for i in range(max(0, math.floor((one.seen - grid.start) / grid.window)), grid.count):
        at, value = grid.start + i * grid.window, float(values[i])
        if at > one.seen + 0.5 and math.isfinite(value) and value >= 0.0:
            one.detector.update(at, value)
            one.seen = at


class Levels:
    """All detectors of a site. Belongs to one thread."""

    def __init__(self, margins: Mapping[str, float]) -> None:
        self._margins = margins
        self._series: dict[str, _Series] = {}

    def take(self, readings: Sequence[Readings], known: Known) -> None:
        """Take windows that are new, oldest first; a path that was configured anew is learned anew."""
        for r in readings:
            for cell, paths in r.cells.items():
                if MEASURES[cell.metric].runs:
                    continue
                for path, by_hosts in paths.items():
                    for hosts, values in by_hosts.items():
                        one = self._of(cell, path, hosts, known, r.grid.start - r.grid.window)
                        if one is not None:
                            _give(one, r.grid, values)

    def _of(self, cell: Cell, path: str, hosts: Hosts, known: Known, start: float) -> _Series | None:
        begun = max(start, known.since(hosts[0], path))
        fingerprint = known.of(hosts[0], path).fingerprint
        key = _key(cell, path, hosts)
        one = self._series.get(key)
        if one is None:
            if len(self._series) >= MAX_LEVELS:
                return None
            detector = Detector(self._question(cell.metric), begun)
            one = self._series[key] = _Series(cell, path, hosts, fingerprint, detector, begun)
        elif one.fingerprint != fingerprint:
            one.fingerprint, one.seen = fingerprint, max(begun, one.seen)
            one.detector.reset(one.seen)
        return one

    def _question(self, metric: str) -> Question:
        return replace(QUESTIONS[metric], margin=self._margins[metric])

    def changed(self, at: float) -> list[Level]:
        """Return the paths whose level changed; the series that nobody measures any more are forgotten."""
        self._series = {k: s for k, s in self._series.items() if at - s.seen <= _KEPT}
        found = [
            Level(s.cell, s.path, s.hosts, s.detector.change)
            for s in self._series.values()
            if s.detector.change
        ]
        return sorted(found, key=lambda f: (f.cell, f.path, f.hosts))

    def reset(self, path: str = "") -> None:
        """Take what is now for usual, of a path or of all."""
        for s in self._series.values():
            if path in ("", s.path):
                s.detector.reset(s.seen)

    def as_data(self) -> dict[str, Any]:
        """Return everything as JSON holds it."""
        return {
            k: {"fingerprint": s.fingerprint, "seen": s.seen, "detector": s.detector.as_data()}
            for k, s in self._series.items()
        }

    @classmethod
    def from_data(cls, data: Any, margins: Mapping[str, float]) -> Self:
        """Go on where ``as_data`` stopped. Raises ValueError where data are not such."""
        found = cls(margins)
        try:
            for key, kept in data.items():
                metric, placement, machines, probe, path, src, dst = json.loads(key)
                if metric not in MEASURES or len(found._series) >= MAX_LEVELS:
                    raise ValueError("it is damaged: a level of an unknown metric, or too many of them")
                detector = Detector.from_data(found._question(metric), kept["detector"])
                cell = Cell(metric, placement, machines, probe)
                seen, fingerprint = float(kept["seen"]), str(kept["fingerprint"])
                if not math.isfinite(seen):
                    raise ValueError("it is damaged: a level lacks its time")
                found._series[key] = _Series(cell, path, (src, dst), fingerprint, detector, seen)
        except (KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"it is damaged: {e}") from e
        return found
