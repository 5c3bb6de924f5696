"""A figure of ours beside a peer's: ratio with its interval, verdict, and how a cost grows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

__all__ = ["LESS", "MORE", "Exponent", "Figure", "Growth", "Ratio", "exponent", "ratio"]

LESS, MORE = "less", "more"
"""Which way is better."""

RESAMPLES = 2000
SEED = 1
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Figure:
    """One line of the table: the values are of repetitions."""

    part: str
    what: str
    unit: str
    ours: Sequence[float]
    peer: str = ""
    theirs: Sequence[float] = ()
    """Empty where the peer is missing or cannot do it: the note says which."""
    better: str = LESS
    note: str = ""
    most: float | None = None
    """The ratio that is promised; beyond it the note has to explain."""
    exact: bool = False
    """A count or a length, which one measurement settles."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Figure:
        """Return what a JSON document says. Raises TypeError for one of another shape."""
        return cls(**document)

    def verdict(self) -> str:
        """Return in words who is better; intervals that hold 1 decide nothing."""
        found = None if self.exact else ratio(self.ours, self.theirs)
        if found is None:
            return _absolute(self) if _known(self.theirs) and _known(self.ours) else ""
        if math.isnan(found.low):
            return "n is too small to tell"
        if found.low <= 1 <= found.high:
            return "no difference seen"
        ours = (found.high < 1) == (self.better == LESS)
        return "ours is better" if ours else "the peer is better"


def _absolute(figure: Figure) -> str:
    """Say who is better by the medians alone: the peer's is 0, or they are exact."""
    ours, theirs = statistics.median(_known(figure.ours)), statistics.median(_known(figure.theirs))
    if ours == theirs:
        return "no difference"
    return "the peer is better" if (ours > theirs) == (figure.better == LESS) else "ours is better"


@dataclass(frozen=True)
class Ratio:
    """Ours by the peer's, of medians, with its interval."""

    value: float
    low: float
    high: float


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio | None:
    """Return the ratio of the medians; the interval is a percentile bootstrap's, not a number below three of each.

    None: there is no ratio, for one side has no values or the peer's median is 0.
    """
    ours, theirs = _known(ours), _known(theirs)
    if not ours or not theirs or not statistics.median(theirs):
        return None
    value = statistics.median(ours) / statistics.median(theirs)
    if min(len(ours), len(theirs)) < 3:
        return Ratio(value, math.nan, math.nan)
    generator = np.random.default_rng(SEED)
    drawn = [np.median(generator.choice(side, (RESAMPLES, len(side))), axis=1) for side in (ours, theirs)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = drawn[0] / drawn[1]
    low, high = np.nanquantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Ratio(value, float(low), float(high))


def _known(values: Sequence[float]) -> list[float]:
    return [v for v in values if not math.isnan(v)]


@dataclass(frozen=True)
class Exponent:
    """The slope of a cost on log-log axes: cost ~ unit ** value."""

    value: float
    low: float
    high: float
    n: int
    """Points that it was fitted to."""


def exponent(points: Sequence[tuple[float, float]]) -> Exponent | None:
    """Fit a cost's exponent by least squares of logarithms; None with fewer than three sizes.

    The interval is Student's for the slope. Points that are not positive have no logarithm and are left out.
    """
    kept = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in kept}) < 3:
        return None
    xs, ys = zip(*kept, strict=True)
    fit = stats.linregress(xs, ys)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(kept) - 2)) * float(fit.stderr)
    return Exponent(float(fit.slope), float(fit.slope) - half, float(fit.slope) + half, len(kept))


@dataclass(frozen=True)
class Growth:
    """What something costs at several sizes."""

    part: str
    what: str
    unit: str
    of: str
    """What the sizes count."""
    points: Mapping[int, Sequence[float]]
    note: str = ""
    """Why it grows faster than its unit, where it does."""

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Growth:
        """Return what a JSON document says, whose sizes are text. Raises TypeError for one of another shape."""
        return cls(**{**document, "points": {int(k): v for k, v in document["points"].items()}})

    def fitted(self) -> Exponent | None:
        """Return the exponent over all sizes."""
        return exponent([(size, value) for size, values in self.points.items() for value in values])

    def last(self) -> float:
        """Return the exponent between the two largest sizes, where what is fixed weighs least."""
        sizes = sorted(s for s, values in self.points.items() if values)
        if len(sizes) < 2:
            return math.nan
        low, high = (statistics.median(self.points[s]) for s in sizes[-2:])
        return math.log(high / low) / math.log(sizes[-1] / sizes[-2]) if low > 0 and high > 0 else math.nan

    def verdict(self) -> str:
        """Say whether it grows faster than its unit: only if the whole interval is above 1."""
        found = self.fitted()
        if found is None:
            return "too few sizes"
        if found.low > 1:
            return "faster than its unit" + ("" if self.note else ": NOT EXPLAINED")
        return "slower than its unit" if found.high < 1 else "as its unit, as far as can be told"
