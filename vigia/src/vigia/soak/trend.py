"""Whether a noisy series grows: a robust slope and the interval that it lies in.

The slope is the median of the slopes between all pairs of points (Theil, 1950;
Sen, 1968), so a spike or a step in between moves it little. Its interval comes from the
variance of Kendall's statistic. Both take points for independent. Samples a few
seconds apart are not, so the points are medians of blocks as long as the churn
repeats itself, and what dependence is left among them widens the interval by
(1 + r) / (1 - r), r being the correlation of the ranks of neighbouring residuals
(as for Mann and Kendall's test: Hamed and Rao, 1998; here with one lag).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

__all__ = ["CONFIDENCE", "FEWEST_BLOCKS", "TooFewError", "Trend", "blocks_of", "trend"]

Floats = NDArray[np.float64]

CONFIDENCE = 0.99
FEWEST_BLOCKS = 8
_FEWEST_SAMPLES = 3
"""Samples without which a block has no median worth the name."""
_MOST_DEPENDENCE = 0.9


class TooFewError(ValueError):
    """There are not enough samples to say anything."""


@dataclass(frozen=True)
class Trend:
    """A slope in units an hour, and the interval in which the true one lies."""

    slope: float
    lower: float
    """-inf where there are too few blocks for that confidence."""
    upper: float
    blocks: int
    dependence: float
    """Correlation between neighbouring blocks that the interval allows for."""


def blocks_of(hours: Floats, values: Floats, block: float) -> tuple[Floats, Floats]:
    """Return times and medians of blocks of so many hours; blocks with next to no samples are left out."""
    if not block > 0:
        raise ValueError(f"block is {block:g}; it is a length in hours above 0")
    if hours.size == 0:
        return hours, values
    number = np.floor((hours - hours[0]) / block + 1e-9).astype(np.int64)
    kept = [n for n in np.unique(number) if np.count_nonzero(number == n) >= _FEWEST_SAMPLES]
    times = np.array([np.median(hours[number == n]) for n in kept])
    medians = np.array([np.median(values[number == n]) for n in kept])
    return times, medians


def trend(hours: Floats, values: Floats, block: float) -> Trend:
    """Return the trend of samples at times in hours, by medians of blocks of so many hours.

    If there are too few such blocks, shorter ones are taken. Raises TooFewError, and
    ValueError for samples that are not finite or not in order.
    """
    if hours.shape != values.shape or hours.ndim != 1:
        raise ValueError(f"hours has the shape {hours.shape} and values {values.shape}; write one each")
    if not (np.isfinite(hours).all() and np.isfinite(values).all()) or (np.diff(hours) <= 0).any():
        raise ValueError("hours or values are not finite, or hours do not increase")
    if hours.size < FEWEST_BLOCKS * _FEWEST_SAMPLES:
        raise TooFewError(f"{hours.size} samples; {FEWEST_BLOCKS * _FEWEST_SAMPLES} are needed")
    span = float(hours[-1] - hours[0]) * (1 + 1e-9)
    times, medians = blocks_of(hours, values, min(block, span / FEWEST_BLOCKS))
    if times.size < FEWEST_BLOCKS:
        raise TooFewError(f"{times.size} blocks with samples; {FEWEST_BLOCKS} are needed")
    return _sen(times, medians)


def _sen(x: Floats, y: Floats) -> Trend:
    first, second = np.triu_indices(x.size, k=1)
    slopes = np.sort((y[second] - y[first]) / (x[second] - x[first]))
    slope = float(np.median(slopes))
    dependence = _dependence(y - slope * x)
    spread = _variance(y) * (1 + dependence) / (1 - dependence)
    reach = float(special.ndtri((1 + CONFIDENCE) / 2)) * math.sqrt(spread)
    low = math.floor((slopes.size - reach) / 2)
    lower, upper = (float(slopes[low]), float(slopes[-1 - low])) if low >= 0 else (-math.inf, math.inf)
    return Trend(slope, lower, upper, x.size, dependence)


def _variance(y: Floats) -> float:
    """Return the variance of Kendall's statistic without a trend, values that are equal counted as such."""
    n = y.size
    _, ties = np.unique(y, return_counts=True)
    return float(n * (n - 1) * (2 * n + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18


def _dependence(residuals: Floats) -> float:
    """Return the correlation of the ranks of neighbours, from 0 to what can still be allowed for."""
    ranks = stats.rankdata(residuals)
    centred = ranks - ranks.mean()
    square = float(centred @ centred)
    if square == 0:
        return 0.0
    return min(_MOST_DEPENDENCE, max(0.0, float(centred[1:] @ centred[:-1]) / square))
