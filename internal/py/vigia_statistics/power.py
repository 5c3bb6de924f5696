"""Whether a plan can separate what it wants to: by simulation, with the interval that will decide."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vigia_statistics.paired import tukey_rank
from vigia_statistics.samples import checked_confidence

_SETS = 2000
_CELLS = 4_000_000  # numbers in memory at a time


@dataclass(frozen=True)
class Power:
    """Parts of simulated campaigns in which the interval of the effect lies where it should."""

    separates: float
    """With the effect there: the whole interval lies beyond the margin, on its side."""
    equivalent: float
    """Without any effect: the whole interval lies within the margin."""


def signed_rank_power(  # noqa: PLR0913 - a plan has this many parts
    n: int, effect: float, deviation: float, *, margin: float = 0.0, confidence: float = 0.95, seed: int = 1
) -> Power:
    """Simulate n normal values of a contrast, 2000 times, and judge each by Tukey's interval (signed_rank).

    effect, deviation and margin are in the contrast's unit. Both parts are 0 where n is too small for an
    interval of that confidence.
    """
    checked_confidence(confidence)
    if n < 1 or deviation <= 0.0 or effect <= 0.0 or margin < 0.0:
        raise ValueError(
            f"n, effect, deviation, margin: {n}, {effect}, {deviation}, {margin}; "
            "need n >= 1, effect and deviation above 0, margin at least 0"
        )
    rank, attained = tukey_rank(n, confidence)
    if attained < confidence:
        return Power(0.0, 0.0)
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(n)
    count = first.size
    separated = equivalent = 0
    batch = max(1, _CELLS // count)
    for begin in range(0, _SETS, batch):
        noise = rng.normal(0.0, deviation, (min(batch, _SETS - begin), n))
        walsh = np.partition((noise[:, first] + noise[:, second]) / 2, (rank - 1, count - rank), axis=1)
        lower, upper = walsh[:, rank - 1], walsh[:, count - rank]
        separated += int((lower + effect > margin).sum())
        equivalent += int(((lower >= -margin) & (upper <= margin)).sum())
    return Power(separated / _SETS, equivalent / _SETS)


def smallest_number(  # noqa: PLR0913
    wanted: float,
    effect: float,
    deviation: float,
    *,
    margin: float = 0.0,
    confidence: float = 0.95,
    most: int = 200,
) -> int | None:
    """Return the smallest n with which the effect is separated with probability wanted; None above most."""
    if effect <= margin:
        return None

    def enough(n: int) -> bool:
        found = signed_rank_power(n, effect, deviation, margin=margin, confidence=confidence)
        return found.separates >= wanted

    low, high = 0, _first_guess(effect - margin, deviation, most)
    while not enough(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _first_guess(distance: float, deviation: float, most: int) -> int:
    return max(1, min(most, math.ceil(16 * (deviation / distance) ** 2)))
