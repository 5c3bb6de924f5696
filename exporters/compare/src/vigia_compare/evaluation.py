"""One evaluation: everything that is said about one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vigia_compare import derived, engine, interference, losses
from vigia_compare.config import Config
from vigia_compare.measures import MEASURES
from vigia_compare.source import Source
from vigia_compare.windows import Grid

__all__ = ["Evaluation", "evaluate", "renewed"]


@dataclass(frozen=True)
class Evaluation:
    """What one evaluation found."""

    at: float
    groups: Sequence[engine.Group] = ()
    loss_floors: Mapping[tuple[str, str, str], float] | None = None
    costs: Sequence[derived.Cost] = ()
    speedups: Sequence[derived.Speedup] = ()
    interference: Sequence[interference.Interference] = ()
    losses: Sequence[losses.Pinned] = ()
    end: float = 0.0
    """Unix time at which the newest window of the comparisons ends."""


def evaluate(source: Source, config: Config, now: float) -> Evaluation:
    """Ask Prometheus and compute. Raises PrometheusError; then nothing is known."""
    end = source.last_recorded(now)
    grid = Grid.before(end, config.window, config.period)
    short = Grid.before(end, config.attribution_window, config.attribution_period)
    known = engine.attributes(source, grid)
    groups: list[engine.Group] = []
    for name in config.metrics:
        groups += engine.compare_measure(
            source,
            MEASURES[name],
            config.tenant,
            grid,
            known,
            config.minimum_windows,
            config.confidence,
        )
    delays = [g for g in groups if g.measure.name == "rtt"]
    return Evaluation(
        at=now,
        groups=groups,
        loss_floors=engine.loss_floors(source, config.tenant, grid, known),
        costs=[c for g in delays for c in derived.costs(g, known)],
        speedups=[s for g in delays for s in derived.speedups(g, known, config.confidence)],
        interference=interference.find(source, short, now),
        losses=losses.find(source, short),
        end=grid.end,
    )


def renewed(found: Evaluation, source: Source, config: Config, now: float) -> Evaluation:
    """Return an evaluation with what is known by now of who hurts whom. Raises PrometheusError."""
    short = Grid.before(found.end, config.attribution_window, config.attribution_period)
    return replace(found, interference=interference.renewed(found.interference, source, now, short))
