"""From windows to units that do not depend on each other."""

from __future__ import annotations

import math

import numpy as np

from vigia_statistics.samples import Floats

__all__ = ["block_size", "independent", "lag_one", "merged", "midranks", "runs"]

RARE_UNITS = 20
"""Units into which the windows of a rare event are merged."""


def lag_one(values: Floats) -> float:
    """Return the lag-1 autocorrelation of the ranks, 0 for fewer than 8 values."""
    if values.size < 8:
        return 0.0
    ranks = midranks(values)
    ranks -= ranks.mean()
    spread = float((ranks**2).sum())
    return float((ranks[1:] * ranks[:-1]).sum()) / spread if spread > 0.0 else 0.0


def midranks(values: Floats) -> Floats:
    """Return the ranks of values, equal ones sharing the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[inverse], dtype=np.float64)


def merged(values: Floats, size: int) -> Floats:
    """Return the means of blocks of ``size`` neighbours; the oldest that fill no block are left out."""
    count = values.size // size
    return np.asarray(values[values.size - count * size :].reshape(count, size).mean(axis=1))


def block_size(values: Floats) -> int:
    """Return how many neighbours to merge so that blocks hardly depend on each other.

    Twice the integrated autocorrelation time of a first-order process,
    (1 + r) / (1 - r); 1 where r is within chance (r sqrt(n) under 1.64).
    """
    r = lag_one(values)
    if r * math.sqrt(values.size) < 1.64:
        return 1
    r = min(r, 0.95)
    return math.ceil(2.0 * (1.0 + r) / (1.0 - r))


def runs(values: Floats) -> Floats:
    """Return one value per run of equal neighbours: a gauge repeats its last run until the next."""
    if values.size == 0:
        return values
    return np.asarray(values[np.concatenate([[True], values[1:] != values[:-1]])])


def independent(a: Floats, b: Floats, rare: bool) -> tuple[Floats, Floats]:
    """Return both samples merged alike, so that their units hardly depend on each other."""
    size = max(block_size(a), block_size(b))
    if rare:
        size = max(size, min(a.size, b.size) // RARE_UNITS, 1)
    size = max(
        1, min(size, a.size // 2, b.size // 2)
    )  # two units at least: then it is said that they are too few
    return merged(a, size), merged(b, size)
