"""One evaluation: everything that is said about one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vigia_compare import derived, interference, losses, readings
from vigia_compare.config import Config
from vigia_compare.evidence import FINE_WINDOW, Book, Terms
from vigia_compare.findings import Finding
from vigia_compare.levels import Level, Levels
from vigia_compare.measures import MEASURES
from vigia_compare.paths import Known, attributes
from vigia_compare.readings import Cell, Readings
from vigia_compare.source import Source
from vigia_compare.standings import Standing, standings
from vigia_compare.windows import Grid
from vigia_statistics import Interval, median_interval, minimum_detectable_loss
from vigia_statistics.samples import Floats
from vigia_statistics.sequential import QUESTIONS

__all__ = ["Evaluation", "Ledger", "PathSeries", "PathSummary", "evaluate", "renewed", "terms"]

_STORED = 5.0
"""Seconds after which a scrape is stored."""


@dataclass(frozen=True)
class PathSummary:
    """One path's metric over the period."""

    cell: Cell
    path: str
    windows: int
    median: Interval


@dataclass(frozen=True)
class PathSeries:
    """One path's metric by windows; each pair of hosts counts alike."""

    cell: Cell
    path: str
    grid: Grid
    values: Floats
    """Shape (grid.count,), in the metric's unit; NaN where nothing was measured."""


@dataclass(frozen=True)
class Evaluation:
    """What one evaluation found."""

    at: float
    findings: Sequence[Finding] = ()
    standings: Sequence[Standing] = ()
    paths: Sequence[PathSummary] = ()
    levels: Sequence[Level] = ()
    loss_floors: Mapping[tuple[Cell, str], float] = field(default_factory=dict)
    costs: Sequence[derived.Cost] = ()
    speedups: Sequence[derived.Speedup] = ()
    interference: Sequence[interference.Interference] = ()
    losses: Sequence[losses.Pinned] = ()
    end: float = 0.0
    """Unix time at which the newest window of the comparisons ends."""
    series: Sequence[PathSeries] = ()
    """Every path by windows, for charts; none where only what was said is known."""
    news: bool = False
    """Whether a path is so new that it should be looked at often."""


def terms(config: Config) -> Terms:
    """Return what evidence is counted under."""
    margins = {name: config.margins.get(name, QUESTIONS[name].margin) for name in config.metrics}
    return Terms(round(1.0 - config.confidence, 12), config.window, config.tenant, margins)


class Ledger:
    """What grows by the window: evidence on pairs, and levels of single paths."""

    def __init__(self, agreed: Terms, book: Book | None = None, levels: Levels | None = None) -> None:
        self.book = book or Book(agreed)
        self.levels = levels or Levels(agreed.margins)

    def as_data(self) -> dict[str, object]:
        """Return everything as JSON holds it."""
        return {"evidence": self.book.as_data(), "levels": self.levels.as_data()}

    @classmethod
    def from_data(cls, data: object, agreed: Terms) -> Ledger:
        """Go on where ``as_data`` stopped. Raises ValueError where data are not such, or of other terms."""
        if not isinstance(data, dict) or set(data) != {"evidence", "levels"}:
            raise ValueError("it is damaged: evidence or levels are missing")
        book = Book.from_data(data["evidence"], agreed)
        return cls(agreed, book, Levels.from_data(data["levels"], agreed.margins))

    def reset(self, path: str = "") -> int:
        """Begin anew with a path, or with all; return with how many pairs."""
        self.levels.reset(path)
        return self.book.reset(path)


def evaluate(source: Source, config: Config, now: float, ledger: Ledger) -> Evaluation:
    """Ask Prometheus and compute. Raises PrometheusError; then the ledger is as before."""
    end = source.last_recorded(now)
    grid = Grid.before(end, config.window, config.period)
    short = Grid.before(end, config.attribution_window, config.attribution_period)
    known = attributes(source, grid)
    new = ledger.book.news(known, now)
    # All is asked for before anything is taken in: what fails in the middle is asked for again as a whole.
    found = [readings.recorded(source, MEASURES[name], config.tenant, grid, known) for name in config.metrics]
    fine = _finest(source, config, now, known, ledger.book)
    harmed, lossy = interference.find(source, short, now), losses.find(source, short, known)
    if fine:
        ledger.book.take(fine, known, fine=True)
        ledger.book.fine_seen = fine[0].grid.end
    ledger.book.take(found, known, fine=False)
    ledger.levels.take(found, known)
    series = _series(found)
    paths, usual = _summaries(series, config.confidence)
    said = ledger.book.findings(now, usual, grid.start - grid.window)
    return Evaluation(
        at=now,
        findings=said,
        standings=standings(said),
        paths=paths,
        levels=ledger.levels.changed(now),
        loss_floors=_loss_floors(found),
        costs=derived.costs(said, known),
        speedups=derived.speedups(said, known),
        interference=harmed,
        losses=lossy,
        end=grid.end,
        series=series,
        news=new,
    )


def _finest(source: Source, config: Config, now: float, known: Known, book: Book) -> list[Readings]:
    """Read the windows of seconds that are new; none of a metric that has no raw series."""
    end = (now - _STORED) // FINE_WINDOW * FINE_WINDOW
    count = int(book.finest(end) // FINE_WINDOW)
    if count < 1:
        return []
    grid = Grid(end, FINE_WINDOW, count)
    asked = [MEASURES[name] for name in config.metrics if MEASURES[name].fine]
    return [readings.finest(source.fresh, m, config.tenant, grid, known) for m in asked]


def _series(found: Sequence[Readings]) -> list[PathSeries]:
    """Return each path by windows that any of its hosts has a value of."""
    out = []
    for r in found:
        for cell, paths in sorted(r.cells.items()):
            for path, by_hosts in sorted(paths.items()):
                values = _means(np.array(list(by_hosts.values())))
                if np.isfinite(values).any():
                    out.append(PathSeries(cell, path, r.grid, values))
    return out


def _summaries(
    series: Sequence[PathSeries], confidence: float
) -> tuple[list[PathSummary], dict[tuple[Cell, str], float]]:
    """Return each path over the period, and its median by cell and path."""
    out: list[PathSummary] = []
    for s in series:
        values = s.values[np.isfinite(s.values)]
        out.append(PathSummary(s.cell, s.path, values.size, median_interval(values, confidence)))
    return out, {(p.cell, p.path): p.median.estimate for p in out}


def _means(values: Floats) -> Floats:
    """Return means over hosts, shape (hosts, windows) to (windows,); NaN where no host has a value."""
    known = np.isfinite(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _loss_floors(found: Sequence[Readings]) -> dict[tuple[Cell, str], float]:
    """Return the minimum detectable loss by cell and path."""
    sent = {
        (cell, path): sum(float(np.nansum(v)) for v in by_hosts.values())
        for r in found
        for cell, paths in r.sent.items()
        for path, by_hosts in paths.items()
    }
    return {key: minimum_detectable_loss(n) for key, n in sorted(sent.items()) if n > 0.0}


def renewed(found: Evaluation, source: Source, config: Config, now: float) -> Evaluation:
    """Return an evaluation with what is known by now of who hurts whom. Raises PrometheusError."""
    short = Grid.before(found.end, config.attribution_window, config.attribution_period)
    return replace(found, interference=interference.renewed(found.interference, source, now, short))
